// Sparse times dense product + bias + activation. Compiled once for each instruction-set level.
//
// Layout     B (inner, width) by rows. A panel is one tile of columns of one B, copied into (inner, tile) aligned
//            float32 of the thread: rows of B lie 2^k bytes apart in many networks, so that those of one tile share few
//            sets of the cache, and a float16 is converted there once. Where few nonzeros use each row of B the copy
//            costs more than it saves, and whole tiles are read where they lie (`packed` false).
// Algorithm  A row of a panel is `tile` sums in registers: for each nonzero, value x row of the panel. Rows that are
//            short of vectors go several at a time, so that at least 8 multiply-adds are on their way. Vectors are as
//            narrow as B is: of 8, 4 and 1 floats below 9, 5 and 2 columns. Where the columns of B and C are rows in
//            memory (`by_rows`), a panel is the transpose of some rows, and kBlock rows of a panel of C at a time are
//            computed next to each other, and turned over into C from L1.
// Order      Even and odd nonzeros of a row are summed apart, in ascending columns, whatever the tile, the rows
//            together and the width of a vector: bits depend on the level's multiply-adds (fused or not) alone.
// Threads    spmm_parts.hpp: parts of equal work, cut between rows and, where a row is long, between its vectors.
// Bound      A nonzero x 64 columns is 256 bytes of the panel and one broadcast. One core of the machine that this was
//            written on (Zen 5, AVX-512) loads 503 GB/s from L1, 190 to 240 from L2 and multiplies and adds 124e9 times
//            a second (`machine`): 100e9 a second are possible with a panel in L1, 47 to 60e9 in L2, where most are
//            (inner 512: 128 KiB). Measured: 42 to 46e9 at 80 and 90 %, inner 512; 35e9 at 98 %, 10 nonzeros a row.
//            Splitting `inner` so that panels stay in L1 can gain a tenth (80 %, inner 128 instead of 512) before sums
//            are carried from part to part, and was left out; so were, without a gain: rows of B and C fetched ahead,
//            four nonzeros in a step of the loop, huge pages.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section V: one-dimensional
//            tiling, row swizzle, residue handling, with a CPU's caches and vectors in place of a GPU's.
#include "spmm_parts.hpp"
#include "team.hpp"
#include "transposed.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <type_traits>

namespace spdnn {
namespace SPDNN_LEVEL {
namespace {

constexpr int kMostVectors =
    kLanes == 16 ? 8 : 4;  // of one row at a time: with two partial sums, half of the registers

thread_local KeptMemory scratch;

// What the rows of one panel are computed from and into.
struct Panel {
    const SpmmProblem* problem;
    const float* b;  // of the first column, row 0 of B
    int64_t stride;  // floats between rows of b
    const void* values;
    float* converted;       // room for the values of rows together, from float16
    char* c;                // of the first column, row `row` of C
    int64_t row, c_stride;  // numbers between rows of c
    bool half;              // whether c has 16 bits
    int64_t width;          // columns
    int64_t column;         // of the problem, of the first
};

// Lanes where something was seen.
template <class V>
using NanMask = decltype(V{} != V{});

// Bias and activation of one vector, and whether a sum was NaN.
template <class V>
inline V activated(V y, V low, V high, NanMask<V>& nan) {
    nan |= y != y;
    y = y < low ? low : y;
    return y > high ? high : y;
}

template <class V>
inline void store_one(char* to, V y, bool half) {
    if (half) store(reinterpret_cast<Half*>(to), y);
    else store(reinterpret_cast<float*>(to), y);
}

// The first `count` lanes.
template <class V>
inline void store_some(char* to, V y, int64_t count, bool half) {
    if (count == lanes<V>) return store_one(to, y, half);
    // A partial vector at the edge of C: lane by lane, so that nothing behind it is overwritten.
    float floats[lanes<V>];
    store(floats, y);
    for (int64_t i = 0; i < count; ++i)
        store_one<float>(to + i * (half ? sizeof(Half) : sizeof(float)), floats[i], half);
}

template <class V>
inline bool any(const V& seen) {
    if constexpr (sizeof(V) <= 4) {
        return seen;
    } else {
        bool result = false;
        for (size_t i = 0; i < sizeof(V) / 4; ++i) result |= seen[i] != 0;
        return result;
    }
}

// values <- those of a row, as float32.
inline void convert(const Half* from, int64_t edges, float* values) {
    int64_t e = 0;
    for (; e + kLanes <= edges; e += kLanes) store(values + e, load<Vec>(from + e));
    for (; e < edges; ++e) values[e] = float_of(from[e]);
}

constexpr int kMostRows = 4;
constexpr int64_t kAhead = 4;  // rows

// The nonzeros of rows that go together.
template <int kRows, class Index>
struct Edges {
    const Index* columns[kRows];
    const float* values[kRows];
    int64_t count[kRows], common;  // that every row has

