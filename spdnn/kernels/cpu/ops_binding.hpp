// What the bindings of the operations share: a level by its name, numbers of two types, topologies, busy threads.
#pragma once

#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "binding.hpp"
#include "ops.hpp"

namespace spdnn {

// `half` is its bits here and in the kernels; NumPy's float16 is what Python hands over.
template <size_t N>
using Numbers = nb::ndarray<nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <size_t N>
using ReadNumbers = nb::ndarray<nb::ndim<N>, nb::c_contig, nb::device::cpu, nb::ro>;
using ReadColumns = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;
using Busy = nb::ndarray<nb::numpy, double, nb::ndim<1>>;

// The one of `works` at the level of that name, which must be one that this processor can run.
template <class Work, size_t count>
const Work& at_level(const Work* const (&works)[count], const std::string& level) {
    static const std::vector<std::string> usable = [] {
        std::vector<std::string> names;
        for (nb::handle found : nb::module_::import_("spdnn.kernels._cpu").attr("levels")())
            names.push_back(nb::cast<std::string>(found.attr("name")));
        return names;
    }();
    for (const std::string& name : usable)
        for (const Work* work : works)
            if (name == level && name == work->name) return *work;
    throw std::invalid_argument("this processor cannot run that level");
}

template <class Numbers_>
bool is_half(const Numbers_& numbers) {
    const nb::dlpack::dtype type = numbers.dtype();
    require(type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && type.lanes == 1 && (type.bits == 32 || type.bits == 16),
            "numbers must be float32 or float16");
    return type.bits == 16;
}

template <class First, class... Others>
bool all_half(const First& first, const Others&... others) {
    const bool half = is_half(first);
    require(((is_half(others) == half) && ...), "the arrays must all be float32, or all float16");
    return half;
}

inline Pattern pattern_of(const Array<const int64_t, 1>& offsets, const ReadColumns& columns, const Array<const int32_t, 1>& order,
                          size_t width) {
    require(offsets.size() >= 1 && order.size() == offsets.size() - 1, "offsets must be one more than the rows, and order as many");
    const int64_t rows = static_cast<int64_t>(order.size());
    require(offsets.data()[0] == 0 && offsets.data()[rows] == static_cast<int64_t>(columns.size()), "offsets must go from 0 to the number of nonzeros");
    const nb::dlpack::dtype type = columns.dtype();
    const bool narrow = type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && type.bits == 16;
    require(narrow || (type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int) && type.bits == 32), "columns must be uint16 or int32");
    return {rows, static_cast<int64_t>(width), offsets.data(), columns.data(), narrow ? 2 : 4, order.data()};
}

// A new array of `threads` zeros that Python owns.
inline Busy busy_of(int threads) {
    require(threads >= 1, "no threads");
    double* seconds = new double[threads]();
    nb::capsule owner(seconds, [](void* memory) noexcept { delete[] static_cast<double*>(memory); });
    return Busy(seconds, {static_cast<size_t>(threads)}, owner);
}

}  // namespace spdnn
