// The official inputs' columns: resampled, bounded, transformed, compared. Compiled once for each instruction-set
// level.
//
// Columns come in blocks, phase after phase, so that lines and columns stay in the L2 cache. A column whose norm says
// that no |y|^2 of it can matter is left out (the transform's rows have norm 1). The others are taken in single
// precision, a few side by side so that each factor that is loaded serves several; its error is below a bound, and what
// lies within it is taken in double precision. The transform is folded: its row side - j is row j with the values k and
// rows - k of a column exchanged, so sums and differences of these give both rows with half the products.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#include "resize.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lanes.hpp"

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

constexpr int64_t kBlock = 1024;      // columns
constexpr int64_t kRow = kBlock + 8;  // doubles from one row of a block to the next: not all in one set of the cache
constexpr int64_t kCoarse = 64;       // rows whose largest |y|^2 bounds that of all
constexpr int kTogether = SPDNN_VECTOR_BYTES == 64 ? 4 : 2, kVectors = SPDNN_VECTOR_BYTES == 64 ? 1 : 2;
constexpr int64_t kStep = kVectors * kLanes;
constexpr double kPi = 3.14159265358979323846;

typedef double Doubles __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef float Loose __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(4), may_alias));
typedef double LooseDoubles __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(8), may_alias));

void resample(const double* line, int64_t stride, const double* taps, int64_t parts, int64_t taps_each, double* out,
              int64_t count) {
    constexpr int64_t kWide = SPDNN_VECTOR_BYTES / 8, kSums = 6;
    std::memset(out, 0, sizeof(double) * count);
    for (int64_t k = 0; k < parts; ++k) {
        // Trim the zeros at both ends of the filter.
        int64_t first = 0, last = taps_each;
        while (first < last && taps[k * taps_each + first] == 0) ++first;
        while (first < last && taps[k * taps_each + last - 1] == 0) --last;
        if (first == last) continue;
        const double* const tap = taps + k * taps_each;
        const double* const from = line + k * stride;
        // Register tile: kSums vectors of results are loaded and stored once for all taps.
        int64_t i = 0;
        for (; i + kSums * kWide <= count; i += kSums * kWide) {
            Doubles sum[kSums];
            std::memcpy(sum, out + i, sizeof sum);
            for (int64_t t = first; t < last; ++t)
#pragma GCC unroll 6
                for (int s = 0; s < kSums; ++s)
                    sum[s] += tap[t] * *reinterpret_cast<const LooseDoubles*>(from + i + t + s * kWide);
            std::memcpy(out + i, sum, sizeof sum);
        }
        // The remainder, one result at a time.
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
        // Look up the Nyquist wave at every column, and clear what is accumulated below.
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
            // Accumulate alternating sum and squared norm while the row is in the cache.
            for (int64_t i = 0; i < count; ++i) {
                row[i] += nyquist * cosine[i];
                signs[i] += sign * row[i];
                bound[i] += row[i] * row[i];
            }
        }
        // Cauchy-Schwarz: the transform's rows have norm 1, so a column's norm bounds every |y|.
        for (int64_t i = 0; i < count; ++i)
            bound[i] = (bound[i] + nyquist2 * sine[i] * sine[i]) * (1 + 1e-9);  // for rounding
    }

    double operator()(int64_t value, int64_t column) const { return values[value * kRow + column]; }

    const Columns& all;
    int64_t count = 0;
    double nyquist2 = 0;
    std::vector<double> values, bound;
};

// kTogether columns in single precision, folded: even[k] is value k + value rows - k, odd[k] their difference, value by
// value and then by column; the last of `odd` is the sine.
struct Folded {
    explicit Folded(int64_t rows) : terms(rows / 2 + 1), even(terms * kTogether), odd(terms * kTogether) {}

    void take(const Block& block, int c, int64_t column) {
        const int64_t rows = block.all.rows, half = rows / 2;
        const double s = block(rows, column), w = block(rows + 1, column);
        double norm2 = s * s + w * w;
        // Fold: sums meet the even factors and differences the odd ones, half the products for both rows.
        for (int64_t k = 0; k <= half; ++k) {
            const double one = block(k, column), other = k % half ? block(rows - k, column) : 0;
            even[k * kTogether + c] = static_cast<float>(one + other);
            odd[k * kTogether + c] = k % half ? static_cast<float>(one - other) : 0;
            norm2 += one * one + other * other;
        }
        odd[half * kTogether + c] = sine[c] = static_cast<float>(s), signs[c] = static_cast<float>(w);
        // A sum of n <= 15 products of rounded factors is wrong by less than (n + 3) 2^-24 of the product of the norms,
        // which folding makes at most sqrt(2) times as large; y is two such sums, z smaller.
        error[c] = 60 * 0x1p-24 * std::sqrt(norm2);
    }

