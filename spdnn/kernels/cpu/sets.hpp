// Sets of outputs that read the same inputs: they share a list of them, and one load of an input serves several.
//
// Algorithm  Outputs are numbered by their lists, in the order in which lists first occur (layer_rows.hpp). A counting
//            sort then brings the outputs of a list together, lists of several outputs first, with the values of an
//            input side by side.
// Source     The sets that the CUDA kernels use, layouts.cpp.
#pragma once

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "fused_layers.hpp"
#include "layer_rows.hpp"

namespace spdnn {

class OwnSets {
  public:
    int64_t gathers = 0;  // of a vector of inputs, where kTogether outputs of a set share a load

    // Those of a layer; none where too little is shared for them to pay.
    static std::unique_ptr<OwnSets> search(const Layer& layer) {
        // The list of each output, and the first output of each list.
        std::vector<uint32_t> list(layer.outputs);
        std::vector<int64_t> first(layer.outputs);
        first.resize(number_rows(layer.offsets, layer.outputs, layer.indices, layer.index_bytes, nullptr, nullptr,
                                 list.data(), first.data()));
        // Histogram: the outputs of each list.
        std::vector<int64_t> sizes(first.size(), 0);
        for (const uint32_t l : list) ++sizes[l];
        auto sets = std::make_unique<OwnSets>();
        // Cost with sharing: blocks of 8 members, the remainder in powers of two, and one load of each input a block.
        for (size_t l = 0; l < first.size(); ++l) {
            const int64_t length = layer.offsets[first[l] + 1] - layer.offsets[first[l]];
            sets->gathers += (sizes[l] / kTogether + __builtin_popcountll(sizes[l] % kTogether)) * length;
            sets->shared += sizes[l] > 1;
        }
        // The copy must save a quarter of the loads to pay; else the layer keeps its own lists.
        if (sets->gathers > kPays * layer.edges) return nullptr;
        sets->lay(layer, list, first, sizes);
        return sets;
    }

    // Has the layer read them.
    void show(Layer& layer) const {
        layer.lists = static_cast<int64_t>(starts.size());
        layer.offsets = offsets.data(), layer.indices = indices.get();
        if (layer.values) layer.values = values.get();
        layer.sets = {shared, members.data(), begins.data(), starts.data()};
    }

  private:
    static constexpr int64_t kTogether = 8;
    static constexpr double kPays = 0.75;  // of the loads without sets
    int64_t shared = 0;
    std::vector<int64_t> offsets, begins, starts;
    std::vector<int32_t> members;
    std::unique_ptr<char[]> indices;
    std::unique_ptr<float[]> values;

    void lay(const Layer& layer, const std::vector<uint32_t>& list, const std::vector<int64_t>& first,
             const std::vector<int64_t>& sizes) {
        const int64_t lists = static_cast<int64_t>(first.size()), bytes = layer.index_bytes;
        const char* const all = static_cast<const char*>(layer.indices);
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
        indices.reset(new char[offsets[lists] * bytes]);
        for (int64_t l = 0; l < lists; ++l) {
            const int64_t from = layer.offsets[first[l]], count = layer.offsets[first[l] + 1] - from;
            std::memcpy(indices.get() + offsets[place[l]] * bytes, all + from * bytes, count * bytes);
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
