// The part of the Python module spdnn.kernels._cpu that takes rows through all layers of a network in one call.
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>

#include "bound.hpp"
#include "forward.hpp"
#include "ops.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(ForwardKernels, forward);

namespace {

// A layer by input neuron, in parts (forward.hpp).
struct OwnedScatterLayer {
    std::vector<int64_t> first, offsets;
    std::vector<uint16_t> narrow;
    std::vector<uint32_t> wide;
    std::vector<float> values;
    ScatterLayer view{};

    OwnedScatterLayer(const Layer& layer, int parts) {
        bool fits = true;
        for (int p = 0; p <= parts; ++p) {
            first.push_back(first_row(layer.offsets, layer.outputs, p, parts));
            if (p) fits &= 2 * size(p - 1) < 65536;
        }
        if (layer.index_bytes == 2) fits ? sort<uint16_t>(layer, parts, narrow) : sort<uint16_t>(layer, parts, wide);
        else fits ? sort<uint32_t>(layer, parts, narrow) : sort<uint32_t>(layer, parts, wide);
        view = {first.data(), offsets.data(), fits ? static_cast<const void*>(narrow.data()) : wide.data(),
                fits ? 2 : 4, layer.values ? values.data() : nullptr};
    }

  private:
    int64_t size(int p) const { return first[p + 1] - first[p]; }
    // A counting sort of each part's edges by input neuron.
    template <class Index, class Target>
    void sort(const Layer& layer, int parts, std::vector<Target>& targets) {
        const Index* const indices = static_cast<const Index*>(layer.indices);
        offsets.assign(parts * layer.inputs + 1, 0);
        for (int p = 0; p < parts; ++p)
            for (int64_t e = layer.offsets[first[p]]; e < layer.offsets[first[p + 1]]; ++e)
                ++offsets[p * layer.inputs + indices[e] + 1];
        for (size_t i = 1; i < offsets.size(); ++i)
            offsets[i] = offsets[i - 1] + (offsets[i] + kScattered - 1) / kScattered * kScattered;
        for (int p = 0; p < parts; ++p)
            targets.resize(offsets[(p + 1) * layer.inputs], static_cast<Target>(2 * size(p)));
        if (layer.values) values.assign(targets.size(), 0.0f);
        std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
        for (int p = 0; p < parts; ++p)
            for (int64_t j = first[p]; j < first[p + 1]; ++j)
                for (int64_t e = layer.offsets[j]; e < layer.offsets[j + 1]; ++e) {
                    const int64_t position = next[p * layer.inputs + indices[e]]++;
                    targets[position] = static_cast<Target>((e - layer.offsets[j]) % 2 * size(p) + j - first[p]);
                    if (layer.values) values[position] = layer.values[e];
                }
    }
};

// All layers by input neuron.
struct ScatterLayers {
    std::vector<std::unique_ptr<OwnedScatterLayer>> owned;
    std::vector<ScatterLayer> views;

    ScatterLayers(const std::vector<Layer>& layers, int parts) {
        for (const Layer& layer : layers) {
            owned.push_back(std::make_unique<OwnedScatterLayer>(layer, parts));
            views.push_back(owned.back()->view);
        }
    }
};

struct BoundForward {
    const ForwardKernels& kernels;
    std::vector<nb::object> held;
    std::vector<Layer> layers;
    int parts;
    std::once_flag once;
    std::unique_ptr<const ScatterLayers> scattered;  // set at once: a process forked meanwhile makes them again

    BoundForward(const std::string& level, const std::vector<nb::object>& bound, int parts)
        : kernels(at_level(forward_levels, level)), held(bound), parts(parts) {
        require(!bound.empty() && parts >= 1, "layers and parts must be at least one");
        for (const nb::object& one : bound) {
            const Layer& layer = nb::cast<const BoundLayer&>(one).view;
            require(layers.empty() || layers.back().outputs == layer.inputs, "the layers' widths must chain");
            require(!layer.sets.members, "layers for rows have no sets");
            layers.push_back(layer);
        }
    }

    int64_t run(Array<const float, 2> x, Array<float, 2> y, int threads) {
        require(threads >= 1, "no threads");
        const int64_t count = x.shape(0);
        require(extent(x, 1) == layers.front().inputs, "x must be (count, inputs of the first layer)");
        require(y.shape(0) == x.shape(0) && extent(y, 1) == layers.back().outputs,
                "y must be (count, outputs of the last layer)");
        const float* const from = x.data();
        float* const to = y.data();
        nb::gil_scoped_release release;
        if (count == 1) std::call_once(once, [&] { scattered = std::make_unique<const ScatterLayers>(layers, parts); });
        const ScatterLayer* const views = count == 1 ? scattered->views.data() : nullptr;
        const Forward pass{layers.data(), views, extent(layers), parts, from, to, count};
        return kernels.run(pass, threads);
    }
};

}  // namespace

void bind_forward(nb::module_& m) {
    nb::class_<BoundForward>(m, "Forward")
        .def(nb::init<const std::string&, const std::vector<nb::object>&, int>(), "level"_a, "layers"_a, "parts"_a)
        .def("run", &BoundForward::run, "x"_a, "y"_a, "threads"_a,
             "y <- the layers applied to the rows of x. Returns -1, or the first layer (from 0) with a sum that was "
             "not finite; -2: x was not.\n\n"
             "One row takes the layers by input neuron, a second copy that the first call of one row makes.");
}

}  // namespace spdnn
