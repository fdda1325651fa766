// What the parts of the Python module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

namespace nb = nanobind;

namespace spdnn {

template <class T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

using Indices = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ReadIndices = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu, nb::ro>;

inline void require(bool true_, const char* what) {
    if (!true_) throw std::invalid_argument(what);
}

// Bytes of an index: input neurons are numbered in 16 or 32 bits.
template <class Indices_>
int index_bytes(const Indices_& indices) {
    const int bytes = indices.dtype().bits / 8;
    require(indices.dtype().code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt) && (bytes == 2 || bytes == 4),
            "indices must be uint16 or uint32");
    return bytes;
}

}  // namespace spdnn
