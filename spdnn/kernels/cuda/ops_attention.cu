// out[i] = sum over the nonzeros (i, j) of softmax_j(scale * Q[i] . K[j]) V[j]: sparse attention without scores in
// memory.
//
// Algorithm   A warp a row (and a tile of columns of V, of which there is one up to WIDE x HELD x 32). CHUNK nonzeros
//             at a time: their dots as in ops_sddmm.cu; the largest score so far, and what was summed before shrunk to
//             it (online softmax); then the chunk's rows of V, weighted, in ascending order, each lane its own columns.
//             Chunks begin at multiples of STEP nonzeros before the row's first (reverse-offset memory alignment); what
//             belongs to the row before is masked. Rows come by descending length (`order`); four warps of a block work
//             on rows of like length of one matrix of the batch.
//             Bits: a dot has 32 partial sums in every setting, a chunk always CHUNK nonzeros, and a lane's columns are
//             its own: they depend on no macro, nor on the batch. They are not those of sddmm, softmax and spmm one
//             after another, which round in between and divide before they add.
//             A row without nonzeros gives zeros; one whose scores are all -inf, or with NaN among them, NaN.
// Layout      offsets (rows + 1); columns: ops.cuh; q (batch, rows, depth), k (batch, keys, depth), v (batch, keys,
//             width), out (batch, rows, width). q and k begin at multiples of VECTOR, which divides depth; v and out of
//             WIDE, which divides width.
// Launch      warps: batch x rows x tiles of columns, rounded up to blocks.
// Shared      static: 8 bytes x CHUNK x warps of a block: 1 KB.
// Macros      THREADS; VALUE (float, half); VECTOR (1, 4, 8); WIDE (1, 2), HELD; BLOCKS, that a multiprocessor holds at
//             least.
// Reference   Gale et al., SC 2020, sections VI and VIII-A (sparse attention); Milakov and Gimelshein, "Online
//             normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", NeurIPS 2022, Algorithm 1.
//
// Predicted, not measured: a nonzero reads depth numbers of K and width of V from the first-level cache or the second:
// at 64 and 64 in float 512 bytes, 4 cycles of the first-level cache, and a multiply-add for each of these numbers.
// Not fused, 4 x 4 bytes of scores would pass through memory on top, in three kernels.
#include "ops_dots.cuh"

#define CHUNK 32
#define COLUMNS (32 * WIDE * HELD)
static_assert(CHUNK == 32 && CHUNK % TOGETHER == 0, "a lane has one score of a chunk");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    sparse_attention(const long long* __restrict__ offsets, const unsigned short* __restrict__ columns, int index_bytes,
                     const int* __restrict__ order, const VALUE* __restrict__ q, const VALUE* __restrict__ k,
                     const VALUE* __restrict__ v, float scale, VALUE* __restrict__ out, int rows, int keys, int depth,
                     int width, int batch) {
    __shared__ float all_weights[THREADS / 32][CHUNK];
    __shared__ unsigned int all_keys[THREADS / 32][CHUNK];
    const int tiles = (width - 1) / COLUMNS + 1;
    // Who: a row of one matrix of the batch, and a tile of columns of V.
    const long long warp = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int tile, position;
    const long long item = divided(warp, tiles, tile);  // a row of a matrix of the batch
    const int matrix = (int)divided(item, rows, position);
    if (matrix >= batch) return;
    const int row = order[position], lane = threadIdx.x % 32;
    // Its nonzeros, from an aligned begin on, so that STEP indices are one load.
    const long long start = offsets[row], begin = start & -STEP;
    const int masked = (int)(start - begin), length = (int)(offsets[row + 1] - begin);

    q += ((long long)matrix * rows + row) * depth;
    k += (long long)matrix * keys * depth;
    const int column = tile * COLUMNS + lane * WIDE;  // and WIDE x 32 further on, HELD times
    v += (long long)matrix * keys * width + column;
    out += ((long long)matrix * rows + row) * width + column;
    float sums[HELD][WIDE];
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
#pragma unroll
        for (int i = 0; i < WIDE; ++i) sums[held][i] = 0.f;
    }
    float* weights = all_weights[threadIdx.x / 32];
    unsigned int* named = all_keys[threadIdx.x / 32];
    // An empty row divides by 1 and gives zeros.
    float most = NEGATIVE_INFINITY, all = length > masked ? 0.f : 1.f;

    for (int at = 0; at < length && length > masked; at += CHUNK) {
        // Scores, one for each nonzero of the chunk.
        __syncwarp();  // the chunk before is read
        for (int first = 0; first < CHUNK && at + first < length; first += TOGETHER) {
            const int mine = first + threadIdx.x % 32 / LANES * STEP, part = threadIdx.x % LANES;
            unsigned int indices[STEP] = {0, 0, 0, 0};
            if (at + mine < length) load_indices(indices, columns, begin + at + mine, index_bytes);
            const float dot = dots(q, k, depth, indices, at + mine < length);
            // Lane `part` has one of the dots: share it and its key with the warp through shared memory.
            if (part < STEP) {
                weights[mine + part] = scale * dot;
                // Select by bits of the lane: an index into registers would move them to local memory.
                const unsigned int low = part & 1 ? indices[1] : indices[0], high = part & 1 ? indices[3] : indices[2];
                named[mine + part] = part & 2 ? high : low;
            }
        }
        __syncwarp();

        // The largest so far, and exponentials relative to it.
        const bool mine = at + lane >= masked && at + lane < length;
        const float score = mine ? weights[lane] : NEGATIVE_INFINITY, before = most;
        most = fmaxf(most, largest(score));
        // As long as all scores are -inf, 0 serves as base: -inf - -inf would be NaN.
        const float base = most == NEGATIVE_INFINITY ? 0.f : most;
        const float weight = mine ? expf(score - base) : 0.f, shrink = expf(before - base);
        all = fmaf(all, shrink, total(weight));
        __syncwarp();  // the scores are read
        weights[lane] = weight;
        __syncwarp();

        // Rescale what was summed before, then accumulate the weighted rows of V; each lane has columns of its own.
#pragma unroll
        for (int held = 0; held < HELD; ++held) {
#pragma unroll
            for (int i = 0; i < WIDE; ++i) sums[held][i] *= shrink;
        }
        const int last = min(CHUNK, length - at);
#pragma unroll 4  // loads in flight
        for (int e = max(0, masked - at); e < last; ++e) {
            const float factor = weights[e];
            const VALUE* from = v + (long long)named[e] * width;
#pragma unroll
            for (int held = 0; held < HELD; ++held) {
                if (column + held * 32 * WIDE >= width) continue;
                float numbers[WIDE];
                spread(numbers, load<VALUE, WIDE>(from + held * 32 * WIDE));
#pragma unroll
                for (int i = 0; i < WIDE; ++i) sums[held][i] = fmaf(factor, numbers[i], sums[held][i]);
            }
        }
    }
    // Normalize once, after all chunks.
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
        if (column + held * 32 * WIDE >= width) continue;
#pragma unroll
        for (int i = 0; i < WIDE; ++i) sums[held][i] /= all;
        store(out + held * 32 * WIDE, sums[held]);
    }
}
