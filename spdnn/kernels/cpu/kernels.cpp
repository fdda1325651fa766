// Fused sparse product + bias + activation on tiled features. Compiled once for each instruction-set level.
//
// Algorithm  One output neuron of one tile is a sum of gathered vectors: for each edge, `tile` contiguous floats of the
//            input neuron (times the weight, or with one multiplication at the end when all weights are equal). The bias
//            and the activation are applied in registers; activity bits fall out of the stores.
// Layout     src, dst (tiles, neurons, tile) float32, 64-byte aligned; weights by output neuron (kernels.hpp).
// Registers  8 vector accumulators: as many as a tile needs, the rest as partial sums over edges, so that the additions
//            of one output do not wait for each other. Sums are taken in one fixed order at a given level and tile.
// Threads    Tiles are dealt out dynamically; when tiles are few, blocks of output neurons as well.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     The fused SpMM + bias + ReLU of Hidayetoglu et al., "At-Scale Sparse Deep Neural Network Inference with
//            Efficient GPU Implementation", HPEC 2020, section III, with a CPU's caches in place of shared memory.
#include "kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#define SPDNN_STRING2(x) #x
#define SPDNN_STRING(x) SPDNN_STRING2(x)
#define SPDNN_JOIN2(a, b) a##b
#define SPDNN_JOIN(a, b) SPDNN_JOIN2(a, b)

namespace spdnn {
namespace {

constexpr int kLanes = SPDNN_VECTOR_BYTES / 4;
constexpr int kAccumulators = 8;
constexpr int64_t kLeastBlock = 64;  // output neurons a thread takes at least

typedef float Vec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));
typedef int32_t IntVec __attribute__((vector_size(SPDNN_VECTOR_BYTES)));

inline Vec broadcast(float x) {
    Vec v;
    for (int i = 0; i < kLanes; ++i) v[i] = x;
    return v;
}

struct Seen {
    uint64_t active;  // lanes that got a nonzero output
    bool finite;      // every value before the activation was
};

// One block of output neurons for `kVectors` neighbouring vectors of a tile.
template <int kTile, int kVectors, class Index, bool kValued>
Seen block(const Layer& layer, const float* __restrict src, float* __restrict dst, int64_t first, int64_t last) {
    constexpr int kPartials = kAccumulators / kVectors;
    static_assert(kVectors * kPartials == kAccumulators, "a tile must fill the accumulators evenly");
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    const Vec low = broadcast(layer.low), high = broadcast(layer.high), value = broadcast(layer.value);
    IntVec seen[kVectors] = {};
    Vec poison[kVectors] = {};  // sums of 0 * y: 0 while every y is finite, else NaN
    for (int64_t j = first; j < last; ++j) {
        Vec sum[kPartials][kVectors] = {};
        int64_t e = layer.offsets[j];
        const int64_t end = layer.offsets[j + 1];
        auto add = [&](int partial, int64_t edge) __attribute__((always_inline)) {
            const Vec* row = reinterpret_cast<const Vec*>(src + static_cast<int64_t>(indices[edge]) * kTile);
            for (int v = 0; v < kVectors; ++v) {
                if (kValued)
                    sum[partial][v] += broadcast(layer.values[edge]) * row[v];
                else
                    sum[partial][v] += row[v];
            }
        };
        for (; e + kPartials <= end; e += kPartials) {
#pragma GCC unroll 8
            for (int p = 0; p < kPartials; ++p) add(p, e + p);
        }
        for (; e < end; ++e) add(0, e);
        for (int step = kPartials / 2; step > 0; step /= 2) {
            for (int p = 0; p < step; ++p)
                for (int v = 0; v < kVectors; ++v) sum[p][v] += sum[p + step][v];
        }
        const Vec bias = broadcast(layer.bias[j * layer.bias_stride]);
        Vec* out = reinterpret_cast<Vec*>(dst + j * kTile);
        for (int v = 0; v < kVectors; ++v) {
            Vec y = (kValued ? sum[0][v] : sum[0][v] * value) + bias;
            poison[v] += y * 0.0f;
            y = y > low ? y : low;
            y = y < high ? y : high;
            out[v] = y;
            seen[v] |= reinterpret_cast<IntVec>(y);
        }
    }
    Seen result{0, true};
    for (int v = 0; v < kVectors; ++v)
        for (int i = 0; i < kLanes; ++i) {
            if (seen[v][i] & 0x7fffffff) result.active |= uint64_t{1} << (v * kLanes + i);
            if (poison[v][i] != 0.0f) result.finite = false;
        }
    return result;
}

