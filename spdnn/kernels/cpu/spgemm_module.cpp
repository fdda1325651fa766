// The part of the Python module spdnn.kernels._cpu that holds the sparse-sparse kernels (engine `spgemm`).
#include <algorithm>
#include <cstring>
#include <memory>

#include "bound.hpp"
#include "ops.hpp"
#include "spgemm.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(SpgemmKernels, spgemm);

namespace {

// A counting sort of the edges by input neuron; outputs are gone through in order, so they ascend within an input.
template <class From, class To>
void transpose(const int64_t* offsets, const From* indices, const float* values, int64_t inputs, int64_t outputs,
               int64_t* starts, To* by_input, float* moved) {
    std::fill(starts, starts + inputs + 1, int64_t{0});
    for (int64_t e = 0; e < offsets[outputs]; ++e) ++starts[indices[e] + 1];
    for (int64_t i = 0; i < inputs; ++i) starts[i + 1] += starts[i];
    std::vector<int64_t> next(starts, starts + inputs);
    for (int64_t output = 0; output < outputs; ++output)
        for (int64_t e = offsets[output]; e < offsets[output + 1]; ++e) {
            const int64_t position = next[indices[e]]++;
            by_input[position] = static_cast<To>(output);
            if (moved) moved[position] = values[e];
        }
}

// Layer arrays by output neuron (checked before: Layer.check) to arrays by input neuron.
void by_input(Array<const int64_t, 1> offsets, ReadIndices indices, Array<const float, 1> values,
              Array<int64_t, 1> starts, Indices outputs_of, Array<float, 1> moved) {
    const int64_t outputs = offsets.size() - 1, inputs = starts.size() - 1, edges = indices.size();
    require(outputs >= 1 && inputs >= 1 && offsets.data()[outputs] == edges, "offsets must end at the number of edges");
    require(extent(outputs_of) == edges && moved.size() == values.size(), "results must be as long as the edges");
    require(index_bytes(outputs_of) == 4 || outputs <= 65536, "outputs past 65536 need uint32");
    const bool valued = values.size() == indices.size() && values.size() > 1;
    const float* read = valued ? values.data() : nullptr;
    float* written = valued ? moved.data() : nullptr;
    if (!valued) std::copy(values.data(), values.data() + values.size(), moved.data());
    nb::gil_scoped_release release;
    with_indices(indices, [&](auto* source) {
        with_indices(outputs_of, [&](auto* target) {
            transpose(offsets.data(), source, read, inputs, outputs, starts.data(), target, written);
        });
    });
}

// The scratch of all threads; made once, for the widest layer.
struct Workspace {
    std::vector<Scratch> scratch;
    std::unique_ptr<KeptMemory[]> memory;
    int64_t inputs, outputs;

    static int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
    static int64_t bytes_of(int64_t inputs, int64_t outputs, int64_t panel) {
        return padded(4 * sum_index(outputs)) + padded(std::max(inputs, outputs / kGroup + 8)) +
               padded(4 * panel * panel_index(outputs));
    }

    Workspace(const Workspace&) = delete;
    Workspace(int64_t inputs, int64_t outputs, int panel, int threads) : inputs(inputs), outputs(outputs) {
        require(threads >= 1 && inputs >= 1 && outputs >= 1, "a workspace needs threads and widths");
        memory.reset(new KeptMemory[threads]);
        const int64_t bytes = bytes_of(inputs, outputs, panel);
        for (int t = 0; t < threads; ++t) {
            uint8_t* at = reinterpret_cast<uint8_t*>(memory[t].floats(bytes / 4));
            std::memset(at, 0, bytes);
            auto take = [&](auto*& part, int64_t count) {
                part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(at);
                at += padded(count * sizeof *part);
            };
            Scratch s;
            take(s.sums, sum_index(outputs));
            take(s.marks, std::max(inputs, outputs / kGroup + 8));
            take(s.panel, panel * panel_index(outputs));
            scratch.push_back(s);
        }
    }
};

// Sparse rows in arrays of Python's; `begin` and `length` may be slices of longer ones.
struct FeatureRows {
    Array<int64_t, 1> begin, length;
    Array<uint32_t, 1> columns;
    Array<float, 1> values;

    SparseRows view() const {
        require(begin.size() == length.size() && columns.size() == values.size(),
                "begin and length, or columns and values, differ in length");
        const int64_t room = columns.size();
        for (size_t i = 0; i < begin.size(); ++i) {
            const int64_t at = begin.data()[i], length_ = length.data()[i];
            require(at >= 0 && length_ >= 0 && at + length_ <= room, "a row lies outside of its buffer");
        }
        return {extent(begin), begin.data(), length.data(), columns.data(), values.data()};
    }
    NewRows target(int64_t count, int64_t neurons) const {
        require(extent(begin) >= count && extent(length) >= count, "the new rows do not fit");
        require(extent(columns) >= count * neurons && columns.size() == values.size(), "the new values do not fit");
        return {begin.data(), length.data(), columns.data(), values.data()};
    }
};

struct SpgemmLevel {
    const SpgemmKernels* kernels;

