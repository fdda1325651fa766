// Layouts of weights for the CUDA kernels, for the Python module spdnn.kernels._cpu. The head and the classes of
// spdnn/kernels/cuda/sliced.py describe what is made here. One thread: callers have a thread for each layer.
//
// Algorithm  1. Outputs with the very same inputs are a set: equal rows get one number, and numbers are sorted by lowest
//               input, highest input and a hash. A counting sort brings the outputs of a set together.
//            2. Sets are walked: from each to the one, not yet taken, with most inputs in common, where these are 3/8 of
//               its inputs at least. An inverted index lists the sets that read an input; a set that was taken leaves
//               the lists as they are next read. So the sets of a RadiX-Net, each of which shares half of its inputs
//               with two others, form chains: 16 neighbours read 17 halves.
//            3. One load serves the outputs of a group: 1, 2 or 4 of a set, which is filled up, or, where edges have
//               values, two neighbours, which read the union of their inputs. What is taken has the least cost.
//            4. Sliced: groups sorted by degree fill slices. Staged: each part's groups are sorted by degree and dealt
//               out to warps; a bitmap and a table of ranks number the inputs that the part reads (its footprint), and
//               each stage has a range of ranks.
// Layout     Of a layer: `offsets` (outputs + 1), `indices` (uint16 or uint32, ascending for each output), `values` of
//            each edge (null: all have one). A group is a list of inputs, which mostly lies in `indices` itself.
// Bound      Reading `indices` once and writing the result, of which shared lists leave a quarter; hashing, walk and
//            footprints touch one list of each set. All but step 2 are linear in the edges; that is linear in the pairs
//            of sets that read one input, and left out where these are more than kMostPairs.
// Source     Sliced ELLPACK: Monakov et al., HiPEAC 2010. Staging maps, 16-bit indices into a stage: Hidayetoglu et al.,
//            HPEC 2020, section III-B. Sets, walk and costs are ours.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "binding.hpp"
#include "layer_rows.hpp"

namespace spdnn {
namespace {

// As in sliced.py: groups of a slice, gathers of a chunk, values of a load, loads of a neuron's inputs.
constexpr int64_t kSlice = 4, kChunk = 8, kVector = 4, kPieces = 8;
constexpr int32_t kNoOutput = -1;
constexpr int64_t kMostPairs = 1 << 24;  // of sets that read the same input: beyond it, sets are not walked
constexpr int64_t kMostShared = 4;
// Of a gather by the outputs that share it, in issue slots of a multiprocessor for one warp: 16 in which shared memory
// delivers 512 bytes, or the instructions (4 multiply-adds for each output, and some 6 more), whichever is more.
constexpr int64_t kCost[kMostShared + 1] = {0, 16, 18, 0, 24};

int64_t pieces_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

template <class Index>
struct Weights {
    int64_t inputs, outputs;
    const int64_t* offsets;
    const Index* indices;
    const float* values;      // null: all edges have one
    const uint64_t* numbers;  // random, of each input: hashes are their sums

    const Index* list(int64_t output) const { return indices + offsets[output]; }
    const Index* end(int64_t output) const { return indices + offsets[output + 1]; }
    int64_t degree(int64_t output) const { return offsets[output + 1] - offsets[output]; }
};

// Set s: outputs[begins[s]] .. outputs[begins[s + 1] - 1], ascending, which read the same inputs.
struct Sets {
    std::vector<int32_t> outputs;
    std::vector<int64_t> begins;

