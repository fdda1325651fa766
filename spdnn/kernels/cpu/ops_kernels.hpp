// The operations on a topology's nonzeros and the depthwise convolution: their interfaces, the same at every
// instruction-set level. Real is float, or uint16_t for the bits of a float16.
#pragma once

#include "ops.hpp"

namespace spdnn {

// Sampled dense-dense products, softmax over the nonzeros of rows, and values gathered by a permutation.
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

// Attention over the nonzeros of a topology, fused.
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

// Depthwise convolutions of 3 x 3 with padding 1, bias and activation.
template <class Real>
struct Depthwise {
    int64_t images, channels, height, width;
    int stride;  // 1 or 2
    bool nhwc;   // (images, height, width, channels), else (images, channels, height, width)
    const Real* x;
    const Real* weights;  // (channels, 3, 3)
    const float* bias;    // (channels,)
    float low, high;      // activation: y < low ? low : (y > high ? high : y)
    Real* out;
    int64_t out_height() const { return (height - 1) / stride + 1; }
    int64_t out_width() const { return (width - 1) / stride + 1; }
};

using DepthwiseLevel = OnNumbers<Depthwise>;  // the result: whether any number was NaN before the activation

}  // namespace spdnn