    int64_t terms;
    std::vector<float> even, odd;
    float sine[kTogether] = {}, signs[kTogether] = {};
    double error[kTogether] = {};  // of |y|, at most, over the norm of its row's factors
};

// Every `every`-th row of the vertical transform, folded, in single precision.
struct Vertical {
    Vertical(const Columns& all, int64_t every)
        : terms(all.rows / 2 + 1),
          side(all.side / every),
          even(terms * half()),
          odd(terms * half()),
          sine_even(half()),
          sine_odd(half()),
          signs(half()),
          middle(terms) {
        auto real = [&](int64_t k, int64_t j) { return all.real[k * all.side + j % side * every]; };
        auto imaginary = [&](int64_t k, int64_t j) { return all.imaginary[k * all.side + j % side * every]; };
        // The largest norm of a row's factors turns a column's error into a bound for every row.
        for (int64_t j = 0; j < side; ++j) {
            double norm2 = 0;
            for (int64_t k = 0; k <= all.rows; ++k) norm2 += real(k, j) * real(k, j);
            for (int64_t k = 0; k < 2; ++k) norm2 += imaginary(k, j) * imaginary(k, j);
            most = std::max(most, norm2);
        }
        // Split the factors of rows j and side - j into even and odd parts.
        for (int64_t j = 0; j < half(); ++j) {
            const auto sum = [&](auto of, int64_t k) { return static_cast<float>((of(k, j) + of(k, side - j)) / 2); };
            const auto difference = [&](auto of, int64_t k) {
                return static_cast<float>((of(k, j) - of(k, side - j)) / 2);
            };
            for (int64_t k = 0; k < terms; ++k) {
                even[k * half() + j] = sum(real, k);
                odd[k * half() + j] = difference(real, k < terms - 1 ? k : all.rows);
            }
            sine_even[j] = sum(imaginary, 0), sine_odd[j] = difference(imaginary, 0),
            signs[j] = difference(imaginary, 1);
        }
        // Row side / 2 is its own mirror image: it has an even part alone.
        for (int64_t k = 0; k < terms; ++k) middle[k] = static_cast<float>(real(k, half()));
        middle_sine = static_cast<float>(imaginary(0, half()));
    }

    int64_t half() const { return side / 2; }

    // take(first row j, column, |y|^2 of rows j, j + 1 .., and of rows side - j, side - j - 1 ..); row side is row 0.
    template <class Take>
    void each(const Folded& columns, Take take) const {
        for (int64_t j = 0; j < half(); j += kStep) {
            Vec e[kTogether][kVectors] = {}, o[kTogether][kVectors] = {};
            // Rank-1 updates of a register tile: a vector of factors is loaded once for kTogether columns.
            for (int64_t k = 0; k < terms; ++k) {
                const Loose* const evens = reinterpret_cast<const Loose*>(&even[k * half() + j]);
                const Loose* const odds = reinterpret_cast<const Loose*>(&odd[k * half() + j]);
#pragma GCC unroll 4
                for (int c = 0; c < kTogether; ++c)
#pragma GCC unroll 4
                    for (int v = 0; v < kVectors; ++v) {
                        e[c][v] += columns.even[k * kTogether + c] * evens[v];
                        o[c][v] += columns.odd[k * kTogether + c] * odds[v];
                    }
            }
            // Unfold: even + odd is row j, even - odd its mirror; |y|^2 adds the imaginary part.
            for (int c = 0; c < kTogether; ++c) {
                Vec low[kVectors], high[kVectors];
                for (int v = 0; v < kVectors; ++v) {
                    const auto at = [&](const std::vector<float>& factors) {
                        return *reinterpret_cast<const Loose*>(&factors[j + v * kLanes]);
                    };
                    const Vec ze = columns.sine[c] * at(sine_even),
                              zo = columns.sine[c] * at(sine_odd) + columns.signs[c] * at(signs);
                    low[v] = (e[c][v] + o[c][v]) * (e[c][v] + o[c][v]) + (ze + zo) * (ze + zo);
                    high[v] = (e[c][v] - o[c][v]) * (e[c][v] - o[c][v]) + (ze - zo) * (ze - zo);
                }
                take(j, c, low, high);
            }
        }
    }

