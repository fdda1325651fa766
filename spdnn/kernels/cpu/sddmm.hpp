// Sampled dense-dense products, softmax over the nonzeros of rows, and values gathered by a permutation: the interface,
// the same at every instruction-set level. Real is float, or uint16_t for the bits of a float16.
#pragma once

#include "ops.hpp"

namespace spdnn {

template <class Real>
struct Sddmm {
    Pattern pattern;
    int64_t batch, depth;
    const Real* q;  // (batch, rows, depth)
    const Real* k;  // (batch, width, depth)
    float scale;
    Real* out;     // (batch, nonzeros)
    int64_t tile;  // columns that are gone through at a time for all rows, 0: all
    bool packed;   // whether K is copied first, chunk by chunk (else only where it must be)
};

template <class Real>
struct Softmax {
    int64_t batch, rows;
    const int64_t* offsets;  // rows + 1
    const Real* values;      // (batch, nonzeros)
    float scale;
    Real* out;  // (batch, nonzeros), may be `values`
};

// Threads' processor seconds go to busy (threads); the result is whether any output is NaN.
template <class Real>
struct SddmmKernels {
    bool (*sddmm)(const Sddmm<Real>&, double* busy, int threads);
    bool (*softmax)(const Softmax<Real>&, double* busy, int threads);
    // out[b, e] = values[b, permutation[e]], e < nonzeros
    void (*gather)(const Real* values, const int64_t* permutation, int64_t batch, int64_t nonzeros, Real* out,
                   int threads);
};

struct SddmmLevel {
    const char* name;
    SddmmKernels<float> single;
    SddmmKernels<uint16_t> half;
    const SddmmKernels<float>& of(float) const { return single; }
    const SddmmKernels<uint16_t>& of(uint16_t) const { return half; }
};

}  // namespace spdnn
