// The CPU kernels' interface, the same at every instruction-set level.
//
// Features are tiled: float32 (tiles, neurons, tile), `tile` inputs (1, 16, 32 or 64) side by side, so that the value
// of one neuron for a whole tile is contiguous. A layer is stored by output neuron (CSC of W): output j reads the
// inputs of list j, indices[offsets[j] .. offsets[j+1]). Outputs that read the same inputs, a set, may share a list
// (sets.hpp).
#pragma once

#include <cstdint>

namespace spdnn {

// Lists of inputs that several outputs share, ahead of those of single outputs.
struct Sets {
    int64_t shared;          // lists of several outputs; null members: none, and list j is that of output j
    const int32_t* members;  // outputs, list by list
    const int64_t* begins;   // lists + 1: where the members of a list begin
    const int64_t* values;   // lists: where its values begin; edge e of its member m has number e * members + m

    int64_t size(int64_t list) const { return members ? begins[list + 1] - begins[list] : 1; }
    int64_t output(int64_t list, int64_t member) const { return members ? members[begins[list] + member] : list; }
    int64_t value(int64_t list, int64_t offset) const { return members ? values[list] : offset; }
};

struct Layer {
    int64_t inputs, outputs, edges, lists;
    const int64_t* offsets;  // lists + 1; by input neuron (spgemm.hpp): inputs + 1
    const void* indices;     // uint16 or uint32 by index_bytes, ascending in each row
    int index_bytes;
    const float* values;  // one an edge, or null: every weight is `value`
    float value;
    const float* bias;  // outputs, or 1 with bias_stride 0
    int bias_stride;
    float low, high;  // activation: min(max(y, low), high)
    bool keeps_zero;  // activation(bias) is 0 for every output; set by input neuron alone
    Sets sets;
    bool streamed = false;  // outputs are written past the caches
};

// The rows of the first layer's features, not yet tiled. Exactly one kind is not null.
struct Rows {
    const int64_t* numbers;  // stored row of each input
    int64_t count;
    const uint8_t* bits;  // (rows, row_bytes), most significant bit first
    int64_t row_bytes;
    const float* dense;          // (rows, inputs)
    const int64_t* csr_offsets;  // rows + 1, with csr_columns and csr_values
    const int64_t* csr_columns;
    const float* csr_values;
};

// Consecutive layers that tiles pass through without going back to memory in between.
struct Pass {
    const Layer* layers;
    int64_t depth;
    const Rows* rows;  // what the first layer takes, or null: src
    const float* src;  // (tiles, inputs of the first layer, tile)
    float* dst;        // (tiles, outputs of the last layer, tile)
    int64_t count;     // inputs; lanes past them hold nothing
    int tile;
    int64_t still_from;     // from this layer of the pass on, a row of zeros stays zeros, and a tile of them is skipped
    uint64_t* active;       // (depth, tiles): a bit for every input with a nonzero output
    bool streamed = false;  // the outputs of the last layer leave the caches before they are read
};

struct RowStatistics {
    const double* counts;   // how often each neuron counts in `sum`
    const double* weights;  // of each neuron, for `projection`, their weighted sum
    double *sum, *projection;
    float *min, *max;
    uint64_t* hash;
};

struct Kernels {
    const char* name;
    int vector_bytes;
    // dst <- the layers of the pass, each activation(Y W + b), applied to src. Returns the first layer with a value
    // that was not finite before the activation (float32's range was passed), or -1. Sums do not depend on tile or
    // threads.
    int64_t (*run)(const Pass&, int threads);
    // Input k of dst <- input indices[k] of src; the lanes past `count` become zero.
    void (*compact)(const float* src, int src_tile, float* dst, int dst_tile, int64_t neurons, const int64_t* indices,
                    int64_t count, int threads);
    // Of each of the first `count` rows: a hash of the values of neurons 0, step, 2 step, ...
    void (*row_hashes)(const float* src, int64_t neurons, int64_t step, int64_t count, int tile, uint64_t* hash,
                       int threads);
    // differs[k] <- whether rows k and indices[k], k < count, differ in any bit.
    void (*rows_differ)(const float* src, int64_t neurons, const int64_t* indices, int64_t count, int tile,
                        uint8_t* differs, int threads);
    // Sums, least, largest and hash of each of the first `count` rows.
    void (*row_statistics)(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics&,
                           int threads);
    // rows (count, neurons) <- inputs indices[k] of src.
    void (*take)(const float* src, int tile, int64_t neurons, const int64_t* indices, int64_t count, float* rows,
                 int threads);
    // Inputs first .. first + count of dst <- rows (count, neurons); the lanes of a new tile past them become zero.
    void (*insert)(const float* rows, int64_t neurons, int64_t count, float* dst, int tile, int64_t first, int threads);
};

}  // namespace spdnn
