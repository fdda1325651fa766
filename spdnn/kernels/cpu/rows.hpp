// Rows of tiled features: closing their gaps, hashing, comparing and inserting them, their statistics.
//
// Layout     src, dst (tiles, neurons, tile) float32, 64-byte aligned.
// Threads    Tiles are dealt out dynamically.
// Source     Compaction: Hidayetoglu et al., HPEC 2020, section III; here by permutations of whole vectors.
#pragma once

#include "fused_layers.hpp"
#include "level.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spdnn {
namespace SPDNN_LEVEL {
namespace {

// chosen(size) for a tile of that size, a constant.
template <class Chosen>
auto by_tile(int tile, Chosen chosen) {
    switch (tile) {
        case 1: return chosen(std::integral_constant<int, 1>{});
        case 16: return chosen(std::integral_constant<int, 16>{});
        case 32: return chosen(std::integral_constant<int, 32>{});
        default: return chosen(std::integral_constant<int, 64>{});
    }
}

// Puts one tile of kTo inputs together from the inputs `indices` of tiles of kFrom, and hands sink(neuron, vector,
// lanes) each vector. Each is made of the vectors that its lanes come from, mostly two neighbours, with one two-source
// permutation for each: the same permutations for every neuron.
template <int kFrom, int kTo, class Sink>
void assemble(const float* src, int64_t neurons, const int64_t* indices, int filled, Sink sink) {
    constexpr int kVectors = kTo / kLanes;
    const float* from[kTo];        // the source vector of each step, at neuron 0
    IntVec pick[kTo];              // its permutation: lane i of what is there, or lane kLanes + i of the source
    int first_step[kVectors + 1];  // steps of vector v: first_step[v] .. first_step[v + 1]
    int steps = 0;
    // Plan the shuffles once: the source vectors of each vector of the new tile, and the lanes that come from each.
    for (int v = 0; v < kVectors; ++v) {
        first_step[v] = steps;
        for (int i = 0; i < kLanes && v * kLanes + i < filled; ++i) {
            const int64_t index = indices[v * kLanes + i], lane = index % kFrom;
            const float* vector = src + index / kFrom * neurons * kFrom + lane / kLanes * kLanes;
            if (steps == first_step[v] || from[steps - 1] != vector) {
                from[steps] = vector;
                for (int k = 0; k < kLanes; ++k) pick[steps][k] = k;
                ++steps;
            }
            pick[steps - 1][i] = kLanes + static_cast<int>(lane % kLanes);
        }
    }
    first_step[kVectors] = steps;
    // Apply the plan to every neuron: a chain of two-source permutations for each vector.
    for (int64_t n = 0; n < neurons; ++n)
        for (int v = 0; v < kVectors; ++v) {
            Vec lanes = {};
            for (int step = first_step[v]; step < first_step[v + 1]; ++step)
                lanes = __builtin_shuffle(lanes, *reinterpret_cast<const Vec*>(from[step] + n * kFrom), pick[step]);
            sink(n, v, lanes);
        }
}

template <int kFrom, int kTo>
void compact_tile(const float* src, float* dst, int64_t neurons, const int64_t* indices, int filled) {
    if constexpr (kFrom == 1 || kTo == 1) {
        // Tiles of one input have no lanes to shuffle: copy float by float, with strides.
        if (filled < kTo) std::memset(dst, 0, sizeof(float) * neurons * kTo);
        for (int i = 0; i < filled; ++i) {
            const float* from = src + indices[i] / kFrom * neurons * kFrom + indices[i] % kFrom;
            for (int64_t n = 0; n < neurons; ++n) dst[n * kTo + i] = from[n * kFrom];
        }
    } else {
        assemble<kFrom, kTo>(src, neurons, indices, filled,
                             [dst](int64_t n, int v, Vec lanes) { reinterpret_cast<Vec*>(dst + n * kTo)[v] = lanes; });
    }
}

void compact(const float* src, int src_tile, float* dst, int dst_tile, int64_t neurons, const int64_t* indices,
             int64_t count, int threads) {
    const auto run = by_tile(src_tile, [&](auto from) {
        return by_tile(dst_tile, [&](auto to) { return compact_tile<decltype(from)::value, decltype(to)::value>; });
    });
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < (count + dst_tile - 1) / dst_tile; ++t)
        run(src, dst + t * neurons * dst_tile, neurons, indices + t * dst_tile,
            static_cast<int>(std::min<int64_t>(dst_tile, count - t * dst_tile)));
}

// Two 32-bit hashes of a stream of values, which vectorize over the lanes of a tile.
struct Hash {
    uint32_t one = 0x811c9dc5u, other = 0x9747b28cu;

    void add(uint32_t bits) {
        one = (one ^ bits) * 0x9e3779b1u;
        one ^= one >> 15;
        other = (other + (bits ^ (other >> 15))) * 0x85ebca6bu;
    }
    uint64_t both() const { return uint64_t{one} << 32 | other; }
};

template <int kTile>
void hash_tile(const float* src, int64_t neurons, int64_t step, int filled, uint64_t* out) {
    Hash hash[kTile];
    for (int64_t n = 0; n < neurons; n += step) {
        uint32_t bits[kTile];
        std::memcpy(bits, src + n * kTile, sizeof bits);
        for (int i = 0; i < kTile; ++i) hash[i].add(bits[i]);
    }
    for (int i = 0; i < filled; ++i) out[i] = hash[i].both();
}

void row_hashes(const float* src, int64_t neurons, int64_t step, int64_t count, int tile, uint64_t* hash, int threads) {
    const auto run = by_tile(tile, [](auto size) { return hash_tile<size>; });
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads)
    for (int64_t t = 0; t < (count + tile - 1) / tile; ++t)
        run(src + t * neurons * tile, neurons, step, static_cast<int>(std::min<int64_t>(tile, count - t * tile)),
            hash + t * tile);
}

