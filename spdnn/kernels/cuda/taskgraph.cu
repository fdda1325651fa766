// Rows of a task graph that wait between two stages.
//
// park_rows  the rows that go on, in order, to the rows from *next on in a pool of features and weights, where the few
//            rows that are left of several batches wait until they go on as one
//
// Launch: any number of blocks, each of which takes tiles in turn.
#include "common.cuh"
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    park_rows(const float* __restrict__ features, int neurons, const int* __restrict__ list,
              const int* __restrict__ rows, const int* __restrict__ origin, const int* __restrict__ weight,
              const int* __restrict__ next, float* __restrict__ pool, int* __restrict__ pool_weight) {
    const int count = *rows, first = *next, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
        const int row = tile * TILE + lane;
        if (row >= count) continue;
        const float* from = features + row_start(list[row], neurons);
        float* to = pool + row_start(first + row, neurons);
        // Warps take neurons in turn; the lanes are rows, neighbours in memory on the side of the pool.
        for (int neuron = warp; neuron < neurons; neuron += WARPS)
            to[(long long)neuron * TILE] = from[(long long)neuron * TILE];
        if (warp == 0) pool_weight[first + row] = weight[origin[row]];
    }
}
