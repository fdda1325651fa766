// float16 in memory (IEEE binary16 in a uint16_t), float32 in registers, at one instruction-set level.
//
// A float16 is a float32 exactly; the other way rounds to nearest, ties to even, with subnormals and infinities. F16C
// does both where a level has it, integer arithmetic elsewhere, with the same bits (a NaN stays a NaN, and becomes
// quiet).
#pragma once

#include "level.hpp"

#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace spdnn {
namespace SPDNN_LEVEL {

typedef uint16_t Half;

inline float float_of(Half half) {
#ifdef __F16C__
    return _cvtsh_ss(half);
#else
    const uint32_t magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16;
    uint32_t bits;
    if (magnitude < 0x0400) {  // zero or subnormal: a multiple of 2^-24
        const float value = static_cast<float>(magnitude) * 0x1p-24f;
        std::memcpy(&bits, &value, sizeof bits);
    } else if (magnitude < 0x7c00) {
        bits = (magnitude << 13) + (112u << 23);
    } else {
        bits = magnitude << 13 | 0x7f800000u | (magnitude > 0x7c00 ? 0x00400000u : 0u);
    }
    bits |= sign;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

inline Half half_of(float value) {
#ifdef __F16C__
    return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits >= 0x47800000u) {  // 65536 or more, infinite, NaN
        bits = bits > 0x7f800000u ? 0x7e00u | (bits >> 13 & 0x3ffu) : 0x7c00u;
    } else if (bits < 0x38800000u) {  // below 2^-14: adding 1/2 rounds to a multiple of 2^-24
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        std::memcpy(&bits, &magnitude, sizeof bits);
        bits -= 0x3f000000u;
    } else {
        bits = (bits - (112u << 23) + 0xfffu + (bits >> 13 & 1u)) >> 13;
    }
    return static_cast<Half>(bits | sign);
#endif
}

// A vector V of floats (float itself, too) from memory of either type and of any alignment, and back.
template <class V>
inline V load(const float* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V>
inline void store(float* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

template <class V>
inline V load(const Half* from) {
    constexpr int kCount = sizeof(V) / sizeof(float);
#ifdef __F16C__
    if constexpr (kCount == 4)
        return reinterpret_cast<V>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    if constexpr (kCount == 8)
        return reinterpret_cast<V>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#ifdef __AVX512F__
    if constexpr (kCount == 16)
        return reinterpret_cast<V>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#endif
#endif
    float floats[kCount];
    for (int i = 0; i < kCount; ++i) floats[i] = float_of(from[i]);
    return load<V>(floats);
}

template <class V>
inline void store(Half* to, V v) {
    constexpr int kCount = sizeof(V) / sizeof(float), kRound = 0;  // to nearest, ties to even
    (void)kRound;
#ifdef __F16C__
    if constexpr (kCount == 4) {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_cvtps_ph(reinterpret_cast<__m128>(v), kRound));
        return;
    }
    if constexpr (kCount == 8) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(reinterpret_cast<__m256>(v), kRound));
        return;
    }
#ifdef __AVX512F__
    if constexpr (kCount == 16) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(reinterpret_cast<__m512>(v), kRound));
        return;
    }
#endif
#endif
    float floats[kCount];
    store(floats, v);
    for (int i = 0; i < kCount; ++i) to[i] = half_of(floats[i]);
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