    int64_t count() const { return static_cast<int64_t>(begins.size()) - 1; }
    int32_t head(int64_t s) const { return outputs[begins[s]]; }
    int64_t size(int64_t s) const { return begins[s + 1] - begins[s]; }
};

// The sets of a layer by their lowest inputs, highest inputs and hashes.
template <class Index>
Sets find_sets(const Weights<Index>& w) {
    std::vector<uint32_t> classes(w.outputs);
    std::vector<int64_t> firsts(w.outputs);
    const int64_t count =
        number_rows(w.offsets, w.outputs, w.indices, sizeof(Index), nullptr, nullptr, classes.data(), firsts.data());
    struct Key {
        uint64_t ends, hash;
        uint32_t number;
        bool operator<(const Key& b) const { return std::tie(ends, hash) < std::tie(b.ends, b.hash); }
    };
    // One list of each class is read; it stands for all equal ones, also in the check of what is read.
    std::vector<Key> keys(count);
    for (int64_t c = 0; c < count; ++c) {
        const Index* const list = w.list(firsts[c]);
        const int64_t degree = w.degree(firsts[c]);
        uint64_t hash = 0;
        bool sound = true;
        for (int64_t e = 0; e < degree; ++e) {
            sound &= list[e] < w.inputs && (e == 0 || list[e - 1] < list[e]);
            hash += sound ? w.numbers[list[e]] : 0;
        }
        require(sound, "the inputs of an output must ascend, and be inputs of the layer");
        keys[c] = {degree ? uint64_t{list[0]} << 32 | list[degree - 1] : 0, hash, static_cast<uint32_t>(c)};
    }
    std::sort(keys.begin(), keys.end());
    // Counting sort of the outputs by their keys. Lists with the same key (hashes may collide) have one place.
    std::vector<uint32_t> place(count);
    for (int64_t k = 0; k < count; ++k) {
        const bool again = k && !(keys[k - 1] < keys[k]);
        place[keys[k].number] = again ? place[keys[k - 1].number] : static_cast<uint32_t>(k);
    }
    std::vector<int64_t> next(count + 1, 0);
    for (int64_t j = 0; j < w.outputs; ++j) ++next[place[classes[j]] + 1];
    std::partial_sum(next.begin(), next.end(), next.begin());
    Sets sets;
    sets.outputs.resize(w.outputs);
    for (int64_t j = 0; j < w.outputs; ++j) sets.outputs[next[place[classes[j]]]++] = static_cast<int32_t>(j);
    // A set ends where the next output's list differs, which only lists with the same key leave to be compared.
    auto same = [&](int64_t a, int64_t b) {
        return classes[a] == classes[b] || (place[classes[a]] == place[classes[b]] && w.degree(a) == w.degree(b) &&
                                            !std::memcmp(w.list(a), w.list(b), w.degree(a) * sizeof(Index)));
    };
    for (int64_t i = 0; i < w.outputs; ++i)
        if (!i || !same(sets.outputs[i - 1], sets.outputs[i])) sets.begins.push_back(i);
    sets.begins.push_back(w.outputs);
    return sets;
}

// Sets in the order in which they are walked; and of each the inputs that it has in common with the one before it, as
// far as that was looked for.
struct Walk {
    std::vector<uint32_t> sets, common;
};

template <class Index>
Walk walk_sets(const Weights<Index>& w, const Sets& sets) {
    const int64_t count = sets.count();
    Walk walk{std::vector<uint32_t>(count), std::vector<uint32_t>(count, 0)};
    // Histogram: how many sets read each input, and how many pairs of sets that makes.
    std::vector<uint32_t> begins(w.inputs + 1, 0);
    auto each_input = [&](int64_t s, const auto& visit) {
        std::for_each(w.list(sets.head(s)), w.end(sets.head(s)), visit);
    };
    for (int64_t s = 0; s < count; ++s) each_input(s, [&](Index input) { ++begins[input + 1]; });
    std::iota(walk.sets.begin(), walk.sets.end(), 0);
    int64_t pairs = 0;
    for (const int64_t readers : begins)
        if ((pairs += readers * readers) > kMostPairs) return walk;
    // Inverted index: the sets that read input i are readers[begins[i]] .. readers[ends[i] - 1].
    std::partial_sum(begins.begin(), begins.end(), begins.begin());
    std::vector<uint32_t> ends(begins.begin(), begins.end() - 1), readers(begins.back());
    for (int64_t s = 0; s < count; ++s)
        each_input(s, [&](Index input) { readers[ends[input]++] = static_cast<uint32_t>(s); });
    // Greedy walk: on to the nearest set not yet taken; where none is near, the first not yet taken begins a chain.
    std::vector<uint32_t> overlap(count, 0), near;  // of each set with the walk's last; sets that have any
    std::vector<uint8_t> in_walk(count, 0);
    int64_t at = 0;
    for (int64_t start = 0; start < count; ++start)
        for (int64_t set = in_walk[start] ? -1 : start, common = 0; set >= 0; ++at) {
            in_walk[set] = 1;
            walk.sets[at] = static_cast<uint32_t>(set), walk.common[at] = static_cast<uint32_t>(common);
            // Count what each other set has in common with this one, and drop those that were taken from the lists.
            near.clear();
            each_input(set, [&](Index input) {
                for (uint32_t k = begins[input]; k < ends[input];) {
                    const uint32_t other = readers[k];
                    if (in_walk[other]) {
                        readers[k] = readers[--ends[input]];
                        continue;
                    }
                    if (!overlap[other]++) near.push_back(other);
                    ++k;
                }
            });
            // The one with most in common, of equals the first.
            const int64_t degree = w.degree(sets.head(set));
            set = -1, common = 0;
            for (const uint32_t other : near) {
                const int64_t both = overlap[other];
                overlap[other] = 0;
                if (8 * both < 3 * std::min(degree, w.degree(sets.head(other)))) continue;
                if (both > common || (both == common && other < set)) set = other, common = both;
            }
        }
    return walk;
}

// Groups of outputs, in order: `outputs` has `shared` of each, kNoOutput for none, which comes last; a group reads
// degrees[g] inputs from lists[g], ascending.
template <class Index>
struct Groups {
    int64_t shared = 1;
    std::vector<int32_t> outputs;
    std::vector<const Index*> lists;
    std::vector<int64_t> degrees;
    std::vector<Index> unions;  // lists of groups whose outputs differ

