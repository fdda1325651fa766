// The CPU kernels of one level beside loops of one number at a time, in double precision: no Python, so that they can
// be built for another processor and run by an emulator. Prints what was compared; ends with 1 where a value is off.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "fused_layers.hpp"
#include "level.hpp"
#include "spmm.hpp"

namespace spdnn {
extern const Kernels SPDNN_JOIN(kernels_, SPDNN_LEVEL);
extern const SpmmKernels SPDNN_JOIN(spmm_, SPDNN_LEVEL);
}  // namespace spdnn

namespace {

constexpr double kTolerance = 1e-5;  // of the largest value: rounding of float32 sums of some tens of terms
std::mt19937 random_numbers(7);

float drawn() { return std::uniform_real_distribution<float>(-1, 1)(random_numbers); }

// Rows of nonzeros, with their columns ascending; some rows are empty.
struct Sparse {
    std::vector<int64_t> offsets{0};
    std::vector<uint16_t> narrow;
    std::vector<int32_t> wide;
    std::vector<float> values;
    Sparse(int64_t rows, int64_t columns) {
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t column = 0; column < columns; ++column)
                if (row % 7 && drawn() > 0.6f) {
                    narrow.push_back(static_cast<uint16_t>(column));
                    wide.push_back(static_cast<int32_t>(column));
                    values.push_back(drawn());
                }
            offsets.push_back(static_cast<int64_t>(values.size()));
        }
    }
};

double clipped(double y, double low, double high) { return y < low ? low : y > high ? high : y; }

int wrong(const char* what, const std::vector<float>& got, const std::vector<double>& right) {
    double largest = 0, off = 0;
    for (double value : right) largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < right.size(); ++i) {
        const double error = std::fabs(got[i] - right[i]);
        off = error <= off ? off : error;  // a NaN is off, too
    }
    const bool bad = !(off <= kTolerance * largest) || largest == 0;
    std::printf("%s: %zu values, largest error %.2g of %.2g%s\n", what, right.size(), off, largest,
                bad ? ": WRONG" : "");
    return bad;
}

// Two layers of one pass, for each tile, on one thread and on three; all of them to the same bit.
int layers() {
    const int64_t neurons[] = {40, 53, 31}, count = 100;
    int bad = 0;
    for (int tile : {1, 16, 32, 64})
        for (bool same : {false, true}) {
            const Sparse first(neurons[1], neurons[0]), second(neurons[2], neurons[1]);
            const std::vector<float> bias(53, -0.1f);
            spdnn::Layer both[2] = {};
            for (int k = 0; k < 2; ++k) {
                const Sparse& one = k ? second : first;
                both[k] = {neurons[k],
                           neurons[k + 1],
                           one.offsets[neurons[k + 1]],
                           neurons[k + 1],
                           one.offsets.data(),
                           one.narrow.data(),
                           2,
                           same ? nullptr : one.values.data(),
                           0.5f,
                           bias.data(),
                           1,
                           0,
                           32,
                           true,
                           {}};
            }
            const int64_t tiles = (count + tile - 1) / tile;
            std::vector<float> x(tiles * neurons[0] * tile), y(tiles * neurons[2] * tile), again(y.size());
            for (int64_t i = 0; i < count; ++i)
                for (int64_t j = 0; j < neurons[0]; ++j) x[(i / tile * neurons[0] + j) * tile + i % tile] = drawn();
            std::vector<uint64_t> active(2 * ((count + 63) / 64 + tiles));
            for (int threads : {1, 3}) {
                spdnn::Pass pass{both,  2,    nullptr, x.data(),     (threads == 1 ? y : again).data(),
                                 count, tile, 2,       active.data()};
                if (spdnn::SPDNN_JOIN(kernels_, SPDNN_LEVEL).run(pass, threads) != -1) bad = 1;
            }
            std::vector<double> right;
            std::vector<float> got;
            for (int64_t i = 0; i < count; ++i) {
                std::vector<double> row(neurons[0]);
                for (int64_t j = 0; j < neurons[0]; ++j) row[j] = x[(i / tile * neurons[0] + j) * tile + i % tile];
                for (int k = 0; k < 2; ++k) {
                    const Sparse& one = k ? second : first;
                    std::vector<double> next(neurons[k + 1]);
                    for (int64_t j = 0; j < neurons[k + 1]; ++j) {
                        double sum = -0.1f;
                        for (int64_t e = one.offsets[j]; e < one.offsets[j + 1]; ++e)
                            sum += (same ? 0.5 : one.values[e]) * row[one.narrow[e]];
                        next[j] = clipped(sum, 0, 32);
                    }
                    row = next;
                }
                right.insert(right.end(), row.begin(), row.end());
                for (int64_t j = 0; j < neurons[2]; ++j)
                    got.push_back(y[(i / tile * neurons[2] + j) * tile + i % tile]);
            }
            char what[80];
            std::snprintf(what, sizeof what, "layers, tile %d, %s", tile, same ? "one weight" : "weights");
            bad |= wrong(what, got, right) | (y != again);
        }
    return bad;
}

int product(int64_t width, int tile, bool packed) {
    const int64_t rows = 45, inner = 70;
    const Sparse a(rows, inner);
    std::vector<float> b(inner * width), bias(rows), c(rows * width);
    std::vector<int32_t> order(rows);  // in which rows are dealt out
    std::iota(order.begin(), order.end(), 0);
    for (float& one : b) one = drawn();
    for (float& one : bias) one = drawn();
    spdnn::SpmmProblem problem{{rows, inner, a.offsets.data(), a.wide.data(), 4, order.data()},
                               width,
                               1,
                               false,
                               a.values.data(),
                               0,
                               b.data(),
                               bias.data(),
                               0,
                               INFINITY,
                               c.data(),
                               tile,
                               packed};
    double busy[2];
    spdnn::SPDNN_JOIN(spmm_, SPDNN_LEVEL).run(problem, 2, busy);
    std::vector<double> right(c.size());
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t k = 0; k < width; ++k) {
            double sum = bias[i];
            for (int64_t e = a.offsets[i]; e < a.offsets[i + 1]; ++e)
                sum += double(a.values[e]) * b[a.wide[e] * width + k];
            right[i * width + k] = clipped(sum, 0, INFINITY);
        }
    char what[80];
    std::snprintf(what, sizeof what, "spmm, %d columns, tile %d%s", int(width), tile, packed ? ", packed" : "");
    return wrong(what, c, right);
}

}  // namespace

int main() {
    int bad = layers();
    for (int tile : {16, 32, 64, 128})
        for (bool packed : {false, true}) bad |= product(37, tile, packed) | product(130, tile, packed);
    std::printf("%s\n", bad ? "WRONG" : "right");
    return bad;
}
