// The part of the Python module spdnn.kernels._cpu that holds fused attention.
#include <nanobind/stl/vector.h>

#include "attention.hpp"
#include "ops_binding.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(AttentionLevel, attention);

static nb::tuple attention(const std::string& level, Array<const int64_t, 1> offsets, ReadColumns columns,
                           Array<const int32_t, 1> order, ReadNumbers<3> q, ReadNumbers<3> k, ReadNumbers<3> v,
                           float scale, Numbers<3> out, int64_t tile, int threads) {
    const AttentionLevel& at = at_level(kLevels, level);
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
        const Attention<Real> work{pattern,
                                   static_cast<int64_t>(q.shape(0)),
                                   static_cast<int64_t>(q.shape(2)),
                                   static_cast<int64_t>(v.shape(2)),
                                   static_cast<const Real*>(q.data()),
                                   static_cast<const Real*>(k.data()),
                                   static_cast<const Real*>(v.data()),
                                   scale,
                                   static_cast<Real*>(out.data()),
                                   tile};
        return at.run(work, busy, threads);
    });
}

// Tiles worth a try, the best default first.
static std::vector<int64_t> attention_settings(const std::string& level) {
    at_level(kLevels, level);
    return {512, 1024, 256};
}

void bind_attention(nb::module_& m) {
    m.def("attention", &attention, "level"_a, "offsets"_a, "columns"_a, "order"_a, "q"_a, "k"_a, "v"_a, "scale"_a,
          "out"_a.noconvert(), "tile"_a, "threads"_a,
          "out <- softmax over the nonzeros of each row of scale * q k^T, times v; gives (busy, nan).");
    m.def("attention_settings", &attention_settings, "level"_a,
          "Tiles of attention worth a try, the best default first.");
}

}  // namespace spdnn
