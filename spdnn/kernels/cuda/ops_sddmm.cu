// out[e] = scale * Q[i] . K[j] for each nonzero e = (i, j) of a topology: dense times dense, sampled, for a batch at
// once.
//
// Algorithm   One-dimensional tiling over the nonzeros of a row (section VI of the reference): a warp takes `span`
//             nonzeros of one row, 32 / LANES subwarps each STEP of them at a time (ops_dots.cuh), all with the same
//             row of Q, whose loads are then one line for the warp. Reverse-offset memory alignment: a row begins at a
//             multiple of STEP nonzeros at or before its first, so that STEP indices are one load; the neighbours' are
//             computed and not written. Row swizzle: `order` has rows by descending length, and a long row is on
//             several warps.
//             Bits: ops_dots.cuh; they depend on no macro, nor on `span` or the batch.
// Layout      offsets (rows + 1); columns: ops.cuh; q (batch, rows, depth); k (batch, keys, depth); out (batch, nnz). q
//             and k begin at multiples of a vector, and VECTOR divides depth.
// Launch      warps: batch x rows x parts, parts = ceil((longest row + STEP - 1) / span), rounded up to blocks. Most of
//             the warps beyond a short row's end leave at once.
// Shared      none.
// Macros      THREADS; VALUE (float, half); VECTOR (1, 4, 8); UNROLL; BLOCKS, that a multiprocessor holds at least.
// Reference   Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VI.
//
// Predicted: a multiply-add needs a number of K from the first-level cache, as in ops_spmm.cu: at most 44 % of the
// peak of a V100 or A100 in float, 22 % of an H200; half twice as much. Q adds 1 load to SUBWARPS * STEP, the tree 4
// shuffles and 1 or 2 additions for STEP dots of 2 x depth operations each. Measured on an H100: 9 % on 33,288 x 512
// with a depth of 256. Small layers wait for their loads: 256 x 2304 with a depth of 196 took 32.6 us with spans of
// 480 and 10.7 with 32; 20 loads in flight help others. Over 25 layers the best of both is 2.0 times as fast as
// neither (one run, 90 % zeros).
#include "ops_dots.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    sddmm(const long long* __restrict__ offsets, const unsigned short* __restrict__ columns, int index_bytes,
          const int* __restrict__ order, const VALUE* __restrict__ q, const VALUE* __restrict__ k, float scale,
          VALUE* __restrict__ out, int rows, int keys, int depth, int batch, long long nnz, int span, int parts) {
    // Who: a part of a row of one matrix of the batch.
    const long long warp = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int part, position;
    const long long item = divided(warp, parts, part);  // a row of a matrix of the batch
    const int matrix = (int)divided(item, rows, position);
    if (matrix >= batch) return;
    const int row = order[position];
    // Its nonzeros, from an aligned begin on, so that STEP indices are one load.
    const long long start = offsets[row], begin = start & -STEP;
    const int masked = (int)(start - begin), length = (int)(offsets[row + 1] - begin);
    if (length <= masked) return;
    const int lane = threadIdx.x % LANES, subwarp = threadIdx.x % 32 / LANES;
    const int last = (int)min((long long)length, (part + 1LL) * span);
    q += ((long long)matrix * rows + row) * depth;
    k += (long long)matrix * keys * depth;
    out += matrix * nnz + begin;
    for (int at = part * span; at < last; at += TOGETHER) {
        const int mine = at + subwarp * STEP, e = mine + lane;
        // A subwarp past the end comes along with index 0, for the shuffles of its warp.
        unsigned int indices[STEP] = {0, 0, 0, 0};
        if (mine < last) load_indices(indices, columns, begin + mine, index_bytes);
        const float sum = dots(q, k, depth, indices, mine < last);
        // Epilogue: a lane holds one dot; write those that belong to the row.
        if (lane < STEP && e >= masked && e < last) narrow(out[e], scale * sum);
    }
}