template <int kTile>
void differ_tile(const float* src, int64_t neurons, int64_t t, const int64_t* indices, int filled, uint8_t* differs) {
    const float* own = src + t * neurons * kTile;
    if constexpr (kTile == 1) {
        differs[0] = std::memcmp(own, src + indices[0] * neurons, sizeof(float) * neurons) != 0;
    } else {
        // XOR of the bits, accumulated by OR over the neurons: a lane stays 0 while its rows are equal.
        IntVec difference[kTile / kLanes] = {};
        assemble<kTile, kTile>(src, neurons, indices, filled, [&](int64_t n, int v, Vec lanes) {
            difference[v] |= reinterpret_cast<const IntVec*>(own + n * kTile)[v] ^ reinterpret_cast<IntVec>(lanes);
        });
        for (int i = 0; i < filled; ++i) differs[i] = difference[i / kLanes][i % kLanes] != 0;
    }
}

void rows_differ(const float* src, int64_t neurons, const int64_t* indices, int64_t count, int tile, uint8_t* differs,
                 int threads) {
    const auto run = by_tile(tile, [](auto size) { return differ_tile<size>; });
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < (count + tile - 1) / tile; ++t) {
        const int filled = static_cast<int>(std::min<int64_t>(tile, count - t * tile));
        // A tile of rows that are compared with themselves need not be read.
        bool itself = true;
        for (int i = 0; i < filled; ++i) itself = itself && indices[t * tile + i] == t * tile + i;
        if (itself) std::memset(differs + t * tile, 0, filled);
        else run(src, neurons, t, indices + t * tile, filled, differs + t * tile);
    }
}

template <int kTile>
void tile_statistics(const float* src, int64_t neurons, int filled, int64_t first, const RowStatistics& out) {
    double sum[kTile] = {}, projection[kTile] = {};
    float least[kTile], largest[kTile];
    Hash hash[kTile];
    // Lanes are rows: all statistics accumulate side by side in one pass over the neurons.
    for (int i = 0; i < kTile; ++i) least[i] = std::numeric_limits<float>::infinity(), largest[i] = -least[i];
    for (int64_t n = 0; n < neurons; ++n, src += kTile) {
        uint32_t bits[kTile];
        std::memcpy(bits, src, sizeof bits);
        const double count = out.counts[n], weight = out.weights[n];
        for (int i = 0; i < kTile; ++i) {
            sum[i] += count * src[i];
            projection[i] += weight * src[i];
            least[i] = src[i] < least[i] ? src[i] : least[i];
            largest[i] = src[i] > largest[i] ? src[i] : largest[i];
            hash[i].add(bits[i]);
        }
    }
    for (int i = 0; i < filled; ++i) {
        out.sum[first + i] = sum[i], out.projection[first + i] = projection[i];
        out.min[first + i] = least[i], out.max[first + i] = largest[i];
        out.hash[first + i] = hash[i].both();
    }
}

void row_statistics(const float* src, int64_t neurons, int64_t count, int tile, const RowStatistics& out, int threads) {
    const auto run = by_tile(tile, [](auto size) { return tile_statistics<size>; });
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = 0; t < (count + tile - 1) / tile; ++t)
        run(src + t * neurons * tile, neurons, static_cast<int>(std::min<int64_t>(tile, count - t * tile)), t * tile,
            out);
}

constexpr int64_t kBlock = 16;  // neurons of a row, a cache line, that are transposed at a time

void take(const float* src, int tile, int64_t neurons, const int64_t* indices, int64_t count, float* rows,
          int threads) {
    constexpr int64_t kRows = 64;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t begin = 0; begin < count; begin += kRows)
        // Transpose blocks of rows and neurons, small enough to stay in the cache between their reads and writes.
        for (int64_t first = 0; first < neurons; first += kBlock) {
            const int64_t end = std::min(count, begin + kRows), last = std::min(neurons, first + kBlock);
            for (int64_t k = begin; k < end; ++k) {
                const float* from = src + indices[k] / tile * neurons * tile + indices[k] % tile;
                for (int64_t n = first; n < last; ++n) rows[k * neurons + n] = from[n * tile];
            }
        }
}

void insert(const float* rows, int64_t neurons, int64_t count, float* dst, int tile, int64_t begin, int threads) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t t = begin / tile; t < (begin + count + tile - 1) / tile; ++t) {
        float* to = dst + t * neurons * tile;
        const int64_t own = std::max(begin, t * tile), end = std::min(begin + count, (t + 1) * tile);
        // A new tile that will not be full: its other lanes become zero.
        if (own == t * tile && end < (t + 1) * tile) std::memset(to, 0, sizeof(float) * neurons * tile);
        for (int64_t first = 0; first < neurons; first += kBlock)
            for (int64_t k = own; k < end; ++k)
                for (int64_t n = first; n < std::min(neurons, first + kBlock); ++n)
                    to[n * tile + k - t * tile] = rows[(k - begin) * neurons + n];
    }
}

}  // namespace
}  // namespace SPDNN_LEVEL
}  // namespace spdnn