    int64_t count() const { return static_cast<int64_t>(lists.size()); }

    void add(const int32_t* members, int64_t size, const Index* list, int64_t degree) {
        outputs.insert(outputs.end(), members, members + size);
        outputs.insert(outputs.end(), shared - size, kNoOutput);
        lists.push_back(list), degrees.push_back(degree);
    }

    // Empty groups fill the last slice or part, so that kernels need no case for it.
    void pad(int64_t multiple) {
        while (count() % multiple) add(nullptr, 0, nullptr, 0);
    }

    void reorder(const std::vector<uint32_t>& order) {
        Groups from;
        from.shared = shared, from.outputs.reserve(outputs.size());
        for (const uint32_t g : order) from.add(outputs.data() + g * shared, shared, lists[g], degrees[g]);
        outputs.swap(from.outputs), lists.swap(from.lists), degrees.swap(from.degrees);
    }

    // The groups of each block of so many by descending degrees: a stable counting sort.
    std::vector<uint32_t> by_degree(int64_t block) const {
        std::vector<uint32_t> order(count()), next;
        for (int64_t first = 0; first < count(); first += block) {
            const auto begin = degrees.begin() + first;
            const int64_t most = *std::max_element(begin, begin + block);
            next.assign(most + 2, 0);
            for (int64_t g = first; g < first + block; ++g) ++next[most - degrees[g] + 1];
            std::partial_sum(next.begin(), next.end(), next.begin());
            for (int64_t g = first; g < first + block; ++g)
                order[first + next[most - degrees[g]]++] = static_cast<uint32_t>(g);
        }
        return order;
    }
};

// The layer's outputs in groups of `most_shared` at most, by the least cost of all gathers.
template <class Index>
Groups<Index> group_outputs(const Weights<Index>& w, int64_t most_shared) {
    const Sets sets = find_sets(w);
    const Walk walk = walk_sets(w, sets);
    const int64_t count = sets.count();
    // Cost model: sets in groups of one, two or four, filled up. What is no cheaper stays as it is.
    Groups<Index> groups;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t n = 1; n <= std::min(most_shared, kMostShared); n *= 2) {
        int64_t gathers = 0;
        for (int64_t s = 0; s < count; ++s) gathers += pieces_of(sets.size(s), n) * w.degree(sets.head(s));
        if (kCost[n] * gathers < least) least = kCost[n] * gathers, groups.shared = n;
    }
    // Neighbours two by two: the second of each pair reads what the first does not.
    bool alike = true;
    if (most_shared > 1 && w.values && count == w.outputs) {
        int64_t gathers = w.offsets[w.outputs];
        for (int64_t k = 1; k < count; k += 2) gathers -= walk.common[k];
        if (kCost[2] * gathers < least) alike = false, groups.shared = 2;
    }
    if (alike) {
        for (const uint32_t s : walk.sets)
            for (int64_t i = sets.begins[s]; i < sets.begins[s + 1]; i += groups.shared)
                groups.add(sets.outputs.data() + i, std::min(groups.shared, sets.begins[s + 1] - i),
                           w.list(sets.head(s)), w.degree(sets.head(s)));
        return groups;
    }
    groups.unions.resize(w.offsets[w.outputs]);
    Index* end = groups.unions.data();
    for (int64_t k = 0; k < count; k += 2) {
        const int64_t size = std::min<int64_t>(2, count - k);
        const int32_t pair[2] = {sets.head(walk.sets[k]), sets.head(walk.sets[k + size - 1])};
        const Index* const list = end;
        end = std::set_union(w.list(pair[0]), w.end(pair[0]), w.list(pair[1]), w.end(pair[1]), end);
        groups.add(pair, size, list, end - list);
    }
    return groups;
}

// A layer in slices, as the class Sliced.
template <class To>
struct Slices {
    int64_t shared, zero;         // outputs of a group; the index that padding reads
    std::vector<int32_t> order;   // of groups
    std::vector<int64_t> starts;  // of slices, in chunks
    std::unique_ptr<To[]> indices;
    std::unique_ptr<float[]> values;  // null: all edges have one

