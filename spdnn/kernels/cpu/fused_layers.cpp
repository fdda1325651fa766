// Fused sparse product + bias + activation on tiled features. Compiled once for each instruction-set level.
//
// Algorithm  One output neuron of one tile is a sum of gathered vectors: for each edge, `tile` contiguous floats of the
//            input neuron (times the weight, or with one multiplication at the end when all weights are equal). The
//            bias and the activation are applied in registers; activity bits fall out of the stores. A tile passes
//            through as many layers as the caller names before the next tile, in buffers that stay in the cache.
// Layout     src, dst (tiles, neurons, tile) float32, 64-byte aligned; weights by output neuron (fused_layers.hpp).
//            Binary inputs become words, one uint64 a neuron with a bit for each input of the tile, and are added under
//            masks.
// Sets       Outputs that read the same inputs are computed together, 8 or 4 at a time: a row is loaded once for all.
//            The rows of the next set are copied side by side meanwhile, and those of the set after it fetched.
// Writes     Outputs that leave the caches before they are read are written past them, which saves reading their lines.
// Registers  8 vector accumulators (16 of a set, at the widest vectors): 4 vectors side by side (of one output, or of
//            4, 2 outputs where a tile has fewer) times 2 partial sums, even and odd edges. So the order of a sum is
//            the same for every tile and level.
// Threads    Tiles are dealt out dynamically; when they are few, blocks of output neurons are, layer by layer.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     The fused SpMM + bias + ReLU of Hidayetoglu et al., "At-Scale Sparse Deep Neural Network Inference with
//            Efficient GPU Implementation", HPEC 2020, section III, with a CPU's caches in place of shared memory.
#include "blocks.hpp"
#include "inputs.hpp"
#include "lanes.hpp"
#include "ops.hpp"
#include "rows.hpp"

#include <atomic>

namespace spdnn {
namespace SPDNN_LEVEL {
namespace {

constexpr int kSideBySide = 4;  // vectors of one pass over the edges
constexpr int kSums =
    SPDNN_VECTOR_BYTES == 64 ? 8 : 4;  // vectors that a set sums up at a time, even and odd edges apart
constexpr int kLine = 16;              // floats
constexpr int64_t kNear = 1 << 20;     // bytes of features that need not be fetched ahead
constexpr int64_t kPackedEdges = 64, kPackedOutputs = 8;  // of sets whose rows are packed: at most, at least
constexpr int64_t kLeastBlock = 64;                       // output neurons a thread takes at least
constexpr int64_t kLeastWork = 8192;                      // edges x vectors of a layer that are worth a thread
constexpr int64_t kStepBytes = 16 << 20;  // of the buffers between layers that all tiles take in step, at most

// Of V, which kernels compute with: a vector of neighbouring inputs, or one float for tiles of one input.
template <class V>
using Bits = std::conditional_t<sizeof(V) == sizeof(float), uint32_t, IntVec>;

template <class V>
inline Bits<V> bits_of(V v) {
    Bits<V> bits;
    std::memcpy(&bits, &v, sizeof bits);
    return bits;
}

template <class V, int kVectors>
inline __attribute__((always_inline)) void stream_row(const V (&row)[kVectors], V* to) {
    for (int v = 0; v < kVectors; ++v) stream(row[v], to + v);
}

// Bias and activation of `kVectors` vectors, and what was seen of them.
template <class V, int kVectors>
struct Epilogue {
    const Layer& layer;
    const V low = broadcast_as<V>(layer.low), high = broadcast_as<V>(layer.high);
    const V value = broadcast_as<V>(layer.value);
    Bits<V> seen[kVectors] = {};
    V poison[kVectors] = {};  // sums of 0 * y: 0 while every y is finite, else NaN

    // One output, whose vector 0 is `out`.
    template <bool kValued, bool kMayStream = true>
    inline __attribute__((always_inline)) void store(const V (&even)[kVectors], const V (&odd)[kVectors],
                                                     int64_t output, V* out) {
        const V bias = broadcast_as<V>(layer.bias[output * layer.bias_stride]);
        V row[kVectors];
        // The two partial sums meet here, always even + odd: the same order for every tile and level.
        for (int v = 0; v < kVectors; ++v)
            row[v] = activated<kValued>(even[v] + odd[v], bias, value, low, high, poison[v], seen[v]);
        // Non-temporal stores spare the read of a line that nobody needs soon.
        if (kMayStream && layer.streamed) stream_row(row, out);
        else
            for (int v = 0; v < kVectors; ++v) out[v] = row[v];
    }

