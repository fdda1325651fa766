// What the kernels of spdnn.ops share: vectors of numbers in memory, the epilogue, the order in which dots are summed.
//
// VALUE (float or half) is how numbers lie in memory; every sum is float. A vector is VECTOR numbers that one
// instruction of at most 16 bytes loads, at an address that is a multiple of its size.
//
// Indices are 16 or 32 bits wide, chosen at run time (`index_bytes`), for only the staging of a row sees them; they are
// passed as an array of 16-bit words that begins at a multiple of 16 bytes and is padded to a multiple of STEP indices,
// so that STEP indices from a multiple of STEP on are always one load.
#pragma once

#define FULL_WARP 0xffffffffu
#define NEGATIVE_INFINITY __uint_as_float(0xff800000u)
#define STEP 4  // nonzeros of a vector of values or indices: rows are backed up to a multiple of it

// Numbers of 16 bits, in memory alone: widened to float when they are loaded, rounded once (to nearest, ties to even)
// when they are stored. The conversions are one instruction each, inline PTX as in the toolkit's cuda_fp16.h, which
// NVRTC does not bring along; on the CPU shim the compiler's own type does the same.
struct half {
    unsigned short bits;
};

#ifdef SPDNN_SHIM
__device__ __forceinline__ float widened(half value) {
    _Float16 number;
    memcpy(&number, &value, sizeof number);
    return number;
}
__device__ __forceinline__ void narrow(half& to, float value) {
    const _Float16 number = value;
    memcpy(&to, &number, sizeof number);
}
#else
__device__ __forceinline__ float widened(half value) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(value.bits));
    return number;
}
__device__ __forceinline__ void narrow(half& to, float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}
#endif
__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ void narrow(float& to, float value) { to = value; }

template <int BYTES>
struct Words;
template <>
struct Words<2> {
    typedef unsigned short type;
};
template <>
struct Words<4> {
    typedef unsigned int type;
};
template <>
struct Words<8> {
    typedef uint2 type;
};
template <>
struct Words<16> {
    typedef uint4 type;
};

// The bits of COUNT numbers of type T, as loaded: half the registers of floats where T is half.
template <class T, int COUNT>
struct Raw {
    typedef typename Words<sizeof(T) * COUNT>::type Word;
    Word word;
};

template <int COUNT>
__device__ __forceinline__ void spread(float (&to)[COUNT], const Raw<float, COUNT>& raw) {
    memcpy(to, &raw.word, sizeof raw.word);
}
template <int COUNT>
__device__ __forceinline__ void spread(float (&to)[COUNT], const Raw<half, COUNT>& raw) {
    half numbers[COUNT];
    memcpy(numbers, &raw.word, sizeof raw.word);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) to[i] = widened(numbers[i]);
}

template <class T, int COUNT>
__device__ __forceinline__ Raw<T, COUNT> load(const void* from) {
    Raw<T, COUNT> raw;
    raw.word = __ldg(reinterpret_cast<const typename Raw<T, COUNT>::Word*>(from));
    return raw;
}

// COUNT numbers to memory of type T, rounded once, in one instruction.
template <class T, int COUNT>
__device__ __forceinline__ void store(T* to, const float (&from)[COUNT]) {
    // Round each number, then store the vector at once.
    T numbers[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) narrow(numbers[i], from[i]);
    typename Raw<T, COUNT>::Word word;
    memcpy(&word, numbers, sizeof word);
    *reinterpret_cast<typename Raw<T, COUNT>::Word*>(to) = word;
}

// STEP indices from `position`, a multiple of STEP.
__device__ __forceinline__ void load_indices(unsigned int (&to)[STEP], const unsigned short* columns,
                                             long long position, int index_bytes) {
    if (index_bytes == 2) {
        // Two indices in a word: one load of 8 bytes brings all four.
        const uint2 words = __ldg(reinterpret_cast<const uint2*>(columns + position));
        to[0] = words.x & 0xffffu, to[1] = words.x >> 16, to[2] = words.y & 0xffffu, to[3] = words.y >> 16;
    } else {
        const uint4 words = __ldg(reinterpret_cast<const uint4*>(columns + 2 * position));
        to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
    }
}

// NaN passes through.
__device__ __forceinline__ float activated(float y, float low, float high) {
    return y < low ? low : y > high ? high : y;
}

__device__ __forceinline__ bool aligned_to(const void* address, int bytes) {
    return reinterpret_cast<unsigned long long>(address) % bytes == 0;
}

// Quotient and remainder; most numbers are small enough for 32-bit division, which is many times faster.
__device__ __forceinline__ long long divided(long long number, int by, int& rest) {
    if (number >> 32 == 0) {
        const unsigned int quotient = (unsigned int)number / (unsigned int)by;
        rest = (int)((unsigned int)number - quotient * (unsigned int)by);
        return quotient;
    }
    rest = (int)(number % by);
    return number / by;
}

// The maximum, or the sum, over the lanes of a warp; every lane gets it.
__device__ __forceinline__ float largest(float value) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, distance));
    return value;
}
__device__ __forceinline__ float total(float value) {
#pragma unroll
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(FULL_WARP, value, distance);
    return value;
}
