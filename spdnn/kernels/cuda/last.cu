// Statistics of the rows that are nonzero at the end: sums, projections, extremes, hashes.
//
// `statistics` gets COLUMNS words of 8 bytes for each of the rows 0..*rows-1 in the order of `list`, so that the host
// reads all at once: sum and projection, double; least and most value, float; hash. A neuron here represents `counts`
// original ones, and `weights` is the sum of their projection weights. Sums are double, in an order of their own that
// is always the same: each warp takes every WARPS-th neuron, then the warps' sums are added in order. A block takes a
// tile, a lane is a row. Launch: THREADS a block, any number of blocks; no dynamic shared memory.
#include "common.cuh"
#include "rows.cuh"

#define COLUMNS 4

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    row_statistics(const float* __restrict__ features, int neurons, const int* __restrict__ list,
                   const int* __restrict__ rows, const double* __restrict__ counts, const double* __restrict__ weights,
                   unsigned long long* __restrict__ statistics) {
    __shared__ double all_sums[WARPS][TILE], all_projections[WARPS][TILE];
    __shared__ float all_least[WARPS][TILE], all_most[WARPS][TILE];
    __shared__ unsigned long long all_hashes[WARPS][TILE];
    const int count = *rows, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
        const int row = tile * TILE + lane;
        const float* from = features + row_start(list[min(row, count - 1)], neurons);
        // Each warp accumulates every WARPS-th neuron, in double precision and a fixed order.
        double sum = 0, projection = 0;
        float low = __uint_as_float(0x7f800000u), high = __uint_as_float(0xff800000u);
        unsigned long long hash = 0;
        for (int neuron = warp; neuron < neurons; neuron += WARPS) {
            const float value = from[(long long)neuron * TILE];
            sum += counts[neuron] * value;
            projection += weights[neuron] * value;
            low = fminf(low, value);
            high = fmaxf(high, value);
            hash += hashed(value, neuron);
        }
        // Exchange the warps' parts through shared memory.
        all_sums[warp][lane] = sum;
        all_projections[warp][lane] = projection;
        all_least[warp][lane] = low;
        all_most[warp][lane] = high;
        all_hashes[warp][lane] = hash;
        __syncthreads();
        // Reduce in the order of the warps, not by atomics, so that sums have the same bits in every run.
        if (warp == 0 && row < count) {
            for (int other = 1; other < WARPS; ++other) {
                sum += all_sums[other][lane];
                projection += all_projections[other][lane];
                low = fminf(low, all_least[other][lane]);
                high = fmaxf(high, all_most[other][lane]);
                hash += all_hashes[other][lane];
            }
            unsigned long long* of_row = statistics + (long long)row * COLUMNS;
            of_row[0] = __double_as_longlong(sum);
            of_row[1] = __double_as_longlong(projection);
            of_row[2] = (unsigned long long)__float_as_uint(high) << 32 | __float_as_uint(low);
            of_row[3] = hash;
        }
        // The parts have been read before the next tile overwrites them.
        __syncthreads();
    }
}