    // Vectors start .. start + kPart - 1 of several outputs: output(o) is the number of the o-th, out(o) its vector 0.
    template <bool kValued, int kOutputs, int kPart, class Output, class Out>
    inline __attribute__((always_inline)) void finish(const V (*even)[kPart], const V (*odd)[kPart],
                                                      const Output& output, const Out& out, int start) {
        // Flags accumulate in two chains, alternating between outputs, so that an output rarely waits for the one
        // before.
        constexpr int kChains = std::min(kOutputs, 2);  // short ones
        const V least = low, most = high, scale = value;
        V bad[kChains][kPart] = {};
        Bits<V> any[kChains][kPart] = {};
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) {
            const V bias = broadcast_as<V>(layer.bias[output(o) * layer.bias_stride]);
            V* const to = out(o) + start;
            const int c = o % kChains;
#pragma GCC unroll 4
            for (int v = 0; v < kPart; ++v)
                to[v] = activated<kValued>(even[o][v] + odd[o][v], bias, scale, least, most, bad[c][v], any[c][v]);
        }
        // Merge the chains into the flags of the whole tile.
        for (int v = 0; v < kPart; ++v)
            for (int c = 0; c < kChains; ++c) seen[start + v] |= any[c][v], poison[start + v] += bad[c][v];
    }

    template <bool kValued>
    static inline __attribute__((always_inline)) V activated(V sum, V bias, V value, V low, V high, V& bad,
                                                             Bits<V>& any) {
        // A common weight is applied once an output, fused with the bias, instead of once an edge.
        V y = kValued ? sum + bias : multiply_add(sum, value, bias);
        // Range check without a branch: 0 * y is NaN where y is not finite. The clamp below would hide it.
        bad += y * 0.0f;
        y = y > low ? y : low;
        y = y < high ? y : high;
        // The OR of all outputs' bits: a lane is active where anything but the sign was ever set.
        any |= bits_of(y);
        return y;
    }

    LaneFlags result() const {
        LaneFlags all;
        // Reduce each lane to one bit; the shift drops the sign, so that -0 counts as zero.
        for (int v = 0; v < kVectors; ++v) {  // but for their signs
            all.active |= uint64_t{nonzero(seen[v] << 1)} << (v * lanes<V>);
            all.not_finite |= uint64_t{nonzero(bits_of(poison[v]) << 1)} << (v * lanes<V>);
        }
        return all;
    }
};

// Fetches `kFloats` floats ahead, to be written if kWrite.
template <int kFloats, int kWrite>
inline void fetch(const float* from) {
    for (int at = 0; at < kFloats; at += kLine) __builtin_prefetch(from + at, kWrite);
}

// A zero opaque to the compiler, so that it does not merge accumulators. In a layer with one weight the sums of a set
// are equal, and each is computed all the same: only the reduction `neurons` leaves work out.
template <class V>
inline __attribute__((always_inline)) V own_zero() {
    V zero = {};
#if defined(__x86_64__)
    asm volatile("" : "+v"(zero));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(zero));
#else
    asm volatile("" : "+m"(zero));
#endif
    return zero;
}

// Copies the rows of the next set side by side, a few at each turn while a set is computed, and fetches those of the
// set after it. Rows of a set often lie a power of two apart, where the few places that a cache has for them would not
// do.
template <class V, int kTile, int kVectors, class Index>
struct Ahead {
    const float* __restrict src;
    const Index* __restrict inputs;
    V (*__restrict to)[kVectors];
    int64_t edges = 0, per_turn = 1, known = 0;  // rows to pack; rows a turn; rows of the next set and the one after it
    int64_t done = 0;

    const V* row(int64_t edge) const {
        return reinterpret_cast<const V*>(src + static_cast<int64_t>(inputs[edge]) * kTile);
    }
    void fetch(int64_t edge) const {
        SPDNN_LEVEL::fetch<kVectors * lanes<V>, 0>(reinterpret_cast<const float*>(row(edge)));
    }

