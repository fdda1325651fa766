// The part of the Python module spdnn.kernels._cpu that holds depthwise convolutions.
#include "depthwise.hpp"
#include "ops_binding.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(DepthwiseLevel, depthwise);

static nb::tuple depthwise(const std::string& level, ReadNumbers<4> x, ReadNumbers<3> weights,
                           Array<const float, 1> bias, float low, float high, int stride, bool nhwc, Numbers<4> out,
                           int threads) {
    const DepthwiseLevel& at = at_level(kLevels, level);
    require(stride == 1 || stride == 2, "the stride must be 1 or 2");
    const int axis[3] = {nhwc ? 3 : 1, nhwc ? 1 : 2, nhwc ? 2 : 3};  // of channels, height, width
    const int64_t channels = x.shape(axis[0]), height = x.shape(axis[1]), width = x.shape(axis[2]);
    require(height >= 1 && width >= 1, "images must have pixels");
    require(static_cast<int64_t>(weights.shape(0)) == channels && weights.shape(1) == 3 && weights.shape(2) == 3,
            "weights must be (channels, 3, 3)");
    require(static_cast<int64_t>(bias.size()) == channels, "bias must be one a channel");
    require(out.shape(0) == x.shape(0) && out.shape(axis[0]) == x.shape(axis[0]) &&
                static_cast<int64_t>(out.shape(axis[1])) == (height - 1) / stride + 1 &&
                static_cast<int64_t>(out.shape(axis[2])) == (width - 1) / stride + 1,
            "out must have the images and channels of x, and (height - 1) / stride + 1 rows, columns likewise");
    return run_on(all_half(x, weights, out), threads, [&](auto real, double* busy) {
        using Real = decltype(real);
        const Depthwise<Real> work{static_cast<int64_t>(x.shape(0)),
                                   channels,
                                   height,
                                   width,
                                   stride,
                                   nhwc,
                                   static_cast<const Real*>(x.data()),
                                   static_cast<const Real*>(weights.data()),
                                   bias.data(),
                                   low,
                                   high,
                                   static_cast<Real*>(out.data())};
        return at.run(work, busy, threads);
    });
}

void bind_depthwise(nb::module_& m) {
    m.def("depthwise", &depthwise, "level"_a, "x"_a, "weights"_a, "bias"_a, "low"_a, "high"_a, "stride"_a, "nhwc"_a,
          "out"_a.noconvert(), "threads"_a,
          "out <- activation(3 x 3 convolution of each channel by itself, padding 1, + bias); gives (busy, nan).");
}

}  // namespace spdnn
