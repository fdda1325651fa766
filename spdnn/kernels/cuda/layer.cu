// One layer, features in global memory: the first ablation steps.
//
// csr_layer  weights in CSR by output; a lane is one input: 32 neighbouring floats are gathered for each edge, and its
//            index and value are loaded for all lanes at once.
// ell_layer  weights in slices (gather.cuh): the indices of SLICE outputs x CHUNK edges come in one coalesced load, and
//            are passed around by shuffles; the sums of the SLICE outputs are independent.
//
// A warp takes a tile of inputs and a group of SLICE outputs. Bias, activation and the marks of active inputs are part
// of the kernel (Hidayetoglu et al., HPEC 2020, section III-A). Launch: THREADS a block, any number of blocks; no
// dynamic shared memory. Macros: THREADS; INDEX, the type of indices; VALUED: 1 where edges have values of their own,
// else `values` has one.
#include "common.cuh"

// What is the same for both: the loop over groups and tiles, and what becomes of the sums.
//   sums_of(group, row, sums)  of a lane's row, into float (&)[SLICE]; output_of(entry): the output of an entry, or -1
template <class Sums, class Output>
__device__ __forceinline__ void every_group(Sums sums_of, Output output_of, const float* source, const int* list,
                                            int count, int inputs, int groups, float* target, int outputs,
                                            const float* bias, int bias_step, float low, float high,
                                            unsigned int* active, unsigned long long* work, int* failed, int layer) {
    const int lane = threadIdx.x % 32;
    const long long items = (long long)tiles_of(count) * groups;
    for (long long item = (long long)blockIdx.x * WARPS + threadIdx.x / 32; item < items;
         item += (long long)gridDim.x * WARPS) {
        // Grid-stride over warps: each takes a tile of inputs and a group of outputs.
        const int tile = (int)(item / groups), group = (int)(item % groups);
        float sums[SLICE] = {};
        sums_of(group, lane_row(source, list, tile, count, inputs), sums);
        // Epilogue: bias and activation in registers; the lanes of a store fill one line.
        bool nonzero = false, beyond = false;
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            const int output = output_of(group * SLICE + i);
            if (output < 0) continue;
            const float value = activated(__fadd_rn(sums[i], bias[output * bias_step]), low, high, beyond);
            target[((long long)tile * outputs + output) * TILE + lane] = value;
            nonzero |= value != 0.f;
        }
        if (beyond) atomicMin(failed, layer);
        // Warp vote: the ballot is the mark of this tile; lanes past the last row have no input.
        const unsigned int bits = __ballot_sync(FULL_WARP, nonzero) & valid_lanes(tile * TILE, count);
        if (lane == 0) {
            mark(active + tile, bits);
            if (group == 0) atomicAdd(work + layer, (unsigned long long)TILE);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    csr_layer(const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
              const int* __restrict__ rows, int inputs, int outputs, const long long* __restrict__ offsets,
              const INDEX* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ bias,
              int bias_step, float low, float high, unsigned int* active, unsigned long long* work, int* failed,
              int layer) {
    const auto sums_of = [&](int group, const float* row, float (&sums)[SLICE]) {
        for (int i = 0; i < SLICE && group * SLICE + i < outputs; ++i) {
            const long long end = offsets[group * SLICE + i + 1];
            // All lanes load the same index and weight, a broadcast, and gather each its own input.
            float sum = 0.f;
#pragma unroll 8
            for (long long edge = offsets[group * SLICE + i]; edge < end; ++edge)
                sum = fmaf(values[VALUED ? edge : 0], row[(long long)indices[edge] * TILE], sum);
            sums[i] = sum;
        }
    };
    every_group(
        sums_of, [&](int entry) { return entry < outputs ? entry : -1; }, source, list, *rows, inputs,
        (outputs + SLICE - 1) / SLICE, target, outputs, bias, bias_step, low, high, active, work, failed, layer);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    ell_layer(const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
              const int* __restrict__ rows, int inputs, int outputs, const int* __restrict__ order, int slices,
              const int* __restrict__ starts, const INDEX* __restrict__ indices, const float* __restrict__ values,
              const float* __restrict__ bias, int bias_step, float low, float high, unsigned int* active,
              unsigned long long* work, int* failed, int layer) {
    // Of values those of four edges of each output are side by side.
    const int lane = threadIdx.x % 32, place = (lane % CHUNK / 4 * SLICE + lane / CHUNK) * 4 + lane % 4;
    const auto sums_of = [&](int group, const float* row, float (&sums)[SLICE]) {
        for (int chunk = starts[group]; chunk < starts[group + 1]; ++chunk) {
            // One coalesced load of SLICE x CHUNK indices, one a lane, and of the values.
            const long long begin = (long long)chunk * (SLICE * CHUNK);
            const int index = indices[begin + lane];
            const float mine = values[VALUED ? begin + place : 0];
            // Shuffles pass an edge to all lanes; SLICE independent sums hide the latency of the gathers.
#pragma unroll 2
            for (int edge = 0; edge < CHUNK; ++edge)
#pragma unroll
                for (int i = 0; i < SLICE; ++i) {
                    const int neuron = __shfl_sync(FULL_WARP, index, i * CHUNK + edge);
                    const float one = VALUED ? __shfl_sync(FULL_WARP, mine, i * CHUNK + edge) : mine;
                    // A neuron past the last one is padding.
                    if (neuron < inputs) sums[i] = fmaf(one, row[(long long)neuron * TILE], sums[i]);
                }
        }
    };
    every_group(
        sums_of, [&](int entry) { return order[entry]; }, source, list, *rows, inputs, slices, target, outputs, bias,
        bias_step, low, high, active, work, failed, layer);
}