    // |y|^2 of row side / 2, whose odd parts are zero, of each column.
    void middle_squares(const Folded& columns, float (&squares)[kTogether]) const {
        float y[kTogether] = {};
        for (int64_t k = 0; k < terms; ++k)
            for (int c = 0; c < kTogether; ++c) y[c] += columns.even[k * kTogether + c] * middle[k];
        for (int c = 0; c < kTogether; ++c)
            squares[c] = y[c] * y[c] + columns.sine[c] * middle_sine * columns.sine[c] * middle_sine;
    }

    double error(const Folded& columns, int c) const { return columns.error[c] * std::sqrt(most); }

    int64_t terms, side;
    double most = 0;  // the largest squared norm of a row's factors
    std::vector<float> even, odd, sine_even, sine_odd, signs, middle;
    float middle_sine;
};

// Some columns of a block, and what their |y|^2 are at most.
struct Chosen {
    int64_t count = 0, columns[kBlock];
    double bounds[kBlock];

    void add(int64_t column, double bound) { columns[count] = column, bounds[count++] = bound; }
};

// work(kTogether columns, the number of the first in `chosen`, how many of them there are) for all in `chosen`.
template <class Work>
void together(const Block& block, const Chosen& chosen, Work work) {
    Folded columns(block.all.rows);
    for (int64_t i = 0; i < chosen.count; i += kTogether) {
        const int count = static_cast<int>(std::min<int64_t>(kTogether, chosen.count - i));
        // A last group may not be full: its other columns are stale, and nobody takes their results.
        for (int c = 0; c < count; ++c) columns.take(block, c, chosen.columns[i + c]);
        work(columns, i, count);
    }
}

double exact(const Block& block, int64_t column, int64_t j) {
    const Columns& all = block.all;
    // Double precision without folding: the definition.
    double y = 0, z = 0;
    for (int64_t r = 0; r <= all.rows; ++r) y += block(r, column) * all.real[r * all.side + j];
    for (int64_t r = 0; r < 2; ++r) z += block(all.rows + r, column) * all.imaginary[r * all.side + j];
    return y * y + z * z;
}

