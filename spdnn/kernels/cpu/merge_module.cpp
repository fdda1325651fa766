// Identical neurons, layers and inputs by formula: what spdnn.kernels._cpu does with rows before any inference. The same
// bits at every instruction-set level, and on one thread: callers have a thread for each layer or block.
//
// A layer is `offsets` (outputs + 1), `indices` (uint16 or uint32, ascending in each row), `values` (one, or one an edge)
// and `bias` (one, or one an output); row j is what output j reads. Layer.check has seen it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "binding.hpp"

namespace spdnn {
namespace {

using Offsets = Array<const int64_t, 1>;
using Floats = Array<const float, 1>;

constexpr uint32_t kNone = ~0u;

void check(const Offsets& offsets, const ReadIndices& indices, const Floats& values) {
    require(offsets.size() >= 1 && offsets.data()[offsets.size() - 1] == static_cast<int64_t>(indices.size()),
            "offsets must end at the number of edges");
    require(values.size() == 1 || values.size() == indices.size(), "values must be one or one an edge");
}

// A sum of products with odd numbers, so that no product waits for another; folded at the end.
uint64_t hash_of(const char* from, int64_t bytes, uint64_t sum) {
    uint64_t factor = 0x9e3779b97f4a7c15u;
    for (; bytes >= 8; from += 8, bytes -= 8, factor += 0xd1342543de82ef94u) {
        uint64_t word;
        std::memcpy(&word, from, sizeof word);
        sum += (word ^ word >> 31) * factor;
    }
    for (; bytes > 0; from += 2, bytes -= 2, factor += 2) {
        uint16_t part;
        std::memcpy(&part, from, sizeof part);
        sum += (part + uint64_t{1}) * factor;
    }
    sum ^= sum >> 32;
    return sum * 0xff51afd7ed558ccdu;
}

// A number for each hash; as small as what is in it, so that it stays in the cache.
class HashTable {
  public:
    // The number of that hash: kNone until it is set.
    uint32_t& number_of(uint64_t hash) {
        if (2 * used >= entries.size()) grow();
        Entry& entry = find(entries, hash);
        if (entry.number == kNone) entry.hash = hash, ++used;
        return entry.number;
    }

  private:
    struct Entry {
        uint64_t hash = 0;
        uint32_t number = kNone;
    };

    static Entry& find(std::vector<Entry>& entries, uint64_t hash) {
        size_t at = hash >> 20 & (entries.size() - 1);
        while (entries[at].number != kNone && entries[at].hash != hash) at = (at + 1) & (entries.size() - 1);
        return entries[at];
    }

    void grow() {
        std::vector<Entry> more(4 * entries.size());
        for (const Entry& entry : entries)
            if (entry.number != kNone) find(more, entry.hash) = entry;
        entries.swap(more);
    }

    std::vector<Entry> entries = std::vector<Entry>(1024);
    size_t used = 0;
};

// classes[j] <- the number of the first row that equals row j, counted over such rows; firsts <- those rows. Returns how
// many there are. A row is compared with the first of its hash alone: one that differs from it is a class of its own.
int64_t equal_rows(Offsets offsets, ReadIndices indices, Floats values, Floats bias, Array<uint32_t, 1> classes,
                   Array<int64_t, 1> firsts) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, bytes = index_bytes(indices);
    require(static_cast<int64_t>(classes.size()) == rows && static_cast<int64_t>(firsts.size()) == rows,
            "classes and firsts must have room for each output");
    require(bias.size() == 1 || static_cast<int64_t>(bias.size()) == rows, "bias must be one or one an output");
    require(rows < static_cast<int64_t>(kNone), "too many outputs");
    nb::gil_scoped_release release;
    const int64_t* const at = offsets.data();
    const char* const edges = static_cast<const char*>(indices.data());
    const char* const weights = values.size() == indices.size() ? reinterpret_cast<const char*>(values.data()) : nullptr;
    const float* const biases = bias.size() == 1 ? nullptr : bias.data();