    template <class Index>
    Slices(const Weights<Index>& w, const Groups<Index>& groups, std::vector<int64_t> starts_, int64_t zero_)
        : shared(groups.shared), zero(zero_), order(groups.outputs), starts(std::move(starts_)) {
        require(chunks() <= std::numeric_limits<int32_t>::max(), "too many chunks");
        indices.reset(new To[chunks() * kSlice * kChunk]);
        if (w.values) values.reset(new float[chunks() * loads() * kSlice * kVector]);
    }

    int64_t chunks() const { return starts.back(); }
    int64_t loads() const { return kChunk * shared / kVector; }  // of the values of a chunk
};

// Writes the gathers of one group, a run of them at a time.
template <class Index, class To>
class GroupWriter {
  public:
    GroupWriter(const Weights<Index>& weights_, const Groups<Index>& groups, int64_t g, Slices<To>& slices_)
        : weights(weights_), slices(slices_), list(groups.lists[g]), lane(g % kSlice) {
        for (int64_t m = 0; m < slices.shared; ++m) {
            const int32_t output = groups.outputs[g * slices.shared + m];
            edge[m] = output == kNoOutput ? 0 : weights.offsets[output];
            end[m] = output == kNoOutput ? 0 : weights.offsets[output + 1];
        }
    }

    // Gathers first .. last - 1 to a slice; index(i): of gather i, as kernels read it.
    template <class IndexOf>
    void write(int64_t slice, int64_t first, int64_t last, const IndexOf& index) {
        // Padding reads a neuron of zeros, so that kernels need no test for it; its values are zero too.
        for (int64_t chunk = slices.starts[slice]; chunk < slices.starts[slice + 1]; ++chunk, first += kChunk) {
            To* const to = slices.indices.get() + (chunk * kSlice + lane) * kChunk;
            const int64_t count = std::max<int64_t>(0, std::min(kChunk, last - first));
            if (count == kChunk) {  // the usual case, unrolled
                for (int64_t step = 0; step < kChunk; ++step) to[step] = static_cast<To>(index(first + step));
            } else {
                for (int64_t step = 0; step < kChunk; ++step)
                    to[step] = static_cast<To>(step < count ? index(first + step) : slices.zero);
            }
            if (slices.values) write_values(chunk, first, count);
        }
    }

  private:
    const Weights<Index>& weights;
    Slices<To>& slices;
    const Index* const list;
    const int64_t lane;
    int64_t edge[kMostShared], end[kMostShared];  // of each output, what is not yet written

    void write_values(int64_t chunk, int64_t first, int64_t count) {
        // A value for each output of each gather; outputs that are no set lack some edges, whose values are zero.
        float block[kChunk * kMostShared] = {};
        for (int64_t m = 0; m < slices.shared; ++m)
            for (int64_t step = 0; step < count && edge[m] < end[m]; ++step)
                if (weights.indices[edge[m]] == list[first + step])
                    block[step * slices.shared + m] = weights.values[edge[m]++];
        float* const to = slices.values.get() + (chunk * slices.loads() * kSlice + lane) * kVector;
        for (int64_t load = 0; load < slices.loads(); ++load)
            std::memcpy(to + load * kSlice * kVector, block + load * kVector, kVector * sizeof(float));
    }
};

template <class To, class Index>
Slices<To> slice_layer(const Weights<Index>& w, int64_t zero, int64_t most_shared) {
    // Sorting by degree makes slices even, for each is as wide as its widest group; a stable sort keeps neighbours.
    Groups<Index> groups = group_outputs(w, most_shared);
    groups.pad(kSlice);
    groups.reorder(groups.by_degree(std::max<int64_t>(1, groups.count())));
    std::vector<int64_t> starts{0};
    for (int64_t g = 0; g < groups.count(); g += kSlice)
        starts.push_back(starts.back() + pieces_of(groups.degrees[g], kChunk));
    Slices<To> slices(w, groups, std::move(starts), zero);
    for (int64_t g = 0; g < groups.count(); ++g)
        GroupWriter<Index, To>(w, groups, g, slices)
            .write(g / kSlice, 0, groups.degrees[g], [list = groups.lists[g]](int64_t i) { return list[i]; });
    return slices;
}

// The distinct inputs that a part reads, and their ranks among them.
class Footprint {
  public:
    explicit Footprint(int64_t inputs) : words(pieces_of(inputs, 64), 0), rank_of(inputs) {}

