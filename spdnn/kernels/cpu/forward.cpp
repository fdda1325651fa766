// All layers of a network in one call, rows in and rows out. Compiled once for each instruction-set level.
//
// Algorithm  Few inputs (`scatter_layers`) go through each layer one at a time, all threads in step: a nonzero of an
//            input adds its weights to the sums of their outputs, of which each thread has a part. More go in tiles
//            (blocks.hpp), a tile through all layers on one thread; where tiles are fewer than threads, these go from
//            layer to layer in step, in blocks of equal edges.
// Layout     Rows of x become (neurons, tile) float32, and the last layer's tiles rows of y, 16 neurons at a time.
// Order      Even and odd edges of an output are summed apart, in ascending inputs, as in fused_layers.cpp: bits are
//            the same for any count. A skipped zero would have added 0 to a sum that is never -0.
// Bound      One input: an edge is 6 bytes of weights, two loads and a store of its sum. 0.33 ns an edge that is not
//            skipped on one core of the machine that this was written on (Zen 5, 4 GHz: 1.3 cycles; its stores allow
//            1), as much as by output without skipping; 0.40 one sum at a time, 0.45 by vectors of gathered inputs.
// Threads    team.hpp: nobody waits for a thread that sleeps. Meeting in a layer costs about 1 us: a thread takes
//            kLeastEdges of a layer at least.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
#include "forward.hpp"

#include "blocks.hpp"
#include "ops.hpp"
#include "team.hpp"

#include <atomic>
#include <cstring>

namespace spdnn {
namespace SPDNN_LEVEL {
namespace {

constexpr int64_t kLeastEdges = 16384;  // x vectors, of a layer on average, that are worth a thread
constexpr int64_t kApart = 32;          // floats between the data of threads: no shared cache line, nor the next one
constexpr int64_t kStrip = 16;          // neurons that are transposed at a time
constexpr int64_t kChecked = 64;        // inputs whose values are looked at by one thread

static_assert(kScattered == 4, "a vector of four");
typedef float Four __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4)));

thread_local KeptMemory scratch;

bool finite(const float* x, int64_t count) {
    typedef float Loose __attribute__((vector_size(SPDNN_VECTOR_BYTES), aligned(4)));
    Vec poison = {};  // sums of 0 * x: 0 while every x is finite, else NaN
    int64_t n = 0;
    for (; n + kLanes <= count; n += kLanes) poison += *reinterpret_cast<const Loose*>(x + n) * 0.0f;
    float rest = 0;
    for (; n < count; ++n) rest += x[n] * 0.0f;
    for (int i = 0; i < kLanes; ++i) rest += poison[i];
    return rest == 0.0f;
}

struct Sizes {
    int64_t edges = 0, widest = 0, widest_sums = 0;  // of features between the layers; of any layer's outputs
    explicit Sizes(const Forward& p) {
        for (int64_t k = 0; k < p.depth; ++k) {
            const int64_t outputs = p.layers[k].outputs;
            edges += p.layers[k].edges;
            widest_sums = std::max(widest_sums, outputs);
            if (k + 1 < p.depth) widest = std::max(widest, outputs);
        }
    }
};

// Adds what an input's nonzeros send to the outputs of a part; `nonzero` has room for an index of each neuron. They are
// listed first, without a branch that nobody can foresee.
template <class Target, bool kValued>
void add_edges(const Layer& layer, const ScatterLayer& scatter, int64_t part, const float* x, int32_t* nonzero,
               float* sums) {
    const int64_t* const offsets = scatter.offsets + part * layer.inputs;
    const Target* const targets = static_cast<const Target*>(scatter.targets);
    // Compact the indices of nonzeros without a branch: each is stored, and kept only if the count moves on.
    int64_t count = 0;
    for (int64_t n = 0; n < layer.inputs; ++n) {
        nonzero[count] = static_cast<int32_t>(n);
        count += x[n] != 0.0f;
    }
    // Each nonzero scales its row of weights; the rows of zeros are never read.
    for (int64_t i = 0; i < count; ++i) {
        const int64_t n = nonzero[i], end = offsets[n + 1];
        const float value = x[n];
        for (int64_t e = offsets[n]; e < end; e += kScattered) {  // the targets of an input differ
            const Target* const to = targets + e;
            // Gather four sums, accumulate, scatter: targets differ, but for padding, whose sum nobody reads.
            Four sum = {sums[to[0]], sums[to[1]], sums[to[2]], sums[to[3]]};
            if (kValued) sum += *reinterpret_cast<const LooseFour*>(scatter.values + e) * value;
            else sum += value;
            const Target a = to[0], b = to[1], c = to[2], d = to[3];
            sums[a] = sum[0], sums[b] = sum[1], sums[c] = sum[2], sums[d] = sum[3];
        }
    }
}

