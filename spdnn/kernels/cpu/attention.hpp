// Attention over the nonzeros of a topology, fused: the interface, the same at every instruction-set level.
#pragma once

#include "ops.hpp"

namespace spdnn {

template <class Real>
struct Attention {
    Pattern pattern;
    int64_t batch, depth, value_depth;
    const Real* q;  // (batch, rows, depth)
    const Real* k;  // (batch, width, depth)
    const Real* v;  // (batch, width, value_depth)
    float scale;
    Real* out;     // (batch, rows, value_depth); an empty row gives zeros
    int64_t tile;  // rows that go through the panels of K and V together, 0: as many as suit
};

using AttentionLevel = OnNumbers<Attention>;  // the result: whether any output is NaN

}  // namespace spdnn
