// The vectors of one instruction-set level, and what its files give each other.
//
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#pragma once

#include "kernels.hpp"

namespace spdnn {
namespace SPDNN_LEVEL {

constexpr int kLanes = SPDNN_VECTOR_BYTES / 4;

typedef float Vec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef int32_t IntVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef uint64_t WordVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));

// rows.cpp; see kernels.hpp
void compact(const float* src, int src_tile, float* dst, int dst_tile, int64_t neurons, const int64_t* slots,
             int64_t count, int threads);
void row_hashes(const float* src, int64_t neurons, int64_t step, int64_t count, int tile, uint64_t* hash, int threads);
void rows_differ(const float* src, int64_t neurons, const int64_t* slots, int64_t count, int tile, uint8_t* differs,
                 int threads);
void row_statistics(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics&, int threads);
void untile(const float* src, float* dst, int64_t neurons, int64_t count, int tile, int threads);

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
