// The part of the Python module spdnn.kernels._cpu that works on the rows of layers before any inference.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "binding.hpp"
#include "identical_neurons.hpp"
#include "radixnet.hpp"

namespace spdnn {
namespace {

using Offsets = Array<const int64_t, 1>;
using Floats = Array<const float, 1>;

void check(const Offsets& offsets, const ReadIndices& indices, const Floats& values) {
    require(offsets.size() >= 1 && offsets.data()[offsets.size() - 1] == static_cast<int64_t>(indices.size()),
            "offsets must end at the number of edges");
    require(values.size() == 1 || values.size() == indices.size(), "values must be one or one an edge");
}

int64_t equal_rows(Offsets offsets, ReadIndices indices, Floats values, Floats bias, Array<uint32_t, 1> classes,
                   Array<int64_t, 1> firsts) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, bytes = index_bytes(indices);
    require(static_cast<int64_t>(classes.size()) == rows && static_cast<int64_t>(firsts.size()) == rows,
            "classes and firsts must have room for each output");
    require(bias.size() == 1 || static_cast<int64_t>(bias.size()) == rows, "bias must be one or one an output");
    require(rows < int64_t{std::numeric_limits<uint32_t>::max()}, "too many outputs");
    nb::gil_scoped_release release;
    return number_rows(offsets.data(), rows, indices.data(), bytes,
                       values.size() == indices.size() ? values.data() : nullptr,
                       bias.size() == 1 ? nullptr : bias.data(), classes.data(), firsts.data());
}

// The edges of some rows, one row after the other.
void take_rows(Offsets offsets, ReadIndices indices, Floats values, Array<const int64_t, 1> rows, Offsets to,
               Indices new_indices, Array<float, 1> new_values) {
    check(offsets, indices, values);
    const int bytes = index_bytes(indices);
    const int64_t count = rows.size(), all = offsets.size() - 1;
    const bool valued = values.size() == indices.size() && new_values.size() == new_indices.size();
    require(bytes == index_bytes(new_indices) && static_cast<int64_t>(to.size()) == count + 1,
            "rows, offsets and indices must fit");
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows.data()[i];
        require(row >= 0 && row < all, "there is no such row");
        require(to.data()[i + 1] - to.data()[i] == offsets.data()[row + 1] - offsets.data()[row],
                "offsets must fit the rows");
    }
    require(to.data()[0] == 0 && to.data()[count] == static_cast<int64_t>(new_indices.size()),
            "offsets must end at the number of edges");
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t from = offsets.data()[rows.data()[i]], start = to.data()[i], degree = to.data()[i + 1] - start;
        std::memcpy(static_cast<char*>(new_indices.data()) + start * bytes,
                    static_cast<const char*>(indices.data()) + from * bytes, degree * bytes);
        if (valued) std::memcpy(new_values.data() + start, values.data() + from, degree * 4);
    }
}

// The layer on the classes of its inputs; `to`, `new_indices` and `sums` have room for as many edges. Returns how many
// are left, or -1 where a sum is past the range of float32.
int64_t on_classes(Offsets offsets, ReadIndices indices, Floats values, Array<const uint32_t, 1> classes,
                   Array<int64_t, 1> to, Indices new_indices, Array<float, 1> sums) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, edges = indices.size(), inputs = classes.size();
    index_bytes(indices);
    const int to_bytes = index_bytes(new_indices);
    require(static_cast<int64_t>(to.size()) == rows + 1 && static_cast<int64_t>(new_indices.size()) == edges &&
                static_cast<int64_t>(sums.size()) == edges,
            "results must have room for each output and edge");
    nb::gil_scoped_release release;
    const uint32_t most = inputs ? *std::max_element(classes.data(), classes.data() + inputs) : 0;
    require(to_bytes == 4 || most <= std::numeric_limits<uint16_t>::max(), "classes past 65535 need uint32");
    const float* const weights = values.size() == indices.size() ? values.data() : nullptr;
    auto all = [&](const auto* read, auto* written) {
        require(!edges || static_cast<int64_t>(*std::max_element(read, read + edges)) < inputs,
                "an index is out of range");
        const int64_t count =
            rows_on_classes(offsets.data(), rows, read, weights, weights || !edges ? 0.0f : values.data()[0],
                            classes.data(), most, to.data(), written, sums.data());
        return std::all_of(sums.data(), sums.data() + count, [](float sum) { return std::isfinite(sum); }) ? count : -1;
    };
    return with_indices(indices, [&](auto* read) {
        return with_indices(new_indices, [&](auto* written) { return all(read, written); });
    });
}

void radixnet_rows(nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu, nb::ro> groups, int64_t shift,
                   Indices indices) {
    const int64_t classes = groups.shape(0), width = groups.shape(1), period = classes * 2 * width;
    const int bytes = index_bytes(groups);
    require(classes >= 1 && width >= 1 && shift >= 0 && bytes == index_bytes(indices) && indices.size() % period == 0,
            "indices must be whole copies of the merged groups");
    const int64_t copies = indices.size() / period;
    nb::gil_scoped_release release;
    with_indices(indices, [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        merge_groups(static_cast<const T*>(groups.data()), classes, width, shift, copies, to);
    });
}

}  // namespace

void bind_identical_neurons(nb::module_& m) {
    m.def("equal_rows", &equal_rows);
    m.def("take_rows", &take_rows);
    m.def("on_classes", &on_classes);
    m.def("radixnet_rows", &radixnet_rows);
}

}  // namespace spdnn