    inline __attribute__((always_inline)) void turn() {
        // Prefetch as many rows of the set after the next as are packed now: the misses spread over the computation.
        const int64_t end = std::min(edges, done + per_turn);
        for (int64_t e = done + edges, last = std::min(end + edges, known); e < last; ++e) fetch(e);
        // Gather rows of the next set into a contiguous buffer, whose rows do not compete for the same cache sets.
        for (; done < end; ++done)
            for (int v = 0; v < kVectors; ++v) to[done][v] = row(done)[v];
    }
};

// `kOutputs` outputs of a set for `kVectors` neighbouring vectors, `kSums / kOutputs` of them at a time: a row that was
// loaded is added to the sums of all these outputs. row(edge) is the first vector of a row.
template <class V, int kTile, int kVectors, int kOutputs, bool kValued, class Row, class Turn>
inline __attribute__((always_inline)) void set_part(const Layer& layer, float* __restrict dst, int64_t list,
                                                    int64_t first, Epilogue<V, kVectors>& epilogue, const Row& row,
                                                    const Turn& turn) {
    constexpr int kPart = std::min(kVectors, kSums / kOutputs);
    const Sets& sets = layer.sets;
    const int64_t edges = layer.offsets[list + 1] - layer.offsets[list], size = sets.size(list);
    const int32_t* __restrict members = sets.members + sets.begins[list] + first;
    const float* __restrict values = kValued ? layer.values + sets.values[list] + first : nullptr;
    // Streamed outputs are staged here, so that their lines leave whole and not part by part.
    V rows[kOutputs][kVectors];
    auto out = [&](int o)
                   __attribute__((always_inline)) { return reinterpret_cast<V*>(dst + int64_t{members[o]} * kTile); };
    // Register tile: kOutputs x kPart accumulators, twice for even and odd edges; more would spill.
    for (int start = 0; start < kVectors; start += kPart) {
        // Pack and prefetch for later sets between the parts, to hide the latency of memory behind arithmetic.
        turn();
        V even[kOutputs][kPart], odd[kOutputs][kPart];
        for (int o = 0; o < kOutputs; ++o)
            for (int v = 0; v < kPart; ++v) even[o][v] = own_zero<V>(), odd[o][v] = own_zero<V>();
        // Gather one vector of a row and accumulate it into all outputs of the tile: one load for kOutputs additions.
        auto add = [&](V(&sum)[kOutputs][kPart], int64_t edge) __attribute__((always_inline)) {
            const V* vectors = row(edge) + start;
#pragma GCC unroll 4
            for (int v = 0; v < kPart; ++v) {
                const V x = vectors[v];
#pragma GCC unroll 8
                for (int o = 0; o < kOutputs; ++o) {
                    if (kValued) sum[o][v] += broadcast_as<V>(values[edge * size + o]) * x;
                    else sum[o][v] += x;
                }
            }
        };
        // Even and odd edges accumulate in independent chains, which hides the latency of an addition.
        int64_t e = 0;
        for (; e + 2 <= edges; e += 2) add(even, e), add(odd, e + 1);
        if (e < edges) add(even, e);
        // Epilogue: bias and activation while the sums are still in registers.
        epilogue.template finish<kValued, kOutputs, kPart>(
            even, odd, [members](int o) { return members[o]; },
            [&](int o) __attribute__((always_inline)) { return layer.streamed ? rows[o] : out(o); }, start);
    }
    // Write the rows past the caches only now that all their parts are there.
    if (layer.streamed)
        for (int o = 0; o < kOutputs; ++o) stream_row(rows[o], out(o));
}

// Outputs that go together, as many as there are registers for. Weights are loaded for each output, so that two vectors
// share one.
template <int kVectors, bool kValued>
constexpr int kMost = kValued && kVectors > 1 ? kSums / 2 : kSums;

// The outputs of one set.
template <class V, int kTile, int kVectors, bool kValued, class Row, class Turn>
void set(const Layer& layer, float* __restrict dst, int64_t list, Epilogue<V, kVectors>& epilogue, const Row& row,
         const Turn& turn) {
    constexpr int kTogether = kMost<kVectors, kValued>;
    const int64_t size = layer.sets.size(list);
    // Split the members greedily: the largest register tile reuses a loaded row most often.
    int64_t m = 0;
    for (; m + kTogether <= size; m += kTogether)
        set_part<V, kTile, kVectors, kTogether, kValued>(layer, dst, list, m, epilogue, row, turn);
    // The remainder by powers of two: at most one tile of each smaller size.
    if constexpr (kTogether > 4)
        for (; m + 4 <= size; m += 4)
            set_part<V, kTile, kVectors, 4, kValued>(layer, dst, list, m, epilogue, row, turn);
    if constexpr (kTogether > 2)
        for (; m + 2 <= size; m += 2)
            set_part<V, kTile, kVectors, 2, kValued>(layer, dst, list, m, epilogue, row, turn);
    for (; m < size; ++m) set_part<V, kTile, kVectors, 1, kValued>(layer, dst, list, m, epilogue, row, turn);
}

// The outputs of the sets first .. last - 1.
template <class V, int kTile, int kVectors, class Index, bool kValued>
LaneFlags all_sets(const Layer& layer, const float* __restrict src, float* __restrict dst, int64_t first,
                   int64_t last) {
    Epilogue<V, kVectors> epilogue{layer};
    constexpr int kTurns = std::max(1, kVectors * kMost<kVectors, kValued> / kSums);  // of the most outputs together
    typedef Ahead<V, kTile, kVectors, Index> Rows;
    // Double buffer: one half is computed from while the next set is packed into the other.
    alignas(64) V packed[2][kPackedEdges][kVectors];
    const Sets& sets = layer.sets;
    const bool far = layer.inputs * kTile * static_cast<int64_t>(sizeof(float)) > kNear;
    auto edges = [&](int64_t list) { return layer.offsets[list + 1] - layer.offsets[list]; };
    auto rows = [&](int64_t list) {
        return Rows{src, static_cast<const Index*>(layer.indices) + layer.offsets[list], packed[list % 2]};
    };
    // Packing pays where many outputs reuse few rows, few enough for the buffer.
    auto packs = [&](int64_t list) {
        return kTile > 1 && list < last && edges(list) <= kPackedEdges && sets.size(list) >= kPackedOutputs;
    };
    auto compute = [&](int64_t list, auto row, auto turn) __attribute__((always_inline)) {
        set<V, kTile, kVectors, kValued>(layer, dst, list, epilogue, row, turn);
    };
    bool ready = false;
    for (int64_t j = first; j < last; ++j) {
        // Prefetch the output lines of the next set for writing: members lie scattered.
        if (j + 1 < last && !layer.streamed)
            for (int64_t m = sets.begins[j + 1]; m < sets.begins[j + 2]; ++m)
                fetch<kVectors * lanes<V>, 1>(dst + int64_t{sets.members[m]} * kTile);
        Rows next = rows(j + 1);
        // Divide the packing of the next set evenly among the turns of this one; rows of set j + 2 are prefetched
        // alike.
        if (packs(j + 1)) {
            const int64_t turns = std::max<int64_t>(1, sets.size(j) / kMost<kVectors, kValued> * kTurns);
            next.edges = edges(j + 1), next.per_turn = (next.edges + turns - 1) / turns;
            next.known = layer.offsets[std::min(j + 3, last)] - layer.offsets[j + 1];
        }
        auto turn = [&next]() __attribute__((always_inline)) { next.turn(); };
        if (packs(j)) {
            // The first set has no predecessor that packed it: pack it at once, without a prefetch.
            if (!ready) {
                Rows first_set = rows(j);
                first_set.edges = first_set.known = first_set.per_turn = edges(j);
                first_set.turn();
            }
            compute(
                j, [mine = packed[j % 2]](int64_t edge) __attribute__((always_inline)) { return mine[edge]; }, turn);
        } else {
            // Not packed: gather where the rows lie, and prefetch those of the next set if features exceed the near
            // caches.
            for (int64_t e = 0; far && j + 1 < last && e < edges(j + 1); ++e) next.fetch(e);
            compute(
                j, [of_set = rows(j)](int64_t edge) __attribute__((always_inline)) { return of_set.row(edge); }, turn);
        }
        // Pack what the turns have left over: the next set expects all of its rows.
        while (next.done < next.edges) next.turn();
        ready = packs(j + 1);
    }
    return epilogue.result();
}

// The outputs of the lists first .. last - 1, which share nothing, for `kVectors` neighbouring vectors of a tile,
// `kOutputs` at a time. kPlain: all lists of the layer are such, and nothing is written past the caches. Not
// inlined: together with the loop over sets, the compiler keeps too few accumulators and addresses in registers.
template <class V, int kTile, int kVectors, int kOutputs, class Index, bool kValued, bool kPlain>
__attribute__((noinline)) LaneFlags singles(const Layer& layer, const float* __restrict src, float* __restrict dst,
                                            int64_t first, int64_t last) {
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    const int64_t* __restrict offsets = layer.offsets;
    Epilogue<V, kVectors> epilogue{layer};
    // Shift both pointers so that list j writes output members[j] and edge e has weight values[e], as without sets.
    const Sets& sets = layer.sets;
    const int32_t* __restrict members = sets.members ? sets.members + sets.begins[sets.shared] - sets.shared : nullptr;
    const float* __restrict values = layer.values;
    if (kValued && sets.shared) values += sets.values[sets.shared] - offsets[sets.shared];
    // Gather one input's vectors and accumulate; without weights this is an addition alone.
    auto add = [&](V(&sum)[kVectors], int64_t edge) __attribute__((always_inline)) {
        const V* row = reinterpret_cast<const V*>(src + static_cast<int64_t>(indices[edge]) * kTile);
        for (int v = 0; v < kVectors; ++v) {
            if (kValued) sum[v] += broadcast_as<V>(values[edge]) * row[v];
            else sum[v] += row[v];
        }
    };
    auto outputs = [&](auto together, int64_t j) __attribute__((always_inline)) {
        constexpr int kCount = decltype(together)::value;
        V even[kCount][kVectors] = {}, odd[kCount][kVectors] = {};
        // All outputs advance together over the edges that each of them has: independent chains hide latency.
        int64_t common = offsets[j + 1] - offsets[j], e = 0;  // edges that each of them has
        for (int o = 1; o < kCount; ++o) common = std::min(common, offsets[j + o + 1] - offsets[j + o]);
        for (; e + 2 <= common; e += 2) {
#pragma GCC unroll 4
            for (int o = 0; o < kCount; ++o) {
                add(even[o], offsets[j + o] + e);
                add(odd[o], offsets[j + o] + e + 1);
            }
        }
        // Remainders output by output, in the same alternation; a last single edge joins the even sum.
#pragma GCC unroll 4
        for (int o = 0; o < kCount; ++o) {
            int64_t edge = offsets[j + o] + e;
            if (kCount > 1)
                for (; edge + 2 <= offsets[j + o + 1]; edge += 2) add(even[o], edge), add(odd[o], edge + 1);
            if (edge < offsets[j + o + 1]) add(even[o], edge);
            // Scatter: where lists are grouped by sets, their outputs lie in any order.
            const int64_t output = !kPlain && members ? members[j + o] : j + o;
            epilogue.template store<kValued, !kPlain>(even[o], odd[o], output,
                                                      reinterpret_cast<V*>(dst + output * kTile));
        }
    };
    // Blocks of kOutputs lists, then the remainder one by one.
    int64_t j = first;
    for (; j + kOutputs <= last; j += kOutputs) outputs(std::integral_constant<int, kOutputs>{}, j);
    for (; j < last; ++j) outputs(std::integral_constant<int, 1>{}, j);
    return epilogue.result();
}

// The outputs of the lists first .. last - 1: those of sets come first.
template <class V, int kTile, int kVectors, int kOutputs, class Index, bool kValued>
LaneFlags block(const Layer& layer, const float* src, float* dst, int64_t first, int64_t last) {
    // Shared lists come first: cut the range where they end.
    const int64_t first_single = std::clamp(layer.sets.shared, first, last);
    LaneFlags of_sets, of_singles;
    if (first < first_single)
        of_sets = all_sets<V, kTile, kVectors, Index, kValued>(layer, src, dst, first, first_single);
    if (first_single < last) {
        // The common case has an instance of its own, without lookups of outputs and without streaming.
        const bool plain = !layer.sets.members && !layer.streamed;
        const auto run = plain ? singles<V, kTile, kVectors, kOutputs, Index, kValued, true>
                               : singles<V, kTile, kVectors, kOutputs, Index, kValued, false>;
        of_singles = run(layer, src, dst, first_single, last);
    }
    return {of_sets.active | of_singles.active, of_sets.not_finite | of_singles.not_finite};
}

// The same for binary inputs: words[n] has a bit for each input of the tile.
template <int kTile, int kVectors, class Index, bool kValued>
LaneFlags bit_block(const Layer& layer, const uint64_t* __restrict words, int shift, float* __restrict dst,
                    int64_t first, int64_t last) {
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    Epilogue<Vec, kVectors> epilogue{layer};
    constexpr int kHalf = 32 / kLanes;  // vectors of 32 inputs
    // Lane i of vector v tests bit v * kLanes + i of half a word.
    IntVec lane_bit[kHalf];
    for (int v = 0; v < kHalf; ++v)
        for (int i = 0; i < kLanes; ++i) lane_bit[v][i] = static_cast<int32_t>(1u << (v * kLanes + i));
    auto add = [&](Vec(&sum)[kVectors], int64_t edge, const float* weight) __attribute__((always_inline)) {
        // Gather 8 bytes, a bit for each input of the tile, in place of `tile` floats.
        const uint64_t word = words[indices[edge]] >> shift;
        const Vec value = broadcast(kValued ? *weight : 1.0f);
        for (int v = 0; v < kVectors; ++v) {
            // Broadcast the half word and select the weight where the lane's bit is set: a masked addition, no branch.
            const IntVec all = static_cast<int32_t>(word >> (v / kHalf * 32)) - IntVec{};
            sum[v] += (all & lane_bit[v % kHalf]) != 0 ? value : Vec{};
        }
    };
    for (int64_t j = first; j < last; ++j) {
        // One member at a time: its weights lie `size` apart, as a set stores those of one edge side by side.
        const int64_t begin = layer.offsets[j], end = layer.offsets[j + 1], size = layer.sets.size(j);
        for (int64_t m = 0; m < size; ++m) {
            Vec even[kVectors] = {}, odd[kVectors] = {};
            const float* const weight = kValued ? layer.values + layer.sets.value(j, begin) + m : nullptr;
            // Even and odd edges apart, the order in which the kernels for floats add.
            int64_t e = begin;
            for (; e + 2 <= end; e += 2)
                add(even, e, weight + (e - begin) * size), add(odd, e + 1, weight + (e + 1 - begin) * size);
            if (e < end) add(even, e, weight + (e - begin) * size);
            const int64_t output = layer.sets.output(j, m);
            epilogue.template store<kValued>(even, odd, output, reinterpret_cast<Vec*>(dst + output * kTile));
        }
    }
    return epilogue.result();
}

#if SPDNN_VECTOR_BYTES > 16  // below, bytes cannot be shuffled
typedef uint8_t ByteVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef uint8_t FewBytes __attribute__((vector_size(kLanes)));

// The same when all weights are equal: the ones are counted, a byte an input. Counts are exact, so the sum is the same.
// Eight outputs go together: in many networks neighbours read neighbours, and a line of words is then loaded once.
template <int kTile, class Index>
LaneFlags count_block(const Layer& layer, const uint64_t* __restrict words, float* __restrict dst, int64_t first,
                      int64_t last) {
    constexpr int kBytes = SPDNN_VECTOR_BYTES, kVectors = kTile / kLanes, kCounters = (kTile + kBytes - 1) / kBytes;
    constexpr int64_t kMost = 255;  // that a byte counts
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    Epilogue<Vec, kVectors> epilogue{layer};
    // Every 8 bytes of a vector hold the whole word: lane i takes the byte with its bit from the 16 bytes around it.
    ByteVec from_byte[kCounters], bit;
    for (int i = 0; i < kBytes; ++i) bit[i] = static_cast<uint8_t>(1u << (i % 8));
    for (int c = 0; c < kCounters; ++c)
        for (int i = 0; i < kBytes; ++i) from_byte[c][i] = static_cast<uint8_t>(i / 16 * 16 + (c * kBytes + i) / 8 % 8);
    // Outputs m .. of list j, or, unless they share it, those of the lists from j on.
    auto outputs = [&](auto together, auto shared, int64_t j, int64_t m) __attribute__((always_inline)) {
        constexpr int kTogether = decltype(together)::value;
        constexpr bool kShared = decltype(shared)::value;
        Vec sum[kTogether][kVectors] = {}, none[kVectors] = {};
        const int64_t edges = layer.offsets[j + 1] - layer.offsets[j];
        // Count in runs of 255 edges, the most a byte holds.
        for (int64_t e = 0; e < edges;) {
            ByteVec count[kTogether][kCounters], ones[kCounters];
            for (int o = 0; o < kTogether; ++o)
                for (int c = 0; c < kCounters; ++c) count[o][c] = own_zero<ByteVec>();
            for (const int64_t stop = std::min(edges, e + kMost); e < stop; ++e) {
#pragma GCC unroll 8
                for (int o = 0; o < kTogether; ++o) {
                    // Gather and expand the word to a byte an input: once for all members of a set, else for each
                    // output.
                    if (!kShared || o == 0) {
                        const ByteVec word =
                            reinterpret_cast<ByteVec>(words[indices[layer.offsets[j + o] + e]] - WordVec{});
                        for (int c = 0; c < kCounters; ++c)
                            ones[c] = reinterpret_cast<ByteVec>((__builtin_shuffle(word, from_byte[c]) & bit) == bit);
                    }
                    // A set bit compares equal as 255, that is -1: subtract it to count.
                    for (int c = 0; c < kCounters; ++c) count[o][c] -= ones[c];
                }
            }
            // Widen the byte counters and accumulate them as floats, in which counts stay exact.
            for (int o = 0; o < kTogether; ++o)
                for (int v = 0; v < kVectors; ++v) {
                    FewBytes few;
                    std::memcpy(&few, reinterpret_cast<const char*>(count[o]) + v * kLanes, sizeof few);
                    sum[o][v] += __builtin_convertvector(__builtin_convertvector(few, IntVec), Vec);
                }
        }
        // Epilogue: the count times the common weight, bias, activation.
        for (int o = 0; o < kTogether; ++o) {
            const int64_t output = kShared ? layer.sets.output(j, m + o) : layer.sets.output(j + o, 0);
            epilogue.template store<false>(sum[o], none, output, reinterpret_cast<Vec*>(dst + output * kTile));
        }
    };
    constexpr std::integral_constant<int, 8> eight;
    constexpr std::integral_constant<int, 1> one;
    // Sets first, eight members at a time: one expansion of a word serves them all.
    const int64_t first_single = std::clamp(layer.sets.shared, first, last);
    for (int64_t j = first; j < first_single; ++j) {
        const int64_t size = layer.sets.size(j);
        int64_t m = 0;
        for (; m + 8 <= size; m += 8) outputs(eight, std::true_type{}, j, m);
        for (; m < size; ++m) outputs(one, std::true_type{}, j, m);
    }
    // Then lists of single outputs, eight neighbours where they have equally many edges.
    for (int64_t j = first_single; j < last;) {
        bool together = j + 8 <= last;
        for (int o = 1; together && o < 8; ++o)
            together = layer.offsets[j + o + 1] - layer.offsets[j + o] == layer.offsets[j + 1] - layer.offsets[j];
        if (together) outputs(eight, std::false_type{}, j, 0);
        else outputs(one, std::false_type{}, j, 0);
        j += together ? 8 : 1;
    }
    return epilogue.result();
}
#endif

// All vectors of one tile, in passes of at most kSideBySide vectors; src is float (neurons, kTile) or uint64 (neurons).
template <int kTile, class Index, bool kValued, bool kBits>
LaneFlags tile_block(const Layer& layer, const void* src, float* dst, int64_t first, int64_t last) {
    if constexpr (kTile == 1) {
        // One input has no neighbours to vectorize over: scalars, with several outputs side by side instead.
        return block<float, 1, 1, kSideBySide, Index, kValued>(layer, static_cast<const float*>(src), dst, first, last);
    } else {
#if SPDNN_VECTOR_BYTES > 16
        if constexpr (kBits && !kValued)
            // Binary inputs under equal weights are counted, which costs less than masked additions.
            return count_block<kTile, Index>(layer, static_cast<const uint64_t*>(src), dst, first, last);
#endif
        // Wide tiles in passes of kSideBySide vectors: the accumulators of more would spill.
        constexpr int kVectors = std::min(kTile / kLanes, kSideBySide), kWidth = kVectors * kLanes;
        LaneFlags whole;
        for (int start = 0; start < kTile; start += kWidth) {
            LaneFlags part;
            if constexpr (kBits)
                part = bit_block<kTile, kVectors, Index, kValued>(layer, static_cast<const uint64_t*>(src), start,
                                                                  dst + start, first, last);
            else
                part = block<Vec, kTile, kVectors, kSideBySide / kVectors, Index, kValued>(
                    layer, static_cast<const float*>(src) + start, dst + start, first, last);
            // A pass sees its own lanes only: shift its flags to their place in the tile.
            whole.active |= part.active << start;
            whole.not_finite |= part.not_finite << start;
        }
        return whole;
    }
}

template <int kTile, bool kBits>
TileBlock choose(const Layer& layer) {
    // Dispatch once a block, so that the loops over edges have no branch on types.
    if (layer.index_bytes == 2)
        return layer.values ? tile_block<kTile, uint16_t, true, kBits> : tile_block<kTile, uint16_t, false, kBits>;
    return layer.values ? tile_block<kTile, uint32_t, true, kBits> : tile_block<kTile, uint32_t, false, kBits>;
}

TileBlock choose_bits(const Layer& layer, int tile) {  // of 16 inputs or more
    return by_tile(tile, [&](auto size) { return choose<(size == 1 ? 16 : int{size}), true>(layer); });
}

}  // namespace

