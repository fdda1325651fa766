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

struct AttentionLevel {
    const char* name;
    // Threads' processor seconds go to busy (threads); the result is whether any output is NaN.
    bool (*single)(const Attention<float>&, double* busy, int threads);
    bool (*half)(const Attention<uint16_t>&, double* busy, int threads);
    bool run(const Attention<float>& work, double* busy, int threads) const { return single(work, busy, threads); }
    bool run(const Attention<uint16_t>& work, double* busy, int threads) const { return half(work, busy, threads); }
};

}  // namespace spdnn
