// The Python module spdnn.kernels._cpu: every kernel at every level that this processor can run.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <omp.h>
#include <pthread.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bound.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(Kernels, kernels);

// Whether this processor has the instructions of a level.
static bool runs(const std::string& level) {
#ifdef SPDNN_X86
    __builtin_cpu_init();
    if (level == "x86_64_v4")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    if (level == "x86_64_v3")
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
    return true;
}

// Before a fork, ends the threads that libgomp keeps for the thread that forks. The child has none of them, and would wait
// for them in its first parallel region; parent and child start new ones there. libgomp keeps threads apart for each
// thread that calls, so calls of other threads go on, and the child, in which these threads are not, never meets theirs.
// LLVM's runtime makes itself anew in the child.
static void end_openmp_threads() {
#ifndef __clang__
    omp_pause_resource_all(omp_pause_hard);
#endif
}

static int64_t tiles_of(int64_t count, int64_t tile) { return (count + tile - 1) / tile; }

static void check_features(const void* data, int64_t tile) {
    require(tile == 1 || tile == 16 || tile == 32 || tile == 64, "tile must be 1, 16, 32 or 64");
    require(reinterpret_cast<uintptr_t>(data) % 64 == 0, "features must be 64-byte aligned");
}

static void check_source(const Array<const float, 1>& src, int64_t neurons, int64_t count, int tile) {
    check_features(src.data(), tile);
    require(extent(src) >= tiles_of(count, tile) * tile * neurons, "src is too small");
}

using Layers = std::vector<const BoundLayer*>;

struct Level {
    const Kernels* kernels;

    int64_t run(const Layers& layers, const Rows* rows, const float* src, Array<float, 1>& dst, int64_t count, int tile,
                int64_t still_from, Array<uint64_t, 2>& active, int threads, bool streamed) const {
        require(!layers.empty() && count >= 0 && threads >= 1, "layers and threads must be at least one");
        check_features(dst.data(), tile);
        const int64_t tiles = tiles_of(count, tile);
        std::vector<Layer> views;
        for (const BoundLayer* layer : layers) {
            require(views.empty() || views.back().outputs == layer->view.inputs, "the layers' widths must chain");
            views.push_back(layer->view);
        }
        require(extent(dst) >= tiles * tile * views.back().outputs, "dst is too small");
        require(active.shape(0) == views.size() && extent(active, 1) == tiles, "active must be (layers, tiles)");
        const Pass pass{views.data(), extent(views), rows,       src,           dst.data(),
                        count,        tile,          still_from, active.data(), streamed};
        nb::gil_scoped_release release;
        return kernels->run(pass, threads);
    }

    int64_t layers(const Layers& layers, Array<const float, 1> src, Array<float, 1> dst, int64_t count, int tile,
                   int64_t still_from, Array<uint64_t, 2> active, int threads, bool streamed) const {
        require(!layers.empty(), "layers and threads must be at least one");
        check_source(src, layers[0]->view.inputs, count, tile);
        return run(layers, nullptr, src.data(), dst, count, tile, still_from, active, threads, streamed);
    }

    int64_t layers_stored(const Layers& layers, const StoredRows& inputs, Array<const int64_t, 1> numbers,
                          Array<float, 1> dst, int tile, int64_t still_from, Array<uint64_t, 2> active, int threads,
                          bool streamed) const {
        require(!layers.empty() && inputs.neurons == layers[0]->view.inputs,
                "rows must have as many values as the layer has inputs");
        const Rows rows = inputs.at(numbers);
        return run(layers, &rows, nullptr, dst, rows.count, tile, still_from, active, threads, streamed);
    }

    void compact(Array<const float, 1> src, int src_tile, Array<float, 1> dst, int dst_tile, int64_t neurons,
                 Array<const int64_t, 1> indices, int threads) const {
        check_features(src.data(), src_tile), check_features(dst.data(), dst_tile);
        const int64_t count = indices.size();
        require(extent(dst) >= tiles_of(count, dst_tile) * dst_tile * neurons, "dst is too small");
        check_rows(indices, neurons ? src.size() / neurons / src_tile * src_tile : 0);
        nb::gil_scoped_release release;
        kernels->compact(src.data(), src_tile, dst.data(), dst_tile, neurons, indices.data(), count, threads);
    }

    void row_hashes(Array<const float, 1> src, int64_t neurons, int64_t step, int tile, Array<uint64_t, 1> hash,
                    int threads) const {
        const int64_t count = hash.size();
        require(neurons >= 1 && step >= 1, "rows must have neurons, and steps");
        check_source(src, neurons, count, tile);
        nb::gil_scoped_release release;
        kernels->row_hashes(src.data(), neurons, step, count, tile, hash.data(), threads);
    }

    void rows_differ(Array<const float, 1> src, int64_t neurons, Array<const int64_t, 1> indices, int tile,
                     Array<uint8_t, 1> differs, int threads) const {
        const int64_t count = indices.size();
        require(differs.size() == indices.size(), "outputs must be of one length");
        check_source(src, neurons, count, tile);
        check_rows(indices, count);
        nb::gil_scoped_release release;
        kernels->rows_differ(src.data(), neurons, indices.data(), count, tile, differs.data(), threads);
    }

