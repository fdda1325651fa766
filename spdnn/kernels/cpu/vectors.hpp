// The functions of rows.cpp that kernels.cpp exports, at one instruction-set level.
#pragma once

#include "kernels.hpp"
#include "level.hpp"

namespace spdnn {
namespace SPDNN_LEVEL {

// rows.cpp; see kernels.hpp
void compact(const float* src, int src_tile, float* dst, int dst_tile, int64_t neurons, const int64_t* indices,
             int64_t count, int threads);
void row_hashes(const float* src, int64_t neurons, int64_t step, int64_t count, int tile, uint64_t* hash, int threads);
void rows_differ(const float* src, int64_t neurons, const int64_t* indices, int64_t count, int tile, uint8_t* differs,
                 int threads);
void row_statistics(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics&, int threads);
void untile(const float* src, float* dst, int64_t neurons, int64_t count, int tile, int threads);
void take(const float* src, int tile, int64_t neurons, const int64_t* indices, int64_t count, float* rows, int threads);
void insert(const float* rows, int64_t neurons, int64_t count, float* dst, int tile, int64_t first, int threads);

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
