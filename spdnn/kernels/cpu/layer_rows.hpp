// Rows of a layer that are equal, for more than one part of the Python module spdnn.kernels._cpu.
#pragma once

#include <cstdint>

namespace spdnn {

// classes[j] <- the number of the first row that equals row j, counted over such rows; firsts <- those rows. Returns
// how many there are. `indices` have `bytes` each; `values` are null where rows are compared without them, `biases`
// where all rows have the same. Of two rows with the same hash that differ, later rows are compared with the first.
int64_t number_rows(const int64_t* offsets, int64_t rows, const void* indices, int64_t bytes, const float* values,
                    const float* biases, uint32_t* classes, int64_t* firsts);

}  // namespace spdnn