    auto hash_of_row = [&](int64_t j) {
        const int64_t degree = at[j + 1] - at[j];
        uint64_t hash = hash_of(edges + at[j] * bytes, degree * bytes, static_cast<uint64_t>(degree));
        if (weights) hash = hash_of(weights + at[j] * 4, degree * 4, hash);
        return biases ? hash_of(reinterpret_cast<const char*>(biases + j), 4, hash) : hash;
    };
    auto equal = [&](int64_t one, int64_t other) {
        const int64_t degree = at[one + 1] - at[one];
        return degree == at[other + 1] - at[other] && !std::memcmp(edges + at[one] * bytes, edges + at[other] * bytes, degree * bytes) &&
               (!weights || !std::memcmp(weights + at[one] * 4, weights + at[other] * 4, degree * 4)) &&
               (!biases || !std::memcmp(biases + one, biases + other, 4));
    };
    HashTable table;
    uint32_t count = 0;
    for (int64_t j = 0; j < rows; ++j) {
        uint32_t& number = table.number_of(hash_of_row(j));
        if (number != kNone && equal(firsts.data()[number], j)) {
            classes.data()[j] = number;
            continue;
        }
        if (number == kNone) number = count;
        firsts.data()[count] = j;
        classes.data()[j] = count++;
    }
    return count;
}

// The edges of some rows, one row after the other.
void take_rows(Offsets offsets, ReadIndices indices, Floats values, Array<const int64_t, 1> rows, Offsets to,
               Indices new_indices, Array<float, 1> new_values) {
    check(offsets, indices, values);
    const int bytes = index_bytes(indices);
    const int64_t count = rows.size(), all = offsets.size() - 1;
    const bool valued = values.size() == indices.size() && new_values.size() == new_indices.size();
    require(bytes == index_bytes(new_indices) && static_cast<int64_t>(to.size()) == count + 1, "rows, offsets and indices must fit");
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows.data()[i];
        require(row >= 0 && row < all, "there is no such row");
        require(to.data()[i + 1] - to.data()[i] == offsets.data()[row + 1] - offsets.data()[row], "offsets must fit the rows");
    }
    require(to.data()[0] == 0 && to.data()[count] == static_cast<int64_t>(new_indices.size()), "offsets must end at the number of edges");
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t from = offsets.data()[rows.data()[i]], start = to.data()[i], degree = to.data()[i + 1] - start;
        std::memcpy(static_cast<char*>(new_indices.data()) + start * bytes, static_cast<const char*>(indices.data()) + from * bytes,
                    degree * bytes);
        if (valued) std::memcpy(new_values.data() + start, values.data() + from, degree * 4);
    }
}

// In the order of NumPy's add.reduceat, so that sums have the same bits: eight sums side by side, halves above 128.
double pairwise(const double* numbers, int64_t count) {
    if (count > 128) {
        const int64_t half = count / 2 - count / 2 % 8;
        return pairwise(numbers, half) + pairwise(numbers + half, count - half);
    }
    double sum = -0.0;
    int64_t i = 0;
    if (count >= 8) {
        double part[8];
        for (; i < 8; ++i) part[i] = numbers[i];
        for (; i + 8 <= count; i += 8)
            for (int k = 0; k < 8; ++k) part[k] += numbers[i + k];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < count; ++i) sum += numbers[i];
    return sum;
}

// The classes of one row's inputs, ascending and once each, with how many edges fall on each: a bit for each class, and
// a bit for each word of bits that is not zero, twice over.
class ClassCounts {
  public:
    explicit ClassCounts(size_t classes) : counts(classes) {
        for (auto& level : bits) level.resize(classes = (classes + 63) / 64);
    }

    void add(uint32_t index) {
        if (counts[index]++) return;
        for (auto& level : bits) {
            level[index / 64] |= uint64_t{1} << index % 64;
            index /= 64;
        }
    }

    // take(class, edges) for each class; none is left.
    template <class Take>
    void each(Take take) {
        for (size_t top = 0; top < bits[2].size(); ++top)
            pass(bits[2], top, [&](size_t middle) {
                pass(bits[1], middle, [&](size_t low) {
                    pass(bits[0], low, [&](size_t index) { take(static_cast<uint32_t>(index), counts[index]), counts[index] = 0; });
                });
            });
    }

  private:
    template <class Visit>
    static void pass(std::vector<uint64_t>& level, size_t word, Visit visit) {
        for (uint64_t left = std::exchange(level[word], 0); left; left &= left - 1) visit(word * 64 + __builtin_ctzll(left));
    }

    std::vector<uint32_t> counts;
    std::vector<uint64_t> bits[3];
};

