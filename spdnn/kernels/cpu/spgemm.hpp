// The interface of the sparse-sparse kernels (engine `spgemm`), the same at every instruction-set level.
//
// Features are sparse rows with gaps between them: row i holds columns[begin[i] .. begin[i] + length[i]), ascending,
// and their values, none of which is zero. A row leaves by leaving `begin` and `length`; nothing is copied. Weights are
// by input neuron (CSR of W), the order in which Gustavson's algorithm reads them: input i reaches outputs
// indices[offsets[i] .. offsets[i+1]). Where a layer keeps zeros, outputs that no input reaches stay out of the row.
#pragma once

#include <cstdint>

#include "fused_layers.hpp"

namespace spdnn {

struct SparseRows {
    int64_t count;
    const int64_t *begin, *length;
    const uint32_t* columns;
    const float* values;
};

// Where `count` new rows of at most `neurons` values go: columns and values have room for count * neurons.
struct NewRows {
    int64_t *begin, *length;
    uint32_t* columns;
    float* values;
};

enum Accumulator { kTouched, kSweep, kPanel, kAccumulators, kBest = -1 };

// The index of an output's sum. RadiX-Nets, as many structured networks, read outputs a power of two apart: without
// these shifts all 32 outputs of an input would fall into one or two sets of the nearest cache and push each other out
// (1.5 to 3 times as slow). Kept together: kGroup neighbours of one row.
inline int64_t sum_index(int64_t output) { return output + (output >> 10) * 16; }
inline int64_t panel_index(int64_t output) { return output + (output >> 6) + (output >> 10); }

// What one thread needs; all of it is zero between two layers.
struct Scratch {
    float* sums;     // sum_index(widest output)
    uint8_t* marks;  // one for each kGroup outputs, or for each input
    float* panel;    // (panel_index(widest output), panel width)
};

constexpr int kGroup = 16;  // outputs that share a mark

struct Work {
    bool finite;            // every value before the activation was
    int64_t multiply_adds;  // feature nonzeros times the lengths of their weight rows
    int64_t rows[kAccumulators];
};

struct SpgemmKernels {
    const char* name;
    int panel;  // rows in a panel
    // dst <- the rows without their zeros.
    void (*load)(const Rows&, int64_t neurons, const NewRows& dst, int threads);
    // dst <- activation(src W + b) without zeros. One Scratch for each thread. The values do not depend on `choice`,
    // on the threads, on which rows are neighbours, or on the level.
    Work (*layer)(const Layer&, const SparseRows& src, const NewRows& dst, const Scratch*, int choice, int threads);
    // A 64-bit hash of each row's columns and values.
    void (*hashes)(const SparseRows&, uint64_t* hash, int threads);
    // same[k] <- whether rows first[k] and second[k] are equal to the bit.
    void (*same)(const SparseRows&, const int64_t* first, const int64_t* second, int64_t pairs, uint8_t* same,
                 int threads);
    // Least and largest values are over all neurons, zeros included.
    void (*statistics)(const SparseRows&, int64_t neurons, const RowStatistics&, int threads);
    // dst (count, neurons) <- the rows, zeros included.
    void (*expand)(const SparseRows&, int64_t neurons, float* dst, int threads);
};

}  // namespace spdnn
