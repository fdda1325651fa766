// The official inputs' columns for Python: spdnn.kernels._cpu.largest_square and above_threshold.
// On one thread: callers have a thread for each block.
#include "binding.hpp"
#include "resize.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(Resize, resize);

using Cube = Array<const double, 3>;
using Matrix = Array<const double, 2>;

static Columns columns(const Cube& lines, int64_t start, int64_t count, const Cube& taps,
                       const Array<const double, 1>& nyquist, const Cube& waves, const Matrix& real,
                       const Matrix& imaginary) {
    const int64_t rows = lines.shape(0), parts = lines.shape(1), stride = lines.shape(2), phases = taps.shape(0),
                  each = taps.shape(2), grid = waves.shape(2), side = real.shape(1);
    require(rows >= 2 && rows % 2 == 0 && extent(taps, 1) == parts && extent(nyquist) == rows,
            "lines, taps and nyquist must fit");
    require(extent(waves, 0) == phases && waves.shape(1) == 2 && grid >= 1,
            "waves must be cosines and sines of each phase");
    require(extent(real, 0) == rows + 1 && imaginary.shape(0) == 2 && extent(imaginary, 1) == side && side >= 32 &&
                side % 32 == 0,
            "real and imaginary must fit the lines");
    require(start >= 0 && count >= 0 && each >= 1 && start + count + each - 1 <= stride, "lines are too short");
    return {lines.data(), rows, parts,       stride,           start, count, phases, taps.data(), each, nyquist.data(),
            waves.data(), grid, real.data(), imaginary.data(), side};
}

static double largest_square(const std::string& level, Cube lines, Cube taps, Array<const double, 1> nyquist,
                             Cube waves, Matrix real, Matrix imaginary, int64_t start, int64_t count, double value) {
    const Resize& at = at_level(resize_levels, level);
    const Columns all = columns(lines, start, count, taps, nyquist, waves, real, imaginary);
    nb::gil_scoped_release release;
    return at.largest(all, value);
}

static void above_threshold(const std::string& level, Cube lines, Cube taps, Array<const double, 1> nyquist, Cube waves,
                            Matrix real, Matrix imaginary, int64_t start, double threshold, Array<uint8_t, 2> bits) {
    const Resize& at = at_level(resize_levels, level);
    const int64_t phases = taps.shape(0), count = phases ? bits.shape(0) / phases : 0;
    const Columns all = columns(lines, start, count, taps, nyquist, waves, real, imaginary);
    require(extent(bits, 0) == count * phases && extent(bits, 1) * 8 == all.side,
            "bits must have one for each value of each phase");
    nb::gil_scoped_release release;
    at.threshold(all, threshold, bits.data());
}

void bind_resize(nb::module_& m) {
    m.def("largest_square", &largest_square, "level"_a, "lines"_a, "taps"_a, "nyquist"_a, "waves"_a, "real"_a,
          "imaginary"_a, "start"_a, "count"_a, "value"_a,
          "The largest |y|^2 of `count` columns of each phase, or `value` if none exceeds it.");
    m.def("above_threshold", &above_threshold, "level"_a, "lines"_a, "taps"_a, "nyquist"_a, "waves"_a, "real"_a,
          "imaginary"_a, "start"_a, "threshold"_a, "bits"_a,
          "Set `bits` where the |y|^2 of a column exceed the threshold; those of a column without any stay.");
}

}  // namespace spdnn
