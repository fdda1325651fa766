// One instruction-set level: its name in symbols, and its vectors. Its namespace keeps levels apart when they are
// linked.
//
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#pragma once

#include <cstdint>

#define SPDNN_STRING2(x) #x
#define SPDNN_STRING(x) SPDNN_STRING2(x)
#define SPDNN_JOIN2(a, b) a##b
#define SPDNN_JOIN(a, b) SPDNN_JOIN2(a, b)

namespace spdnn {
namespace SPDNN_LEVEL {

constexpr int kLanes = SPDNN_VECTOR_BYTES / 4;

typedef float Vec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef int32_t IntVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef uint64_t WordVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));

inline Vec broadcast(float x) { return x - Vec{}; }  // x - 0 is x, of either sign, so no subtraction is left of it

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
