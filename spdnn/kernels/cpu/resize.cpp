// The official inputs' columns: resampled, bounded, transformed, compared. Compiled once for each instruction-set level.
//
// Columns come in blocks, phase after phase, so that lines and columns stay in the L2 cache. A column whose norm says that no |y|^2 of it can matter is
// left out (the transform's rows have norm 1). The others are taken in single precision, a few side by side so that each
// factor that is loaded serves several; its error is below a bound, and what lies within it is taken in double precision.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#include "resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "level.hpp"

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

constexpr int64_t kBlock = 1024;       // columns
constexpr int64_t kRow = kBlock + 8;  // doubles from one row of a block to the next: not all in one set of the cache
constexpr int64_t kCoarse = 64;   // rows whose largest |y|^2 bounds that of all
constexpr int kTogether = SPDNN_VECTOR_BYTES == 64 ? 4 : 2, kVectors = SPDNN_VECTOR_BYTES == 64 ? 2 : 4;
constexpr int64_t kStep = kVectors * kLanes;
constexpr double kPi = 3.14159265358979323846;

typedef double Doubles __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef float Loose __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(4), may_alias));
typedef double LooseDoubles __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(8), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

void resample(const double* line, int64_t stride, const double* taps, int64_t parts, int64_t taps_each, double* out, int64_t count) {
    constexpr int64_t kWide = SPDNN_VECTOR_BYTES / 8, kSums = 6;
    std::memset(out, 0, sizeof(double) * count);
    for (int64_t k = 0; k < parts; ++k) {
        int64_t first = 0, last = taps_each;
        while (first < last && taps[k * taps_each + first] == 0) ++first;
        while (first < last && taps[k * taps_each + last - 1] == 0) --last;
        if (first == last) continue;
        const double* const tap = taps + k * taps_each;
        const double* const from = line + k * stride;
        int64_t i = 0;
        for (; i + kSums * kWide <= count; i += kSums * kWide) {
            Doubles sum[kSums];
            std::memcpy(sum, out + i, sizeof sum);
            for (int64_t t = first; t < last; ++t)
#pragma GCC unroll 6
                for (int s = 0; s < kSums; ++s) sum[s] += tap[t] * *reinterpret_cast<const LooseDoubles*>(from + i + t + s * kWide);
            std::memcpy(out + i, sum, sizeof sum);
        }
        for (; i < count; ++i)
            for (int64_t t = first; t < last; ++t) out[i] += tap[t] * from[i + t];
    }
}

// A block of columns, as `Columns` says, a row of the block for each value of them; and a bound on each |y|^2.
struct Block {
    explicit Block(const Columns& all) : all(all), values((all.rows + 2) * kRow), bound(kBlock) {
        for (int64_t r = 0; r < all.rows; ++r) nyquist2 += all.nyquist[r] * all.nyquist[r];
    }

    // Columns first .. of a phase, as many as there are and fit.
    void fill(int64_t first, int64_t phase) {
        count = std::min(kBlock, all.count - first);
        const double *const cosines = all.waves + phase * 2 * all.grid, *const sines = cosines + all.grid;
        double *const sine = &values[all.rows * kRow], *const signs = sine + kRow;
        double cosine[kBlock];
        for (int64_t i = 0; i < count; ++i) {
            const int64_t angle = (all.start + first + i) % all.grid;
            cosine[i] = cosines[angle], sine[i] = sines[angle];
            signs[i] = bound[i] = 0;
        }
        for (int64_t r = 0; r < all.rows; ++r) {
            double* const row = &values[r * kRow];
            resample(all.lines + r * all.parts * all.stride + all.start + first, all.stride,
                     all.taps + phase * all.parts * all.taps_each, all.parts, all.taps_each, row, count);
            const double nyquist = all.nyquist[r], sign = r % 2 ? -1 : 1;
            for (int64_t i = 0; i < count; ++i) {
                row[i] += nyquist * cosine[i];
                signs[i] += sign * row[i];
                bound[i] += row[i] * row[i];
            }
        }
        for (int64_t i = 0; i < count; ++i) bound[i] = (bound[i] + nyquist2 * sine[i] * sine[i]) * (1 + 1e-9);  // for rounding
    }

    double operator()(int64_t value, int64_t column) const { return values[value * kRow + column]; }