TileBlock block_for(const Layer& layer, int tile) {
    return by_tile(tile, [&](auto size) { return choose<size, false>(layer); });
}

namespace {

thread_local KeptMemory scratch;

// The first layer of tile t, from the inputs' own rows; `room` holds (inputs, tile) floats, or a word an input.
LaneFlags first_layer(const Pass& pass, const Layer& layer, int64_t t, float* room, float* dst) {
    const int64_t first = t * pass.tile;
    const int filled = static_cast<int>(std::min<int64_t>(pass.tile, pass.rows->count - first));
    if (pass.rows->bits && pass.tile > 1) {
        // Bits stay bits: transposed to a word a neuron, then added under masks.
        transpose(*pass.rows, layer.inputs, first, filled, reinterpret_cast<uint64_t*>(room));
        return choose_bits(layer, pass.tile)(layer, room, dst, 0, layer.lists);
    }
    // All others become a tile of floats, which the ordinary kernel reads.
    expand(*pass.rows, layer.inputs, first, filled, pass.tile, room);
    return block_for(layer, pass.tile)(layer, room, dst, 0, layer.lists);
}

int64_t tiles_of(const Pass& pass) { return (pass.count + pass.tile - 1) / pass.tile; }

// Each thread takes a tile through all layers of the pass.
int64_t run_tiles(const Pass& pass, int64_t widest, int threads) {
    FirstFailed failed;
    std::atomic<bool> out_of_memory{false};
    // Scratch of a thread: the tile's own inputs, then two buffers of the widest layer, all in whole cache lines.
    const bool words = pass.rows && pass.rows->bits && pass.tile > 1;  // 64 inputs in 8 bytes
    const int64_t room = pass.rows ? (pass.layers[0].inputs * (words ? 2 : pass.tile) + 15) / 16 * 16 : 0;
    const int64_t buffer = (widest * pass.tile + 15) / 16 * 16, tiles = tiles_of(pass);
    // Tiles cost unequal time, as those that die early are cut short: schedule them dynamically.
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < tiles; ++t) {
        float* memory = nullptr;
        // No exception may leave a parallel region: note a failed allocation and throw behind it.
        try {
            memory = scratch.floats(room + 2 * buffer);
        } catch (const std::bad_alloc&) {
            out_of_memory = true;
            continue;
        }
        // Ping-pong buffers: features between layers stay in this thread's cache; the last layer alone writes to dst.
        float* const both[2] = {memory + room, memory + room + buffer};
        const float* from = pass.rows ? nullptr : pass.src + t * pass.layers[0].inputs * pass.tile;
        // Only the last layer may stream: the outputs of all others are read by the next layer at once.
        Layer last = pass.layers[pass.depth - 1];
        last.streamed = pass.streamed;
        float* const end = pass.dst + t * last.outputs * pass.tile;
        for (int64_t k = 0; k < pass.depth; ++k) {
            const Layer& layer = k + 1 == pass.depth ? last : pass.layers[k];
            float* to = k + 1 == pass.depth ? end : both[k % 2];
            // The first layer of a pass may start from stored rows, all others from a tile of floats.
            const LaneFlags flags = from ? block_for(layer, pass.tile)(layer, from, to, 0, layer.lists)
                                         : first_layer(pass, layer, t, memory, to);
            pass.active[k * tiles + t] = flags.active;
            // Lanes past the last input are padding, and fail nothing.
            if (flags.not_finite & filled_lanes(pass.count - t * pass.tile)) failed.at(k);
            // Early exit: a tile of zeros stays zeros through the remaining layers.
            if (!flags.active && k >= pass.still_from && k + 1 < pass.depth) {
                for (int64_t rest = k + 1; rest < pass.depth; ++rest) pass.active[rest * tiles + t] = 0;
                std::memset(end, 0, sizeof(float) * last.outputs * pass.tile);
                break;
            }
            from = to;
        }
        // Non-temporal stores are weakly ordered: fence before other threads read them.
        if (pass.streamed) std::atomic_thread_fence(std::memory_order_seq_cst);  // others see such stores late
    }
    if (out_of_memory) throw std::bad_alloc();
    return failed.layer();
}

