// The part of the Python module spdnn.kernels._cpu that holds sampled products, softmax, gathered values, fused
// attention and depthwise convolutions.
#include <nanobind/stl/vector.h>

#include "ops_binding.hpp"
#include "ops_kernels.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(SddmmLevel, sddmm);

static nb::tuple sddmm(const std::string& level, Array<const int64_t, 1> offsets, ReadColumns columns,
                       Array<const int32_t, 1> order, ReadNumbers<3> q, ReadNumbers<3> k, float scale, Numbers<2> out,
                       int64_t tile, bool packed, int threads) {
    const SddmmLevel& at = at_level(sddmm_levels, level);
    const Pattern pattern = pattern_of(offsets, columns, order, k.shape(1));
    require(q.shape(0) == k.shape(0) && q.shape(2) == k.shape(2) && q.shape(2) >= 1,
            "Q and K must have one batch and one depth, 1 or more");
    require(q.shape(1) == order.size(), "Q must have a row for each row of the topology");
    require(out.shape(0) == q.shape(0) && out.shape(1) == columns.size(), "out must be (batch, nonzeros)");
    require(tile >= 0, "a tile is a number of columns");
    return run_on(all_half(q, k, out), threads, [&](auto real, double* busy) {
        using Real = decltype(real);
        const Sddmm<Real> work{pattern, extent(q, 0),    extent(q, 2), data<Real>(q), data<Real>(k),
                               scale,   data<Real>(out), tile,         packed};
        return at.of(real).sddmm(work, busy, threads);
    });
}

static nb::tuple softmax(const std::string& level, Array<const int64_t, 1> offsets, ReadNumbers<2> values, float scale,
                         Numbers<2> out, int threads) {
    const SddmmLevel& at = at_level(sddmm_levels, level);
    require(offsets.size() >= 1 && offsets.data()[0] == 0 && offsets.data()[offsets.size() - 1] == extent(values, 1),
            "offsets must go from 0 to the number of nonzeros");
    require(out.shape(0) == values.shape(0) && out.shape(1) == values.shape(1), "out must have the shape of values");
    return run_on(all_half(values, out), threads, [&](auto real, double* busy) {
        using Real = decltype(real);
        const Softmax<Real> work{extent(values, 0), extent(offsets) - 1, offsets.data(), data<Real>(values), scale,
                                 data<Real>(out)};
        return at.of(real).softmax(work, busy, threads);
    });
}

static void gather_values(const std::string& level, ReadNumbers<2> values, Array<const int64_t, 1> permutation,
                          Numbers<2> out, int threads) {
    const SddmmLevel& at = at_level(sddmm_levels, level);
    require(out.shape(0) == values.shape(0) && out.shape(1) == values.shape(1) && permutation.size() == values.shape(1),
            "values and out must be (batch, nonzeros), and permutation (nonzeros,)");
    require(threads >= 1, "no threads");
    const bool half = all_half(values, out);
    nb::gil_scoped_release release;
    auto run = [&](auto real) {
        using Real = decltype(real);
        at.of(real).gather(data<Real>(values), permutation.data(), extent(values, 0), extent(permutation),
                           data<Real>(out), threads);
    };
    if (half) run(uint16_t{});
    else run(0.0f);
}

static std::vector<int64_t> dealt_nonzeros(Array<const int64_t, 1> offsets, Array<const int32_t, 1> order, int group,
                                           int threads) {
    require(group >= 1 && threads >= 1, "groups have rows, and teams have threads");
    const Shares shares(rows_of(offsets, order), group, threads);
    return {shares.nonzeros.begin(), shares.nonzeros.end()};
}

SPDNN_LEVELS(AttentionLevel, attention);