// One row on the classes of its inputs: edges of one class become one, whose weight is their sum in double precision,
// rounded once. Returns how many there are.
struct RowOnClasses {
    const uint32_t* classes;
    ClassCounts counted;
    std::vector<int64_t> next;  // of each class, where its next term goes
    std::vector<double> terms;  // by class, in the order of the edges

    template <class From, class To>
    int64_t run(const From* row, const float* weights, float weight, int64_t degree, To* to, float* sums) {
        int64_t count = 0, terms_before = 0;
        for (int64_t e = 0; e < degree; ++e) counted.add(classes[row[e]]);
        counted.each([&](uint32_t index, uint32_t edges) {
            to[count] = static_cast<To>(index), sums[count++] = static_cast<float>(static_cast<double>(edges) * weight);
            if (weights) next[index] = std::exchange(terms_before, terms_before + edges);
        });
        if (!weights) return count;
        terms.resize(degree);
        for (int64_t e = 0; e < degree; ++e) terms[next[classes[row[e]]]++] = weights[e];
        for (int64_t k = 0, begin = 0; k < count; ++k) {
            const int64_t end = next[to[k]];
            sums[k] = static_cast<float>(end - begin > 1 ? terms[begin] + pairwise(&terms[begin + 1], end - begin - 1) : terms[begin]);
            begin = end;
        }
        return count;
    }
};

// The layer on the classes of its inputs; `to`, `new_indices` and `sums` have room for as many edges. Returns how many
// are left, or -1 where a sum is past the range of float32.
int64_t on_classes(Offsets offsets, ReadIndices indices, Floats values, Array<const uint32_t, 1> classes, Array<int64_t, 1> to,
                   Indices new_indices, Array<float, 1> sums) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, edges = indices.size(), inputs = classes.size();
    index_bytes(indices);
    const int to_bytes = index_bytes(new_indices);
    require(static_cast<int64_t>(to.size()) == rows + 1 && static_cast<int64_t>(new_indices.size()) == edges &&
                static_cast<int64_t>(sums.size()) == edges,
            "results must have room for each output and edge");
    nb::gil_scoped_release release;
    const uint32_t most = inputs ? *std::max_element(classes.data(), classes.data() + inputs) : 0;
    require(to_bytes == 4 || most <= std::numeric_limits<uint16_t>::max(), "classes past 65535 need uint32");
    const float* const weights = values.size() == indices.size() ? values.data() : nullptr;
    RowOnClasses row{classes.data(), ClassCounts(size_t{most} + 1), std::vector<int64_t>(weights ? size_t{most} + 1 : 0), {}};
    auto all = [&](const auto* read, auto* written) {
        for (int64_t e = 0; e < edges; ++e) require(static_cast<int64_t>(read[e]) < inputs, "an index is out of range");
        int64_t count = 0;
        for (int64_t j = 0; j < rows; ++j) {
            const int64_t begin = offsets.data()[j], degree = offsets.data()[j + 1] - begin;
            to.data()[j] = count;
            count += row.run(read + begin, weights ? weights + begin : nullptr, weights ? 0.0f : values.data()[0], degree,
                             written + count, sums.data() + count);
        }
        to.data()[rows] = count;
        return std::all_of(sums.data(), sums.data() + count, [](float sum) { return std::isfinite(sum); }) ? count : -1;
    };
    return with_indices(indices, [&](auto* read) { return with_indices(new_indices, [&](auto* written) { return all(read, written); }); });
}

// The rows of a RadiX-Net's layer (spdnn/sources/radixnet.py): row i of `groups` (classes, 16), ascending, merged with the
// row `shift` rows on, for each class; and all of that once for each of the 16 outputs of a class.
template <class T>
void merged_groups(const T* groups, int64_t classes, int64_t width, int64_t shift, T* to) {
    for (int64_t i = 0; i < classes; ++i) {
        const T *a = groups + i * width, *b = groups + (i + shift) % classes * width, *const a_end = a + width, *const b_end = b + width;
        T* out = to + i * 2 * width;
        while (a < a_end && b < b_end) {
            const bool first = *a <= *b;
            *out++ = first ? *a : *b;
            a += first, b += !first;
        }
        while (a < a_end) *out++ = *a++;
        while (b < b_end) *out++ = *b++;
    }
}

