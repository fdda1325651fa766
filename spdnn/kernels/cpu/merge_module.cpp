// Identical neurons and layers by formula: what spdnn.kernels._cpu does with rows before any inference. The same
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
    // Where the number of that hash is: kNone until it is set.
    uint32_t& place(uint64_t hash) {
        if (2 * used >= slots.size()) grow();
        Slot& slot = find(slots, hash);
        if (slot.number == kNone) slot.hash = hash, ++used;
        return slot.number;
    }

  private:
    struct Slot {
        uint64_t hash = 0;
        uint32_t number = kNone;
    };

    static Slot& find(std::vector<Slot>& slots, uint64_t hash) {
        size_t place = hash >> 20 & (slots.size() - 1);
        while (slots[place].number != kNone && slots[place].hash != hash) place = (place + 1) & (slots.size() - 1);
        return slots[place];
    }

    void grow() {
        std::vector<Slot> more(4 * slots.size());
        for (const Slot& slot : slots)
            if (slot.number != kNone) find(more, slot.hash) = slot;
        slots.swap(more);
    }

    std::vector<Slot> slots = std::vector<Slot>(1024);
    size_t used = 0;
};

// classes[j] <- the number of the first row that equals row j, counted over such rows; firsts <- those rows. Returns how
// many there are. A row is compared with the first of its hash alone: one that differs from it is a class of its own. Rows
// often repeat in order, so a row is first compared with that of the class after its predecessor's, without any hash.
int64_t equal_rows(Offsets offsets, ReadIndices indices, Floats values, Floats bias, Array<uint32_t, 1> classes,
                   Array<int64_t, 1> firsts) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, bytes = index_bytes(indices);
    require(static_cast<int64_t>(classes.size()) == rows && static_cast<int64_t>(firsts.size()) == rows,
            "classes and firsts must have a place for each output");
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
    uint32_t count = 0, next = 0;
    for (int64_t j = 0; j < rows; ++j) {
        if (next < count && equal(firsts.data()[next], j)) {
            classes.data()[j] = next++;
            continue;
        }
        uint32_t& known = table.place(hash_of_row(j));
        if (known != kNone && equal(firsts.data()[known], j)) {
            classes.data()[j] = known, next = known + 1;
            continue;
        }
        if (known == kNone) known = count;
        firsts.data()[count] = j;
        classes.data()[j] = count++, next = 0;
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
        const int64_t from = offsets.data()[rows.data()[i]], place = to.data()[i], degree = to.data()[i + 1] - place;
        std::memcpy(static_cast<char*>(new_indices.data()) + place * bytes, static_cast<const char*>(indices.data()) + from * bytes,
                    degree * bytes);
        if (valued) std::memcpy(new_values.data() + place, values.data() + from, degree * 4);
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

    void add(uint32_t found) {
        if (counts[found]++) return;
        for (auto& level : bits) {
            level[found / 64] |= uint64_t{1} << found % 64;
            found /= 64;
        }
    }

    // take(class, edges) for each class; none is left.
    template <class Take>
    void each(Take take) {
        for (size_t top = 0; top < bits[2].size(); ++top)
            pass(bits[2], top, [&](size_t middle) {
                pass(bits[1], middle, [&](size_t low) {
                    pass(bits[0], low, [&](size_t found) { take(static_cast<uint32_t>(found), counts[found]), counts[found] = 0; });
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
    int64_t run(const From* row, const float* weights, int64_t degree, To* to, float* sums) {
        int64_t count = 0, placed = 0;
        for (int64_t e = 0; e < degree; ++e) counted.add(classes[row[e]]);
        counted.each([&](uint32_t own, uint32_t edges) {
            to[count++] = static_cast<To>(own);
            next[own] = std::exchange(placed, placed + edges);
        });
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

// All rows, where every edge has the same weight: the edges of some rows at a time are sorted by class, and dealt to their
// rows in that order. Returns how many are left.
template <class From, class To>
int64_t equal_on_classes(const int64_t* offsets, int64_t rows, const From* read, float weight, const uint32_t* classes, uint32_t most,
                         int64_t* to, To* written, float* sums) {
    constexpr int64_t kEdges = 1 << 18;  // of those rows, unless one has more: so that all of it stays in the L2 cache
    std::vector<uint32_t> own, row_of, edges_of;
    std::vector<int64_t> ends, fill;
    int64_t count = 0;
    for (int64_t first = 0, last; first < rows; first = last) {
        last = std::max(first + 1, std::upper_bound(offsets + first, offsets + rows + 1, offsets[first] + kEdges) - offsets - 1);
        const int64_t base = offsets[first], edges = offsets[last] - base;
        own.resize(edges), row_of.resize(edges), edges_of.assign(edges, 0);
        ends.assign(size_t{most} + 2, 0);
        for (int64_t e = 0; e < edges; ++e) ++ends[(own[e] = classes[read[base + e]]) + 1];
        for (size_t c = 0; c <= most; ++c) ends[c + 1] += ends[c];
        fill.assign(last - first, 0);
        for (int64_t j = first; j < last; ++j) {
            fill[j - first] = offsets[j] - base;
            for (int64_t e = offsets[j] - base; e < offsets[j + 1] - base; ++e) row_of[ends[own[e]]++] = static_cast<uint32_t>(j - first);
        }
        int64_t e = 0;
        for (uint32_t c = 0; c <= most; ++c)
            for (; e < ends[c]; ++e) {
                int64_t& next = fill[row_of[e]];
                const bool again = next > offsets[first + row_of[e]] - base && own[next - 1] == c;  // `own` has now what is left
                if (!again) own[next++] = c;
                ++edges_of[next - 1];
            }
        for (int64_t j = first; j < last; ++j) {
            to[j] = count;
            for (int64_t k = offsets[j] - base; k < fill[j - first]; ++k, ++count)
                written[count] = static_cast<To>(own[k]), sums[count] = static_cast<float>(static_cast<double>(edges_of[k]) * weight);
        }
    }
    to[rows] = count;
    return count;
}

// The layer on the classes of its inputs; `to`, `new_indices` and `sums` have room for as many edges. Returns how many
// are left, or -1 where a sum is past the range of float32.
int64_t on_classes(Offsets offsets, ReadIndices indices, Floats values, Array<const uint32_t, 1> classes, Array<int64_t, 1> to,
                   Indices new_indices, Array<float, 1> sums) {
    check(offsets, indices, values);
    const int64_t rows = offsets.size() - 1, edges = indices.size(), inputs = classes.size();
    const int from_bytes = index_bytes(indices), to_bytes = index_bytes(new_indices);
    require(static_cast<int64_t>(to.size()) == rows + 1 && static_cast<int64_t>(new_indices.size()) == edges &&
                static_cast<int64_t>(sums.size()) == edges,
            "results must have room for each output and edge");
    nb::gil_scoped_release release;
    const uint32_t most = inputs ? *std::max_element(classes.data(), classes.data() + inputs) : 0;
    require(to_bytes == 4 || most <= std::numeric_limits<uint16_t>::max(), "classes past 65535 need uint32");
    const float* const weights = values.size() == indices.size() ? values.data() : nullptr;
    auto all = [&](const auto* read, auto* written) {
        require(!edges || static_cast<int64_t>(*std::max_element(read, read + edges)) < inputs, "an index is out of range");
        int64_t count = 0;
        if (!weights) {
            count = equal_on_classes(offsets.data(), rows, read, values.data()[0], classes.data(), most, to.data(), written, sums.data());
        } else {
            RowOnClasses row{classes.data(), ClassCounts(size_t{most} + 1), std::vector<int64_t>(size_t{most} + 1), {}};
            for (int64_t j = 0; j < rows; ++j) {
                const int64_t begin = offsets.data()[j], degree = offsets.data()[j + 1] - begin;
                to.data()[j] = count;
                count += row.run(read + begin, weights + begin, degree, written + count, sums.data() + count);
            }
            to.data()[rows] = count;
        }
        return std::all_of(sums.data(), sums.data() + count, [](float sum) { return std::isfinite(sum); }) ? count : -1;
    };
    auto wide = [&](const auto* read) {
        return to_bytes == 2 ? all(read, static_cast<uint16_t*>(new_indices.data())) : all(read, static_cast<uint32_t*>(new_indices.data()));
    };
    return from_bytes == 2 ? wide(static_cast<const uint16_t*>(indices.data())) : wide(static_cast<const uint32_t*>(indices.data()));
}

// The rows of a RadiX-Net's layer (spdnn/sources/radixnet.py): row i of `groups` (classes, 16), ascending, merged with the
// row `shift` places on, for each class; and all of that once for each of the 16 outputs of a class.
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

}  // namespace

void bind_merge(nb::module_& m) {
    m.def("equal_rows", &equal_rows);
    m.def("take_rows", &take_rows);
    m.def("on_classes", &on_classes);
    m.def("radixnet_rows", &radixnet_rows);
}

}  // namespace spdnn