    inline __attribute__((always_inline)) Edges(const Panel& panel, const int32_t* rows)
        : common(panel.problem->pattern.width) {
        const SpmmProblem& p = *panel.problem;
        // Pointers to the rows' nonzeros; float16 values are converted once for all vectors of this pass.
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            const int64_t at = p.pattern.offsets[rows[r]];
            count[r] = p.pattern.offsets[rows[r] + 1] - at;
            common = std::min(common, count[r]);
            columns[r] = static_cast<const Index*>(p.pattern.columns) + at;
            values[r] = p.half ? panel.converted + r * p.pattern.width : static_cast<const float*>(panel.values) + at;
            if (p.half)
                convert(static_cast<const Half*>(panel.values) + at, count[r], panel.converted + r * p.pattern.width);
        }
    }
};

// Rows lie anywhere, so that the processor does not foresee the next.
template <class Index>
inline void fetch_ahead(const Panel& panel, int32_t row) {
    const int64_t at = panel.problem->pattern.offsets[row];
    __builtin_prefetch(static_cast<const Index*>(panel.problem->pattern.columns) + at);
    __builtin_prefetch(static_cast<const char*>(panel.values) +
                       at * (panel.problem->half ? sizeof(Half) : sizeof(float)));
}

// Bias, activation and store of kVectors vectors from sums of even and odd nonzeros; `last`: lanes of the last vector.
template <class V, int kVectors>
inline __attribute__((always_inline)) void finish(const Panel& panel, const V (&even)[kVectors],
                                                  const V (&odd)[kVectors], int32_t row, char* to, int64_t last,
                                                  NanMask<V>& nan) {
    const SpmmProblem& p = *panel.problem;
    const V bias = broadcast_as<V>(p.bias[row]), low = broadcast_as<V>(p.low), high = broadcast_as<V>(p.high);
    const int64_t bytes = panel.half ? sizeof(Half) : sizeof(float);
    to += (row - panel.row) * panel.c_stride * bytes;
    // Epilogue in registers: add the partial sums and the bias, clamp, store. Only the last vector may be partial.
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v, to += lanes<V> * bytes) {
        const V y = activated<V>(even[v] + odd[v] + bias, low, high, nan);
        if (v + 1 < kVectors) store_one(to, y, panel.half);
        else store_some(to, y, last, panel.half);
    }
}

// kVectors vectors of a panel from vector `first` on, of the rows order[from .. to), kRows at a time; whether one was
// NaN.
template <class V, int kVectors, int kRows, class Index>
bool rows_of(const Panel& panel, int64_t from, int64_t to, int64_t first) {
    static_assert(kRows <= kMostRows, "there is room for the values of so many rows");
    const SpmmProblem& p = *panel.problem;
    const int64_t stride = panel.stride * sizeof(float), column = first * lanes<V>;
    const int64_t last = std::min<int64_t>(lanes<V>, panel.width - column - (kVectors - 1) * lanes<V>);
    const char* const b = reinterpret_cast<const char*>(panel.b + column);
    char* const c = panel.c + column * (panel.half ? sizeof(Half) : sizeof(float));
    NanMask<V> nan = {};
    for (; from + kRows <= to; from += kRows) {
        const int32_t* const rows = p.pattern.order + from;
        // Prefetch the nonzeros of rows that come kAhead later.
        for (int64_t next = from + kAhead; next < std::min(from + kAhead + kRows, to); ++next)
            fetch_ahead<Index>(panel, p.pattern.order[next]);
        const Edges<kRows, Index> edges(panel, rows);
        // Register tile: kRows x kVectors accumulators, twice for even and odd nonzeros.
        V even[kRows][kVectors] = {}, odd[kRows][kVectors] = {};
        auto add = [&](V(&sum)[kVectors], int r, int64_t e) __attribute__((always_inline)) {
            // Gather a row of the panel: one broadcast value serves kVectors multiply-adds.
            const float* row = reinterpret_cast<const float*>(b + static_cast<int64_t>(edges.columns[r][e]) * stride);
            const V value = broadcast_as<V>(edges.values[r][e]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sum[v] += value * load<V>(row + v * lanes<V>);
        };
        // Rows advance together over the nonzeros that each has: independent chains hide the latency of the sums.
        int64_t e = 0;
        for (; e + 2 <= edges.common; e += 2)
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) add(even[r], r, e), add(odd[r], r, e + 1);
        // Remainders row by row in the same order, then the epilogue while the sums are in registers.
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            int64_t rest = e;
            if (kRows > 1)
                for (; rest + 2 <= edges.count[r]; rest += 2) add(even[r], r, rest), add(odd[r], r, rest + 1);
            if (rest < edges.count[r]) add(even[r], r, rest);
            finish<V, kVectors>(panel, even[r], odd[r], rows[r], c, last, nan);
        }
    }
    bool any_nan = any(nan);
    // Fewer than kRows rows are left: one at a time.
    if constexpr (kRows > 1)
        if (from < to) any_nan |= rows_of<V, kVectors, 1, Index>(panel, from, to, first);
    return any_nan;
}

