// What the parts of the Python module share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <stdexcept>

namespace nb = nanobind;

namespace spdnn {

template <class T, size_t N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

inline void require(bool true_, const char* what) {
    if (!true_) throw std::invalid_argument(what);
}

}  // namespace spdnn
