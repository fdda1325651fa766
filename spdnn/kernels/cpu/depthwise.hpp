// Depthwise convolutions of 3 x 3 with padding 1, bias and activation: the interface, the same at every level.
#pragma once

#include "ops.hpp"

namespace spdnn {

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