    template <class Index>
    void add(const Index* list, int64_t degree) {
        for (int64_t e = 0; e < degree; ++e) {
            uint64_t& word = words[list[e] / 64];
            if (!word) nonzero.push_back(list[e] / 64);
            word |= uint64_t{1} << list[e] % 64;
        }
    }

    // Appends them to `map`, ascending, and numbers them. Returns how many there are.
    int64_t number(std::vector<uint32_t>& map) {
        // Words in ascending order, by looking at all or by sorting those that have inputs, whichever is less.
        if (nonzero.size() * 16 < words.size()) {
            std::sort(nonzero.begin(), nonzero.end());
        } else {
            nonzero.clear();
            for (size_t i = 0; i < words.size(); ++i)
                if (words[i]) nonzero.push_back(static_cast<uint32_t>(i));
        }
        uint32_t count = 0;
        for (const uint32_t i : nonzero)
            for (; words[i]; words[i] &= words[i] - 1) {
                const uint32_t input = i * 64 + __builtin_ctzll(words[i]);
                map.push_back(input), rank_of[input] = count++;
            }
        nonzero.clear();
        return count;
    }

    template <class Index>
    void find_ranks(const Index* list, int64_t degree, uint32_t* to) const {
        for (int64_t e = 0; e < degree; ++e) to[e] = rank_of[list[e]];
    }

  private:
    std::vector<uint64_t> words;             // a bit for each input; all zero between parts
    std::vector<uint32_t> rank_of, nonzero;  // of inputs; words that are not zero
};

// The footprints of parts of `in_part` groups, one after the other, and the stages in which they pass.
struct Footprints {
    int64_t in_part;
    std::vector<uint32_t> map;        // the inputs of each part, ascending
    std::vector<uint32_t> ranks;      // of each gather's input in its part; neighbours with one list share them
    std::vector<int64_t> first_rank;  // of each group, in `ranks`
    std::vector<int64_t> sizes;       // of each part
    std::vector<int64_t> stages{0};   // the first of each part, which has as few as the room allows

    template <class Index>
    Footprints(const Groups<Index>& groups, int64_t in_part_, int64_t room, int64_t inputs) : in_part(in_part_) {
        Footprint footprint(inputs);
        // Neighbours in a part often read one list, which is gone through once.
        auto again = [&](int64_t g) {
            return g % in_part && groups.lists[g] == groups.lists[g - 1] && groups.degrees[g] == groups.degrees[g - 1];
        };
        int64_t total = 0;
        for (int64_t g = 0; g < groups.count(); ++g) {
            first_rank.push_back(again(g) ? first_rank.back() : total);
            if (!again(g)) total += groups.degrees[g];
        }
        ranks.resize(total);
        for (int64_t first = 0; first < groups.count(); first += in_part) {
            for (int64_t g = first; g < first + in_part; ++g)
                if (!again(g)) footprint.add(groups.lists[g], groups.degrees[g]);
            sizes.push_back(footprint.number(map));
            stages.push_back(stages.back() + std::max<int64_t>(1, pieces_of(sizes.back(), room)));
            for (int64_t g = first; g < first + in_part; ++g)
                if (!again(g)) footprint.find_ranks(groups.lists[g], groups.degrees[g], ranks.data() + first_rank[g]);
        }
    }

    int64_t parts() const { return static_cast<int64_t>(sizes.size()); }
    int64_t count(int64_t part) const { return stages[part + 1] - stages[part]; }