// Rows together: as many as half of the registers hold two partial sums of.
constexpr int rows_together(int vectors) { return vectors == 1 ? 4 : std::max(1, kMostVectors / vectors); }

// Vectors first .. last - 1 of the rows order[from .. to); whether one was NaN.
template <class V, class Index>
bool vectors_of(const Panel& panel, int64_t from, int64_t to, int64_t first, int64_t last) {
    // The number of vectors is a template argument, so that the accumulators are registers.
    auto some = [&](auto count) __attribute__((always_inline)) {
        constexpr int kVectors = decltype(count)::value;
        if constexpr (kVectors <= kMostVectors && (sizeof(V) == sizeof(Vec) || kVectors == 1))
            return rows_of<V, kVectors, rows_together(kVectors), Index>(panel, from, to, first);
        else return false;  // there are no tiles of so many of such vectors
    };
    bool nan = false;
    // Passes of kMostVectors, then the remainder in one pass of its own size.
    for (; first < last; first += kMostVectors) switch (std::min<int64_t>(kMostVectors, last - first)) {
            case 1: nan |= some(std::integral_constant<int, 1>{}); break;
            case 2: nan |= some(std::integral_constant<int, 2>{}); break;
            case 3: nan |= some(std::integral_constant<int, 3>{}); break;
            case 4: nan |= some(std::integral_constant<int, 4>{}); break;
            case 5: nan |= some(std::integral_constant<int, 5>{}); break;
            case 6: nan |= some(std::integral_constant<int, 6>{}); break;
            case 7: nan |= some(std::integral_constant<int, 7>{}); break;
            case 8: nan |= some(std::integral_constant<int, 8>{}); break;
        }
    return nan;
}

template <class Index>
bool vectors_of(const Panel& panel, int64_t lanes_used, int64_t from, int64_t to, int64_t first, int64_t last) {
    if (lanes_used == kLanes) return vectors_of<Vec, Index>(panel, from, to, first, last);
    if (lanes_used == 1) return vectors_of<float, Index>(panel, from, to, first, last);
    if (lanes_used == 4) return vectors_of<Quarter, Index>(panel, from, to, first, last);
    return vectors_of<Octet, Index>(panel, from, to, first, last);
}

// to (inner, stride) <- `width` columns of B from `from` on. The columns past them become the last one once more, not
// zero: an infinite value times zero would be a NaN that is in no result.
template <class T>
void pack(const T* from, int64_t inner, int64_t row, int64_t width, float* to, int64_t stride) {
    for (int64_t k = 0; k < inner; ++k, from += row, to += stride) {
        // One row of B: whole vectors, the remainder, padding to the stride.
        int64_t n = 0;
        for (; n + kLanes <= width; n += kLanes) store(to + n, load<Vec>(from + n));
        for (; n < width; ++n) to[n] = load<float>(from + n);
        for (; n < stride; ++n) to[n] = to[width - 1];
    }
}