// All vectors of one tile, in passes of at most kAccumulators vectors.
template <int kTile, class Index, bool kValued>
Seen tile_block(const Layer& layer, const float* src, float* dst, int64_t first, int64_t last) {
    constexpr int kVectors = kTile / kLanes < kAccumulators ? kTile / kLanes : kAccumulators;
    constexpr int kWidth = kVectors * kLanes;
    Seen whole{0, true};
    for (int start = 0; start < kTile; start += kWidth) {
        const Seen part = block<kTile, kVectors, Index, kValued>(layer, src + start, dst + start, first, last);
        whole.active |= part.active << start;
        whole.finite &= part.finite;
    }
    return whole;
}

using TileBlock = Seen (*)(const Layer&, const float*, float*, int64_t, int64_t);

template <int kTile>
TileBlock choose(const Layer& layer) {
    if (layer.index_bytes == 2)
        return layer.values ? tile_block<kTile, uint16_t, true> : tile_block<kTile, uint16_t, false>;
    return layer.values ? tile_block<kTile, uint32_t, true> : tile_block<kTile, uint32_t, false>;
}

TileBlock choose(const Layer& layer, int tile) {
    return tile == 16 ? choose<16>(layer) : tile == 32 ? choose<32>(layer) : choose<64>(layer);
}

bool layer(const Layer& layer, const float* src, float* dst, int64_t tiles, int tile, uint64_t* active, int threads) {
    const TileBlock run = choose(layer, tile);
    int64_t blocks = tiles >= 4 * threads ? 1 : (4 * threads + tiles - 1) / std::max<int64_t>(tiles, 1);
    blocks = std::max<int64_t>(1, std::min(blocks, layer.outputs / kLeastBlock));
    std::fill(active, active + tiles, uint64_t{0});
    bool finite = true;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(&& : finite)
    for (int64_t unit = 0; unit < tiles * blocks; ++unit) {
        const int64_t t = unit / blocks, b = unit % blocks;
        const Seen seen = run(layer, src + t * layer.inputs * tile, dst + t * layer.outputs * tile,
                                  layer.outputs * b / blocks, layer.outputs * (b + 1) / blocks);
        if (seen.active) __atomic_fetch_or(&active[t], seen.active, __ATOMIC_RELAXED);
        finite = finite && seen.finite;
    }
    return finite;
}

// out (neurons, kTile) <- rows first .. first + kTile - 1; lanes past the last row are zero.
template <int kTile>
void expand(const Rows& rows, int64_t neurons, int64_t first, float* out) {
    const int filled = static_cast<int>(std::min<int64_t>(kTile, rows.count - first));
    if (rows.bits) {
        const uint8_t* row[kTile];
        uint32_t word[kTile] = {};
        for (int i = 0; i < filled; ++i) row[i] = rows.bits + rows.numbers[first + i] * rows.row_bytes;
        for (int64_t byte = 0; byte < rows.row_bytes; ++byte) {
            for (int i = 0; i < filled; ++i) word[i] = row[i][byte];
            const int bits = static_cast<int>(std::min<int64_t>(8, neurons - byte * 8));
            for (int k = 0; k < bits; ++k, out += kTile)
                for (int i = 0; i < kTile; ++i) out[i] = static_cast<float>(static_cast<int32_t>((word[i] >> (7 - k)) & 1));
        }
        return;
    }
    std::memset(out, 0, sizeof(float) * kTile * neurons);
    for (int i = 0; i < filled; ++i) {
        const int64_t number = rows.numbers[first + i];
        if (rows.dense) {
            const float* row = rows.dense + number * neurons;
            for (int64_t n = 0; n < neurons; ++n) out[n * kTile + i] = row[n];
        } else {
            for (int64_t e = rows.csr_offsets[number]; e < rows.csr_offsets[number + 1]; ++e)
                out[rows.csr_columns[e] * kTile + i] = rows.csr_values[e];
        }
    }
}

struct Free {
    void operator()(float* memory) const { std::free(memory); }
};

bool first_layer(const Layer& layer, const Rows& rows, float* dst, int tile, uint64_t* active, int threads) {
    const TileBlock run = choose(layer, tile);
    const auto fill = tile == 16 ? expand<16> : tile == 32 ? expand<32> : expand<64>;
    const int64_t tiles = (rows.count + tile - 1) / tile;
    bool failed = false, finite = true;
#pragma omp parallel num_threads(threads) reduction(&& : finite)
    {
        const size_t bytes = sizeof(float) * layer.inputs * tile;  // a multiple of 64, as tile is of 16
        std::unique_ptr<float, Free> scratch(static_cast<float*>(std::aligned_alloc(64, bytes)));
        if (!scratch) {
#pragma omp atomic write
            failed = true;
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < tiles; ++t) {
            if (!scratch) continue;
            fill(rows, layer.inputs, t * tile, scratch.get());
            const Seen seen = run(layer, scratch.get(), dst + t * layer.outputs * tile, 0, layer.outputs);
            active[t] = seen.active;
            finite = finite && seen.finite;
        }
    }
    if (failed) throw std::bad_alloc();
    return finite;
}