// Bias and activation of outputs first .. last - 1, which have the sums 0, 1, ...; whether all were finite before it.
template <bool kValued>
bool activate(const Layer& layer, const float* __restrict sums, int64_t first, int64_t last, float* __restrict y) {
    float poison = 0;
    const float low = layer.low, high = layer.high;
    for (int64_t j = first; j < last; ++j) {
        // Epilogue: even sums (first) + odd sums (behind them), common weight, bias, range check, clamp.
        const float sum = sums[j - first] + sums[last - first + j - first];
        float out = (kValued ? sum : sum * layer.value) + layer.bias[j * layer.bias_stride];
        poison += out * 0.0f;
        out = out > low ? out : low;
        y[j] = out < high ? out : high;
    }
    return poison == 0.0f;
}

// One input through the outputs of one part of a layer.
bool scatter_part(const Layer& layer, const ScatterLayer& scatter, int64_t part, const float* x, int32_t* nonzero,
                  float* sums, float* y) {
    const int64_t first = scatter.first[part], last = scatter.first[part + 1];
    // Clear the part's even and odd sums, and the dummy sum at the end, which padding edges add to.
    std::fill(sums, sums + 2 * (last - first) + 1, 0.0f);
    auto add = scatter.target_bytes == 2 ? (scatter.values ? add_edges<uint16_t, true> : add_edges<uint16_t, false>)
                                         : (scatter.values ? add_edges<uint32_t, true> : add_edges<uint32_t, false>);
    add(layer, scatter, part, x, nonzero, sums);
    return scatter.values ? activate<true>(layer, sums, first, last, y) : activate<false>(layer, sums, first, last, y);
}

int64_t padded_to_lines(int64_t floats) { return (floats + kApart - 1) / kApart * kApart + kApart; }

int64_t run_scatter(const Forward& p, const Sizes& sizes, Team& team) {
    // Scratch: two rows of features, and sums and nonzeros of each part, apart to avoid false sharing.
    const int64_t row = padded_to_lines(sizes.widest),
                  listed = padded_to_lines(std::max(p.layers[0].inputs, sizes.widest) + 1);
    const int64_t summed = padded_to_lines(2 * sizes.widest_sums + 1);
    float* const features = scratch.floats(2 * row + p.parts * (summed + listed));
    float* const sums = features + 2 * row;
    int32_t* const nonzero = reinterpret_cast<int32_t*>(sums + p.parts * summed);
    FirstFailed failed;
    // Ping-pong between the rows; the end of `each` is the barrier between layers.
    for (int64_t k = 0; k < p.depth; ++k) {
        const float* const from = k ? features + (k - 1) % 2 * row : p.x;
        float* const to = k + 1 < p.depth ? features + k % 2 * row : p.y;
        team.each(p.parts, [&](int64_t part) {
            if (!scatter_part(p.layers[k], p.scatter_layers[k], part, from, nonzero + part * listed,
                              sums + part * summed, to))
                failed.at(k);
        });
    }
    return failed.layer();
}

// tile (neurons, size) <- neurons from .. to - 1 of `count` rows; its other lanes are zero.
void to_tile(const float* rows, int64_t neurons, int64_t count, int size, int64_t from, int64_t to, float* tile) {
    // Transpose by strips of a cache line: reads are contiguous, and the strip written stays in the cache.
    for (int64_t n = from; n < to; n += kStrip) {
        const int64_t strip = std::min(kStrip, to - n);
        for (int64_t i = 0; i < count; ++i)
            for (int64_t s = 0; s < strip; ++s) tile[(n + s) * size + i] = rows[i * neurons + n + s];
        // Lanes past the last input compute on zeros.
        if (count < size)
            for (int64_t s = 0; s < strip; ++s)
                std::fill(tile + (n + s) * size + count, tile + (n + s + 1) * size, 0.0f);
    }
}

// Neurons from .. to - 1 of `count` rows <- tile (neurons, size).
void to_rows(const float* tile, int64_t neurons, int64_t count, int size, int64_t from, int64_t to, float* rows) {
    for (int64_t n = from; n < to; n += kStrip) {
        const int64_t strip = std::min(kStrip, to - n);
        for (int64_t i = 0; i < count; ++i)
            for (int64_t s = 0; s < strip; ++s) rows[i * neurons + n + s] = tile[(n + s) * size + i];
    }
}

// Tiles on threads, or blocks of each layer where tiles are fewer.
struct Tiled {
    const Forward& p;
    const int tile;
    const int64_t tiles, last, buffer, room;  // floats of a tile: of its features between layers, and of all
    FirstFailed failed;

    Tiled(const Forward& p, int tile, const Sizes& sizes)
        : p(p),
          tile(tile),
          tiles((p.count + tile - 1) / tile),
          last(p.layers[p.depth - 1].outputs),
          buffer(std::max(sizes.widest_sums, p.layers[0].inputs) * tile),
          room(2 * buffer) {}

