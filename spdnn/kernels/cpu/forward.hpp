// All layers of a network in one call, rows in and rows out, the same interface at every instruction-set level.
#pragma once

#include "fused_layers.hpp"

namespace spdnn {

// A layer by input neuron, for one input: its zeros are skipped, and so are the weights that they meet. The outputs are
// cut into parts of equal edges. Input n scatters its edges e, from offsets[p * inputs + n] to the next offset, to the
// sums targets[e] of part p. In a part of `size` outputs, output first[p] + j has two sums: j, of its even edges, and
// size + j, of its odd ones. The edges of an input in a part are padded to a multiple of kScattered; padding adds 0 to
// sum 2 size, which nothing reads.
constexpr int kScattered = 4;

struct ScatterLayer {
    const int64_t* first;    // parts + 1: where the outputs of each part begin
    const int64_t* offsets;  // parts * inputs + 1
    const void* targets;     // uint16 or uint32 by target_bytes
    int target_bytes;
    const float* values;  // one an edge, or null
};

struct Forward {
    const Layer* layers;
    const ScatterLayer* scatter_layers;  // of each layer, for one input; or null: in tiles
    int64_t depth;
    int parts;       // of each scatter layer
    const float* x;  // (count, inputs of the first layer), by rows
    float* y;        // (count, outputs of the last layer), by rows
    int64_t count;
};

constexpr int64_t kAllFinite = -1, kInputNotFinite = -2;

struct ForwardKernels {
    const char* name;
    // y <- the layers applied to x. Returns kAllFinite, kInputNotFinite, or the first layer with a value that was not
    // finite before the activation. Sums are added in the order of `Kernels`, whatever the count and the threads.
    int64_t (*run)(const Forward&, int threads);
};

}  // namespace spdnn
