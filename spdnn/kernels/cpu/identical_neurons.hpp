// Identical neurons: rows of layers that are equal, and layers on the classes of their inputs. A layer is `offsets`
// (rows + 1), `indices` (uint16 or uint32, ascending in each row) and `values` of each edge (null: all have one); row j
// is what output j reads. The same bits at every instruction-set level, and on one thread: callers have a thread for
// each layer.
#pragma once

#include <cstdint>

namespace spdnn {

// classes[j] <- the number of the first row that equals row j, counted over such rows; firsts <- those rows. Returns
// how many there are. `indices` have `bytes` each; `biases` are null where all rows have the same.
int64_t number_rows(const int64_t* offsets, int64_t rows, const void* indices, int64_t bytes, const float* values,
                    const float* biases, uint32_t* classes, int64_t* firsts);

// The rows on the classes 0 .. most of their inputs: edges of one class become one, whose weight is their sum in double
// precision, rounded once. `weights`: of each edge; null: all have `weight`. `to`, `written` and `sums` have room for
// as many rows and edges. Returns how many edges are left.
template <class From, class To>
int64_t rows_on_classes(const int64_t* offsets, int64_t rows, const From* read, const float* weights, float weight,
                        const uint32_t* classes, uint32_t most, int64_t* to, To* written, float* sums);

}  // namespace spdnn