// Leaves in `chosen` those of which some |y|^2 may exceed `value`, as `vertical` has it and times `slack` for rows
// between.
void choose(const Block& block, Chosen& chosen, const Vertical& vertical, double slack, double value) {
    int64_t left = 0;
    together(block, chosen, [&](const Folded& columns, int64_t first, int count) {
        // The largest |y|^2 of each column over all rows, lane by lane.
        Vec most[kTogether] = {};
        vertical.each(columns, [&](int64_t, int c, const Vec* low, const Vec* high) {
            for (int v = 0; v < kVectors; ++v) {
                const Vec larger = low[v] > high[v] ? low[v] : high[v];
                most[c] = most[c] > larger ? most[c] : larger;
            }
        });
        float middle[kTogether];
        vertical.middle_squares(columns, middle);
        // Reduce the lanes and add the error, so that the estimate is an upper bound.
        for (int c = 0; c < count; ++c) {
            float largest = middle[c];
            for (int lane = 0; lane < kLanes; ++lane) largest = std::max(largest, most[c][lane]);
            const double most_y = std::sqrt(static_cast<double>(largest)) + vertical.error(columns, c);
            const double bound = most_y * most_y * slack * (1 + 1e-6);  // for the rounding of the square
            // Compact the survivors in place.
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
            // All phases of a block before the next block: their lines are in the cache.
            block.fill(first, phase);
            chosen.count = 0;
            // First filter, by the norm alone.
            for (int64_t i = 0; i < block.count; ++i)
                if (block.bound[i] > value) chosen.add(i, block.bound[i]);
            work(block, first, phase, chosen);
        }
}

// y is a trigonometric polynomial of degree 14 in the row (spdnn/formats/mnist.py), so kCoarse rows bound it.
double largest(const Columns& all, double value) {
    const int64_t every = std::max<int64_t>(1, all.side / kCoarse);
    const Vertical fine(all, 1), coarse(all, every);
    const double cosine = std::cos(kPi * static_cast<double>(all.rows / 2) / kCoarse);
    each_block(all, value, [&](const Block& block, int64_t, int64_t, Chosen& chosen) {
        // Filters from cheap to dear: few rows in single precision, all rows, then double precision.
        if (every > 1) choose(block, chosen, coarse, 1 / (cosine * cosine), value);
        choose(block, chosen, fine, 1, value);
        // The maximum grows as survivors are evaluated, and so excludes more of those after them.
        for (int64_t i = 0; i < chosen.count; ++i)
            for (int64_t j = 0; chosen.bounds[i] > value && j < all.side; ++j)
                value = std::max(value, exact(block, chosen.columns[i], j));
    });
    return value;
}

// A bit for each pair of rows j and side - j, in the order of j, of one column: row j's and row side - j's.
struct PairBits {
    explicit PairBits(int64_t half) : low(half / 8 + 8), high(half / 8 + 8) {}

    static void set(std::vector<uint8_t>& bits, int64_t j, const IntVec* lanes) {
        uint32_t mask = 0;
        for (int v = 0; v < kVectors; ++v) mask |= nonzero(lanes[v]) << v * kLanes;
        std::memcpy(&bits[j / 8], &mask, kStep / 8);
    }

    std::vector<uint8_t> low, high;
};

void threshold(const Columns& all, double level, uint8_t* bits) {
    const Vertical vertical(all, 1);
    const float single = static_cast<float>(level);
    const int64_t side = all.side, half = side / 2;
    std::vector<PairBits> above(kTogether, PairBits(half)), near(kTogether, PairBits(half));
    each_block(all, level, [&](const Block& block, int64_t first, int64_t phase, const Chosen& chosen) {
        together(block, chosen, [&](const Folded& columns, int64_t begin, int count) {
            float error[kTogether], middle[kTogether];
            IntVec any[kTogether] = {};
            for (int c = 0; c < kTogether;
                 ++c) {  // if |y|^2 and what was found are not on one side of the level, |y| is near its root
                const double wrong = vertical.error(columns, c);
                error[c] = static_cast<float>((2 * std::sqrt(level) + wrong) * wrong + 1e-6 * level);
            }
            // Compare in single precision, and mark what lies within its error of the level.
            vertical.each(columns, [&](int64_t j, int c, const Vec* low, const Vec* high) {
                IntVec over[2][kVectors], close[2][kVectors];
                for (int v = 0; v < kVectors; ++v) {
                    const Vec excess[2] = {low[v] - single, high[v] - single};
                    for (int which = 0; which < 2; ++which) {
                        over[which][v] = excess[which] > 0;
                        close[which][v] = excess[which] * excess[which] <= error[c] * error[c];
                        any[c] |= close[which][v];
                    }
                }
                PairBits::set(above[c].low, j, over[0]), PairBits::set(above[c].high, j, over[1]);
                PairBits::set(near[c].low, j, close[0]), PairBits::set(near[c].high, j, close[1]);
            });
            vertical.middle_squares(columns, middle);
            for (int c = 0; c < count; ++c) {
                const int64_t column = chosen.columns[begin + c];
                std::vector<uint8_t>&low = above[c].low, &high = above[c].high;
                // Repeat a doubtful comparison in double precision, and overwrite its bit.
                auto decide = [&](std::vector<uint8_t>& to, int64_t j, int64_t row) {
                    const uint8_t bit = 1 << j % 8;
                    to[j / 8] = exact(block, column, row) > level ? to[j / 8] | bit : to[j / 8] & ~bit;
                };
                high[half / 8] = middle[c] > single;
                if (std::abs(middle[c] - single) <= error[c]) decide(high, half, half);
                // Doubtful rows are rare: most columns skip this loop.
                for (int64_t j = 0; j < half && nonzero(any[c]); ++j) {
                    if (near[c].low[j / 8] >> j % 8 & 1) decide(low, j, j);
                    if (near[c].high[j / 8] >> j % 8 & 1) decide(high, j, (side - j) % side);
                }
                // The first row of a byte is its highest bit: the other way round in `low`, and one place on in `high`.
                uint8_t* const to = bits + ((first + column) * all.phases + phase) * side / 8;
                for (int64_t byte = 0; byte < half / 8; ++byte) {
                    // Reverse the byte by multiply, mask, multiply (Anderson, "Bit Twiddling Hacks").
                    const uint64_t spread = low[byte] * uint64_t{0x80200802} & 0x0884422110u;
                    to[byte] = static_cast<uint8_t>(spread * 0x0101010101u >> 32);
                    to[side / 8 - 1 - byte] = static_cast<uint8_t>(high[byte] >> 1 | high[byte + 1] << 7);
                }
            }
        });
    });
}

}  // namespace

extern const Resize SPDNN_JOIN(resize_, SPDNN_LEVEL);
const Resize SPDNN_JOIN(resize_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), largest, threshold};

}  // namespace spdnn