// The panel of that number, from memory of this thread unless B itself will do.
Panel make_panel(const SpmmProblem& p, const Tiles& tiles, int64_t number, float* memory, float* converted) {
    // The number of a panel is batch entry x tiles + tile.
    const int64_t batch = number / tiles.count, tile = number % tiles.count, column = tiles.first(tile) * tiles.lanes;
    const int64_t stride = tiles.vectors_of(tile) * tiles.lanes, width = std::min(stride, p.width - column);
    const int64_t bytes = p.half ? sizeof(Half) : sizeof(float);
    const int64_t inner = p.pattern.width, rows = p.pattern.rows;
    // A convolution reads the image in place: columns are offsets in floats, so the stride is 1.
    if (p.pitch)
        return {&p,      static_cast<const float*>(p.b) + batch * p.b_stride + column,
                1,       p.values,
                nullptr, static_cast<char*>(p.c) + batch * rows * (p.width / p.pitch) * p.used * bytes,
                0,       stride,
                false,   width,
                column};
    // Where the tile begins in B; by rows, a column of the product is a row in memory.
    const char* from =
        static_cast<const char*>(p.b) + (batch * inner * p.width + column * (p.by_rows ? inner : 1)) * bytes;
    Panel panel{&p,        memory,
                stride,    static_cast<const char*>(p.values) + batch * p.value_stride * bytes,
                converted, static_cast<char*>(p.c) + (batch * rows * p.width + column * (p.by_rows ? rows : 1)) * bytes,
                0,         p.by_rows ? stride : p.width,
                p.half,    width,
                column};
    // Copy the tile into the thread's panel, transposed where columns are rows.
    auto packed = [&](auto* numbers) {
        p.by_rows ? pack_rows(numbers, inner, width, memory, stride)
                  : pack(numbers, inner, p.width, width, memory, stride);
    };
    // Pack float16, transposed and partial tiles always; others if asked for, unless B is already one aligned panel.
    if (p.half) packed(reinterpret_cast<const Half*>(from));
    else if (p.by_rows || width < stride || (p.packed && (p.width != stride || reinterpret_cast<uintptr_t>(from) % 64)))
        packed(reinterpret_cast<const float*>(from));
    else panel.b = reinterpret_cast<const float*>(from), panel.stride = p.width;
    return panel;
}

constexpr int64_t kBlock = 64;  // rows of a panel of C that are turned over at a time

// C <- columns first .. last - 1 of `rows` rows of a panel, but for those that are not in C.
void keep_used(const SpmmProblem& p, const float* memory, const Panel& panel, int64_t rows, int64_t first, int64_t last,
               float* c) {
    const int64_t width = p.width / p.pitch * p.used;
    // Line by line of the pitch: copy the columns that C has, skip the others.
    for (int64_t n = first; n < last;) {
        const int64_t line = (panel.column + n) / p.pitch, at = (panel.column + n) % p.pitch;
        const int64_t count = std::min(last - n, p.pitch - at), kept = std::min(count, p.used - at);
        for (int64_t r = 0; kept > 0 && r < rows; ++r)
            std::memcpy(c + p.pattern.order[panel.row + r] * width + line * p.used + at,
                        memory + r * panel.c_stride + n, kept * sizeof(float));
        n += count;
    }
}

// Rows from .. to - 1 of a panel, vectors first .. last - 1, into C by way of `memory`, which has room for kBlock rows
// of the panel: where columns of C are rows in memory, or some are not in C.
template <class Index>
bool block_of(Panel panel, int64_t lanes_used, int64_t from, int64_t to, int64_t first, int64_t last, float* memory) {
    const SpmmProblem& p = *panel.problem;
    char* const c = panel.c;
    // Redirect the stores to float32 scratch, where whole vectors may be written.
    panel.c = reinterpret_cast<char*>(memory);
    panel.half = false;
    bool nan = false;
    // Compute a block of rows, then move it to C while it is in the first-level cache.
    for (; from < to; from += kBlock) {
        const int64_t rows = std::min(kBlock, to - from), end = std::min(last * lanes_used, panel.width);
        panel.row = from;
        nan |= vectors_of<Index>(panel, lanes_used, from, from + rows, first, last);
        auto unpack = [&](auto* to) {
            unpack_rows(memory, panel.c_stride, rows, first * lanes_used, end, to + from, p.pattern.rows);
        };
        if (p.pitch) keep_used(p, memory, panel, rows, first * lanes_used, end, reinterpret_cast<float*>(c));
        else if (p.half) unpack(reinterpret_cast<Half*>(c));
        else unpack(reinterpret_cast<float*>(c));
    }
    return nan;
}