    void row_statistics(Array<const float, 1> src, Array<const double, 1> counts, Array<const double, 1> weights,
                        int tile, Array<double, 1> sum, Array<double, 1> projection, Array<float, 1> min,
                        Array<float, 1> max, Array<uint64_t, 1> hash, int threads) const {
        const int64_t count = sum.size(), neurons = weights.size();
        require(counts.size() == weights.size() && projection.size() == sum.size() && min.size() == sum.size() &&
                    max.size() == sum.size() && hash.size() == sum.size(),
                "outputs must be of one length");
        check_source(src, neurons, count, tile);
        nb::gil_scoped_release release;
        kernels->row_statistics(
            src.data(), neurons, count, tile,
            {counts.data(), weights.data(), sum.data(), projection.data(), min.data(), max.data(), hash.data()},
            threads);
    }

    void take(Array<const float, 1> src, int tile, Array<const int64_t, 1> indices, Array<float, 2> rows,
              int threads) const {
        const int64_t count = indices.size(), neurons = rows.shape(1);
        check_features(src.data(), tile);
        require(extent(rows, 0) == count, "rows must be as many as indices");
        check_rows(indices, neurons ? src.size() / neurons / tile * tile : 0);
        nb::gil_scoped_release release;
        kernels->take(src.data(), tile, neurons, indices.data(), count, rows.data(), threads);
    }

    void insert(Array<const float, 2> rows, Array<float, 1> dst, int tile, int64_t first, int threads) const {
        check_features(dst.data(), tile);
        const int64_t count = rows.shape(0), neurons = rows.shape(1);
        require(first >= 0 && extent(dst) >= tiles_of(first + count, tile) * tile * neurons, "dst is too small");
        nb::gil_scoped_release release;
        kernels->insert(rows.data(), neurons, count, dst.data(), tile, first, threads);
    }
};

void bind_spgemm(nb::module_&);      // spgemm_module.cpp
void bind_spmm(nb::module_&);        // spmm_module.cpp
void bind_ops(nb::module_&);         // ops_module.cpp
void bind_forward(nb::module_&);     // forward_module.cpp
void bind_onnx(nb::module_&);        // onnx_products.cpp
void bind_machine(nb::module_&);     // machine_module.cpp
void bind_text(nb::module_&);        // text.cpp
void bind_resize(nb::module_&);      // resize_module.cpp
void bind_layer_rows(nb::module_&);  // layer_rows.cpp
void bind_layouts(nb::module_&);     // layouts.cpp

}  // namespace spdnn

NB_MODULE(_cpu, m) {
    using namespace spdnn;
    m.doc() = "The compiled CPU kernels of spdnn; spdnn.kernels.dispatch chooses the level.";
    pthread_atfork(end_openmp_threads, nullptr, nullptr);
    m.attr("source_digest") = SPDNN_SOURCE_DIGEST;
    m.attr("compiler") = SPDNN_COMPILER;
    m.attr("openmp") = _OPENMP;
    m.def(
        "join_openmp",
        [] {
#pragma omp parallel num_threads(1)
            asm volatile("");  // else the region is left out
        },
        "OpenMP binds the calling thread, if it does that, now instead of in the thread's first parallel region.");
    bind_spgemm(m);
    bind_spmm(m);
    bind_ops(m);
    bind_layer_rows(m);
    bind_layouts(m);
    bind_text(m);
    bind_resize(m);
    nb::class_<BoundLayer>(m, "BoundLayer")
        .def(nb::init<int64_t, int64_t, Array<const int64_t, 1>, ReadIndices, Array<const float, 1>,
                      Array<const float, 1>, float, float, bool, bool, bool>(),
             "inputs"_a, "outputs"_a, "offsets"_a, "indices"_a, "values"_a, "bias"_a, "low"_a, "high"_a,
             "by_input"_a = false, "keeps_zero"_a = false, "share"_a = false)
        .def_prop_ro("edges", [](const BoundLayer& layer) { return layer.view.edges; })
        .def_prop_ro("nbytes", &BoundLayer::nbytes, "Bytes of the lists of inputs, and the values.")
        .def_prop_ro("gathers", &BoundLayer::gathers, "Rows of features that a vector of inputs loads.");
    nb::class_<StoredRows>(m, "StoredRows")
        .def(nb::init<Array<const uint8_t, 2>, int64_t>(), "bits"_a, "neurons"_a)
        .def(nb::init<Array<const float, 2>>(), "dense"_a)
        .def(nb::init<Array<const int64_t, 1>, Array<const int64_t, 1>, Array<const float, 1>, int64_t>(), "offsets"_a,
             "columns"_a, "values"_a, "neurons"_a);
    bind_forward(m);
    bind_onnx(m);
    nb::class_<Level>(m, "Level")
        .def_prop_ro("name", [](const Level& l) { return l.kernels->name; })
        .def_prop_ro("vector_bytes", [](const Level& l) { return l.kernels->vector_bytes; })
        .def("layers", &Level::layers, "layers"_a, "src"_a, "dst"_a, "count"_a, "tile"_a, "still_from"_a, "active"_a,
             "threads"_a, "streamed"_a = false)
        .def("layers_stored", &Level::layers_stored, "layers"_a, "inputs"_a, "numbers"_a, "dst"_a, "tile"_a,
             "still_from"_a, "active"_a, "threads"_a, "streamed"_a = false)
        .def("compact", &Level::compact)
        .def("row_hashes", &Level::row_hashes)
        .def("rows_differ", &Level::rows_differ)
        .def("row_statistics", &Level::row_statistics)
        .def("take", &Level::take)
        .def("insert", &Level::insert);
    m.def(
        "levels",
        [] {
            std::vector<Level> levels;
            for (const Kernels* kernels : kernels_levels)
                if (runs(kernels->name)) levels.push_back({kernels});
            return levels;
        },
        "The levels that this processor can run, the best first.");
    bind_machine(m);
}
