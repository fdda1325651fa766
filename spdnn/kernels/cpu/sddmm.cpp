// Sampled dense-dense products, softmax over rows of nonzeros. Compiled once for each instruction-set level.
//
// Algorithm  sddmm: a chunk of a row of Q stays in registers while the nonzeros of the row are gone through; each costs
//            one load and one multiply-add a vector of K, and sums across lanes are taken of kLanes nonzeros at once
//            (dots.hpp). Chunks of D are outermost, then panels of `tile` columns, then rows: the part of K that is
//            read again and again, (tile, chunk), is to stay in the second-level cache. Sums over chunks are carried in
//            `out` (float16: in scratch of float32). softmax: the maximum; e^(s - maximum) and its sum; the quotient.
//            The row is in scratch meanwhile.
// Layout     K as given, or packed by all threads: (chunk, row, width of the chunk), so that no power of two is a
//            stride and a panel is contiguous. It is packed where it is float16, or where D is not a multiple of
//            kLanes.
// Threads    Rows are dealt out by nonzeros in the order given (ops.hpp): the row swizzle of Gale et al., section 5.2.
// Bits       A sum depends on D and on the level, on no other nonzero: not on tile, packing, threads, batch.
// Bound      A nonzero reads D floats of K from the second-level cache, 64 bytes a cycle: D / 16 cycles at v4, against
//            D / 32 of arithmetic. Measured on Zen 5 (3.95 GHz), one thread, best setting, in cycles over D / 16: 1.26
//            to 1.65 at 80 to 90 % sparsity and D of 256 to 1024; 1.6 at D = 64, 90 %; 2.4 at D = 1024, 98 %, where
//            rows have 10 nonzeros, in groups of 12. K as given (not aligned to vectors, strides of a power of two)
//            takes 1.4 to 2.2 times as long at 80 to 90 %, and as long as packed at 98 %.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     The SDDMM and the sparse softmax of Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning",
//            SC 2020, sections 6 and 7.4, with registers and caches of a core in place of a thread block's.
#include "dots.hpp"
#include "ops_kernels.hpp"

#include <cmath>

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

// What one call works on, made before its threads start.
template <class Real, class Index>
struct Products {
    const Sddmm<Real>& work;
    const Index* columns;
    Vector<Chunk> chunks;
    bool packed;
    int64_t tile;
    Shares shares;

    Products(const Sddmm<Real>& work, int threads)
        : work(work),
          columns(static_cast<const Index*>(work.pattern.columns)),
          chunks(chunks_of(work.depth)),
          packed(work.packed || sizeof(Real) == 2 || work.depth % kLanes != 0),
          tile(work.tile > 0 ? work.tile : work.pattern.width),
          shares(work.pattern, 1, threads) {}

    // All sums of batch entry b of this thread's rows; `next` has an entry for each of them.
    bool run(int64_t b, const float* keys, float* sums, int thread, Vector<int64_t>& next) const {
        const int64_t rows = shares.end(thread) - shares.begin(thread);
        const int64_t* offsets = work.pattern.offsets;
        bool nan = false;
        for (const Chunk& chunk : chunks) {
            const bool first = chunk.first == 0, last = &chunk == &chunks.back();
            // Chunks are outermost: each goes through the nonzeros of every row from the start again.
            for (int64_t r = 0; r < rows; ++r) next[r] = offsets[shares.begin(thread)[r]];
            // Panels of columns: this part of K stays in the second-level cache while all rows use it.
            for (int64_t begin = 0; begin < work.pattern.width; begin += tile)
                nan |= panel(b, chunk, first, last, begin + tile, keys, sums, thread, next);
        }
        return nan;
    }

    bool panel(int64_t b, const Chunk& chunk, bool first, bool last, int64_t limit, const float* keys, float* sums,
               int thread, Vector<int64_t>& next) const {
        const int64_t width = chunk.vectors * kLanes, filled = std::min(width, work.depth - chunk.first);
        const float* k = packed ? keys + work.pattern.width * chunk.first : keys + chunk.first;
        const int64_t stride = packed ? width : work.depth;
        const auto dots = row_dots_of<Index>(chunk.vectors);
        alignas(64) float wide[kMostVectors * kLanes];
        Vec nan = {};
        int64_t r = 0;
        for (const int32_t* row = shares.begin(thread); row < shares.end(thread); ++row, ++r) {
            // The row's nonzeros in this panel: columns ascend, so they follow those of the panel before.
            const int64_t e = next[r], row_end = work.pattern.offsets[*row + 1];
            const int64_t end = limit >= work.pattern.width ? row_end : until(columns, e, row_end, limit);
            if (e == end) continue;
            next[r] = end;
            const Real* q = work.q + (b * work.pattern.rows + *row) * work.depth + chunk.first;
            // Read a whole float32 chunk of Q in place; otherwise widen and pad it with zeros, which add nothing.
            const float* query = wide;
            if (sizeof(Real) == 4 && filled == width) query = reinterpret_cast<const float*>(q);
            else widen(q, filled, width, wide);
            // Gather rows of K and take dot products; chunks after the first accumulate.
            dots(query, k, stride, columns + e, end - e, sums + e, !first);
            // Epilogue with the last chunk, while the sums are in the cache.
            if (last) nan += finish(b, sums, e, end);
        }
        return any_nan(nan);
    }