// What thread k of `threads` does; whether it saw a NaN.
bool part(const SpmmProblem& p, const Tiles& tiles, int k, int threads) {
    // Scratch of a thread: a panel of the widest tile, a block of C, float16 values of rows together.
    const int64_t widest = (tiles.vectors + tiles.count - 1) / tiles.count * tiles.lanes;
    const int64_t panel_room = p.pitch ? 0 : (p.pattern.width * widest + kLanes + 15) / 16 * 16,
                  block_room = p.by_rows || p.pitch ? (kBlock + 1) * std::max<int64_t>(widest, kLanes) : 0;
    float* const memory = scratch.floats(panel_room + block_room + (p.half ? kMostRows * p.pattern.width : 0));
    float *const block = memory + panel_room, *const converted = block + block_room;
    int64_t number = -1;
    bool nan = false;
    Panel panel{};
    // C is written directly, or by way of the block where it is transposed or has gaps.
    auto piece = [&](auto index, int64_t from, int64_t to, int64_t first, int64_t last) {
        using Index = decltype(index);
        return p.by_rows || p.pitch ? block_of<Index>(panel, tiles.lanes, from, to, first, last, block)
                                    : vectors_of<Index>(panel, tiles.lanes, from, to, first, last);
    };
    // Walk this thread's part; a panel is packed once, on entering it, and reused for all its rows.
    walk(p, tiles, cut(p, tiles, k, threads), cut(p, tiles, k + 1, threads),
         [&](int64_t wanted, int64_t from, int64_t to, int64_t first, int64_t last) {
             if (wanted != number) panel = make_panel(p, tiles, wanted, memory, converted);
             number = wanted;
             nan |= p.pattern.index_bytes == 2 ? piece(uint16_t{}, from, to, first, last)
                                               : piece(int32_t{}, from, to, first, last);
         });
    return nan;
}

bool part(const SpmmProblem& p, int k, int threads) { return part(p, Tiles(p.width, p.tile), k, threads); }

// share(k) on thread k, timed; whether one returned true.
template <class Share>
bool on_threads(int threads, double* busy, Share share) {
    std::atomic<bool> any{false}, out_of_memory{false};
    const int caller = sched_getcpu();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int k = 0; k < threads; ++k) {
        if (k) step_aside(caller);
        const double began = processor_seconds();
        try {
            if (share(k)) any = true;
        } catch (const std::bad_alloc&) { out_of_memory = true; }
        busy[k] = processor_seconds() - began;
    }
    if (out_of_memory) throw std::bad_alloc();
    return any;
}

bool run(const SpmmProblem& p, int threads, double* busy) {
    std::fill(busy, busy + threads, 0.0);
    if (p.pattern.rows == 0 || p.width == 0 || p.batch == 0) return false;
    const Tiles tiles(p.width, p.tile);
    return on_threads(threads, busy, [&](int k) { return part(p, tiles, k, threads); });
}

void shares(const SpmmProblem& p, int threads, int64_t* work) {
    std::fill(work, work + threads, int64_t{0});
    if (p.pattern.rows == 0 || p.width == 0 || p.batch == 0) return;
    const Tiles tiles(p.width, p.tile);
    // The cuts of `run`, with nonzeros counted instead of multiplied.
    for (int k = 0; k < threads; ++k) {
        auto piece = [&](int64_t panel, int64_t from, int64_t to, int64_t first, int64_t last) {
            const int64_t column = (tiles.first(panel % tiles.count) + first) * tiles.lanes;
            const int64_t columns = std::min((last - first) * tiles.lanes, p.width - column);
            for (int64_t i = from; i < to; ++i) work[k] += edges_of(p, i) * columns;
        };
        walk(p, tiles, cut(p, tiles, k, threads), cut(p, tiles, k + 1, threads), piece);
    }
}

// activation(x + bias) for `width` neighbours; whether one was NaN before.
template <class T>
bool activate(T* x, int64_t width, float bias, float low, float high) {
    NanMask<Vec> nan = {};
    int64_t n = 0;
    // Whole vectors, then the remainder one by one.
    for (; n + kLanes <= width; n += kLanes)
        store(x + n, activated<Vec>(load<Vec>(x + n) + bias, broadcast(low), broadcast(high), nan));
    bool rest = false;
    for (; n < width; ++n) store(x + n, activated<float>(load<float>(x + n) + bias, low, high, rest));
    return rest || any(nan);
}

bool bias_activation(void* x, bool half, int64_t batch, int64_t rows, int64_t width, const float* bias, float low,
                     float high, int threads, double* busy) {
    const int64_t all = batch * rows;
    return on_threads(threads, busy, [&](int k) {
        bool nan = false;
        // Rows are equally long, so an even cut balances the threads.
        for (int64_t row = begin_of(all, k, threads); row < begin_of(all, k + 1, threads); ++row)
            nan |= half ? activate(static_cast<Half*>(x) + row * width, width, bias[row % rows], low, high)
                        : activate(static_cast<float*>(x) + row * width, width, bias[row % rows], low, high);
        return nan;
    });
}

}  // namespace
}  // namespace SPDNN_LEVEL

extern const SpmmKernels SPDNN_JOIN(spmm_, SPDNN_LEVEL);
const SpmmKernels SPDNN_JOIN(spmm_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), SPDNN_LEVEL::run, SPDNN_LEVEL::part,
                                                    SPDNN_LEVEL::shares, SPDNN_LEVEL::bias_activation};

}  // namespace spdnn
