// Sets of outputs that read the same inputs: they share a list of them, and one load of an input serves several.
//
// Algorithm  Outputs are numbered by their lists, in the order in which lists first occur: a table finds a list by its
//            hash, and it is compared whole. A counting sort then brings the outputs of a list together, lists of
//            several outputs first, with the values of an input side by side.
// Source     The sets that the CUDA kernels use, layouts.cpp.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "fused_layers.hpp"

namespace spdnn {

class OwnSets {
  public:
    int64_t gathers = 0;  // of a vector of inputs, where kTogether outputs of a set share a load

    // Those of a layer; none where too little is shared for them to pay.
    static std::unique_ptr<OwnSets> search(const Layer& layer) {
        return layer.index_bytes == 2 ? in<uint16_t>(layer) : in<uint32_t>(layer);
    }

    // Has the layer read them.
    void show(Layer& layer) const {
        layer.lists = static_cast<int64_t>(starts.size());
        layer.offsets = offsets.data(), layer.indices = indices.get();
        if (layer.values) layer.values = values.get();
        layer.sets = {shared, members.data(), begins.data(), starts.data()};
    }

  private:
    static constexpr int64_t kTogether = 8, kNone = -1;
    static constexpr double kPays = 0.75;  // of the loads without sets
    int64_t shared = 0;
    std::vector<int64_t> offsets, begins, starts;
    std::vector<int32_t> members;
    std::unique_ptr<char[]> indices;
    std::unique_ptr<float[]> values;

    template <class Index>
    static uint64_t hash(const Index* list, int64_t length) {
        uint64_t sum = static_cast<uint64_t>(length);
        const size_t bytes = length * sizeof(Index);
        const char* from = reinterpret_cast<const char*>(list);
        // Eight bytes at a time; the last word is padded with zeros.
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t word = 0;
            std::memcpy(&word, from + at, bytes - at < 8 ? bytes - at : 8);
            sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
            sum ^= sum >> 29;
        }
        return sum;
    }

    template <class Index>
    static std::unique_ptr<OwnSets> in(const Layer& layer) {
        const Index* const all = static_cast<const Index*>(layer.indices);
        const int64_t outputs = layer.outputs;
        auto length = [&](int64_t j) { return layer.offsets[j + 1] - layer.offsets[j]; };
        // The list of each output, and the first output of each list.
        size_t slots = 16;
        while (slots < 2 * static_cast<size_t>(outputs)) slots *= 2;
        std::vector<int32_t> table(slots, kNone), list(outputs), first;
        // Open addressing, at most half full: a free slot opens a list, a hit is compared whole, since hashes collide.
        for (int64_t j = 0; j < outputs; ++j) {
            const Index* const own = all + layer.offsets[j];
            size_t slot = hash(own, length(j)) & (slots - 1);
            for (;; slot = (slot + 1) & (slots - 1)) {
                if (table[slot] == kNone) {
                    table[slot] = static_cast<int32_t>(first.size());
                    first.push_back(static_cast<int32_t>(j));
                    break;
                }
                const int64_t other = first[table[slot]];
                if (length(other) == length(j) &&
                    !std::memcmp(all + layer.offsets[other], own, length(j) * sizeof(Index)))
                    break;
            }
            list[j] = table[slot];
        }
        // Histogram: the outputs of each list.
        const int64_t lists = static_cast<int64_t>(first.size());
        std::vector<int64_t> sizes(lists, 0);
        for (int64_t j = 0; j < outputs; ++j) ++sizes[list[j]];
        auto sets = std::make_unique<OwnSets>();
        // Cost with sharing: blocks of 8 members, the remainder in powers of two, and one load of each input a block.
        for (int64_t l = 0; l < lists; ++l) {
            sets->gathers += (sizes[l] / kTogether + __builtin_popcountll(sizes[l] % kTogether)) * length(first[l]);
            sets->shared += sizes[l] > 1;
        }
        // The copy must save a quarter of the loads to pay; else the layer keeps its own lists.
        if (sets->gathers > kPays * layer.edges) return nullptr;
        sets->lay(layer, list, first, sizes, all);
        return sets;
    }

    template <class Index>
    void lay(const Layer& layer, const std::vector<int32_t>& list, const std::vector<int32_t>& first,
             const std::vector<int64_t>& sizes, const Index* all) {
        const int64_t lists = static_cast<int64_t>(first.size());
        // The place of each list: those of several outputs first.
        std::vector<int64_t> place(lists);
        int64_t several = 0, single = shared;
        for (int64_t l = 0; l < lists; ++l) place[l] = sizes[l] > 1 ? several++ : single++;
        // Counting sort, first pass: length and size of each list at its place.
        offsets.resize(lists + 1), begins.resize(lists + 1), starts.resize(lists);
        for (int64_t l = 0; l < lists; ++l) {
            offsets[place[l] + 1] = layer.offsets[first[l] + 1] - layer.offsets[first[l]];
            begins[place[l] + 1] = sizes[l];
        }
        // Exclusive prefix sum of edges x members: where the values of a list begin.
        for (int64_t p = 0, start = 0; p < lists; ++p) {
            starts[p] = start;
            start += offsets[p + 1] * begins[p + 1];
        }
        // Inclusive prefix sums turn counts, stored one place on, into beginnings.
        std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
        std::partial_sum(begins.begin(), begins.end(), begins.begin());
        // One copy of each list of inputs, for all of its outputs.
        indices.reset(new char[offsets[lists] * sizeof(Index)]);
        for (int64_t l = 0; l < lists; ++l) {
            const int64_t from = layer.offsets[first[l]], count = layer.offsets[first[l] + 1] - from;
            std::memcpy(indices.get() + offsets[place[l]] * sizeof(Index), all + from, count * sizeof(Index));
        }
        members.resize(layer.outputs);
        if (layer.values) values.reset(new float[layer.edges]);
        // Counting sort, last pass: scatter the outputs to their lists; within a list they ascend.
        std::vector<int64_t> next(begins.begin(), begins.end() - 1);
        for (int64_t j = 0; j < layer.outputs; ++j) {
            const int64_t p = place[list[j]], member = next[p]++;
            members[member] = static_cast<int32_t>(j);
            if (!layer.values) continue;
            // Transpose the values: those of one edge for all members become neighbours, as the kernels read them.
            float* const own = values.get() + starts[p] + member - begins[p];
            for (int64_t e = layer.offsets[j]; e < layer.offsets[j + 1]; ++e)
                own[(e - layer.offsets[j]) * sizes[list[j]]] = layer.values[e];
        }
    }
};

}  // namespace spdnn
