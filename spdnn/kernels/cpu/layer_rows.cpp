// Rows of layers, before any inference, for the Python module spdnn.kernels._cpu: rows that are equal (identical
// neurons), layers on the classes of their inputs, and the layers of a RadiX-Net. A layer is `offsets` (rows + 1),
// `indices` (uint16 or uint32, ascending in each row) and `values` of each edge (null: all have one); row j is what
// output j reads. The bits are the same at every instruction-set level. One thread: callers have a thread for each
// layer.
//
// Algorithm  A row is compared with the first of its hash alone: one that differs from it is a class of its own. Rows
//            often repeat in order, so a row is first compared with that of the class after its predecessor's, without
//            any hash. On classes, the edges of a row are sorted by class: those of a short row are ranked by comparing
//            each with all others, which is vectorized.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "binding.hpp"
#include "layer_rows.hpp"

namespace spdnn {
namespace {

constexpr uint32_t kNone = ~0u;

// A sum of products with odd numbers, so that no product waits for another; folded at the end.
uint64_t hash_of(const char* from, int64_t bytes, uint64_t sum) {
    uint64_t factor = 0x9e3779b97f4a7c15u;
    // A factor of its own for each word, so that their order counts.
    for (; bytes >= 8; from += 8, bytes -= 8, factor += 0xd1342543de82ef94u) {
        uint64_t word;
        std::memcpy(&word, from, sizeof word);
        sum += (word ^ word >> 31) * factor;
    }
    // The rest by 16 bits, the size of the narrowest index.
    for (; bytes > 0; from += 2, bytes -= 2, factor += 2) {
        uint16_t part;
        std::memcpy(&part, from, sizeof part);
        sum += (part + uint64_t{1}) * factor;
    }
    // Mix: few of the bits become an index into the table.
    sum ^= sum >> 32;
    return sum * 0xff51afd7ed558ccdu;
}

// A number for each hash; as small as what is in it, so that it stays in the cache.
class HashTable {
  public:
    // The number of that hash: kNone until it is set.
    uint32_t& number_of(uint64_t hash) {
        // At most half full, so that probe sequences stay short.
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
        // Linear probing; the size is a power of two, so a mask is the modulus.
        size_t at = hash >> 20 & (entries.size() - 1);
        while (entries[at].number != kNone && entries[at].hash != hash) at = (at + 1) & (entries.size() - 1);
        return entries[at];
    }

    void grow() {
        // Rehash into four times the entries: the cost of growing is spread over many rows.
        std::vector<Entry> more(4 * entries.size());
        for (const Entry& entry : entries)
            if (entry.number != kNone) find(more, entry.hash) = entry;
        entries.swap(more);
    }