    // visit(slice, first, last, base) for each stage of a group's part, of the given height: the group's gathers whose
    // ranks are in it, from `base` on.
    template <class Visit>
    void runs(int64_t g, int64_t degree, int64_t height, const Visit& visit) const {
        const int64_t part = g / in_part, slices = in_part / kSlice;
        const uint32_t* const rank = ranks.data() + first_rank[g];
        int64_t first = 0;
        for (int64_t stage = 0; stage < count(part); ++stage) {
            // Gathers of a group ascend, and so do their ranks.
            const bool rest = stage + 1 == count(part);
            const int64_t last =
                rest ? degree : std::lower_bound(rank + first, rank + degree, (stage + 1) * height) - rank;
            visit((stages[part] + stage) * slices + g % in_part / kSlice, first, last, stage * height);
            first = last;
        }
    }

    // The first chunk of each slice, and where the last one ends, where the stages of a part are so high.
    std::vector<int64_t> starts(const std::vector<int64_t>& degrees, const std::vector<int64_t>& heights) const {
        std::vector<int64_t> starts(stages.back() * in_part / kSlice + 1, 0);
        for (size_t g = 0; g < degrees.size(); ++g)
            runs(g, degrees[g], heights[g / in_part], [&](int64_t slice, int64_t first, int64_t last, int64_t) {
                starts[slice + 1] = std::max(starts[slice + 1], pieces_of(last - first, kChunk));
            });
        std::partial_sum(starts.begin(), starts.end(), starts.begin());
        return starts;
    }
};

// A layer in slices of parts and stages, as the class Staged.
struct Stages {
    Slices<uint16_t> slices;
    std::vector<int64_t> stages, map_starts;
    std::vector<uint32_t> map;
    int64_t room;
};

template <class Index>
Stages stage_layer(const Weights<Index>& w, int64_t outputs, int64_t room, int64_t held, int64_t most_shared) {
    Groups<Index> groups = group_outputs(w, most_shared);
    require(held % groups.shared == 0 && outputs % (held * kSlice) == 0,
            "a part must have slices for each group that a thread holds");
    // Parts: neighbours share inputs, so a part's footprint is small. Inside it groups are sorted by degree, and dealt
    // out so that the slices of a warp have about as many gathers.
    const int64_t in_part = outputs / groups.shared, rounds = held / groups.shared, warps = in_part / rounds / kSlice;
    groups.pad(in_part);
    const std::vector<uint32_t> by_degree = groups.by_degree(in_part);
    std::vector<uint32_t> order;
    for (int64_t part = 0; part < groups.count(); part += in_part)
        for (int64_t warp = 0; warp < warps; ++warp)
            for (int64_t round = 0; round < rounds; ++round) {
                const auto from = by_degree.begin() + part + (round * warps + warp) * kSlice;
                order.insert(order.end(), from, from + kSlice);
            }
    groups.reorder(order);
    Footprints prints(groups, in_part, room, w.inputs);
    // Stages of equal height, or all full but the last, whichever needs fewer chunks.
    std::vector<int64_t> heights, full;
    for (int64_t part = 0; part < prints.parts(); ++part) {
        heights.push_back(std::max<int64_t>(1, pieces_of(prints.sizes[part], prints.count(part))));
        full.push_back(std::min(std::max<int64_t>(1, prints.sizes[part]), room));
    }
    std::vector<int64_t> starts = prints.starts(groups.degrees, heights);
    if (prints.stages.back() > prints.parts()) {
        std::vector<int64_t> starts_if_full = prints.starts(groups.degrees, full);
        if (starts_if_full.back() < starts.back()) starts.swap(starts_if_full), heights.swap(full);
    }
    // Indices into a stage have 16 bits; the map says which input neuron is at each place of each stage.
    const int64_t highest = heights.empty() ? 1 : *std::max_element(heights.begin(), heights.end());
    Slices<uint16_t> slices(w, groups, std::move(starts), highest * kPieces);
    for (int64_t g = 0; g < groups.count(); ++g) {
        GroupWriter<Index, uint16_t> writer(w, groups, g, slices);
        const uint32_t* const rank = prints.ranks.data() + prints.first_rank[g];
        prints.runs(g, groups.degrees[g], heights[g / in_part],
                    [&](int64_t slice, int64_t first, int64_t last, int64_t base) {
                        writer.write(slice, first, last, [&](int64_t i) { return (rank[i] - base) * kPieces; });
                    });
    }
    std::vector<int64_t> map_starts{0};
    for (int64_t part = 0; part < prints.parts(); ++part)
        for (int64_t left = prints.sizes[part], stage = 0; stage < prints.count(part); ++stage) {
            map_starts.push_back(map_starts.back() + std::min(left, heights[part]));
            left -= std::min(left, heights[part]);
        }
    return {std::move(slices), std::move(prints.stages), std::move(map_starts), std::move(prints.map), highest};
}

using Offsets = Array<const int64_t, 1>;
using Floats = Array<const float, 1>;
using Numbers = Array<const uint64_t, 1>;

// work(weights) without the interpreter's lock, once the layer's arrays fit each other.
template <class Work>
auto with_weights(const Offsets& offsets, const ReadIndices& indices, const Floats& values, bool valued,
                  const Numbers& numbers, int64_t most_shared, const Work& work) {
    const int64_t outputs = extent(offsets) - 1, edges = extent(indices);
    const int64_t* const at = offsets.data();
    require(outputs >= 0 && outputs <= std::numeric_limits<int32_t>::max() && at[0] == 0 && at[outputs] == edges &&
                std::is_sorted(at, at + outputs + 1),
            "offsets must ascend from 0 to the number of edges");
    require(!valued || extent(values) == edges, "values must be one an edge");
    require(extent(numbers) <= std::numeric_limits<uint32_t>::max(), "too many inputs");
    require(most_shared >= 1, "a group must have outputs");
    index_bytes(indices);  // where it refuses, it refuses with the interpreter's lock
    nb::gil_scoped_release release;
    return with_indices(indices, [&](auto* read) {
        using Index = std::remove_const_t<std::remove_pointer_t<decltype(read)>>;
        return work(
            Weights<Index>{extent(numbers), outputs, at, read, valued ? values.data() : nullptr, numbers.data()});
    });
}

// A NumPy array that owns the numbers.
template <class T>
nb::object array_of(std::unique_ptr<T[]> numbers, std::initializer_list<int64_t> shape) {
    const std::vector<size_t> sizes(shape.begin(), shape.end());
    T* const data = numbers.release();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, sizes.size(), sizes.data(), owner));
}

