// Arithmetic on vectors for the kernels of spdnn.ops, at one instruction-set level: loads and stores of float32 and
// float16, multiply-adds, sums across lanes in one fixed order, the exponential.
#pragma once

#include "half.hpp"
#include "level.hpp"

#include <cmath>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spdnn {
namespace SPDNN_LEVEL {

typedef float LooseVec __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(4)));

inline Vec load(const float* from) { return *reinterpret_cast<const LooseVec*>(from); }
inline Vec load(const Half* from) { return load<Vec>(from); }
inline void store(Vec x, float* to) { *reinterpret_cast<LooseVec*>(to) = x; }
inline void store(Vec x, Half* to) { store(to, x); }

// In whole vectors.
inline int64_t padded(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

// The first `count` (1 .. kLanes) of a vector; the lanes past them are zeros.
template <class Real>
inline Vec load_part(const Real* from, int64_t count) {
    if (count >= kLanes) return load(from);
    Real whole[kLanes] = {};
    std::memcpy(whole, from, count * sizeof(Real));
    return load(whole);
}
template <class Real>
inline void store_part(Vec x, Real* to, int64_t count) {
    if (count >= kLanes) return store(x, to);
    Real whole[kLanes];
    store(x, whole);
    std::memcpy(to, whole, count * sizeof(Real));
}
#if defined(__AVX512VL__) && SPDNN_VECTOR_BYTES == 64
inline __mmask16 first_lanes(int64_t count) {
    return static_cast<__mmask16>(count >= kLanes ? 0xffff : (1u << count) - 1);
}
template <>
inline Vec load_part<float>(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
template <>
inline void store_part<float>(Vec x, float* to, int64_t count) {
    _mm512_mask_storeu_ps(to, first_lanes(count), x);
}
template <>
inline Vec load_part<Half>(const Half* from, int64_t count) {
    return _mm512_maskz_cvtph_ps(0xffff, _mm256_maskz_loadu_epi16(first_lanes(count), from));
}
template <>
inline void store_part<Half>(Vec x, Half* to, int64_t count) {
    _mm256_mask_storeu_epi16(to, first_lanes(count), _mm512_maskz_cvtps_ph(0xffff, x, 0));
}
#endif

// a * b + c, rounded once where the level has an instruction for it.
inline Vec multiply_add(Vec a, Vec b, Vec c) {
#if defined(__FMA__) && SPDNN_VECTOR_BYTES == 64
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && SPDNN_VECTOR_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

inline float multiply_add(float a, float b, float c) {
#if defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

// A store past the caches, which does not read the line first, where the processor has one; of whole lines alone.
inline void stream(Vec x, Vec* to) {
#if defined(__x86_64__) && SPDNN_VECTOR_BYTES == 64
    _mm512_stream_ps(reinterpret_cast<float*>(to), x);
#elif defined(__x86_64__) && SPDNN_VECTOR_BYTES == 32
    _mm256_stream_ps(reinterpret_cast<float*>(to), x);
#elif defined(__x86_64__)
    _mm_stream_ps(reinterpret_cast<float*>(to), x);
#else
    *to = x;
#endif
}
inline void stream(float x, float* to) { *to = x; }

// A bit for each lane that is not 0.
inline uint32_t nonzero(IntVec x) {
#if defined(__x86_64__) && SPDNN_VECTOR_BYTES == 64
    const __m512i whole = reinterpret_cast<__m512i>(x);
    return _mm512_test_epi32_mask(whole, whole);
#elif defined(__x86_64__) && SPDNN_VECTOR_BYTES == 32
    return _mm256_movemask_ps(reinterpret_cast<__m256>(x != 0));
#elif defined(__x86_64__)
    return _mm_movemask_ps(reinterpret_cast<__m128>(x != 0));
#else
    uint32_t bits = 0;
    for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(x[i] != 0) << i;
    return bits;
#endif
}
inline uint32_t nonzero(uint32_t x) { return x != 0; }

inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }  // b where either is NaN

// Lane i of the result is lane kFrom(i) of a, or kFrom(i) - kLanes of b.
template <int (*kFrom)(int), int... i>
inline Vec shuffled(Vec a, Vec b, std::integer_sequence<int, i...>) {
    return __builtin_shuffle(a, b, IntVec{kFrom(i)...});
}
template <int (*kFrom)(int)>
inline Vec shuffled(Vec a, Vec b) {
    return shuffled<kFrom>(a, b, std::make_integer_sequence<int, kLanes>{});
}

// One step of a sum across lanes: vectors that hold sums of 2 kStep lanes each become one that holds sums of kStep
// lanes, those of `a` before those of `b`; below a step of 4, within each block of 4 lanes.
template <int kStep>
constexpr int folded_lane(int i) {
    return kStep >= 4 ? i / kStep * 2 * kStep + i % kStep : i / 4 * 4 + i % 4 / 2 * kLanes + i % 2 * (2 / kStep);
}
template <int kStep>
constexpr int added_lane(int i) {
    return folded_lane<kStep>(i) + kStep;
}
template <int kStep>
inline Vec fold(Vec a, Vec b) {
    return shuffled<folded_lane<kStep>>(a, b) + shuffled<added_lane<kStep>>(a, b);
}

// Lane i of the result is the sum of the lanes of the i-th of kCount vectors (a multiple of 4, at most kLanes), and 0
// behind them. four(f, sums) makes vectors f, f + kFar, f + kNear, f + kFar + kNear: those that are folded first, so
// that their chains run side by side and few vectors are live. Costs 2 shuffles and 1 addition a vector. Lane l is
// added to lane l + kLanes / 2 first, then to the one at half that distance, and so on, whatever kCount is.
constexpr int kFar = kLanes == 4 ? 1 : 4, kNear = kLanes == 16 ? 8 : kLanes == 8 ? 1 : 2;
template <int kStep = 1, int kFirst = 0, class Four>
inline __attribute__((always_inline)) Vec lane_sums(const Four& four) {
    if constexpr (kStep == kLanes / 4) {
        Vec sums[4];
        four(std::integral_constant<int, kFirst>{}, sums);
        return fold<kStep>(fold<2 * kStep>(sums[0], sums[1]), fold<2 * kStep>(sums[2], sums[3]));
    } else {  // folds of 1 and 2 lanes interleave within blocks of 4
        const Vec first = lane_sums<2 * kStep, kFirst>(four);
        return fold<kStep>(first, lane_sums<2 * kStep, kFirst + (kStep == 1 ? 2 : 1)>(four));
    }
}

template <int kStep = kLanes / 2>
inline float lane_sum(Vec x) {  // the same order
    if constexpr (kStep == 0) return x[0];
    else return lane_sum<kStep / 2>(fold<kStep>(x, Vec{}));
}

template <int kDistance>
constexpr int swapped_lane(int i) {
    return i ^ kDistance;
}
template <int kDistance = kLanes / 2>
inline float largest_lane(Vec x) {  // of lanes that are no NaN
    if constexpr (kDistance == 0) return x[0];
    else return largest_lane<kDistance / 2>(larger(x, shuffled<swapped_lane<kDistance>>(x, x)));
}

inline bool any_nan(Vec x) { return nonzero(x != x); }

// e^x for x <= 88; -inf gives 0, NaN stays. Error at most 1.1 units in the last place (measured on an eighth of all
// floats of [-110, 0] at each level); where results are subnormal, 0.8 of the smallest one.
// Method: x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts; a polynomial for e^r; n into the exponent in two
// steps, so that subnormal results are rounded once. Coefficients: Cephes, expf (Moshier 1989).
inline Vec exponential(Vec x) {
    const Vec least = broadcast(-110.0f), magic = broadcast(12582912.0f);  // 1.5 * 2^23: rounds to an integer
    x = x < least ? least : x;
    const Vec shifted = multiply_add(x, broadcast(1.44269504088896341f), magic);
    const Vec n = shifted - magic;
    Vec r = multiply_add(n, broadcast(-0.693359375f), x);
    r = multiply_add(n, broadcast(2.12194440e-4f), r);
    Vec p = broadcast(1.9875691500e-4f);
    p = multiply_add(p, r, broadcast(1.3981999507e-3f));
    p = multiply_add(p, r, broadcast(8.3334519073e-3f));
    p = multiply_add(p, r, broadcast(4.1665795894e-2f));
    p = multiply_add(p, r, broadcast(1.6666665459e-1f));
    p = multiply_add(p, r, broadcast(5.0000001201e-1f));
    p = multiply_add(p, r * r, r) + 1.0f;
#if SPDNN_VECTOR_BYTES == 64 && defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(0xffff, p, n);
#else
    const IntVec power = reinterpret_cast<IntVec>(shifted) - reinterpret_cast<IntVec>(magic);
    const IntVec half = power >> 1, rest = power - half;
    return p * reinterpret_cast<Vec>((half + 127) << 23) * reinterpret_cast<Vec>((rest + 127) << 23);
#endif
}

// Numbers `count` .. of the last vector <- -inf, so that what follows knows whole vectors alone.
inline int64_t fill_up(float* numbers, int64_t count) {
    const int64_t whole = padded(count);
    for (; count < whole; ++count) numbers[count] = -INFINITY;
    return whole;
}

// The largest of `count` numbers (whole vectors) that is not NaN; -inf of none.
inline float largest_of(const float* numbers, int64_t count) {
    Vec largest = broadcast(-INFINITY);
    for (int64_t i = 0; i < count; i += kLanes) largest = larger(load(numbers + i), largest);
    return largest_lane(largest);
}

// numbers <- e^(numbers - top), `count` of them (whole vectors); the result holds their sums, to be added across lanes.
inline Vec exponentials(float* numbers, int64_t count, float top) {
    const Vec away = broadcast(top);
    Vec sum = {};
    for (int64_t i = 0; i < count; i += kLanes) {
        const Vec y = exponential(load(numbers + i) - away);
        store(y, numbers + i);
        sum += y;
    }
    return sum;
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
