// One layer, features in global memory: the lower rungs of the ladder, and the first layer on binary inputs.
//
// csr_layer  weights in CSR by output; a lane is one input: 32 neighbouring floats are gathered for each edge, and its
//            index and value are loaded for all lanes at once.
// csr_bits   the same on words of bits (inputs.cu): 32 edges are fetched by 32 lanes, and passed around by shuffles.
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
struct Csr {
    int inputs, outputs;
    const long long* offsets;
    const INDEX* indices;
    const float* values;

    __device__ __forceinline__ int output(int entry) const { return entry < outputs ? entry : -1; }
    __device__ __forceinline__ float weight(long long edge) const { return values[VALUED ? edge : 0]; }
};

struct CsrRows : Csr {
    const float *source, *row;
    const int* list;
    int count;

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
                sum = fmaf(weight(edge), row[(long long)indices[edge] * TILE], sum);
            sums[i] = sum;
        }
    }
};

struct CsrBits : Csr {
    const unsigned int *words, *tile_words;

    __device__ __forceinline__ void enter(int tile) { tile_words = words + (long long)tile * inputs; }
    __device__ __forceinline__ void sums(int group, float (&sums)[SLICE]) const
    {
        const int lane = threadIdx.x % 32;
        for (int i = 0; i < SLICE && group * SLICE + i < outputs; ++i) {
            const long long end = offsets[group * SLICE + i + 1];
            float sum = 0.f;
            for (long long begin = offsets[group * SLICE + i]; begin < end; begin += 32) {
                const int edges = (int)min(end - begin, 32LL);
                const unsigned int word = lane < edges ? tile_words[indices[begin + lane]] : 0;
                const float mine = weight(lane < edges ? begin + lane : begin);
#pragma unroll 8
                for (int edge = 0; edge < edges; ++edge) {
                    const float one = VALUED ? __shfl_sync(FULL_WARP, mine, edge) : mine;
                    sum = __fadd_rn(sum, __shfl_sync(FULL_WARP, word, edge) >> lane & 1 ? one : 0.f);
                }
            }
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
        for (int chunk = starts[group]; chunk < starts[group + 1]; ++chunk) {
            const long long position = (long long)chunk * (SLICE * CHUNK) + threadIdx.x % 32;
            const int index = indices[position];
            // Of values those of four edges of each output are side by side.
            const int lane = threadIdx.x % 32, output = lane / CHUNK, edge = lane % CHUNK;
            const int place = (edge / 4 * SLICE + output) * 4 + edge % 4;
            const float mine = values[VALUED ? position - lane + place : 0];
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
    CsrRows from;
    from.inputs = inputs, from.outputs = outputs, from.offsets = offsets, from.indices = indices, from.values = values;
    from.source = source, from.list = list, from.count = *rows;
    every_group(from, (outputs + SLICE - 1) / SLICE, *rows, target, outputs, bias, bias_step, low, high, active, work,
                failed, layer);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) csr_bits(
    const unsigned int* __restrict__ words, float* __restrict__ target, const int* __restrict__ rows, int inputs,
    int outputs, const long long* __restrict__ offsets, const INDEX* __restrict__ indices,
    const float* __restrict__ values, const float* __restrict__ bias, int bias_step, float low, float high,
    unsigned int* active, unsigned long long* work, int* failed, int layer)
{
    CsrBits from;
    from.inputs = inputs, from.outputs = outputs, from.offsets = offsets, from.indices = indices, from.values = values;
    from.words = words;
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
    EllRows from;
    from.source = source, from.list = list, from.count = *rows, from.inputs = inputs;
    from.order = order, from.starts = starts, from.indices = indices, from.values = values;
    every_group(from, slices, *rows, target, outputs, bias, bias_step, low, high, active, work, failed, layer);
}
