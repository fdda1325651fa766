// The Python module spdnn.kernels._cpu: every kernel at every level that this processor can run.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "binding.hpp"
#include "kernels.hpp"

using namespace nb::literals;

namespace spdnn {

void bind_machine(nb::module_& m);  // machine_module.cpp

#ifdef SPDNN_X86
extern const Kernels kernels_x86_64, kernels_x86_64_v3, kernels_x86_64_v4;

static std::vector<const Kernels*> usable() {
    std::vector<const Kernels*> found;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found.push_back(&kernels_x86_64_v4);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        found.push_back(&kernels_x86_64_v3);
    found.push_back(&kernels_x86_64);
    return found;
}
#else
extern const Kernels kernels_generic;

static std::vector<const Kernels*> usable() { return {&kernels_generic}; }
#endif

static void check_features(const void* data, int64_t tile) {
    require(tile == 1 || tile == 16 || tile == 32 || tile == 64, "tile must be 1, 16, 32 or 64");
    require(reinterpret_cast<uintptr_t>(data) % 64 == 0, "features must be 64-byte aligned");
}

// Holds references to a layer's arrays and a view that the kernels read. Indices must be checked before (Layer.check).
struct BoundLayer {
    Layer view;
    nb::object arrays;

    BoundLayer(int64_t inputs, int64_t outputs, Array<const int64_t, 1> offsets, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::ro> indices,
               Array<const float, 1> values, Array<const float, 1> bias, float low, float high) {
        const size_t bytes = indices.dtype().bits / 8;
        require(indices.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && (bytes == 2 || bytes == 4),
                "indices must be uint16 or uint32");
        require(offsets.shape(0) == static_cast<size_t>(outputs) + 1 && offsets.data()[outputs] == static_cast<int64_t>(indices.shape(0)),
                "offsets must be outputs + 1 numbers that end at the number of edges");
        require(values.shape(0) == 1 || values.shape(0) == indices.shape(0), "values must be one or one an edge");
        require(bias.shape(0) == 1 || bias.shape(0) == static_cast<size_t>(outputs), "bias must be one or one an output");
        const bool valued = values.shape(0) > 1;
        view = Layer{inputs, outputs, offsets.data(), indices.data(), static_cast<int>(bytes),
                     valued ? values.data() : nullptr, values.shape(0) ? values.data()[0] : 0.0f, bias.data(), bias.shape(0) == 1 ? 0 : 1, low, high};
        arrays = nb::make_tuple(offsets, indices, values, bias);
    }
};

static int64_t tiles_of(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

using Layers = std::vector<const BoundLayer*>;

struct Level {
    const Kernels* kernels;

    int64_t run(const Layers& layers, const Rows* rows, const float* src, Array<float, 1>& dst, int64_t count, int tile,
                int64_t still_from, Array<uint64_t, 2>& active, int threads) const {
        require(!layers.empty() && count >= 0 && threads >= 1, "layers and threads must be at least one");
        check_features(dst.data(), tile);
        const int64_t tiles = tiles_of(count, tile);
        std::vector<Layer> views;
        for (const BoundLayer* layer : layers) {
            require(views.empty() || views.back().outputs == layer->view.inputs, "the layers' widths must chain");
            views.push_back(layer->view);
        }
        require(static_cast<int64_t>(dst.size()) >= tiles * tile * views.back().outputs, "dst is too small");
        require(active.shape(0) == views.size() && static_cast<int64_t>(active.shape(1)) == tiles, "active must be (layers, tiles)");
        const Pass pass{views.data(), static_cast<int64_t>(views.size()), rows, src, dst.data(), count, tile, still_from, active.data()};
        nb::gil_scoped_release release;
        return kernels->run(pass, threads);
    }

    int64_t layers(const Layers& layers, Array<const float, 1> src, Array<float, 1> dst, int64_t count, int tile,
                   int64_t still_from, Array<uint64_t, 2> active, int threads) const {
        check_features(src.data(), tile);
        require(!layers.empty() && static_cast<int64_t>(src.size()) >= tiles_of(count, tile) * tile * layers[0]->view.inputs, "src is too small");
        return run(layers, nullptr, src.data(), dst, count, tile, still_from, active, threads);
    }

    static void check_numbers(const Array<const int64_t, 1>& numbers, size_t rows) {
        for (size_t i = 0; i < numbers.size(); ++i)
            require(numbers.data()[i] >= 0 && numbers.data()[i] < static_cast<int64_t>(rows), "a row number is out of range");
    }

    int64_t run_rows(const Layers& layers, const Rows& rows, Array<float, 1>& dst, int tile, int64_t still_from,
                     Array<uint64_t, 2>& active, int threads) const {
        return run(layers, &rows, nullptr, dst, rows.count, tile, still_from, active, threads);
    }

    int64_t layers_bits(const Layers& layers, Array<const uint8_t, 2> bits, Array<const int64_t, 1> numbers,
                        Array<float, 1> dst, int tile, int64_t still_from, Array<uint64_t, 2> active, int threads) const {
        require(!layers.empty() && static_cast<int64_t>(bits.shape(1)) == (layers[0]->view.inputs + 7) / 8, "bits must have ceil(inputs / 8) bytes a row");
        check_numbers(numbers, bits.shape(0));
        Rows rows{numbers.data(), static_cast<int64_t>(numbers.size()), bits.data(), static_cast<int64_t>(bits.shape(1)), nullptr, nullptr, nullptr, nullptr};
        return run_rows(layers, rows, dst, tile, still_from, active, threads);
    }

    int64_t layers_dense(const Layers& layers, Array<const float, 2> dense, Array<const int64_t, 1> numbers,
                         Array<float, 1> dst, int tile, int64_t still_from, Array<uint64_t, 2> active, int threads) const {
        require(!layers.empty() && static_cast<int64_t>(dense.shape(1)) == layers[0]->view.inputs, "rows must have as many values as the layer has inputs");
        check_numbers(numbers, dense.shape(0));
        Rows rows{numbers.data(), static_cast<int64_t>(numbers.size()), nullptr, 0, dense.data(), nullptr, nullptr, nullptr};
        return run_rows(layers, rows, dst, tile, still_from, active, threads);
    }

    // Columns must be below `inputs` (Inputs checks that).
    int64_t layers_csr(const Layers& layers, Array<const int64_t, 1> offsets, Array<const int64_t, 1> columns,
                       Array<const float, 1> values, Array<const int64_t, 1> numbers, Array<float, 1> dst, int tile,
                       int64_t still_from, Array<uint64_t, 2> active, int threads) const {
        require(offsets.size() >= 1 && columns.size() == values.size(), "columns and values must be of one length");
        check_numbers(numbers, offsets.size() - 1);
        Rows rows{numbers.data(), static_cast<int64_t>(numbers.size()), nullptr, 0, nullptr, offsets.data(), columns.data(), values.data()};
        return run_rows(layers, rows, dst, tile, still_from, active, threads);
    }

    void compact(Array<const float, 1> src, int src_tile, Array<float, 1> dst, int dst_tile, int64_t neurons,
                 Array<const int64_t, 1> indices, int threads) const {
        check_features(src.data(), src_tile), check_features(dst.data(), dst_tile);
        const int64_t count = indices.size();
        require(static_cast<int64_t>(dst.size()) >= tiles_of(count, dst_tile) * dst_tile * neurons, "dst is too small");
        check_numbers(indices, neurons ? src.size() / neurons / src_tile * src_tile : 0);
        nb::gil_scoped_release release;
        kernels->compact(src.data(), src_tile, dst.data(), dst_tile, neurons, indices.data(), count, threads);
    }

    void row_hashes(Array<const float, 1> src, int64_t neurons, int64_t step, int tile, Array<uint64_t, 1> hash, int threads) const {
        check_features(src.data(), tile);
        const int64_t count = hash.size();
        require(neurons >= 1 && step >= 1 && static_cast<int64_t>(src.size()) >= tiles_of(count, tile) * tile * neurons, "src is too small");
        nb::gil_scoped_release release;
        kernels->row_hashes(src.data(), neurons, step, count, tile, hash.data(), threads);
    }

    void rows_differ(Array<const float, 1> src, int64_t neurons, Array<const int64_t, 1> indices, int tile,
                     Array<uint8_t, 1> differs, int threads) const {
        check_features(src.data(), tile);
        const int64_t count = indices.size();
        require(differs.size() == indices.size(), "outputs must be of one length");
        require(static_cast<int64_t>(src.size()) >= tiles_of(count, tile) * tile * neurons, "src is too small");
        check_numbers(indices, count);
        nb::gil_scoped_release release;
        kernels->rows_differ(src.data(), neurons, indices.data(), count, tile, differs.data(), threads);
    }

    void row_statistics(Array<const float, 1> src, Array<const double, 1> counts, Array<const double, 1> weights, int tile, Array<double, 1> sum,
                        Array<double, 1> projection, Array<float, 1> min, Array<float, 1> max, Array<uint64_t, 1> hash,
                        int threads) const {
        check_features(src.data(), tile);
        const int64_t count = sum.size(), neurons = weights.size();
        require(counts.size() == weights.size() && projection.size() == sum.size() && min.size() == sum.size() && max.size() == sum.size() && hash.size() == sum.size(), "outputs must be of one length");
        require(static_cast<int64_t>(src.size()) >= tiles_of(count, tile) * tile * neurons, "src is too small");
        nb::gil_scoped_release release;
        kernels->row_statistics(src.data(), neurons, count, tile, {counts.data(), weights.data(), sum.data(), projection.data(), min.data(), max.data(), hash.data()}, threads);
    }

    void untile(Array<const float, 1> src, Array<float, 2> dst, int tile, int threads) const {
        check_features(src.data(), tile);
        const int64_t count = dst.shape(0), neurons = dst.shape(1);
        require(static_cast<int64_t>(src.size()) >= tiles_of(count, tile) * tile * neurons, "src is too small");
        nb::gil_scoped_release release;
        kernels->untile(src.data(), dst.data(), neurons, count, tile, threads);
    }

    void take(Array<const float, 1> src, int tile, Array<const int64_t, 1> indices, Array<float, 2> rows, int threads) const {
        check_features(src.data(), tile);
        const int64_t count = indices.size(), neurons = rows.shape(1);
        require(static_cast<int64_t>(rows.shape(0)) == count, "rows must be as many as indices");
        check_numbers(indices, neurons ? src.size() / neurons / tile * tile : 0);
        nb::gil_scoped_release release;
        kernels->take(src.data(), tile, neurons, indices.data(), count, rows.data(), threads);
    }

    void place(Array<const float, 2> rows, Array<float, 1> dst, int tile, int64_t first, int threads) const {
        check_features(dst.data(), tile);
        const int64_t count = rows.shape(0), neurons = rows.shape(1);
        require(first >= 0 && static_cast<int64_t>(dst.size()) >= tiles_of(first + count, tile) * tile * neurons, "dst is too small");
        nb::gil_scoped_release release;
        kernels->place(rows.data(), neurons, count, dst.data(), tile, first, threads);
    }
};

void bind_spgemm(nb::module_&);     // spgemm_module.cpp
void bind_spmm(nb::module_&);       // spmm_module.cpp
void bind_sddmm(nb::module_&);      // sddmm_module.cpp
void bind_attention(nb::module_&);  // attention_module.cpp
void bind_depthwise(nb::module_&);  // depthwise_module.cpp
void bind_merge(nb::module_&);      // merge_module.cpp
void bind_text(nb::module_&);       // text_module.cpp
void bind_resize(nb::module_&);     // resize_module.cpp

}  // namespace spdnn

NB_MODULE(_cpu, m) {
    using namespace spdnn;
    m.doc() = "The compiled CPU kernels of spdnn; spdnn.kernels.dispatch chooses the level.";
    m.attr("source_digest") = SPDNN_SOURCE_DIGEST;
    bind_spgemm(m);
    bind_spmm(m);
    bind_sddmm(m);
    bind_attention(m);
    bind_depthwise(m);
    bind_merge(m);
    bind_text(m);
    bind_resize(m);
    nb::class_<BoundLayer>(m, "BoundLayer")
        .def(nb::init<int64_t, int64_t, Array<const int64_t, 1>, nb::ndarray<nb::ndim<1>, nb::c_contig, nb::ro>, Array<const float, 1>,
                      Array<const float, 1>, float, float>(),
             "inputs"_a, "outputs"_a, "offsets"_a, "indices"_a, "values"_a, "bias"_a, "low"_a, "high"_a)
        .def_prop_ro("inputs", [](const BoundLayer& l) { return l.view.inputs; })
        .def_prop_ro("outputs", [](const BoundLayer& l) { return l.view.outputs; });
    nb::class_<Level>(m, "Level")
        .def_prop_ro("name", [](const Level& l) { return l.kernels->name; })
        .def_prop_ro("vector_bytes", [](const Level& l) { return l.kernels->vector_bytes; })
        .def("layers", &Level::layers)
        .def("layers_bits", &Level::layers_bits)
        .def("layers_dense", &Level::layers_dense)
        .def("layers_csr", &Level::layers_csr)
        .def("compact", &Level::compact)
        .def("row_hashes", &Level::row_hashes)
        .def("rows_differ", &Level::rows_differ)
        .def("row_statistics", &Level::row_statistics)
        .def("untile", &Level::untile)
        .def("take", &Level::take)
        .def("place", &Level::place);
    m.def("levels", [] {
        std::vector<Level> found;
        for (const Kernels* kernels : usable()) found.push_back({kernels});
        return found;
    }, "The levels that this processor can run, the best first.");
    bind_machine(m);
}