    int64_t filled(int64_t t) const { return std::min<int64_t>(tile, p.count - t * tile); }
    const float* rows(int64_t t) const { return p.x + t * tile * p.layers[0].inputs; }
    // Where the features before layer k are.
    float* before(float* memory, int64_t k) const { return memory + k % 2 * buffer; }

    void compute(int64_t t, int64_t k, float* memory, int64_t first, int64_t end) {
        const LaneFlags flags =
            block_for(p.layers[k], tile)(p.layers[k], before(memory, k), before(memory, k + 1), first, end);
        if (flags.not_finite & filled_lanes(filled(t))) failed.at(k);
    }

    int64_t each_alone(Team& team) {
        std::atomic<bool> out_of_memory{false};
        team.each(tiles, [&](int64_t t) {
            // Units may not throw: note a failed allocation and throw behind them.
            float* memory = nullptr;
            try {
                memory = scratch.floats(room);
            } catch (const std::bad_alloc&) {
                out_of_memory = true;
                return;
            }
            // Transpose, all layers, transpose back: features between layers never leave this thread's cache.
            to_tile(rows(t), p.layers[0].inputs, filled(t), tile, 0, p.layers[0].inputs, memory);
            // Layers have no sets here: a list for each output.
            for (int64_t k = 0; k < p.depth; ++k) compute(t, k, memory, 0, p.layers[k].outputs);
            to_rows(before(memory, p.depth), last, filled(t), tile, 0, last, p.y + t * tile * last);
        });
        if (out_of_memory) throw std::bad_alloc();
        return failed.layer();
    }

    int64_t lockstep(Team& team, int threads) {
        float* const memory = scratch.floats(tiles * room);
        // At least two units a thread in each layer, to even out their speeds.
        const int64_t blocks = (2 * threads + tiles - 1) / tiles, inputs = p.layers[0].inputs;
        for (int64_t t = 0; t < tiles; ++t) to_tile(rows(t), inputs, filled(t), tile, 0, inputs, memory + t * room);
        for (int64_t k = 0; k < p.depth; ++k) {
            const Layer& layer = p.layers[k];
            team.each(tiles * blocks, [&](int64_t unit) {
                const int64_t t = unit / blocks, b = unit % blocks;
                // Cut at equal edges, not outputs: so blocks cost the same.
                const int64_t first = first_row(layer.offsets, layer.outputs, b, blocks);
                const int64_t end = first_row(layer.offsets, layer.outputs, b + 1, blocks);
                compute(t, k, memory + t * room, first, end);
                // Transpose a finished block of the last layer while it is in this thread's cache.
                if (k + 1 == p.depth)
                    to_rows(before(memory + t * room, p.depth), last, filled(t), tile, first, end,
                            p.y + t * tile * last);
            });
        }
        return failed.layer();
    }
};

// 32 inputs side by side cost 1.6 times as much as 16 (measured), unless threads wait for the last tile.
int best_tile(int64_t count, int threads) {
    // Rounds that the busiest thread computes; fewer tiles than threads are shared within a round.
    auto rounds = [&](int64_t tile) {
        const int64_t tiles = (count + tile - 1) / tile;
        return tiles < threads ? static_cast<double>(tiles) / threads
                               : static_cast<double>((tiles + threads - 1) / threads);
    };
    return rounds(16) <= 1.6 * rounds(32) ? 16 : 32;
}

int64_t run(const Forward& p, int threads) {
    if (p.count == 0) return kAllFinite;
    const Sizes sizes(p);
    // Threads for the work of a layer: meeting more of them would cost more than they take over.
    const int64_t vectors = (p.count + kLanes - 1) / kLanes;
    threads = static_cast<int>(std::clamp<int64_t>(sizes.edges / p.depth * vectors / kLeastEdges, 1, threads));
    Team team(threads);
    std::atomic<bool> inputs_finite{true};
    // Validate first: what is not finite already is reported of the inputs, not of a layer.
    const int64_t inputs = p.layers[0].inputs, pieces = p.count < kChecked ? 1 : threads;
    team.each(pieces, [&](int64_t piece) {
        const int64_t from = p.count * piece / pieces, to = p.count * (piece + 1) / pieces;
        if (!finite(p.x + from * inputs, (to - from) * inputs)) inputs_finite = false;
    });
    if (!inputs_finite) return kInputNotFinite;
    // Few inputs skip zeros; more of them share each load of a weight in tiles.
    if (p.scatter_layers) return run_scatter(p, sizes, team);
    Tiled tiled(p, best_tile(p.count, threads), sizes);
    return tiled.tiles < threads ? tiled.lockstep(team, threads) : tiled.each_alone(team);
}

}  // namespace
}  // namespace SPDNN_LEVEL

extern const ForwardKernels SPDNN_JOIN(forward_, SPDNN_LEVEL);
const ForwardKernels SPDNN_JOIN(forward_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), SPDNN_LEVEL::run};

}  // namespace spdnn
