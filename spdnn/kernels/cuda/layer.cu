// One layer, features in global memory: the first ablation steps.
//
// csr_layer  weights in CSR by output; a lane is one input: 32 neighbouring floats are gathered for each edge, and its
//            index and value are loaded for all lanes at once.
// ell_layer  weights in slices (gather.cuh): the indices of SLICE outputs x CHUNK edges come in one coalesced load, and
//            are passed around by shuffles; the sums of the SLICE outputs are independent.
//
// A warp takes a tile of inputs and a group of SLICE outputs. Bias, activation and the marks of active inputs are part of
// the kernel (Hidayetoglu et al., HPEC 2020, section III-A).
// Launch: THREADS a block, any number of blocks; no dynamic shared memory.
// Macros: THREADS; INDEX, the type of indices; VALUED: 1 where edges have values of their own, else `values` has one.
#include "common.cuh"

// What is the same for all: the loop over groups and tiles, and what becomes of the sums.
//   Sums: enter(tile), sums(group, float (&)[SLICE]), output(entry): the output of an entry, or -1
template <class Sums>
__device__ __forceinline__ void every_group(
    Sums from, int groups, int count, float* target, int outputs, const float* bias, int bias_step, float low,
    float high, unsigned int* active, unsigned long long* work, int* failed, int layer)
{
    const int lane = threadIdx.x % 32;
    const long long items = (long long)tiles_of(count) * groups;
    for (long long item = (long long)blockIdx.x * WARPS + threadIdx.x / 32; item < items;
         item += (long long)gridDim.x * WARPS) {
        const int tile = (int)(item / groups), group = (int)(item % groups);
        float sums[SLICE] = {};
        from.enter(tile);
        from.sums(group, sums);
        bool nonzero = false, beyond = false;
#pragma unroll
        for (int i = 0; i < SLICE; ++i) {
            const int output = from.output(group * SLICE + i);
            if (output < 0) continue;
            const float value = activated(__fadd_rn(sums[i], bias[output * bias_step]), low, high, beyond);
            target[((long long)tile * outputs + output) * TILE + lane] = value;
            nonzero |= value != 0.f;
        }
        if (beyond) atomicMin(failed, layer);
        const unsigned int bits = __ballot_sync(FULL_WARP, nonzero) & held_lanes(tile * TILE, count);
        if (lane == 0) {
            mark(active + tile, bits);
            if (group == 0) atomicAdd(work + layer, (unsigned long long)TILE);
        }
    }
}

// Weights in CSR by output.
struct CsrRows {
    const float *source, *row;
    const int* list;
    int count, inputs, outputs;
    const long long* offsets;
    const INDEX* indices;
    const float* values;

    __device__ __forceinline__ int output(int entry) const { return entry < outputs ? entry : -1; }
    __device__ __forceinline__ void enter(int tile)
    {
        row = lane_row(source, list, tile, count, inputs);
    }
    __device__ __forceinline__ void sums(int group, float (&sums)[SLICE]) const
    {
        for (int i = 0; i < SLICE && group * SLICE + i < outputs; ++i) {
            const long long end = offsets[group * SLICE + i + 1];
            float sum = 0.f;
#pragma unroll 8
            for (long long edge = offsets[group * SLICE + i]; edge < end; ++edge)
                sum = fmaf(values[VALUED ? edge : 0], row[(long long)indices[edge] * TILE], sum);
            sums[i] = sum;
        }
    }
};

struct EllRows {
    const float *source, *row;
    const int *list, *order, *starts;
    int count, inputs;
    const INDEX* indices;
    const float* values;

    __device__ __forceinline__ int output(int entry) const { return order[entry]; }
    __device__ __forceinline__ void enter(int tile)
    {
        row = lane_row(source, list, tile, count, inputs);
    }
    __device__ __forceinline__ void sums(int group, float (&sums)[SLICE]) const
    {
        // Of values those of four edges of each output are side by side.
        const int lane = threadIdx.x % 32, place = (lane % CHUNK / 4 * SLICE + lane / CHUNK) * 4 + lane % 4;
        for (int chunk = starts[group]; chunk < starts[group + 1]; ++chunk) {
            const long long begin = (long long)chunk * (SLICE * CHUNK);
            const int index = indices[begin + lane];
            const float mine = values[VALUED ? begin + place : 0];
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
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 4) csr_layer(
    const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
    const int* __restrict__ rows, int inputs, int outputs, const long long* __restrict__ offsets,
    const INDEX* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ bias, int bias_step,
    float low, float high, unsigned int* active, unsigned long long* work, int* failed, int layer)
{
    const CsrRows from{source, nullptr, list, *rows, inputs, outputs, offsets, indices, values};
    every_group(from, (outputs + SLICE - 1) / SLICE, *rows, target, outputs, bias, bias_step, low, high, active, work,
                failed, layer);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) ell_layer(
    const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
    const int* __restrict__ rows, int inputs, int outputs, const int* __restrict__ order, int slices,
    const int* __restrict__ starts, const INDEX* __restrict__ indices, const float* __restrict__ values,
    const float* __restrict__ bias, int bias_step, float low, float high, unsigned int* active,
    unsigned long long* work, int* failed, int layer)
{
    const EllRows from{source, nullptr, list, order, starts, *rows, inputs, indices, values};
    every_group(from, slices, *rows, target, outputs, bias, bias_step, low, high, active, work, failed, layer);
}