    const Columns& all;
    int64_t count = 0;
    double nyquist2 = 0;
    std::vector<double> values, bound;
};

// Every `every`-th row of the vertical transform, in single precision.
struct Vertical {
    Vertical(const Columns& all, int64_t every) : reals(all.rows + 1), side(all.side / every) {
        std::vector<double> norm2(all.side);
        auto single = [&](const double* from, int64_t count) {
            std::vector<float> to(count * side);
            for (int64_t r = 0; r < count; ++r)
                for (int64_t j = 0; j < side; ++j) {
                    const double factor = from[r * all.side + j * every];
                    to[r * side + j] = static_cast<float>(factor), norm2[j] += factor * factor;
                }
            return to;
        };
        real = single(all.real, reals), imaginary = single(all.imaginary, 2);
        most = *std::max_element(norm2.begin(), norm2.end());
    }

    // take(first row, column, vectors of |y|^2) for kTogether columns: column c's values are at columns[c * (reals + 1)].
    template <class Take>
    void each(const float* columns, Take take) const {
        for (int64_t j = 0; j < side; j += kStep) {
            Vec y[kTogether][kVectors] = {}, z[kTogether][kVectors] = {};
            multiply(real.data() + j, reals, columns, y);
            multiply(imaginary.data() + j, 2, columns + reals - 1, z);
            for (int c = 0; c < kTogether; ++c) {
                for (int v = 0; v < kVectors; ++v) y[c][v] = y[c][v] * y[c][v] + z[c][v] * z[c][v];
                take(j, c, y[c]);
            }
        }
    }

    // By how much such a |y|^2 may be wrong. A sum of n terms is wrong by less than (n + 3) 2^-24 of the product of the
    // norms; squared, by a little more than twice; and a rounded |y|^2 by 2^-23 of itself.
    float error(const float* column) const {
        double norm2 = 0;
        for (int64_t r = 0; r <= reals; ++r) norm2 += static_cast<double>(column[r]) * column[r];
        return static_cast<float>(2e-5 * norm2 * most);
    }

    int64_t reals, side;
    double most;  // the largest squared norm of a row's factors
    std::vector<float> real, imaginary;

  private:
    void multiply(const float* factors, int64_t count, const float* columns, Vec (&sums)[kTogether][kVectors]) const {
        for (int64_t r = 0; r < count; ++r) {
            const Loose* const some = reinterpret_cast<const Loose*>(factors + r * side);
#pragma GCC unroll 4
            for (int c = 0; c < kTogether; ++c)
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) sums[c][v] += columns[c * (reals + 1) + r] * some[v];
        }
    }
};

// Some columns of a block, and what their |y|^2 are at most.
struct Chosen {
    int64_t count = 0, columns[kBlock];
    double bounds[kBlock];

    void add(int64_t column, double bound) { columns[count] = column, bounds[count++] = bound; }
};

// work(kTogether columns in single precision, the number of the first in `chosen`, how many of them there are) for all.
template <class Work>
void together(const Block& block, const Chosen& chosen, Work work) {
    const int64_t values = block.all.rows + 2;
    std::vector<float> columns(kTogether * values);
    for (int64_t i = 0; i < chosen.count; i += kTogether) {
        const int count = static_cast<int>(std::min<int64_t>(kTogether, chosen.count - i));
        for (int c = 0; c < count; ++c)
            for (int64_t r = 0; r < values; ++r) columns[c * values + r] = static_cast<float>(block(r, chosen.columns[i + c]));
        work(columns.data(), i, count);
    }
}

double exact(const Block& block, int64_t column, int64_t j) {
    const Columns& all = block.all;
    double y = 0, z = 0;
    for (int64_t r = 0; r <= all.rows; ++r) y += block(r, column) * all.real[r * all.side + j];
    for (int64_t r = 0; r < 2; ++r) z += block(all.rows + r, column) * all.imaginary[r * all.side + j];
    return y * y + z * z;
}

