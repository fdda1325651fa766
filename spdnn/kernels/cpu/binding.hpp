// What the parts of the Python module share: arrays, requirements, levels by their names, busy threads.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace nb = nanobind;

// `name_levels`: what there is of a kind of kernels, compiled for each instruction-set level, the best first.
#ifdef SPDNN_X86
#define SPDNN_LEVELS(Kind, name)                                         \
    extern const Kind name##_x86_64, name##_x86_64_v3, name##_x86_64_v4; \
    static const Kind* const name##_levels[] = {&name##_x86_64_v4, &name##_x86_64_v3, &name##_x86_64}
#else
#define SPDNN_LEVELS(Kind, name)      \
    extern const Kind name##_generic; \
    static const Kind* const name##_levels[] = {&name##_generic}
#endif

namespace spdnn {

template <class T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

using Indices = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Busy = nb::ndarray<nb::numpy, double, nb::ndim<1>>;
using ReadIndices = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;

// Of an array, or of one of its axes, as a signed number.
template <class Array_>
int64_t extent(const Array_& array) {
    return static_cast<int64_t>(array.size());
}
template <class Array_>
int64_t extent(const Array_& array, int axis) {
    return static_cast<int64_t>(array.shape(axis));
}

inline void require(bool true_, const char* what) {
    if (!true_) throw std::invalid_argument(what);
}

inline void check_rows(const Array<const int64_t, 1>& numbers, int64_t rows) {
    for (size_t i = 0; i < numbers.size(); ++i)
        require(numbers.data()[i] >= 0 && numbers.data()[i] < rows, "a row number is out of range");
}

// Bytes of an index: input neurons are numbered in 16 or 32 bits.
template <class Indices_>
int index_bytes(const Indices_& indices) {
    const int bytes = indices.dtype().bits / 8;
    require(indices.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && (bytes == 2 || bytes == 4),
            "indices must be uint16 or uint32");
    return bytes;
}

// work(pointer) for the indices, as uint16 or uint32.
template <class Indices_, class Work>
auto with_indices(const Indices_& indices, const Work& work) {
    constexpr bool kRead = std::is_const_v<std::remove_pointer_t<decltype(indices.data())>>;
    using Narrow = std::conditional_t<kRead, const uint16_t, uint16_t>;
    using Wide = std::conditional_t<kRead, const uint32_t, uint32_t>;
    return index_bytes(indices) == 2 ? work(static_cast<Narrow*>(indices.data()))
                                     : work(static_cast<Wide*>(indices.data()));
}

// The one of `works` at the level of that name, which must be one that this processor can run.
template <class Work, size_t count>
const Work& at_level(const Work* const (&works)[count], const std::string& level) {
    static const std::vector<std::string> usable = [] {
        std::vector<std::string> names;
        for (nb::handle usable_level : nb::module_::import_("spdnn.kernels._cpu").attr("levels")())
            names.push_back(nb::cast<std::string>(usable_level.attr("name")));
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
    require(type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && type.lanes == 1 &&
                (type.bits == 32 || type.bits == 16),
            "numbers must be float32 or float16");
    return type.bits == 16;
}

// A new array of `threads` zeros that Python owns.
inline Busy busy_of(int threads) {
    require(threads >= 1, "no threads");
    double* seconds = new double[threads]();
    nb::capsule owner(seconds, [](void* memory) noexcept { delete[] static_cast<double*>(memory); });
    return Busy(seconds, {static_cast<size_t>(threads)}, owner);
}

}  // namespace spdnn