// Few tiles: all threads share each layer, parallel over tiles and blocks of outputs, with a barrier after it.
int64_t run_lockstep(const Pass& pass, int64_t widest, int threads) {
    FirstFailed failed;
    const int64_t tiles = tiles_of(pass), buffer = widest * pass.tile * tiles;
    float* const memory = scratch.floats(2 * buffer);
    // Blocks of a tile OR their lanes into one word, which has to start at zero.
    std::fill(pass.active, pass.active + pass.depth * tiles, uint64_t{0});
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const float* from = pass.src;
        // One layer at a time: the barrier that ends `omp for` completes its features before anyone reads them.
        for (int64_t k = 0; k < pass.depth; ++k) {
            const Layer& layer = pass.layers[k];
            const TileBlock run = block_for(layer, pass.tile);
            const bool last = k + 1 == pass.depth;
            float* const to = last ? pass.dst : memory + k % 2 * buffer;
            // Some four blocks a thread even out their speeds, but none of fewer than kLeastBlock outputs.
            const int64_t most = std::clamp<int64_t>(layer.outputs / kLeastBlock, 1, layer.lists);
            const int64_t blocks = threads == 1 ? 1 : std::clamp<int64_t>(4 * threads / tiles, 1, most);
            auto begin = [blocks](int64_t count, int64_t b) { return count * b / blocks; };
#pragma omp for schedule(dynamic, 1)
            for (int64_t unit = 0; unit < tiles * blocks; ++unit) {
                const int64_t t = unit / blocks, b = unit % blocks;
                float* const out = to + t * layer.outputs * pass.tile;
                // A dead tile is skipped. Zeros are written for the last layer alone: nobody reads those in between.
                if (k > pass.still_from && !pass.active[(k - 1) * tiles + t]) {
                    const int64_t first = begin(layer.outputs, b), end = begin(layer.outputs, b + 1);
                    if (last) std::memset(out + first * pass.tile, 0, sizeof(float) * (end - first) * pass.tile);
                    continue;
                }
                const LaneFlags flags = run(layer, from + t * layer.inputs * pass.tile, out, begin(layer.lists, b),
                                            begin(layer.lists, b + 1));
                // Threads share a tile, so its lanes are merged atomically, once a block.
                if (flags.active) __atomic_fetch_or(&pass.active[k * tiles + t], flags.active, __ATOMIC_RELAXED);
                if (flags.not_finite & filled_lanes(pass.count - t * pass.tile)) failed.at(k);
            }
            from = to;
        }
    }
    return failed.layer();
}