    std::vector<Entry> entries = std::vector<Entry>(1024);
    size_t used = 0;
};

}  // namespace

int64_t number_rows(const int64_t* offsets, int64_t rows, const void* indices, int64_t bytes, const float* values,
                    const float* biases, uint32_t* classes, int64_t* firsts) {
    const char* const edges = static_cast<const char*>(indices);
    const char* const weights = reinterpret_cast<const char*>(values);
    auto hash_of_row = [&](int64_t j) {
        const int64_t degree = offsets[j + 1] - offsets[j];
        uint64_t hash = hash_of(edges + offsets[j] * bytes, degree * bytes, static_cast<uint64_t>(degree));
        if (weights) hash = hash_of(weights + offsets[j] * 4, degree * 4, hash);
        return biases ? hash_of(reinterpret_cast<const char*>(biases + j), 4, hash) : hash;
    };
    auto equal = [&](int64_t a, int64_t b) {
        const int64_t degree = offsets[a + 1] - offsets[a];
        return degree == offsets[b + 1] - offsets[b] &&
               !std::memcmp(edges + offsets[a] * bytes, edges + offsets[b] * bytes, degree * bytes) &&
               (!weights || !std::memcmp(weights + offsets[a] * 4, weights + offsets[b] * 4, degree * 4)) &&
               (!biases || !std::memcmp(biases + a, biases + b, 4));
    };
    HashTable table;
    uint32_t count = 0, next = 0;
    for (int64_t j = 0; j < rows; ++j) {
        // Fast path: rows that repeat in order equal the next class, and need no hash.
        if (next < count && equal(firsts[next], j)) {
            classes[j] = next++;
            continue;
        }
        // Look up the first row with this hash and compare it whole.
        uint32_t& number = table.number_of(hash_of_row(j));
        if (number != kNone && equal(firsts[number], j)) {
            classes[j] = number, next = number + 1;
            continue;
        }
        // A new class. After a collision the entry stays with the earlier row.
        if (number == kNone) number = count;
        firsts[count] = j;
        classes[j] = count++, next = 0;
    }
    return count;
}

namespace {

// In the order of NumPy's add.reduceat, so that sums have the same bits: eight sums side by side, halves above 128.
double pairwise(const double* numbers, int64_t count) {
    // Recurse on halves, split at a multiple of eight as NumPy does.
    if (count > 128) {
        const int64_t half = count / 2 - count / 2 % 8;
        return pairwise(numbers, half) + pairwise(numbers + half, count - half);
    }
    double sum = -0.0;
    int64_t i = 0;
    if (count >= 8) {
        // Eight accumulators, reduced as a tree; then the remainder one by one.
        double part[8];
        for (; i < 8; ++i) part[i] = numbers[i];
        for (; i + 8 <= count; i += 8)
            for (int k = 0; k < 8; ++k) part[k] += numbers[i + k];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < count; ++i) sum += numbers[i];
    return sum;
}

// The sum of the weights that fall on one class. NumPy's reduceat adds the first term to the pairwise sum of the others.
double sum_of(const double* terms, int64_t count) {
    return count > 1 ? terms[0] + pairwise(terms + 1, count - 1) : terms[0];
}

constexpr int kShort = 64;                  // edges of a row that is ranked
constexpr uint32_t kMostRanked = 1u << 24;  // classes that leave room for an edge's number in 31 bits

// Of a row on classes: what is read, the classes of the inputs, and what is written.
template <class From, class To>
struct Row {
    const From* read;
    int64_t edges;
    const float* weights;  // null: all have `weight`
    float weight;
    const uint32_t* classes;
    To* written;
    float* sums;