static nb::tuple attention(const std::string& level, Array<const int64_t, 1> offsets, ReadColumns columns,
                           Array<const int32_t, 1> order, ReadNumbers<3> q, ReadNumbers<3> k, ReadNumbers<3> v,
                           float scale, Numbers<3> out, int64_t tile, int threads) {
    const AttentionLevel& at = at_level(attention_levels, level);
    const Pattern pattern = pattern_of(offsets, columns, order, k.shape(1));
    require(q.shape(0) == k.shape(0) && q.shape(2) == k.shape(2) && q.shape(2) >= 1,
            "Q and K must have one batch and one depth, 1 or more");
    require(v.shape(0) == k.shape(0) && v.shape(1) == k.shape(1) && v.shape(2) >= 1,
            "V must have the batch and the rows of K, and a depth of 1 or more");
    require(q.shape(1) == order.size(), "Q must have a row for each row of the topology");
    require(out.shape(0) == q.shape(0) && out.shape(1) == q.shape(1) && out.shape(2) == v.shape(2),
            "out must be (batch, rows, depth of V)");
    require(tile >= 0, "a tile is a number of rows");
    return run_on(all_half(q, k, v, out), threads, [&](auto real, double* busy) {
        using Real = decltype(real);
        const Attention<Real> work{pattern,       extent(q, 0),  extent(q, 2), extent(v, 2),    data<Real>(q),
                                   data<Real>(k), data<Real>(v), scale,        data<Real>(out), tile};
        return at.run(work, busy, threads);
    });
}

SPDNN_LEVELS(DepthwiseLevel, depthwise);

static nb::tuple depthwise(const std::string& level, ReadNumbers<4> x, ReadNumbers<3> weights,
                           Array<const float, 1> bias, float low, float high, int stride, bool nhwc, Numbers<4> out,
                           int threads) {
    const DepthwiseLevel& at = at_level(depthwise_levels, level);
    require(stride == 1 || stride == 2, "the stride must be 1 or 2");
    const int axis[3] = {nhwc ? 3 : 1, nhwc ? 1 : 2, nhwc ? 2 : 3};  // of channels, height, width
    const int64_t channels = x.shape(axis[0]), height = x.shape(axis[1]), width = x.shape(axis[2]);
    require(height >= 1 && width >= 1, "images must have pixels");
    require(extent(weights, 0) == channels && weights.shape(1) == 3 && weights.shape(2) == 3,
            "weights must be (channels, 3, 3)");
    require(extent(bias) == channels, "bias must be one a channel");
    require(out.shape(0) == x.shape(0) && out.shape(axis[0]) == x.shape(axis[0]) &&
                extent(out, axis[1]) == (height - 1) / stride + 1 && extent(out, axis[2]) == (width - 1) / stride + 1,
            "out must have the images and channels of x, and (height - 1) / stride + 1 rows, columns likewise");
    return run_on(all_half(x, weights, out), threads, [&](auto real, double* busy) {
        using Real = decltype(real);
        const Depthwise<Real> work{extent(x, 0),        channels,    height, width, stride,         nhwc, data<Real>(x),
                                   data<Real>(weights), bias.data(), low,    high,  data<Real>(out)};
        return at.run(work, busy, threads);
    });
}

void bind_ops(nb::module_& m) {
    m.def("sddmm", &sddmm, "level"_a, "offsets"_a, "columns"_a, "order"_a, "q"_a, "k"_a, "scale"_a, "out"_a.noconvert(),
          "tile"_a, "packed"_a, "threads"_a,
          "out[b, e] = scale * dot(q[b, i], k[b, j]) for each nonzero e = (i, j); gives (busy, nan).");
    m.def("softmax", &softmax, "level"_a, "offsets"_a, "values"_a, "scale"_a, "out"_a.noconvert(), "threads"_a,
          "out <- softmax of scale * values over the nonzeros of each row; gives (busy, nan).");
    m.def("gather_values", &gather_values, "level"_a, "values"_a, "permutation"_a, "out"_a.noconvert(), "threads"_a,
          "out[b, e] = values[b, permutation[e]]; the permutation is trusted.");
    m.def("dealt_nonzeros", &dealt_nonzeros, "offsets"_a, "order"_a, "group"_a, "threads"_a,
          "How many nonzeros each thread gets when rows are dealt out in `order`, in groups of `group` neighbours.");
    m.def("attention", &attention, "level"_a, "offsets"_a, "columns"_a, "order"_a, "q"_a, "k"_a, "v"_a, "scale"_a,
          "out"_a.noconvert(), "tile"_a, "threads"_a,
          "out <- softmax over the nonzeros of each row of scale * q k^T, times v; gives (busy, nan).");
    m.def("depthwise", &depthwise, "level"_a, "x"_a, "weights"_a, "bias"_a, "low"_a, "high"_a, "stride"_a, "nhwc"_a,
          "out"_a.noconvert(), "threads"_a,
          "out <- activation(3 x 3 convolution of each channel by itself, padding 1, + bias); gives (busy, nan).");
}

}  // namespace spdnn