int64_t run(const Pass& pass, int threads) {
    int64_t widest = 0, work = 0;  // of the features between the layers
    // Measure the pass: the widest features between layers, and the work.
    for (int64_t k = 0; k < pass.depth; ++k) {
        if (k + 1 < pass.depth) widest = std::max(widest, pass.layers[k].outputs);
        work += pass.layers[k].edges;
    }
    const int64_t tiles = tiles_of(pass),
                  step_bytes = 2 * widest * pass.tile * tiles * static_cast<int64_t>(sizeof(float));
    // Enough tiles for all threads, or buffers too large for the caches in step: a tile a thread, without barriers.
    if (pass.rows || threads == 1 || tiles >= 4 * threads || step_bytes > kStepBytes)
        return run_tiles(pass, widest, threads);
    // Few tiles: threads share them in step, as many threads as have work worth a barrier.
    const int vectors = std::max(1, pass.tile / kLanes);
    const int64_t useful = work / pass.depth * vectors * tiles / kLeastWork;
    return run_lockstep(pass, widest, static_cast<int>(std::clamp<int64_t>(useful, 1, threads)));
}

}  // namespace
}  // namespace SPDNN_LEVEL

extern const Kernels SPDNN_JOIN(kernels_, SPDNN_LEVEL);
const Kernels SPDNN_JOIN(kernels_, SPDNN_LEVEL) = {
    SPDNN_STRING(SPDNN_LEVEL),   SPDNN_VECTOR_BYTES,      SPDNN_LEVEL::run,
    SPDNN_LEVEL::compact,        SPDNN_LEVEL::row_hashes, SPDNN_LEVEL::rows_differ,
    SPDNN_LEVEL::row_statistics, SPDNN_LEVEL::take,       SPDNN_LEVEL::insert};

}  // namespace spdnn