// Each vector of the new tile is put together from the vectors that its lanes come from, mostly two neighbours, with one
// two-source permutation for each: the same permutations for every neuron.
template <int kTile>
void compact_tile(const float* src, float* dst, int64_t neurons, const int64_t* slots, int filled) {
    constexpr int kVectors = kTile / kLanes;
    const float* from[kTile];      // the source vector of each step, at neuron 0
    IntVec pick[kTile];            // its permutation: lane i of what is there, or lane kLanes + i of the source
    int first_step[kVectors + 1];  // steps of vector v: first_step[v] .. first_step[v + 1]
    int steps = 0;
    for (int v = 0; v < kVectors; ++v) {
        first_step[v] = steps;
        for (int i = 0; i < kLanes && v * kLanes + i < filled; ++i) {
            const int64_t slot = slots[v * kLanes + i], lane = slot % kTile;
            const float* vector = src + slot / kTile * neurons * kTile + lane / kLanes * kLanes;
            if (steps == first_step[v] || from[steps - 1] != vector) {
                from[steps] = vector;
                for (int k = 0; k < kLanes; ++k) pick[steps][k] = k;
                ++steps;
            }
            pick[steps - 1][i] = kLanes + static_cast<int>(lane % kLanes);
        }
    }
    first_step[kVectors] = steps;
    for (int64_t n = 0; n < neurons; ++n) {
        for (int v = 0; v < kVectors; ++v) {
            Vec lanes = {};
            for (int step = first_step[v]; step < first_step[v + 1]; ++step)
                lanes = __builtin_shuffle(lanes, *reinterpret_cast<const Vec*>(from[step] + n * kTile), pick[step]);
            reinterpret_cast<Vec*>(dst + n * kTile)[v] = lanes;
        }
    }
}

void compact(const float* src, float* dst, int64_t neurons, const int64_t* slots, int64_t count, int tile, int threads) {
    const auto run = tile == 16 ? compact_tile<16> : tile == 32 ? compact_tile<32> : compact_tile<64>;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < (count + tile - 1) / tile; ++t)
        run(src, dst + t * neurons * tile, neurons, slots + t * tile,
            static_cast<int>(std::min<int64_t>(tile, count - t * tile)));
}

template <int kTile>
void tile_statistics(const float* src, int64_t neurons, int filled, int64_t first, const RowStatistics& out) {
    double sum[kTile] = {}, projection[kTile] = {};
    float least[kTile], largest[kTile];
    uint32_t hash[kTile], other[kTile];
    for (int i = 0; i < kTile; ++i) {
        least[i] = std::numeric_limits<float>::infinity(), largest[i] = -least[i];
        hash[i] = 0x811c9dc5u, other[i] = 0x9747b28cu;
    }
    for (int64_t n = 0; n < neurons; ++n, src += kTile) {
        uint32_t bits[kTile];
        std::memcpy(bits, src, sizeof bits);
        const double weight = out.weights[n];
        for (int i = 0; i < kTile; ++i) {
            sum[i] += src[i];
            projection[i] += weight * src[i];
            least[i] = src[i] < least[i] ? src[i] : least[i];
            largest[i] = src[i] > largest[i] ? src[i] : largest[i];
            hash[i] = (hash[i] ^ bits[i]) * 0x9e3779b1u;
            other[i] = (other[i] + (bits[i] ^ (other[i] >> 15))) * 0x85ebca6bu;
        }
    }
    for (int i = 0; i < filled; ++i) {
        out.sum[first + i] = sum[i], out.projection[first + i] = projection[i];
        out.min[first + i] = least[i], out.max[first + i] = largest[i];
        out.hash[first + i] = uint64_t{hash[i]} << 32 | other[i];
    }
}

void row_statistics(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics& out, int threads) {
    const auto run = tile == 16 ? tile_statistics<16> : tile == 32 ? tile_statistics<32> : tile_statistics<64>;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < (count + tile - 1) / tile; ++t)
        run(src + t * neurons * tile, neurons, static_cast<int>(std::min<int64_t>(tile, count - t * tile)), t * tile, out);
}

void untile(const float* src, float* dst, int64_t neurons, int64_t count, int tile, int threads) {
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
    for (int64_t k = 0; k < count; ++k) {
        const float* from = src + k / tile * neurons * tile + k % tile;
        for (int64_t n = 0; n < neurons; ++n) dst[k * neurons + n] = from[n * tile];
    }
}

}  // namespace

extern const Kernels SPDNN_JOIN(kernels_, SPDNN_LEVEL);
const Kernels SPDNN_JOIN(kernels_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), SPDNN_VECTOR_BYTES, layer,
                                                   first_layer,               compact,            row_statistics,
                                                   untile};

}  // namespace spdnn
