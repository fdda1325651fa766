// The inner loop of all kernels on sliced weights: one group of outputs of a slice, for the inputs that a lane holds.
//
// Weights: slices of SLICE groups of SHARED outputs that read the same inputs; a slice is a run of chunks, a chunk
// holds CHUNK gathers of each group: indices unsigned short (chunks, SLICE, CHUNK), values float (chunks, CHUNK *
// SHARED / 4, SLICE, 4), of each gather one for each output. One load brings the CHUNK indices of a group to the lanes
// that work on it; one gather brings VECTOR inputs of a neuron to a lane, for SHARED outputs. Features are in shared
// memory, (neurons, INPUTS). A Lane is the VECTOR values of a neuron that one thread works on. Indices count UNIT
// Lanes: a neuron, or 1 where the layout has multiplied them (spdnn/kernels/cuda/sliced.py).
#pragma once

#if INPUTS >= 4
#define VECTOR 4
typedef float4 Lane;
__device__ __forceinline__ void add(Lane& sum, float weight, const Lane& value) {
    sum.x = fmaf(weight, value.x, sum.x);
    sum.y = fmaf(weight, value.y, sum.y);
    sum.z = fmaf(weight, value.z, sum.z);
    sum.w = fmaf(weight, value.w, sum.w);
}
typedef uint4 NonzeroBits;
// bias added, activated; the bits of the values are added to `nonzero`, and `beyond` is set for a sum past float32.
__device__ __forceinline__ Lane activated(Lane sum, float bias, float low, float high, NonzeroBits& nonzero,
                                          bool& beyond) {
    sum.x = activated(__fadd_rn(sum.x, bias), low, high, beyond), nonzero.x |= __float_as_uint(sum.x);
    sum.y = activated(__fadd_rn(sum.y, bias), low, high, beyond), nonzero.y |= __float_as_uint(sum.y);
    sum.z = activated(__fadd_rn(sum.z, bias), low, high, beyond), nonzero.z |= __float_as_uint(sum.z);
    sum.w = activated(__fadd_rn(sum.w, bias), low, high, beyond), nonzero.w |= __float_as_uint(sum.w);
    return sum;
}
// Bit i is set where a value i was not zero; -0 is zero.
__device__ __forceinline__ unsigned int alive_of(NonzeroBits nonzero) {
    return (nonzero.x << 1 != 0) | (nonzero.y << 1 != 0) << 1 | (nonzero.z << 1 != 0) << 2 | (nonzero.w << 1 != 0) << 3;
}
#else
#define VECTOR 1
typedef float Lane;
__device__ __forceinline__ void add(Lane& sum, float weight, const Lane& value) { sum = fmaf(weight, value, sum); }
typedef unsigned int NonzeroBits;
__device__ __forceinline__ Lane activated(Lane sum, float bias, float low, float high, NonzeroBits& nonzero,
                                          bool& beyond) {
    sum = activated(__fadd_rn(sum, bias), low, high, beyond), nonzero |= __float_as_uint(sum);
    return sum;
}
__device__ __forceinline__ unsigned int alive_of(NonzeroBits nonzero) { return nonzero << 1 != 0; }
#endif
#define LANES (INPUTS / VECTOR)  // threads that share a group of outputs
#ifndef UNIT
#define UNIT LANES
#endif

#if __CUDA_ARCH__ < 900
typedef int Index;  // in Lanes: loads multiply it by 16
#else
typedef unsigned int Index;  // they do not, and sums of ints would be of 64 bits
#endif

// What a lane whose first inputs are at `from` holds of the neuron at `index`.
__device__ __forceinline__ Lane gathered(const Lane* features, unsigned int from, unsigned int index) {
    return features[Index(from) + Index(index * UNIT)];
}
#if INPUTS == TILE
// The same of words, a bit for each input.
__device__ __forceinline__ unsigned int gathered(const unsigned int* words, unsigned int from, unsigned int index) {
    return words[Index(from / LANES) + Index(index * UNIT / LANES)] >> from % LANES * VECTOR;
}
__device__ __forceinline__ void add(Lane& sum, float weight, unsigned int bits) {
    if (bits & 1) sum.x = __fadd_rn(sum.x, weight);
    if (bits & 2) sum.y = __fadd_rn(sum.y, weight);
    if (bits & 4) sum.z = __fadd_rn(sum.z, weight);
    if (bits & 8) sum.w = __fadd_rn(sum.w, weight);
}
#endif

// Adds the edges of a chunk of one group to the sums of its outputs.
//   features  in shared memory, (neurons, LANES) of Lanes; `from`: where this lane's first is
//   eight  indices; weight: of all edges, where they have no values; values(i): else the next four, which are number i
template <int OUTPUTS, class Features, class Values>
__device__ __forceinline__ void add_chunk(Lane* sums, const Features* features, unsigned int from, const uint4& eight,
                                          float weight, Values values) {
    constexpr int STEP = OUTPUTS == 1 ? 4 : 2;  // gathers in flight: registers are short
    // Eight 16-bit indices came in one load of 16 bytes.
    const unsigned int pairs[CHUNK / 2] = {eight.x, eight.y, eight.z, eight.w};
    // A few gathers at a time are in flight together; more would need more registers.
#pragma unroll
    for (int half = 0; half < CHUNK / STEP; ++half) {
        constexpr int FOURS = OUTPUTS * STEP / 4;
        float own[FOURS * 4];
        // Weights in loads of 16 bytes.
#pragma unroll
        for (int i = 0; i < (VALUED ? FOURS : 0); ++i) {
            const float4 four = values(half * FOURS + i);
            own[i * 4] = four.x, own[i * 4 + 1] = four.y, own[i * 4 + 2] = four.z, own[i * 4 + 3] = four.w;
        }
        // Gather from shared memory: one load serves all outputs of the group.
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            const unsigned int pair = pairs[(half * STEP + i) / 2];
            const unsigned int index = i % 2 ? pair >> 16 : pair & 0xffffu;
            const auto value = gathered(features, from, index);
#pragma unroll
            for (int one = 0; one < OUTPUTS; ++one) add(sums[one], VALUED ? own[i * OUTPUTS + one] : weight, value);
        }
    }
}

// Adds those of a slice's chunks begin..end-1, both times SLICE; `group`: of the SLICE groups of the slice.
template <int OUTPUTS, class Features>
__device__ __forceinline__ void add_chunks(Lane* sums, const Features* features, unsigned int from,
                                           const unsigned short* indices, const float* values, float weight, int group,
                                           int begin, int end) {
#if __CUDA_ARCH__ < 900
    // Fold the lane's offset into the pointer: an addition less in each gather.
    if (sizeof(Features) == sizeof(Lane)) features += from, from = 0;  // of words it says which bits, too
#endif
    // In units of four; those of a layer fit an int, as positions do (spdnn/engines/cuda/layers.py).
    const float4* weights = reinterpret_cast<const float4*>(values) + begin * (CHUNK * OUTPUTS / 4) + group;
    const auto next_four = [&](int) { return weights += SLICE, __ldg(weights - SLICE); };
    // Chunks of the SLICE groups interleave, so that neighbouring groups load neighbouring bytes: coalesced.
#pragma unroll(VECTOR == 1 && VALUED ? 2 : 1)  // positions in units of CHUNK gathers
    for (int position = begin + group; position < end; position += SLICE)
        add_chunk<OUTPUTS>(sums, features, from, __ldg(reinterpret_cast<const uint4*>(indices) + position), weight,
                           next_four);
}