    // Scaled sums to `out`; the result is NaN in some lane if one of them is.
    Vec finish(int64_t b, const float* sums, int64_t e, int64_t end) const {
        Real* out = work.out + b * work.pattern.nonzeros();
        const Vec scale = broadcast(work.scale);
        Vec nan = {};
        for (; e < end; e += kLanes) {
            const Vec scaled = load_part(sums + e, end - e) * scale;
            store_part(scaled, out + e, end - e);
            // Only a NaN differs from itself: a check without a branch.
            nan = scaled != scaled ? scaled : nan;
        }
        return nan;
    }
};

thread_local KeptMemory kept_keys, kept_sums;

template <class Real, class Index>
bool sddmm_of(const Sddmm<Real>& work, double* busy, int threads) {
    const Products<Real, Index> products(work, threads);
    const int64_t width = work.pattern.width, nonzeros = work.pattern.nonzeros();
    // Scratch is kept between calls, so that its pages are made once.
    float* const packed = products.packed ? kept_keys.floats(width * padded(work.depth)) : nullptr;
    float* const scratch = sizeof(Real) == 2 ? kept_sums.floats(nonzeros) : nullptr;
    Vector<Vector<int64_t>> next(threads);
    for (int t = 0; t < threads; ++t) next[t].resize(products.shares.end(t) - products.shares.begin(t)), busy[t] = 0;
    bool nan = false;
#pragma omp parallel num_threads(threads) reduction(|| : nan)
    for (int64_t b = 0; b < work.batch; ++b) {
        const Real* k = work.k + b * width * work.depth;
        // float32 sums accumulate in the output; float16 would round after every chunk, so it has scratch.
        float* sums = sizeof(Real) == 2 ? scratch : reinterpret_cast<float*>(work.out) + b * nonzeros;
        if (packed) {
            // All threads pack K together; the barrier completes it before anyone reads.
            own_shares(threads, busy, [&](int t) {
                pack(k, width, work.depth, products.chunks, packed, width * t / threads, width * (t + 1) / threads);
            });
#pragma omp barrier
        }
        // Each thread computes its rows, dealt out by nonzeros.
        own_shares(threads, busy, [&](int t) {
            nan |= products.run(b, packed ? packed : reinterpret_cast<const float*>(k), sums, t, next[t]);
        });
        // Nobody packs the next entry's K over one that is still read.
        if (packed && b + 1 < work.batch) {
#pragma omp barrier
        }
    }
    return nan;
}

template <class Real>
bool sddmm(const Sddmm<Real>& work, double* busy, int threads) {
    return work.pattern.index_bytes == 2 ? sddmm_of<Real, uint16_t>(work, busy, threads)
                                         : sddmm_of<Real, int32_t>(work, busy, threads);
}

// One row: scores, their maximum, exponentials, their sum, quotients. `scores` has room for whole vectors.
template <class Real>
bool softmax_row(const Real* values, int64_t count, float factor, float* scores, Real* out) {
    const Vec scale = broadcast(factor);
    // Scale into scratch in float32; a tail of -inf makes whole vectors, and its exponentials are zero.
    for (int64_t e = 0; e < count; e += kLanes) store(load_part(values + e, count - e) * scale, scores + e);
    const int64_t whole = fill_up(scores, count);
    // Subtract the largest score, so that no exponential overflows; then sum.
    const Vec total = broadcast(lane_sum(exponentials(scores, whole, largest_of(scores, whole))));
    // Normalize; sums of exponentials are at least 1, or NaN.
    for (int64_t e = 0; e < count; e += kLanes) store_part(load(scores + e) / total, out + e, count - e);
    return any_nan(total);
}

thread_local KeptMemory kept_row;

template <class Real>
bool softmax(const Softmax<Real>& work, double* busy, int threads) {
    const int64_t nonzeros = work.offsets[work.rows];
    bool nan = false;
    // Scratch for the longest row, one for each thread.
    int64_t longest = 0;
    for (int64_t i = 0; i < work.rows; ++i) longest = std::max(longest, padded(work.offsets[i + 1] - work.offsets[i]));
    float* const scratch = kept_row.floats(threads * longest);
    std::fill(busy, busy + threads, 0.0);
#pragma omp parallel num_threads(threads) reduction(|| : nan)
    own_shares(threads, busy, [&](int t) {
        // Contiguous rows of equal work: binary search in the offsets.
        const int64_t first = first_row(work.offsets, work.rows, t, threads);
        const int64_t last = first_row(work.offsets, work.rows, t + 1, threads);
        for (int64_t b = 0; b < work.batch; ++b)
            for (int64_t i = first; i < last; ++i) {
                const int64_t start = b * nonzeros + work.offsets[i], count = work.offsets[i + 1] - work.offsets[i];
                if (count == 0) continue;
                nan |= softmax_row(work.values + start, count, work.scale, scratch + t * longest, work.out + start);
            }
    });
    return nan;
}

template <class Real>
void gather(const Real* values, const int64_t* permutation, int64_t batch, int64_t nonzeros, Real* out, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    // Nonzeros outermost: an entry of the permutation is loaded once for the whole batch.
    for (int64_t e = 0; e < nonzeros; ++e)
        for (int64_t b = 0; b < batch; ++b) out[b * nonzeros + e] = values[b * nonzeros + permutation[e]];
}

}  // namespace

extern const SddmmLevel SPDNN_JOIN(sddmm_, SPDNN_LEVEL);
const SddmmLevel SPDNN_JOIN(sddmm_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL),
                                                    {sddmm<float>, softmax<float>, gather<float>},
                                                    {sddmm<uint16_t>, softmax<uint16_t>, gather<uint16_t>}};

}  // namespace spdnn
