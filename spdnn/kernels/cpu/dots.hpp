// Dot products of one row of Q with rows of K that a topology names: shared by sddmm.cpp and attention.cpp.
//
// Depth D is cut into chunks of at most kMostVectors vectors, the powers of two that make it up, widest first: a chunk
// of q stays in registers for all nonzeros of a row. The sum of a chunk is, lane by lane, a chain of multiply-adds,
// then a tree over the lanes; chunks are added in ascending order. That order depends on D and on the level alone.
#pragma once

#include "lanes.hpp"
#include "ops.hpp"

namespace spdnn {
namespace SPDNN_LEVEL {

constexpr int kMostVectors = SPDNN_VECTOR_BYTES == 64 ? 16 : 8;  // half of the registers

struct Chunk {
    int64_t first;  // float of a row
    int vectors;
};

inline Vector<Chunk> chunks_of(int64_t depth) {
    Vector<Chunk> chunks;
    // Greedy: as many of the widest chunks as fit, then at most one of each smaller power of two.
    int64_t left = padded(depth) / kLanes, first = 0;
    for (int width = kMostVectors; width >= 1; width /= 2)
        for (; left >= width; left -= width, first += width * kLanes) chunks.push_back({first, width});
    return chunks;
}

// The end of the nonzeros from `e` on, of a row that ends at `end`, whose columns are below `limit`.
template <class Index>
inline int64_t until(const Index* columns, int64_t e, int64_t end, int64_t limit) {
    // Skip whole vectors of columns by their last one, then single columns.
    while (e + kLanes <= end && static_cast<int64_t>(columns[e + kLanes - 1]) < limit) e += kLanes;
    while (e < end && static_cast<int64_t>(columns[e]) < limit) ++e;
    return e;
}

// `count` numbers of `from`, as float32, and zeros up to `room`.
template <class Real>
inline void widen(const Real* from, int64_t count, int64_t room, float* to) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) store(load(from + i), to + i);
    if (i < count) store(load_part(from + i, count - i), to + i), i += kLanes;
    for (; i < room; i += kLanes) store(Vec{}, to + i);
}

// Rows first .. last - 1 of a matrix (rows, depth) as float32, chunk by chunk: (chunk, rows, width of the chunk).
template <class Real>
void pack(const Real* from, int64_t rows, int64_t depth, const Vector<Chunk>& chunks, float* to, int64_t first,
          int64_t last) {
    for (const Chunk& chunk : chunks) {
        const int64_t width = chunk.vectors * kLanes, filled = std::min(width, depth - chunk.first);
        for (int64_t row = first; row < last; ++row)
            widen(from + row * depth + chunk.first, filled, width, to + rows * chunk.first + row * width);
    }
}

// sums[e] = or += dot of the chunk q with that of row columns[e] of K, for `count` nonzeros. k is the chunk of row 0.
template <int kVectors, class Index>
void row_dots(const float* q, const float* k, int64_t stride, const Index* columns, int64_t count, float* sums,
              bool add) {
    // The chunk of q stays in registers for all nonzeros.
    Vec query[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) query[v] = load(q + v * kLanes);
    // Four nonzeros at a time: a chain of one would wait for itself. (From the first-level cache 0.73 cycles a vector
    // at v4 on Zen 5, 0.82 one after the other; from the second, 1.10 and 1.23, where 1 is what it can deliver.)
    auto group = [&](auto several, const Index* rows) __attribute__((always_inline)) {
        constexpr int kCount = decltype(several)::value;
        return lane_sums([&](auto first, Vec(&sum)[4]) __attribute__((always_inline)) {
            constexpr int kDots[4] = {first, first + kFar, first + kNear, first + kFar + kNear};
            const float* row[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) {
                // Gather four rows of K; the first products need no cleared sums.
                row[i] = k + static_cast<int64_t>(rows[kDots[i]]) * stride;
                sum[i] = kDots[i] < kCount ? query[0] * load(row[i]) : Vec{};
            }
#pragma GCC unroll 16
            for (int v = 1; v < kVectors; ++v) {
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i)
                    if (kDots[i] < kCount) sum[i] = multiply_add(query[v], load(row[i] + v * kLanes), sum[i]);
            }
        });
    };
    // Groups of kLanes nonzeros, whose sums across lanes are taken together and fill one vector.
    int64_t e = 0;
    for (; e + kLanes <= count; e += kLanes) {
        const Vec dots = group(std::integral_constant<int, kLanes>{}, columns + e);
        store(add ? load(sums + e) + dots : dots, sums + e);
    }
    const int64_t left = count - e;
    if (left == 0) return;
    // The remainder, by the smallest group that holds it.
    Index rows[kLanes];  // nonzeros past the last repeat it, up to a multiple of 4
    for (int i = 0; i < kLanes; ++i) rows[i] = columns[e + std::min<int64_t>(i, left - 1)];
    Vec dots;
    if (kLanes > 8 && left > 8) dots = group(std::integral_constant<int, kLanes>{}, rows);
    else if (kLanes > 4 && left > 4) dots = group(std::integral_constant<int, std::min(kLanes, 8)>{}, rows);
    else dots = group(std::integral_constant<int, 4>{}, rows);
    store_part(add ? load_part(sums + e, left) + dots : dots, sums + e, left);
}

// chosen(vectors) for the vectors of a chunk, a constant.
template <class Chosen>
auto by_vectors(int vectors, Chosen chosen) {
    switch (vectors) {
        case 1: return chosen(std::integral_constant<int, 1>{});
        case 2: return chosen(std::integral_constant<int, 2>{});
        case 4: return chosen(std::integral_constant<int, 4>{});
        case 8: return chosen(std::integral_constant<int, 8>{});
        default: return chosen(std::integral_constant<int, kMostVectors>{});
    }
}

template <class Index>
auto row_dots_of(int vectors) {
    return by_vectors(vectors, [](auto count) { return row_dots<count, Index>; });
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
