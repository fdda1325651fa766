// Matrices turned over between memory and a panel, kLanes x kLanes at a time, at one instruction-set level.
//
// Algorithm  Lane l of vector r goes to lane r of vector l in log2(kLanes) steps; step s swaps the blocks of s lanes
//            off the diagonal, one shuffle a vector. 1 shuffle moves kLanes / log2(kLanes) numbers.
#pragma once

#include "lanes.hpp"

#include <algorithm>

namespace spdnn {
namespace SPDNN_LEVEL {

template <int kStep>
constexpr int kept_lane(int i) {
    return i & kStep ? kLanes + i - kStep : i;
}
template <int kStep>
constexpr int moved_lane(int i) {
    return i & kStep ? kLanes + i : i + kStep;
}

template <int kStep = kLanes / 2>
inline __attribute__((always_inline)) void transpose(Vec (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r)
        if (!(r & kStep)) {
            const Vec a = rows[r], b = rows[r + kStep];
            rows[r] = shuffled<kept_lane<kStep>>(a, b);
            rows[r + kStep] = shuffled<moved_lane<kStep>>(a, b);
        }
    if constexpr (kStep > 1) transpose<kStep / 2>(rows);
}

// to (inner, stride) <- the transpose of `width` rows of `inner` numbers. Its columns past them become the last one
// once more (see pack). Where stride < kLanes, up to kLanes numbers behind `to` are overwritten.
template <class T>
void pack_rows(const T* from, int64_t inner, int64_t width, float* to, int64_t stride) {
    for (int64_t n = 0; n < stride; n += kLanes) {
        const T* row[kLanes];
        // Rows past the last repeat it.
        for (int r = 0; r < kLanes; ++r) row[r] = from + std::min(n + r, width - 1) * inner;
        // Load a block of rows, transpose it in registers, store its columns: whole vectors on both sides.
        for (int64_t k = 0; k < inner; k += kLanes) {
            Vec block[kLanes];
            const int64_t left = std::min<int64_t>(kLanes, inner - k);
            if (left == kLanes) {
#pragma GCC unroll 16
                for (int r = 0; r < kLanes; ++r) block[r] = load(row[r] + k);
            } else {
                for (int r = 0; r < kLanes; ++r) block[r] = load_part(row[r] + k, left);
            }
            transpose(block);
            for (int64_t i = 0; i < left; ++i) store(block[i], to + (k + i) * stride + n);
        }
    }
}

// to[n * row + i] <- from[i * stride + n], i < rows, first <= n < last; `from` is read up to whole blocks.
template <class T>
void unpack_rows(const float* from, int64_t stride, int64_t rows, int64_t first, int64_t last, T* to, int64_t row) {
    for (int64_t i = 0; i < rows; i += kLanes)
        for (int64_t n = first; n < last; n += kLanes) {
            Vec block[kLanes];
#pragma GCC unroll 16
            for (int r = 0; r < kLanes; ++r) block[r] = load(from + (i + r) * stride + n);
            transpose(block);
            const int64_t count = std::min<int64_t>(kLanes, last - n), left = std::min<int64_t>(kLanes, rows - i);
            for (int64_t k = 0; k < count; ++k) store_part(block[k], to + (n + k) * row + i, left);
        }
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
