// The part of the Python module spdnn.kernels._cpu that holds the sparse times dense product of spdnn.ops.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "binding.hpp"
#include "spmm.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(SpmmKernels, spmm);

namespace {

using Read = nb::ndarray<nb::c_contig, nb::device::cpu, nb::ro>;
using Written = nb::ndarray<nb::c_contig, nb::device::cpu>;

int column_bytes(const Read& columns) {
    const nb::dlpack::dtype type = columns.dtype();
    const bool narrow = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && type.bits == 16;
    const bool wide = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int) && type.bits == 32;
    require(columns.ndim() == 1 && (narrow || wide), "columns must be uint16 or int32, one a nonzero");
    return type.bits / 8;
}

// Rows that `order` and `offsets` agree on; columns are trusted (Topology checks them).
void check_rows(const Array<const int64_t, 1>& offsets, int64_t nonzeros, const Array<const int32_t, 1>& order) {
    const int64_t rows = order.size();
    require(static_cast<int64_t>(offsets.size()) == rows + 1, "offsets must be one more than order");
    require(offsets.data()[0] == 0 && offsets.data()[rows] == nonzeros, "offsets must go from 0 to the number of nonzeros");
    for (int64_t i = 0; i < rows; ++i) {
        require(offsets.data()[i] <= offsets.data()[i + 1], "offsets must not descend");
        require(order.data()[i] >= 0 && order.data()[i] < rows, "a row of order is out of range");
    }
}

void check_settings(int tile, int threads) {
    require(tile == 16 || tile == 32 || tile == 64 || tile == 128, "tile must be 16, 32, 64 or 128");
    require(threads >= 1, "no threads");
}

nb::tuple spmm(const std::string& level, Array<const int64_t, 1> offsets, Read columns, Array<const int32_t, 1> order, Read values,
               Read b, Array<const float, 1> bias, float low, float high, Written c, int tile, bool packed, int threads) {
    const SpmmKernels& kernels = at_level(kLevels, level);
    check_settings(tile, threads);
    const int64_t nonzeros = columns.size(), rows = order.size();
    SpmmProblem p{};
    p.column_bytes = column_bytes(columns);
    check_rows(offsets, nonzeros, order);
    require(values.ndim() == 2 && b.ndim() == 3 && c.ndim() == 3, "values must be (sets, nonzeros), b and c (batch, rows, columns)");
    p.half = is_half(b);
    require(is_half(values) == p.half && is_half(c) == p.half, "values, b and c must have one dtype");
    p.rows = rows, p.inner = b.shape(1), p.width = b.shape(2), p.batch = b.shape(0);
    require(c.shape(0) == b.shape(0) && static_cast<int64_t>(c.shape(1)) == rows && c.shape(2) == b.shape(2), "c must be (batch, rows, columns of b)");
    require(static_cast<int64_t>(values.shape(1)) == nonzeros && (values.shape(0) == 1 || values.shape(0) == b.shape(0)),
            "values must be (1, nonzeros) or (batch, nonzeros)");
    require(static_cast<int64_t>(bias.size()) == rows, "bias must be one a row");
    require(nonzeros == 0 || p.inner > 0, "nonzeros need rows of b");
    p.offsets = offsets.data(), p.columns = columns.data(), p.order = order.data();
    p.values = values.data(), p.value_stride = values.shape(0) == 1 ? 0 : nonzeros;
    p.b = b.data(), p.bias = bias.data(), p.low = low, p.high = high, p.c = c.data(), p.tile = tile, p.packed = packed;
    Busy busy = busy_of(threads);
    bool nan;
    {
        nb::gil_scoped_release release;
        nan = kernels.run(p, threads, busy.data());
    }
    return nb::make_tuple(busy, nan);
}

std::vector<int64_t> spmm_shares(const std::string& level, Array<const int64_t, 1> offsets, Array<const int32_t, 1> order, int64_t width,
                                 int64_t batch, int tile, int threads) {
    const SpmmKernels& kernels = at_level(kLevels, level);
    check_settings(tile, threads);
    require(width >= 0 && batch >= 0, "width and batch must not be negative");
    require(offsets.size() >= 1, "offsets must be one more than order");
    check_rows(offsets, offsets.data()[offsets.size() - 1], order);
    SpmmProblem p{};
    p.rows = order.size(), p.width = width, p.batch = batch, p.offsets = offsets.data(), p.order = order.data(), p.tile = tile;
    std::vector<int64_t> work(threads);
    kernels.shares(p, threads, work.data());
    return work;
}

nb::tuple bias_activation(const std::string& level, Written x, Array<const float, 1> bias, float low, float high, int threads) {
    const SpmmKernels& kernels = at_level(kLevels, level);
    require(threads >= 1, "no threads");
    require(x.ndim() == 3 && x.shape(1) == bias.size(), "x must be (batch, rows, columns), and bias one a row");
    const bool half = is_half(x);
    Busy busy = busy_of(threads);
    bool nan;
    {
        nb::gil_scoped_release release;
        nan = kernels.bias_activation(x.data(), half, x.shape(0), x.shape(1), x.shape(2), bias.data(), low, high, threads, busy.data());
    }
    return nb::make_tuple(busy, nan);
}

// Measured with 16 lanes (benchmarks/spmm.py --tiles). (64, packed) is best or nearly so where each row of B is used by 25
// nonzeros or more; (32, packed) where a panel of 64 columns does not fit L2, or half as many columns fit L1; (128, packed)
// at 95 % and more, for rows are short; B where it lies, (128, not packed), where a row of B is used less, or B is small.
std::vector<std::pair<int, bool>> spmm_settings(const std::string& level) {
    at_level(kLevels, level);
    return {{64, true}, {128, false}, {32, true}, {64, false}, {128, true}};
}

}  // namespace

void bind_spmm(nb::module_& m) {
    m.def("spmm", &spmm, "level"_a, "offsets"_a, "columns"_a, "order"_a, "values"_a, "b"_a, "bias"_a, "low"_a, "high"_a, "c"_a.noconvert(), "tile"_a,
          "packed"_a, "threads"_a,
          "c <- activation(A b + bias). Returns the processor seconds of each thread, and whether a sum was NaN.");
    m.def("spmm_shares", &spmm_shares, "level"_a, "offsets"_a, "order"_a, "width"_a, "batch"_a, "tile"_a, "threads"_a,
          "What each thread does in `spmm`, in nonzeros x columns.");
    m.def("spmm_settings", &spmm_settings, "level"_a, "(tile, packed) worth trying at a level, the best default first.");
    m.def("bias_activation", &bias_activation, "level"_a, "x"_a.noconvert(), "bias"_a, "low"_a, "high"_a, "threads"_a,
          "x <- activation(x + bias) in place. Returns the processor seconds of each thread, and whether a value was NaN.");
}

}  // namespace spdnn