// Leaves in `chosen` those of which some |y|^2 may exceed `value`, as `vertical` has it and times `slack` for rows between.
void choose(const Block& block, Chosen& chosen, const Vertical& vertical, double slack, double value) {
    int64_t left = 0;
    together(block, chosen, [&](const float* columns, int64_t first, int count) {
        Vec most[kTogether] = {};
        vertical.each(columns, [&](int64_t, int c, const Vec* squares) {
            for (int v = 0; v < kVectors; ++v) most[c] = most[c] > squares[v] ? most[c] : squares[v];
        });
        for (int c = 0; c < count; ++c) {
            float largest = 0;
            for (int lane = 0; lane < kLanes; ++lane) largest = std::max(largest, most[c][lane]);
            const double bound = (static_cast<double>(largest) + vertical.error(columns + c * (vertical.reals + 1))) * slack;
            if (bound > value) chosen.columns[left] = chosen.columns[first + c], chosen.bounds[left++] = bound;
        }
    });
    chosen.count = left;
}

// work(block, the first of its columns, its phase, those of its columns whose bound exceeds `value` when it is asked).
template <class Work>
void each_block(const Columns& all, const double& value, Work work) {
    Block block(all);
    Chosen chosen;
    for (int64_t first = 0; first < all.count; first += kBlock)
        for (int64_t phase = 0; phase < all.phases; ++phase) {
            block.fill(first, phase);
            chosen.count = 0;
            for (int64_t i = 0; i < block.count; ++i)
                if (block.bound[i] > value) chosen.add(i, block.bound[i]);
            work(block, first, phase, chosen);
        }
}

// y is a trigonometric polynomial of degree 14 in the row (spdnn/sources/mnist.py), so kCoarse rows bound it.
double largest(const Columns& all, double value) {
    const int64_t every = std::max<int64_t>(1, all.side / kCoarse);
    const Vertical fine(all, 1), coarse(all, every);
    const double cosine = std::cos(kPi * static_cast<double>(all.rows / 2) / kCoarse);
    each_block(all, value, [&](const Block& block, int64_t, int64_t, Chosen& chosen) {
        if (every > 1) choose(block, chosen, coarse, 1 / (cosine * cosine), value);
        choose(block, chosen, fine, 1, value);
        for (int64_t i = 0; i < chosen.count; ++i)
            for (int64_t j = 0; chosen.bounds[i] > value && j < all.side; ++j)
                value = std::max(value, exact(block, chosen.columns[i], j));
    });
    return value;
}

void threshold(const Columns& all, double level, uint8_t* bits) {
    const Vertical vertical(all, 1);
    const float single = static_cast<float>(level);
    each_block(all, level, [&](const Block& block, int64_t first, int64_t phase, const Chosen& chosen) {
        together(block, chosen, [&](const float* columns, int64_t begin, int count) {
            const int64_t* const numbers = chosen.columns + begin;
            float error[kTogether] = {};
            for (int c = 0; c < count; ++c) error[c] = vertical.error(columns + c * (vertical.reals + 1)) + 2e-5f * single;
            vertical.each(columns, [&](int64_t j, int c, const Vec* squares) {
                if (c >= count) return;
                uint8_t* const to = bits + (((first + numbers[c]) * all.phases + phase) * all.side + j) / 8;
                IntVec near = {};
                uint8_t ones[kStep];
                for (int v = 0; v < kVectors; ++v) {
                    const Vec excess = squares[v] - single;
                    const Bytes above = __builtin_convertvector(excess > 0, Bytes) & 1;
                    std::memcpy(ones + v * kLanes, &above, sizeof above);
                    near |= excess * excess <= error[c] * error[c];
                }
                bool any = false;
                for (int lane = 0; lane < kLanes; ++lane) any |= near[lane] != 0;
                for (int i = 0; any && i < kStep; ++i)
                    if (std::abs(squares[i / kLanes][i % kLanes] - single) <= error[c]) ones[i] = exact(block, numbers[c], j + i) > level;
                for (int64_t byte = 0; byte < kStep / 8; ++byte) {
                    uint64_t eight;
                    std::memcpy(&eight, ones + 8 * byte, sizeof eight);
                    to[byte] = static_cast<uint8_t>(eight * 0x8040201008040201u >> 56);  // bit 8 i is at bit 63 - i now
                }
            });
        });
    });
}

}  // namespace

extern const Resize SPDNN_JOIN(resize_, SPDNN_LEVEL);
const Resize SPDNN_JOIN(resize_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), largest, threshold};

}  // namespace spdnn
