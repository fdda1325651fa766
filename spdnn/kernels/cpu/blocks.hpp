// A block of one layer's outputs for one tile of inputs, at one instruction-set level; fused_layers.cpp holds it.
#pragma once

#include "fused_layers.hpp"
#include "level.hpp"

namespace spdnn {
namespace SPDNN_LEVEL {

struct LaneFlags {
    uint64_t active = 0;      // lanes that got a nonzero output
    uint64_t not_finite = 0;  // lanes with a value that was not finite before the activation
};

// A bit for each lane of a tile that holds one of `count` inputs, the first of which is in lane 0.
inline uint64_t filled_lanes(int64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

// Outputs first .. last - 1 of dst (outputs, tile) <- activation(Y W + b) of src, float (inputs, tile).
using TileBlock = LaneFlags (*)(const Layer&, const void* src, float* dst, int64_t first, int64_t last);

// The one for a layer and a tile of 1, 16, 32 or 64 inputs.
TileBlock block_for(const Layer&, int tile);

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
