// The part of the Python module spdnn.kernels._cpu that holds the sparse times dense product of spdnn.ops.
#include <nanobind/stl/vector.h>

#include <numeric>
#include <utility>

#include "ops_binding.hpp"
#include "spmm.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(SpmmKernels, spmm);

namespace {

void check_settings(int tile, int threads) {
    require(tile == 16 || tile == 32 || tile == 64 || tile == 128, "tile must be 16, 32, 64 or 128");
    require(threads >= 1, "no threads");
}

template <class Given, class Kept>
bool equal_numbers(const Given* given, const Kept* kept, int64_t count, int threads) {
    bool differ = false;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(|| : differ)
    for (int part = 0; part < threads; ++part) {
        Given bits = 0;  // of all differences: no branch, so that compilers make vectors of it
        for (int64_t i = count * part / threads; i < count * (part + 1) / threads; ++i)
            bits |= given[i] ^ static_cast<Given>(kept[i]);
        differ = bits != 0;
    }
    return !differ;
}

// Whether columns in another program's memory are still those of a topology; `given`: int32 or int64.
bool same_columns(ReadColumns given, ReadColumns kept, int threads) {
    if (given.size() != kept.size()) return false;
    const auto count = extent(kept);
    require(threads >= 1, "no threads");
    require(given.dtype().bits == 32 || given.dtype().bits == 64, "columns must be int32 or int64");
    require(kept.dtype().bits == 16 || kept.dtype().bits == 32, "columns of a topology must be uint16 or int32");
    const auto with = [&](auto* from) {
        return kept.dtype().bits == 16 ? equal_numbers(from, static_cast<const uint16_t*>(kept.data()), count, threads)
                                       : equal_numbers(from, static_cast<const int32_t*>(kept.data()), count, threads);
    };
    return given.dtype().bits == 32 ? with(static_cast<const int32_t*>(given.data()))
                                    : with(static_cast<const int64_t*>(given.data()));
}

nb::tuple spmm(const std::string& level, Array<const int64_t, 1> offsets, ReadColumns columns,
               Array<const int32_t, 1> order, ReadNumbers<2> values, ReadNumbers<3> b, Array<const float, 1> bias,
               float low, float high, Numbers<3> c, int tile, bool packed, int threads) {
    const SpmmKernels& kernels = at_level(spmm_levels, level);
    check_settings(tile, threads);
    const int64_t nonzeros = columns.size();
    SpmmProblem p{};
    p.pattern = pattern_of(offsets, columns, order, b.shape(1));
    p.half = all_half(values, b, c);
    p.width = b.shape(2), p.batch = b.shape(0);
    require(c.shape(0) == b.shape(0) && c.shape(1) == order.size() && c.shape(2) == b.shape(2),
            "c must be (batch, rows, columns of b)");
    require(extent(values, 1) == nonzeros && (values.shape(0) == 1 || values.shape(0) == b.shape(0)),
            "values must be (1, nonzeros) or (batch, nonzeros)");
    require(bias.size() == order.size(), "bias must be one a row");
    require(nonzeros == 0 || p.pattern.width > 0, "nonzeros need rows of b");
    p.values = values.data(), p.value_stride = values.shape(0) == 1 ? 0 : nonzeros;
    p.b = b.data(), p.bias = bias.data(), p.low = low, p.high = high, p.c = c.data(), p.tile = tile, p.packed = packed;
    return timed(threads, [&](double* busy) { return kernels.run(p, threads, busy); });
}

nb::tuple spmm_by_rows(const std::string& level, Array<const int64_t, 1> offsets, ReadColumns columns,
                       ReadNumbers<1> values, ReadNumbers<2> b, Array<const float, 1> bias, float low, float high,
                       Numbers<2> c, int tile, int threads) {
    const SpmmKernels& kernels = at_level(spmm_levels, level);
    check_settings(tile, threads);
    require(offsets.size() >= 1 && bias.size() == offsets.size() - 1, "bias must be one a row");
    std::vector<int32_t> natural(bias.size());
    std::iota(natural.begin(), natural.end(), 0);
    const Array<const int32_t, 1> order(natural.data(), {natural.size()});
    SpmmProblem p{};
    p.pattern = pattern_of(offsets, columns, order, b.shape(1));
    p.half = all_half(values, b, c);
    p.width = b.shape(0), p.batch = 1, p.by_rows = p.width > 1;  // one row is one column
    require(c.shape(0) == b.shape(0) && c.shape(1) == bias.size(), "c must be (rows of b, rows)");
    require(values.size() == columns.size(), "values must be (nonzeros,)");
    require(columns.size() == 0 || p.pattern.width > 0, "nonzeros need columns of b");
    p.values = values.data(), p.b = b.data(), p.bias = bias.data(), p.low = low, p.high = high, p.c = c.data(),
    p.tile = tile, p.packed = true;
    return timed(threads, [&](double* busy) { return kernels.run(p, threads, busy); });
}

std::vector<int64_t> spmm_shares(const std::string& level, Array<const int64_t, 1> offsets,
                                 Array<const int32_t, 1> order, int64_t width, int64_t batch, int tile, int threads) {
    const SpmmKernels& kernels = at_level(spmm_levels, level);
    check_settings(tile, threads);
    require(width >= 0 && batch >= 0, "width and batch must not be negative");
    SpmmProblem p{};
    p.pattern = rows_of(offsets, order), p.width = width, p.batch = batch, p.tile = tile;
    std::vector<int64_t> work(threads);
    kernels.shares(p, threads, work.data());
    return work;
}

nb::tuple bias_activation(const std::string& level, Numbers<3> x, Array<const float, 1> bias, float low, float high,
                          int threads) {
    const SpmmKernels& kernels = at_level(spmm_levels, level);
    require(x.shape(1) == bias.size(), "x must be (batch, rows, columns), and bias one a row");
    const bool half = is_half(x);
    return timed(threads, [&](double* busy) {
        return kernels.bias_activation(x.data(), half, x.shape(0), x.shape(1), x.shape(2), bias.data(), low, high,
                                       threads, busy);
    });
}

}  // namespace

void bind_spmm(nb::module_& m) {
    m.def("spmm", &spmm, "level"_a, "offsets"_a, "columns"_a, "order"_a, "values"_a, "b"_a, "bias"_a, "low"_a, "high"_a,
          "c"_a.noconvert(), "tile"_a, "packed"_a, "threads"_a,
          "c <- activation(A b + bias). Returns the processor seconds of each thread, and whether a sum was NaN.");
    m.def("same_columns", &same_columns, "given"_a.noconvert(), "kept"_a.noconvert(), "threads"_a,
          "Whether int32 or int64 columns are those of a topology, uint16 or int32.");
    m.def("spmm_shares", &spmm_shares, "level"_a, "offsets"_a, "order"_a, "width"_a, "batch"_a, "tile"_a, "threads"_a,
          "What each thread does in `spmm`, in nonzeros x columns.");
    m.def("spmm_by_rows", &spmm_by_rows, "level"_a, "offsets"_a, "columns"_a, "values"_a, "b"_a, "bias"_a, "low"_a,
          "high"_a, "c"_a.noconvert(), "tile"_a, "threads"_a, "c <- activation(b A^T + bias). Returns as `spmm`.");
    m.def("bias_activation", &bias_activation, "level"_a, "x"_a.noconvert(), "bias"_a, "low"_a, "high"_a, "threads"_a,
          "x <- activation(x + bias) in place. Returns the processor seconds of each thread, and whether a value was "
          "NaN.");
}

}  // namespace spdnn