    // Keys in ascending order are a class, and below it, in so many bits, an edge. Runs of one class become one edge.
    template <int kBits, class Key>
    int64_t merge(const Key* sorted, double* terms) const {
        int64_t count = 0;
        for (int64_t e = 0, next; e < edges; e = next) {
            const Key own = sorted[e] >> kBits;
            for (next = e; next < edges && sorted[next] >> kBits == own; ++next)
                if (weights) terms[next - e] = weights[sorted[next] & ((Key{1} << kBits) - 1)];
            const double equal = static_cast<double>(next - e) * weight;
            written[count] = static_cast<To>(own);
            sums[count++] = static_cast<float>(weights ? sum_of(terms, next - e) : equal);
        }
        return count;
    }
};

// A row of at most N edges; returns how many edges are left.
template <int N, class From, class To>
int64_t rank_row(const Row<From, To>& row) {
    constexpr int kBits = __builtin_ctz(kShort);
    // Keys are all different. A key's place is the number of smaller ones.
    alignas(64) int32_t keys[N], ranks[N] = {};
    uint32_t sorted[N];
    double terms[N];
    for (int i = 0; i < N; ++i)
        keys[i] = i < row.edges ? static_cast<int32_t>(row.classes[row.read[i]] << kBits | i)
                                : std::numeric_limits<int32_t>::max();
    for (int64_t e = 0; e < row.edges; ++e) {
        const int32_t key = keys[e];
        for (int i = 0; i < N; ++i) ranks[i] += key < keys[i];
    }
    for (int64_t e = 0; e < row.edges; ++e) sorted[ranks[e]] = static_cast<uint32_t>(keys[e]);
    // No two of one class and one weight for all, as in most rows of a large RadiX-Net: nothing is summed.
    int again = row.weights != nullptr;
    for (int64_t e = 0; e + 1 < row.edges; ++e) again |= sorted[e] >> kBits == sorted[e + 1] >> kBits;
    if (again) return row.template merge<kBits>(sorted, terms);
    for (int64_t e = 0; e < row.edges; ++e) row.written[e] = static_cast<To>(sorted[e] >> kBits);
    std::fill(row.sums, row.sums + row.edges, row.weight);
    return row.edges;
}

// The rows on the classes 0 .. most of their inputs: edges of one class become one, whose weight is their sum in double
// precision, rounded once. `weights`: of each edge; null: all have `weight`. `to`, `written` and `sums` have room for
// as many rows and edges. Returns how many edges are left.
template <class From, class To>
int64_t rows_on_classes(const int64_t* offsets, int64_t rows, const From* read, const float* weights, float weight,
                        const uint32_t* classes, uint32_t most, int64_t* to, To* written, float* sums) {
    std::vector<uint64_t> keys;
    std::vector<double> terms;
    int64_t count = 0;
    for (int64_t j = 0; j < rows; ++j) {
        const int64_t at = offsets[j], edges = offsets[j + 1] - at;
        const Row<From, To> row{read + at,       edges,       weights ? weights + at : nullptr, weight, classes,
                                written + count, sums + count};
        to[j] = count;
        if (edges <= kShort && most < kMostRanked) {
            count += edges <= kShort / 2 ? rank_row<kShort / 2>(row) : rank_row<kShort>(row);
            continue;
        }
        keys.resize(edges), terms.resize(edges);
        for (int64_t e = 0; e < edges; ++e) keys[e] = uint64_t{classes[row.read[e]]} << 32 | static_cast<uint64_t>(e);
        std::sort(keys.begin(), keys.end());
        count += row.template merge<32>(keys.data(), terms.data());
    }
    to[rows] = count;
    return count;
}

using Offsets = Array<const int64_t, 1>;
using Floats = Array<const float, 1>;

void check(const Offsets& offsets, const ReadIndices& indices, const Floats& values) {
    require(offsets.size() >= 1 && offsets.data()[offsets.size() - 1] == extent(indices),
            "offsets must end at the number of edges");
    require(values.size() == 1 || values.size() == indices.size(), "values must be one or one an edge");
}

int64_t equal_rows(Offsets offsets, ReadIndices indices, Floats values, Floats bias, Array<uint32_t, 1> classes,
                   Array<int64_t, 1> firsts) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, bytes = index_bytes(indices);
    require(extent(classes) == rows && extent(firsts) == rows, "classes and firsts must have room for each output");
    require(bias.size() == 1 || extent(bias) == rows, "bias must be one or one an output");
    require(rows < int64_t{std::numeric_limits<uint32_t>::max()}, "too many outputs");
    nb::gil_scoped_release release;
    return number_rows(offsets.data(), rows, indices.data(), bytes,
                       values.size() == indices.size() ? values.data() : nullptr,
                       bias.size() == 1 ? nullptr : bias.data(), classes.data(), firsts.data());
}

// The edges of some rows, one row after the other.
void take_rows(Offsets offsets, ReadIndices indices, Floats values, Array<const int64_t, 1> rows, Offsets to,
               Indices new_indices, Array<float, 1> new_values) {
    check(offsets, indices, values);
    const int bytes = index_bytes(indices);
    const int64_t count = rows.size(), all = offsets.size() - 1;
    const bool valued = values.size() == indices.size() && new_values.size() == new_indices.size();
    require(bytes == index_bytes(new_indices) && extent(to) == count + 1, "rows, offsets and indices must fit");
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = rows.data()[i];
        require(row >= 0 && row < all, "there is no such row");
        require(to.data()[i + 1] - to.data()[i] == offsets.data()[row + 1] - offsets.data()[row],
                "offsets must fit the rows");
    }
    require(to.data()[0] == 0 && to.data()[count] == extent(new_indices), "offsets must end at the number of edges");
    nb::gil_scoped_release release;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t from = offsets.data()[rows.data()[i]], start = to.data()[i], degree = to.data()[i + 1] - start;
        std::memcpy(static_cast<char*>(new_indices.data()) + start * bytes,
                    static_cast<const char*>(indices.data()) + from * bytes, degree * bytes);
        if (valued) std::memcpy(new_values.data() + start, values.data() + from, degree * 4);
    }
}

