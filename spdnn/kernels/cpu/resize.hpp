// The official inputs' columns, from rows known at some points to bits (spdnn/formats/mnist.py); the same interface at
// every instruction-set level.
#pragma once

#include <cstdint>

namespace spdnn {

// Columns of the resized image and its vertical transform. There are `phases` columns between two points of a line, the
// first at the point: columns phases * start .. phases * (start + count) - 1.
//
// Column i of phase p has `rows` values: row r is the sum over k < parts, t < taps_each of taps[p, k, t] * lines[r, k,
// start + i + t], and nyquist[r] * cosine, of the angle (start + i) % grid of that phase. Two more follow: the sine,
// and the sum of the rows with signs in turn. y = the first rows + 1 of them times `real` (rows + 1, side) + i times
// the last two times `imaginary` (2, side). Row side - j of the transform must be row j with factors k and rows - k
// exchanged, and those of the sine in y and of the signs negated.
struct Columns {
    const double* lines;  // (rows, parts, stride)
    int64_t rows, parts, stride, start, count, phases;
    const double* taps;  // (phases, parts, taps_each)
    int64_t taps_each;
    const double *nyquist, *waves;  // (rows); (phases, 2, grid): cosines and sines
    int64_t grid;
    const double *real, *imaginary;
    int64_t side;  // a multiple of 32
};

struct Resize {
    const char* name;
    // The largest |y|^2 of these columns, or `value` if none exceeds it.
    double (*largest)(const Columns&, double value);
    // bits (phases * count, side / 8): which |y|^2 of a column exceed `level`; the first is the highest of its byte.
    // Those of columns that have none are left as they are.
    void (*threshold)(const Columns&, double level, uint8_t* bits);
};

}  // namespace spdnn