void radixnet_rows(nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu, nb::ro> groups, int64_t shift, Indices indices) {
    const int64_t classes = groups.shape(0), width = groups.shape(1), period = classes * 2 * width;
    const int bytes = index_bytes(groups);
    require(classes >= 1 && width >= 1 && shift >= 0 && bytes == index_bytes(indices) && indices.size() % period == 0,
            "indices must be whole copies of the merged groups");
    nb::gil_scoped_release release;
    if (bytes == 2)
        merged_groups(static_cast<const uint16_t*>(groups.data()), classes, width, shift, static_cast<uint16_t*>(indices.data()));
    else
        merged_groups(static_cast<const uint32_t*>(groups.data()), classes, width, shift, static_cast<uint32_t*>(indices.data()));
    char* const to = static_cast<char*>(indices.data());
    for (int64_t copy = 1; copy < static_cast<int64_t>(indices.size()) / period; ++copy) std::memcpy(to + copy * period * bytes, to, period * bytes);
}

// out[r, i] <- the sum over k, t of taps[k, t] * lines[r, k, start + i + t] (spdnn/sources/mnist.py). A product and a sum
// are two roundings at every level, so the bits are the same.
typedef double Quad __attribute__((vector_size(32)));

#ifdef SPDNN_X86
__attribute__((target_clones("avx2", "default")))
#endif
void resample_row(const double* line, int64_t stride, const double* taps, int64_t parts, int64_t reach, double* out, int64_t count) {
    constexpr int kQuads = 6;
    int64_t i = 0;
    for (; i + 4 * kQuads <= count; i += 4 * kQuads) {
        Quad sum[kQuads] = {};
        for (int64_t k = 0; k < parts; ++k)
            for (int64_t t = 0; t < reach; ++t) {
                const double tap = taps[k * reach + t], *const from = line + k * stride + i + t;
#pragma GCC unroll 6
                for (int q = 0; q < kQuads; ++q) {
                    Quad some;
                    std::memcpy(&some, from + 4 * q, sizeof some);
                    sum[q] += tap * some;
                }
            }
        std::memcpy(out + i, sum, sizeof sum);
    }
    for (; i < count; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < parts; ++k)
            for (int64_t t = 0; t < reach; ++t) sum += taps[k * reach + t] * line[k * stride + i + t];
        out[i] = sum;
    }
}

void resample(Array<const double, 3> lines, int64_t start, Array<const double, 2> taps, Array<double, 2> out) {
    const int64_t rows = lines.shape(0), parts = lines.shape(1), stride = lines.shape(2), reach = taps.shape(1), count = out.shape(1);
    require(static_cast<int64_t>(out.shape(0)) == rows && static_cast<int64_t>(taps.shape(0)) == parts, "lines, taps and out must fit");
    require(start >= 0 && reach >= 1 && start + count + reach - 1 <= stride, "lines are too short");
    nb::gil_scoped_release release;
    for (int64_t r = 0; r < rows; ++r)
        resample_row(lines.data() + r * parts * stride + start, stride, taps.data(), parts, reach, out.data() + r * count, count);
}

// Which |y|^2 of a column exceed `level`, y = column times `real` + i times `imaginary` (spdnn/sources/mnist.py), a bit each,
// the first the highest of its byte. In single precision, whose error is below `band`; `near`: which lie nearer.
constexpr int64_t kLanes = 16, kChunk = 4 * kLanes;
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef int32_t Signs __attribute__((vector_size(4 * kLanes)));
typedef uint8_t Bytes __attribute__((vector_size(kLanes)));

#ifdef SPDNN_X86
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
void column_above(const float* column, const float* real, int64_t reals, const float* imaginary, int64_t imaginaries, int64_t side,
                  float level, float band, uint8_t* bits, uint8_t* near) {
    for (int64_t from = 0; from < side; from += kChunk) {
        Lanes y[4] = {}, z[4] = {};
        for (int64_t r = 0; r < reals; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) {
                Lanes some;
                std::memcpy(&some, real + r * side + from + v * kLanes, sizeof some);
                y[v] += column[r] * some;
            }
        for (int64_t r = 0; r < imaginaries; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) {
                Lanes some;
                std::memcpy(&some, imaginary + r * side + from + v * kLanes, sizeof some);
                z[v] += column[reals - 1 + r] * some;
            }
        for (int v = 0; v < 4; ++v) {
            const Lanes excess = y[v] * y[v] + z[v] * z[v] - level;
            for (int which = 0; which < 2; ++which) {
                const Signs signs = which ? excess * excess < band * band : excess > 0;
                const Bytes ones = __builtin_convertvector(signs, Bytes) & 1;
                uint64_t eight[kLanes / 8];
                std::memcpy(eight, &ones, sizeof eight);
                uint8_t*& to = which ? near : bits;
                for (uint64_t some : eight) *to++ = some * 0x8040201008040201u >> 56;  // bit 8 i is at bit 63 - i now
            }
        }
    }
}