// The layer on the classes of its inputs; `to`, `new_indices` and `sums` have room for as many edges. Returns how many
// are left, or -1 where a sum is past the range of float32.
int64_t on_classes(Offsets offsets, ReadIndices indices, Floats values, Array<const uint32_t, 1> classes,
                   Array<int64_t, 1> to, Indices new_indices, Array<float, 1> sums) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, edges = indices.size(), inputs = classes.size();
    index_bytes(indices);
    const int to_bytes = index_bytes(new_indices);
    require(extent(to) == rows + 1 && extent(new_indices) == edges && extent(sums) == edges,
            "results must have room for each output and edge");
    nb::gil_scoped_release release;
    const uint32_t most = inputs ? *std::max_element(classes.data(), classes.data() + inputs) : 0;
    require(to_bytes == 4 || most <= std::numeric_limits<uint16_t>::max(), "classes past 65535 need uint32");
    const float* const weights = values.size() == indices.size() ? values.data() : nullptr;
    auto all = [&](const auto* read, auto* written) {
        // Reductions without a branch, which are vectorized.
        std::decay_t<decltype(*read)> largest = 0;
        for (int64_t e = 0; e < edges; ++e) largest = std::max(largest, read[e]);
        require(!edges || static_cast<int64_t>(largest) < inputs, "an index is out of range");
        const int64_t count =
            rows_on_classes(offsets.data(), rows, read, weights, weights || !edges ? 0.0f : values.data()[0],
                            classes.data(), most, to.data(), written, sums.data());
        float greatest = 0;  // no sum is a NaN, for weights are finite
        for (int64_t e = 0; e < count; ++e) greatest = std::max(greatest, std::abs(sums.data()[e]));
        return std::isfinite(greatest) ? count : -1;
    };
    return with_indices(indices, [&](auto* read) {
        return with_indices(new_indices, [&](auto* written) { return all(read, written); });
    });
}

// Row i of `groups` (classes, width), ascending, merged with the row `shift` rows on, for each class; all of that
// `copies` times: once for each output of a class.
template <class T>
void merge_groups(const T* groups, int64_t classes, int64_t width, int64_t shift, int64_t copies, T* to) {
    for (int64_t i = 0; i < classes; ++i) {
        const T *a = groups + i * width,
                *b = groups + (i + shift) % classes * width, *const a_end = a + width, *const b_end = b + width;
        T* out = to + i * 2 * width;
        // Merge two sorted rows: the comparison's result advances the cursors, without a branch.
        while (a < a_end && b < b_end) {
            const bool first = *a <= *b;
            *out++ = first ? *a : *b;
            a += first, b += !first;
        }
        while (a < a_end) *out++ = *a++;
        while (b < b_end) *out++ = *b++;
    }
    const int64_t period = classes * 2 * width;
    for (int64_t copy = 1; copy < copies; ++copy) std::copy(to, to + period, to + copy * period);
}

// The layers of a RadiX-Net by formula (spdnn/formats/radixnet.py).
void radixnet_rows(nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu, nb::ro> groups, int64_t shift,
                   Indices indices) {
    const int64_t classes = groups.shape(0), width = groups.shape(1), period = classes * 2 * width;
    const int bytes = index_bytes(groups);
    require(classes >= 1 && width >= 1 && shift >= 0 && bytes == index_bytes(indices) && indices.size() % period == 0,
            "indices must be whole copies of the merged groups");
    const int64_t copies = indices.size() / period;
    nb::gil_scoped_release release;
    with_indices(indices, [&](auto* to) {
        using T = std::remove_pointer_t<decltype(to)>;
        merge_groups(static_cast<const T*>(groups.data()), classes, width, shift, copies, to);
    });
}

}  // namespace

void bind_layer_rows(nb::module_& m) {
    m.def("equal_rows", &equal_rows);
    m.def("take_rows", &take_rows);
    m.def("on_classes", &on_classes);
    m.def("radixnet_rows", &radixnet_rows);
}

}  // namespace spdnn
