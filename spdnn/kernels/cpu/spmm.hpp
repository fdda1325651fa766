// The sparse times dense product of spdnn.ops on CPU, the same interface at every instruction-set level.
#pragma once

#include "ops.hpp"

namespace spdnn {

// C[b] = activation(A[b] B[b] + bias), A (rows, inner) sparse by rows, all of them with the same positions of nonzeros;
// activation(y) = y < low ? low : y > high ? high : y, so that a NaN stays one. Values, B and C are all float32 or all
// float16 (sums are float32, rounded once at the store); B (batch, inner, width) and C (batch, rows, width) by rows.
struct SpmmProblem {
    Pattern pattern;  // of A, its width the rows of B
    int64_t width, batch;
    bool half;
    const void* values;  // (nonzeros), or (batch, nonzeros) with value_stride = nonzeros, else 0
    int64_t value_stride;
    const void* b;
    const float* bias;  // rows
    float low, high;
    void* c;
    int tile;     // columns of B and C that are computed together at most: 16, 32, 64 or 128
    bool packed;  // a tile of B is copied next to each other before it is used
    // B is (batch, width, inner) and C (batch, width, rows): columns are rows in memory, as where a batch of inputs has
    // one a row. Always packed; `order` is that of the rows themselves.
    bool by_rows;
    // A convolution: row k of B begins at b + columns[k], an offset in floats, and columns n with n % pitch >= used are
    // not in C, which has `used` columns for each `pitch`. float32, `order` that of the rows themselves, batches
    // b_stride floats apart; kLanes floats past the last one can be read. 0: a matrix B.
    int64_t pitch, used, b_stride;
};

struct SpmmKernels {
    const char* name;
    // busy[t] <- processor seconds of thread t. Returns whether a value before the activation was NaN.
    bool (*run)(const SpmmProblem&, int threads, double* busy);
    // What thread k of `threads` does in `run`, on the caller's thread.
    bool (*part)(const SpmmProblem&, int k, int threads);
    // work[t] <- what thread t does in `run`, in nonzeros x columns, without doing it.
    void (*shares)(const SpmmProblem&, int threads, int64_t* work);
    // x (batch, rows, width) <- activation(x + bias), in place. Returns whether a value before the activation was NaN.
    bool (*bias_activation)(void* x, bool half, int64_t batch, int64_t rows, int64_t width, const float* bias,
                            float low, float high, int threads, double* busy);
};

}  // namespace spdnn