template <class T, class From>
nb::object array_of(const std::vector<From>& numbers) {
    std::unique_ptr<T[]> copy(new T[numbers.size()]);
    std::copy(numbers.begin(), numbers.end(), copy.get());
    return array_of(std::move(copy), {static_cast<int64_t>(numbers.size())});
}

template <class To>
nb::tuple arrays_of(Slices<To> slices) {
    const int64_t chunks = slices.chunks();
    nb::object values = nb::none();
    if (slices.values) values = array_of(std::move(slices.values), {chunks, slices.loads(), kSlice, kVector});
    return nb::make_tuple(slices.shared, array_of<int32_t>(slices.order), array_of<int32_t>(slices.starts),
                          array_of(std::move(slices.indices), {chunks, kSlice, kChunk}), values);
}

nb::tuple sliced_layout(Offsets offsets, ReadIndices indices, Floats values, bool valued, Numbers numbers, int64_t zero,
                        int64_t most_shared) {
    require(zero >= extent(numbers) && zero <= std::numeric_limits<uint32_t>::max(),
            "padding must read no input, by 32 bits");
    auto in = [&](auto width) {
        return arrays_of(with_weights(offsets, indices, values, valued, numbers, most_shared, [&](const auto& weights) {
            return slice_layer<decltype(width)>(weights, zero, most_shared);
        }));
    };
    return zero <= std::numeric_limits<uint16_t>::max() ? in(uint16_t{}) : in(uint32_t{});
}

nb::tuple staged_layout(Offsets offsets, ReadIndices indices, Floats values, bool valued, Numbers numbers,
                        int64_t outputs, int64_t room, int64_t held, int64_t most_shared) {
    require(outputs >= 1 && held >= 1 && room >= 1 && room * kPieces <= std::numeric_limits<uint16_t>::max(),
            "a stage must have room, which 16 bits can count");
    Stages staged = with_weights(offsets, indices, values, valued, numbers, most_shared, [&](const auto& weights) {
        return stage_layer(weights, outputs, room, held, most_shared);
    });
    return nb::make_tuple(arrays_of(std::move(staged.slices)), array_of<int32_t>(staged.stages),
                          array_of<int32_t>(staged.map_starts), array_of<uint32_t>(staged.map), staged.room);
}

}  // namespace

void bind_layouts(nb::module_& m) {
    m.def("sliced_layout", &sliced_layout);
    m.def("staged_layout", &staged_layout);
}

}  // namespace spdnn
