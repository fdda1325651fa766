// softmax(scale * values) over the nonzeros of each row, and values in another order; for a batch at once.
//
// Algorithm   sparse_softmax: a warp a row. The maximum, the sum of exponentials, the quotients: each nonzero is read
//             three times, twice from the caches, unless the row has at most HELD x 32 nonzeros, which stay in
//             registers. Lane l has nonzeros l, l + 32, ... of the row, as one ascending chain, and the lanes' sums are
//             added by a tree: the bits depend on the row alone. Rows come by descending length (`order`). A NaN makes
//             the row NaN, as does a row that is -inf throughout; an empty row has nothing to write.
//             gather_values: out[e] = values[permutation[e]], a thread a nonzero.
// Layout      offsets (rows + 1); values, out (batch, nnz), which may be the same array for sparse_softmax.
// Launch      sparse_softmax: warps: batch x rows, rounded up to blocks. gather_values: threads: batch x nnz, or fewer.
// Shared      none.
// Macros      THREADS; VALUE (float, half); HELD; BLOCKS, that a multiprocessor holds at least.
// Reference   Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VIII-A (sparse
//             softmax).
//
// Predicted, not measured: both are bound by memory: 2 x sizeof(VALUE) bytes a nonzero; gather_values reads whole
// sectors of 32 bytes where the permutation jumps.
#include "ops.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    sparse_softmax(const long long* __restrict__ offsets, const int* __restrict__ order, const VALUE* values,
                   float scale, VALUE* out, int rows, int batch, long long nnz) {
    const long long item = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (item >= (long long)rows * batch) return;
    int position;
    const long long matrix = divided(item, rows, position);
    const int row = order[position], lane = threadIdx.x % 32;
    const long long start = offsets[row], offset = matrix * nnz + start;
    const int length = (int)(offsets[row + 1] - start);
    values += offset, out += offset;
    float most = NEGATIVE_INFINITY, sum = 0.f;
    if (length <= 32 * HELD) {
        // Short rows stay in registers: each nonzero is read once.
        float held[HELD];
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int e = i * 32 + lane;
            if (e >= length) continue;
            held[i] = __fmul_rn(scale, widened(values[e]));
            most = fmaxf(most, held[i]);
        }
        most = largest(most);
        // Relative to the maximum, no exponential overflows.
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            if (i * 32 + lane >= length) continue;
            held[i] = expf(held[i] - most);
            sum += held[i];
        }
        sum = total(sum);
        // Normalize from registers.
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (i * 32 + lane < length) narrow(out[i * 32 + lane], held[i] / sum);
        return;
    }
    // Long rows in three passes, of which the caches serve the second and the third.
#pragma unroll 4
    for (int e = lane; e < length; e += 32) most = fmaxf(most, __fmul_rn(scale, widened(values[e])));
    most = largest(most);
    // Scores are computed again, as there are too few registers to keep them.
#pragma unroll 4
    for (int e = lane; e < length; e += 32) sum += expf(__fmul_rn(scale, widened(values[e])) - most);
    sum = total(sum);
#pragma unroll 4
    for (int e = lane; e < length; e += 32) narrow(out[e], expf(__fmul_rn(scale, widened(values[e])) - most) / sum);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    gather_values(const VALUE* __restrict__ values, const long long* __restrict__ permutation, VALUE* __restrict__ out,
                  long long nnz, int batch) {
    const long long all = (long long)gridDim.x * THREADS;
    for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < nnz; e += all) {
        const long long from = permutation[e];  // read once for the batch
        for (int matrix = 0; matrix < batch; ++matrix) out[matrix * nnz + e] = values[matrix * nnz + from];
    }
}
