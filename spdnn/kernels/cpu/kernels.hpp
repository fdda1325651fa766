// The CPU kernels' interface, the same at every instruction-set level.
//
// Features are tiled: float32 (tiles, neurons, tile), `tile` inputs (16, 32 or 64) side by side, so that the value of
// one neuron for a whole tile is contiguous. A layer is given by output neuron (CSC of W): output j reads
// indices[offsets[j] .. offsets[j+1]).
#pragma once

#include <cstdint>

namespace spdnn {

struct Layer {
    int64_t inputs, outputs;
    const int64_t* offsets;  // outputs + 1
    const void* indices;     // uint16 or uint32 by index_bytes
    int index_bytes;
    const float* values;  // one an edge, or null: every weight is `value`
    float value;
    const float* bias;  // outputs, or 1 with bias_stride 0
    int bias_stride;
    float low, high;  // activation: min(max(y, low), high)
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

struct RowStatistics {
    const float* weights;  // of each neuron, for `projection`, their weighted sum
    double *sum, *projection;
    float *min, *max;
    uint64_t* hash;
};

struct Kernels {
    const char* name;
    int vector_bytes;
    // dst <- activation(src W + b); active[t] gets a bit for every input of tile t with a nonzero output.
    // False when a value before the activation was not finite: float32's range was passed.
    bool (*layer)(const Layer&, const float* src, float* dst, int64_t tiles, int tile, uint64_t* active, int threads);
    // The same with the inputs' own rows as src; lanes past `count` are zero inputs.
    bool (*first_layer)(const Layer&, const Rows&, float* dst, int tile, uint64_t* active, int threads);
    // Input k of dst <- input slots[k] of src; the lanes past `count` become zero.
    void (*compact)(const float* src, float* dst, int64_t neurons, const int64_t* slots, int64_t count, int tile,
                    int threads);
    // Sum, weighted sum, least, largest and hash of each of the first `count` rows.
    void (*row_statistics)(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics&, int threads);
    // dst (count, neurons) <- the first `count` rows.
    void (*untile)(const float* src, float* dst, int64_t neurons, int64_t count, int tile, int threads);
};

}  // namespace spdnn
