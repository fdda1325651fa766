// What the bindings of the operations share: numbers of two types, topologies, how a kernel is run on them.
#pragma once

#include "binding.hpp"
#include "ops.hpp"

namespace spdnn {

// `half` is its bits here and in the kernels; NumPy's float16 is what Python hands over.
template <size_t N>
using Numbers = nb::ndarray<nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <size_t N>
using ReadNumbers = nb::ndarray<nb::ndim<N>, nb::c_contig, nb::device::cpu, nb::ro>;
using ReadColumns = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;

// The numbers of an array as a kernel takes them.
template <class Real, class Array_>
auto data(const Array_& array) {
    constexpr bool kRead = std::is_const_v<std::remove_pointer_t<decltype(array.data())>>;
    return static_cast<std::conditional_t<kRead, const Real, Real>*>(array.data());
}

template <class First, class... Others>
bool all_half(const First& first, const Others&... others) {
    const bool half = is_half(first);
    require(((is_half(others) == half) && ...),
            "the arrays must have one dtype: they must all be float32, or all float16");
    return half;
}

// Rows that `offsets` and `order` agree on, in a pattern without columns.
inline Pattern rows_of(const Array<const int64_t, 1>& offsets, const Array<const int32_t, 1>& order) {
    require(offsets.size() >= 1 && order.size() == offsets.size() - 1,
            "offsets must be one more than the rows, and order as many");
    const int64_t rows = extent(order);
    require(offsets.data()[0] == 0, "offsets must begin at 0");
    for (int64_t i = 0; i < rows; ++i) {
        require(offsets.data()[i] <= offsets.data()[i + 1], "offsets must not descend");
        require(order.data()[i] >= 0 && order.data()[i] < rows, "a row of order is out of range");
    }
    return {rows, 0, offsets.data(), nullptr, 2, order.data()};
}

// The same with columns, which are trusted (Topology checks them).
inline Pattern pattern_of(const Array<const int64_t, 1>& offsets, const ReadColumns& columns,
                          const Array<const int32_t, 1>& order, size_t width) {
    Pattern pattern = rows_of(offsets, order);
    require(pattern.nonzeros() == extent(columns), "offsets must go from 0 to the number of nonzeros");
    const nb::dlpack::dtype type = columns.dtype();
    const bool narrow = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && type.bits == 16;
    require(narrow || (type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int) && type.bits == 32),
            "columns must be uint16 or int32");
    pattern.width = static_cast<int64_t>(width), pattern.columns = columns.data(), pattern.index_bytes = narrow ? 2 : 4;
    return pattern;
}

// (busy, nan): the processor seconds of each thread, and what `work(busy)` gives, without the interpreter's lock.
template <class Work>
nb::tuple timed(int threads, const Work& work) {
    Busy busy = busy_of(threads);
    bool nan;
    {
        nb::gil_scoped_release release;
        nan = work(busy.data());
    }
    return nb::make_tuple(busy, nan);
}

// The same of `work(real, busy)`, on numbers of 16 bits where `half`.
template <class Work>
nb::tuple run_on(bool half, int threads, const Work& work) {
    return timed(threads, [&](double* busy) { return half ? work(uint16_t{}, busy) : work(0.0f, busy); });
}

}  // namespace spdnn
