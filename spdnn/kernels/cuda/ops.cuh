// What the kernels of spdnn.ops share: vectors of numbers in memory, the epilogue, the order in which dots are summed.
//
// VALUE (float or half) is how numbers lie in memory; every sum is float. A vector is VECTOR numbers that one
// instruction of at most 16 bytes loads, at an address that is a multiple of its size.
//
// Indices are 16 or 32 bits wide, chosen at run time (`index_bytes`), for only the staging of a row sees them; they are
// passed as an array of 16-bit words that begins at a multiple of 16 bytes and is padded to a multiple of STEP indices,
// so that STEP indices from a multiple of STEP on are always one load.
#pragma once
#include "half.cuh"

#define FULL_WARP 0xffffffffu
#define NEGATIVE_INFINITY __uint_as_float(0xff800000u)
#define STEP 4 // nonzeros of a vector of values or indices: rows are backed up to a multiple of it

template <int BYTES> struct Words;
template <> struct Words<2> { typedef unsigned short type; };
template <> struct Words<4> { typedef unsigned int type; };
template <> struct Words<8> { typedef uint2 type; };
template <> struct Words<16> { typedef uint4 type; };

// The bits of COUNT numbers of type T, as loaded: half the registers of floats where T is half.
template <class T, int COUNT> struct Raw {
    typedef typename Words<sizeof(T) * COUNT>::type Word;
    Word word;
};

__device__ __forceinline__ void spread(float (&to)[1], const Raw<float, 1>& raw) { to[0] = __uint_as_float(raw.word); }
__device__ __forceinline__ void spread(float (&to)[2], const Raw<float, 2>& raw)
{
    to[0] = __uint_as_float(raw.word.x), to[1] = __uint_as_float(raw.word.y);
}
__device__ __forceinline__ void spread(float (&to)[4], const Raw<float, 4>& raw)
{
    to[0] = __uint_as_float(raw.word.x), to[1] = __uint_as_float(raw.word.y);
    to[2] = __uint_as_float(raw.word.z), to[3] = __uint_as_float(raw.word.w);
}
__device__ __forceinline__ half half_of(unsigned int bits) { return half{(unsigned short)bits}; }
__device__ __forceinline__ void spread(float (&to)[1], const Raw<half, 1>& raw) { to[0] = widened(half{raw.word}); }
__device__ __forceinline__ void spread_pair(float* to, unsigned int pair)
{
    to[0] = widened(half_of(pair)), to[1] = widened(half_of(pair >> 16));
}
__device__ __forceinline__ void spread(float (&to)[2], const Raw<half, 2>& raw) { spread_pair(to, raw.word); }
__device__ __forceinline__ void spread(float (&to)[4], const Raw<half, 4>& raw)
{
    spread_pair(to, raw.word.x), spread_pair(to + 2, raw.word.y);
}
__device__ __forceinline__ void spread(float (&to)[8], const Raw<half, 8>& raw)
{
    spread_pair(to, raw.word.x), spread_pair(to + 2, raw.word.y);
    spread_pair(to + 4, raw.word.z), spread_pair(to + 6, raw.word.w);
}

template <class T, int COUNT> __device__ __forceinline__ Raw<T, COUNT> load(const void* from)
{
    Raw<T, COUNT> raw;
    raw.word = __ldg(reinterpret_cast<const typename Raw<T, COUNT>::Word*>(from));
    return raw;
}

__device__ __forceinline__ unsigned int packed(float low, float high)
{
    half one, other;
    narrow(one, low), narrow(other, high);
    return one.bits | (unsigned int)other.bits << 16;
}
__device__ __forceinline__ void store(float* to, const float (&from)[1]) { *to = from[0]; }
__device__ __forceinline__ void store(float* to, const float (&from)[2])
{
    *reinterpret_cast<float2*>(to) = make_float2(from[0], from[1]);
}
__device__ __forceinline__ void store(float* to, const float (&from)[4])
{
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
}
__device__ __forceinline__ void store(half* to, const float (&from)[1]) { narrow(*to, from[0]); }
__device__ __forceinline__ void store(half* to, const float (&from)[2])
{
    *reinterpret_cast<unsigned int*>(to) = packed(from[0], from[1]);
}
__device__ __forceinline__ void store(half* to, const float (&from)[4])
{
    *reinterpret_cast<uint2*>(to) = make_uint2(packed(from[0], from[1]), packed(from[2], from[3]));
}
__device__ __forceinline__ void store(half* to, const float (&from)[8])
{
    *reinterpret_cast<uint4*>(to) = make_uint4(packed(from[0], from[1]), packed(from[2], from[3]),
                                               packed(from[4], from[5]), packed(from[6], from[7]));
}

// STEP indices from `position`, a multiple of STEP.
__device__ __forceinline__ void load_indices(
    unsigned int (&to)[STEP], const unsigned short* columns, long long position, int index_bytes)
{
    if (index_bytes == 2) {
        const uint2 words = __ldg(reinterpret_cast<const uint2*>(columns + position));
        to[0] = words.x & 0xffffu, to[1] = words.x >> 16, to[2] = words.y & 0xffffu, to[3] = words.y >> 16;
    } else {
        const uint4 words = __ldg(reinterpret_cast<const uint4*>(columns + 2 * position));
        to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
    }
}

// NaN passes through.
__device__ __forceinline__ float activated(float y, float low, float high)
{
    return y < low ? low : y > high ? high : y;
}

__device__ __forceinline__ bool aligned_to(const void* address, int bytes)
{
    return reinterpret_cast<unsigned long long>(address) % bytes == 0;
}

// Quotient and remainder; most numbers are small enough for 32-bit division, which is many times faster.
__device__ __forceinline__ long long divided(long long number, int by, int& rest)
{
    if (number >> 32 == 0) {
        const unsigned int quotient = (unsigned int)number / (unsigned int)by;
        rest = (int)((unsigned int)number - quotient * (unsigned int)by);
        return quotient;
    }
    rest = (int)(number % by);
    return number / by;
}

// The maximum, or the sum, over the lanes of a warp; every lane gets it.
__device__ __forceinline__ float largest(float value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2) value = fmaxf(value, __shfl_xor_sync(FULL_WARP, value, distance));
    return value;
}
__device__ __forceinline__ float total(float value)
{
#pragma unroll
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(FULL_WARP, value, distance);
    return value;
}