// bits[c, :] for each column c of `wanted`: where |y|^2 > level, exact to the rounding of double precision. The last row of
// `real` and the first of `imaginary` take the same row of the block, as the second of `imaginary` takes the one after.
void threshold(Array<const double, 2> block, Array<const int64_t, 1> wanted, Array<const double, 2> real, Array<const double, 2> imaginary,
               double level, nb::ndarray<uint8_t, nb::ndim<2>, nb::device::cpu> bits) {
    const int64_t reals = real.shape(0), imaginaries = imaginary.shape(0), side = real.shape(1), columns = block.shape(1);
    require(static_cast<int64_t>(block.shape(0)) == reals - 1 + imaginaries && static_cast<int64_t>(imaginary.shape(1)) == side && reals >= 1,
            "block, real and imaginary must fit");
    require(static_cast<int64_t>(bits.shape(1)) * 8 == side && bits.stride(1) == 1, "bits must have one for each value");
    for (size_t i = 0; i < wanted.size(); ++i)
        require(wanted.data()[i] >= 0 && wanted.data()[i] < columns && wanted.data()[i] < static_cast<int64_t>(bits.shape(0)), "there is no such column");
    nb::gil_scoped_release release;
    const int64_t padded = (side + kChunk - 1) / kChunk * kChunk;
    double norm2_most = 0;  // of the factors of one value
    auto in_single = [&](const Array<const double, 2>& from) {
        std::vector<float> to(from.shape(0) * padded);
        std::vector<double> norm2(side);
        for (size_t r = 0; r < from.shape(0); ++r)
            for (int64_t j = 0; j < side; ++j) {
                const double factor = from.data()[r * side + j];
                to[r * padded + j] = static_cast<float>(factor), norm2[j] += factor * factor;
            }
        norm2_most += *std::max_element(norm2.begin(), norm2.end());
        return to;
    };
    const std::vector<float> single = in_single(real), other = in_single(imaginary);
    std::vector<uint8_t> above(padded / 8), close(padded / 8);
    std::vector<double> exact(block.shape(0));
    std::vector<float> rounded(block.shape(0));
    for (size_t i = 0; i < wanted.size(); ++i) {
        const int64_t c = wanted.data()[i];
        double norm2 = 0;
        for (size_t r = 0; r < exact.size(); ++r) {
            rounded[r] = static_cast<float>(exact[r] = block.data()[r * columns + c]);
            norm2 += exact[r] * exact[r];
        }
        uint8_t* const to = bits.data() + c * bits.stride(0);
        // A sum of n terms is wrong by less than (n + 3) 2^-24 of the product of the norms; squared, by a little more than twice.
        const float band = static_cast<float>(2e-5 * (norm2 * norm2_most + level));
        column_above(rounded.data(), single.data(), reals, other.data(), imaginaries, padded, static_cast<float>(level), band, above.data(),
                     close.data());
        std::memcpy(to, above.data(), side / 8);
        for (int64_t j = 0; j < side; ++j) {
            if (j % 8 == 0 && !close[j / 8]) {
                j += 7;
                continue;
            }
            if (!(close[j / 8] >> (7 - j % 8) & 1)) continue;
            double y = 0, z = 0;
            for (int64_t r = 0; r < reals; ++r) y += exact[r] * real.data()[r * side + j];
            for (int64_t r = 0; r < imaginaries; ++r) z += exact[reals - 1 + r] * imaginary.data()[r * side + j];
            const uint8_t bit = 0x80 >> j % 8;
            to[j / 8] = y * y + z * z > level ? to[j / 8] | bit : to[j / 8] & ~bit;
        }
    }
}

}  // namespace

void bind_merge(nb::module_& m) {
    m.def("equal_rows", &equal_rows);
    m.def("take_rows", &take_rows);
    m.def("on_classes", &on_classes);
    m.def("radixnet_rows", &radixnet_rows);
    m.def("resample", &resample);
    m.def("threshold", &threshold);
}

}  // namespace spdnn