    void load(const StoredRows& inputs, Array<const int64_t, 1> numbers, const FeatureRows& dst, int threads) const {
        const Rows rows = inputs.at(numbers);
        const NewRows target = dst.target(rows.count, inputs.neurons);
        require(threads >= 1, "no threads");
        nb::gil_scoped_release release;
        kernels->load(rows, inputs.neurons, target, threads);
    }

    nb::tuple layer(const BoundLayer& layer, const FeatureRows& src, const FeatureRows& dst, const Workspace& workspace,
                    int choice) const {
        const SparseRows rows = src.view();
        const NewRows target = dst.target(rows.count, layer.view.outputs);
        require(layer.view.inputs <= workspace.inputs && layer.view.outputs <= workspace.outputs,
                "the workspace is too narrow");
        require(choice >= kBest && choice < kAccumulators, "there is no such accumulator");
        Work work;
        {
            nb::gil_scoped_release release;
            work = kernels->layer(layer.view, rows, target, workspace.scratch.data(), choice,
                                  static_cast<int>(workspace.scratch.size()));
        }
        return nb::make_tuple(work.finite, work.multiply_adds,
                              nb::make_tuple(work.rows[0], work.rows[1], work.rows[2]));
    }

    void hashes(const FeatureRows& rows, Array<uint64_t, 1> hash, int threads) const {
        const SparseRows view = rows.view();
        require(extent(hash) == view.count && threads >= 1, "one hash a row is needed, and threads");
        nb::gil_scoped_release release;
        kernels->hashes(view, hash.data(), threads);
    }
    void same(const FeatureRows& rows, Array<const int64_t, 1> first, Array<const int64_t, 1> second,
              Array<bool, 1> equal, int threads) const {
        const SparseRows view = rows.view();
        require(first.size() == second.size() && first.size() == equal.size() && threads >= 1,
                "pairs must be of one length");
        for (size_t k = 0; k < first.size(); ++k)
            for (int64_t row : {first.data()[k], second.data()[k]})
                require(row >= 0 && row < view.count, "a row number is out of range");
        nb::gil_scoped_release release;
        kernels->same(view, first.data(), second.data(), first.size(), reinterpret_cast<uint8_t*>(equal.data()),
                      threads);
    }
    void statistics(const FeatureRows& rows, Array<const double, 1> counts, Array<const double, 1> weights,
                    Array<double, 1> sum, Array<double, 1> projection, Array<float, 1> min, Array<float, 1> max,
                    Array<uint64_t, 1> hash, int threads) const {
        const SparseRows view = rows.view();
        require(counts.size() == weights.size(), "counts and weights must be of one length");
        for (size_t size : {sum.size(), projection.size(), min.size(), max.size(), hash.size()})
            require(static_cast<int64_t>(size) == view.count, "outputs must be as long as the rows");
        nb::gil_scoped_release release;
        kernels->statistics(
            view, weights.size(),
            {counts.data(), weights.data(), sum.data(), projection.data(), min.data(), max.data(), hash.data()},
            threads);
    }
    void expand(const FeatureRows& rows, Array<float, 2> dst, int threads) const {
        const SparseRows view = rows.view();
        require(extent(dst, 0) == view.count && threads >= 1, "dst must have a row for each row");
        nb::gil_scoped_release release;
        kernels->expand(view, dst.shape(1), dst.data(), threads);
    }
};

}  // namespace

void bind_spgemm(nb::module_& m) {
    nb::class_<FeatureRows>(m, "FeatureRows")
        .def(
            "__init__",
            [](FeatureRows* rows, Array<int64_t, 1> begin, Array<int64_t, 1> length, Array<uint32_t, 1> columns,
               Array<float, 1> values) { new (rows) FeatureRows{begin, length, columns, values}; },
            "begin"_a, "length"_a, "columns"_a, "values"_a);
    nb::class_<Workspace>(m, "SpgemmWorkspace")
        .def(nb::init<int64_t, int64_t, int, int>(), "inputs"_a, "outputs"_a, "panel"_a, "threads"_a)
        .def_static("bytes_of", &Workspace::bytes_of, "inputs"_a, "outputs"_a, "panel"_a, "Bytes for one thread.");
    nb::class_<SpgemmLevel>(m, "SpgemmLevel")
        .def_prop_ro("name", [](const SpgemmLevel& l) { return l.kernels->name; })
        .def_prop_ro("panel", [](const SpgemmLevel& l) { return l.kernels->panel; })
        .def("load", &SpgemmLevel::load)
        .def("layer", &SpgemmLevel::layer)
        .def("hashes", &SpgemmLevel::hashes)
        .def("same", &SpgemmLevel::same)
        .def("statistics", &SpgemmLevel::statistics)
        .def("expand", &SpgemmLevel::expand);
    m.def("by_input", &by_input, "offsets"_a, "indices"_a, "values"_a, "starts"_a, "outputs"_a, "moved"_a);
    m.def(
        "spgemm_level", [](const std::string& name) { return SpgemmLevel{&at_level(spgemm_levels, name)}; },
        "The sparse-sparse kernels at a level, which must be one that `levels` gives.");
}

}  // namespace spdnn
