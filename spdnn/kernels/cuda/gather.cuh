// The inner loop of all kernels on sliced weights: one output of one slice, for the inputs that a lane holds.
//
// Weights: slices of SLICE outputs; a slice is a run of chunks, a chunk holds CHUNK edges of each of its outputs: indices
// unsigned short (chunks, SLICE, CHUNK), values float alike. One load brings the CHUNK indices of an output to the lanes
// that work on it, and each is used for VECTOR inputs from a register. Features are in shared memory, (neurons, INPUTS).
#pragma once

#if INPUTS >= 4
#define VECTOR 4
typedef float4 Held;
__device__ __forceinline__ Held nothing() { return make_float4(0.f, 0.f, 0.f, 0.f); }
__device__ __forceinline__ void add(Held& sum, float weight, const Held& value)
{
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
}
// bias added, activated; bit i of `bits` is set for a value i that is not zero.
__device__ __forceinline__ Held finished(
    Held sum, float bias, float low, float high, int* failed, int layer, unsigned int& bits)
{
    sum.x = activated(__fadd_rn(sum.x, bias), low, high, failed, layer);
    sum.y = activated(__fadd_rn(sum.y, bias), low, high, failed, layer);
    sum.z = activated(__fadd_rn(sum.z, bias), low, high, failed, layer);
    sum.w = activated(__fadd_rn(sum.w, bias), low, high, failed, layer);
    bits |= (sum.x != 0.f) | (sum.y != 0.f) << 1 | (sum.z != 0.f) << 2 | (sum.w != 0.f) << 3;
    return sum;
}
#else
#define VECTOR 1
typedef float Held;
__device__ __forceinline__ Held nothing() { return 0.f; }
__device__ __forceinline__ void add(Held& sum, float weight, const Held& value) { sum = fmaf(weight, value, sum); }
__device__ __forceinline__ Held finished(
    Held sum, float bias, float low, float high, int* failed, int layer, unsigned int& bits)
{
    sum = activated(__fadd_rn(sum, bias), low, high, failed, layer);
    bits |= sum != 0.f;
    return sum;
}
#endif
#define LANES (INPUTS / VECTOR) // threads that share an output

// Adds the edges of one output in chunks begin..end-1 to `sum`.
//   features  shared memory, (neurons, LANES) of Held, from this lane's first on
//   output  of the SLICE outputs of the slice
__device__ __forceinline__ void add_chunks(Held& sum, const Held* features, const unsigned short* indices,
                                           const float* values, int output, int begin, int end)
{
#if !VALUED
    const float weight = values[0];
#endif
    // Positions in units of CHUNK edges; those of a layer fit an int (spdnn/kernels/layouts/sliced.py).
    for (int position = begin * SLICE + output; position < end * SLICE; position += SLICE) {
        const uint4 eight = __ldg(reinterpret_cast<const uint4*>(indices) + position);
        const unsigned int pairs[CHUNK / 2] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int half = 0; half < 2; ++half) { // the weights of one half at a time, for registers are short
#if VALUED
            const float4 four = __ldg(reinterpret_cast<const float4*>(values) + position * 2 + half);
            const float weights[CHUNK / 2] = {four.x, four.y, four.z, four.w};
#endif
#pragma unroll
            for (int edge = 0; edge < CHUNK / 2; ++edge) {
                const unsigned int pair = pairs[half * 2 + edge / 2];
                const unsigned int index = edge % 2 ? pair >> 16 : pair & 0xffffu;
#if VALUED
                add(sum, weights[edge], features[index * LANES]);
#else
                add(sum, weight, features[index * LANES]);
#endif
            }
        }
    }
}
