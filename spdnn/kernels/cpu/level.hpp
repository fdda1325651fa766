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

// A vector of floats, or one float.
template <class V>
constexpr int lanes = sizeof(V) / sizeof(float);

template <class V>
inline V broadcast_as(float x) {
    return x - V{};  // x - 0 is x, of either sign, so no subtraction is left of it
}
inline Vec broadcast(float x) { return broadcast_as<Vec>(x); }

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
