// Layers and inputs as Python hands them over, once; what the modules of the engines `cpu` and `spgemm` share.
#pragma once

#include <memory>

#include "binding.hpp"
#include "fused_layers.hpp"
#include "sets.hpp"

namespace spdnn {

// Holds references to a layer's arrays and a view that the kernels read. Indices must be checked before (Layer.check).
struct BoundLayer {
    Layer view;
    nb::object arrays;
    std::unique_ptr<OwnSets> sets;

    // The layer is by output neuron, or, with `by_input`, by input neuron. With `share`, outputs that read the same
    // inputs share a list of them, in a copy that takes the place of the arrays, where that saves enough.
    BoundLayer(int64_t inputs, int64_t outputs, Array<const int64_t, 1> offsets, ReadIndices indices,
               Array<const float, 1> values, Array<const float, 1> bias, float low, float high, bool by_input,
               bool keeps_zero, bool share) {
        const int64_t rows = by_input ? inputs : outputs, edges = indices.size();
        require(extent(offsets) == rows + 1 && offsets.data()[rows] == edges,
                "offsets must be one more than the rows, and end at the number of edges");
        require(values.size() == 1 || extent(values) == edges, "values must be one or one an edge");
        require(bias.size() == 1 || extent(bias) == outputs, "bias must be one or one an output");
        view = Layer{inputs,
                     outputs,
                     edges,
                     rows,
                     offsets.data(),
                     indices.data(),
                     index_bytes(indices),
                     values.size() > 1 ? values.data() : nullptr,
                     values.size() ? values.data()[0] : 0.0f,
                     bias.data(),
                     bias.size() == 1 ? 0 : 1,
                     low,
                     high,
                     keeps_zero,
                     {}};
        arrays = nb::make_tuple(offsets, indices, values, bias);
        if (!share) return;
        {
            nb::gil_scoped_release release;
            sets = OwnSets::search(view);
        }
        if (!sets) return;
        sets->show(view);
        arrays = nb::cast(bias);
    }

    // Rows of features that one vector of inputs loads: those of the edges, one for the outputs of a set that go
    // together.
    int64_t gathers() const { return sets ? sets->gathers : view.edges; }

    // Bytes of the lists and values.
    int64_t nbytes() const {
        const int64_t listed = 8 * (view.lists + 1) + view.offsets[view.lists] * view.index_bytes;
        return listed + (view.values ? 4 * view.edges : 0) + (sets ? 16 * view.lists + 4 * view.outputs : 0);
    }
};

// The stored rows of the inputs: bits, numbers, or CSR, whose columns ascend and are in range (Inputs checks that).
struct StoredRows {
    Rows view{};
    int64_t neurons, stored;
    nb::object arrays;

    StoredRows(Array<const uint8_t, 2> bits, int64_t neurons)
        : neurons(neurons), stored(bits.shape(0)), arrays(nb::cast(bits)) {
        require(extent(bits, 1) == (neurons + 7) / 8, "bits must have ceil(neurons / 8) bytes a row");
        view.bits = bits.data(), view.row_bytes = bits.shape(1);
    }
    explicit StoredRows(Array<const float, 2> dense)
        : neurons(dense.shape(1)), stored(dense.shape(0)), arrays(nb::cast(dense)) {
        view.dense = dense.data();
    }
    StoredRows(Array<const int64_t, 1> offsets, Array<const int64_t, 1> columns, Array<const float, 1> values,
               int64_t neurons)
        : neurons(neurons), stored(extent(offsets) - 1), arrays(nb::make_tuple(offsets, columns, values)) {
        require(offsets.size() >= 1 && columns.size() == values.size(), "columns and values must be of one length");
        view.csr_offsets = offsets.data(), view.csr_columns = columns.data(), view.csr_values = values.data();
    }

    // Those with these numbers, which the caller keeps.
    Rows at(const Array<const int64_t, 1>& numbers) const {
        check_rows(numbers, stored);
        Rows rows = view;
        rows.numbers = numbers.data(), rows.count = numbers.size();
        return rows;
    }
};

}  // namespace spdnn
