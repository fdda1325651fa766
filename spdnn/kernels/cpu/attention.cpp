// Fused attention over the nonzeros of a topology. Compiled once for each instruction-set level.
//
// Algorithm  Groups of 8 neighbouring rows, panels of at most 1024 columns. For each panel and group: scores,
//            exponentials under the largest score so far, and the weighted rows of V, added to what the panels before
//            gave (rescaled where the largest score grew); the quotient by the sum of weights at the end. So scores
//            live in the first-level cache, and the part of K and V in use in the second. Blocks of 16 aligned columns
//            that all 8 rows have (a band along the diagonal is made of them) are dense products: lanes are columns of
//            K transposed, then columns of V, and a vector loaded serves 4 or 8 rows. The other nonzeros go one by one:
//            dots.hpp for scores, a multiply-add a vector for V.
// Plan       Which blocks are dense, and which nonzeros are left, is found once a call, for all batch entries.
// Layout     K and V as given where they are float32, aligned and whole vectors; else packed as dots.hpp has it. K
//            transposed, where a dense block reads it: (block of 16 columns, depth, 16).
// Threads    Groups are dealt out by nonzeros in the order given; `tile` rows of a thread pass through all panels
//            together.
// Bits       Depend on the level, the depths, and the nonzeros of the row's group: not on tile, threads, batch.
// Bound      Nonzeros one by one wait for the second-level cache: 64 bytes a cycle, (D + Dv) / 16 cycles at v4. Dense
//            blocks wait for arithmetic: half of that. On 12288 causal positions, a band of 256, 612 nonzeros a row (39
//            % in dense blocks), D = Dv = 64, that is 6.4 cycles a nonzero; measured on Zen 5: 15.5 to 18 (a busy
//            machine), and 26 a row at a time without panels and blocks. Of 15.5, dots took 4.7, weighted rows of V
//            4.2, softmax and its surroundings 3.6, dense blocks 1.8, the plan 1.2 (2 heads; once a call): rows have
//            some 60 nonzeros in a panel, so starts and ends of loops count.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     Online softmax: Milakov, Gimelshein, arXiv:1805.02867; panels: Dao et al., "FlashAttention", NeurIPS 2022.
#include "dots.hpp"
#include "ops_kernels.hpp"

#include <atomic>
#include <memory>
#include <new>

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

constexpr int kGroup = 8;                            // rows
constexpr int kBlock = 16;                           // columns of a dense block
constexpr int kMostPanel = 64 * kBlock;              // columns: a bit a block in 64
constexpr int64_t kPanelFloats = 1 << 17;            // of K and V in a panel: half of a second-level cache
constexpr int64_t kTile = 512;                       // rows
constexpr int kScoreRows = kLanes == 16 ? 8 : 4;     // of a dense product; registers hold 2 vectors for each
constexpr int kValueVectors = kLanes == 16 ? 4 : 2;  // of a dense product of 4 rows

// What a group of rows has in a panel.
template <class Index>
struct Segment {
    int64_t panel;
    uint64_t dense;                // a bit for each of its blocks
    const Index* columns[kGroup];  // of the nonzeros outside of these
    int32_t count[kGroup];
};

// The segments of a thread's groups, by group and then by panel.
template <class Index>
struct Plan {
    Vector<Segment<Index>> segments;
    Vector<int64_t> first;  // segment of each group, and their number
    Vector<Index> copies;   // of columns, where dense blocks were taken out
    Vector<uint8_t> used;   // by block: whether a dense product reads it
    int64_t longest = 0;    // scores of a row in a segment, in whole vectors

    Plan(const Pattern& pattern, const int32_t* begin, const int32_t* end, int64_t panel) {
        const Index* columns = static_cast<const Index*>(pattern.columns);
        used.resize((pattern.width + kBlock - 1) / kBlock);
        // Bound the copied columns by the nonzeros of the groups: the vector must not grow, for segments point into it.
        int64_t most = 0;
        for (const int32_t* group = begin; group < end; ++group) {
            const int64_t row = int64_t{*group} * kGroup, rows = std::min<int64_t>(kGroup, pattern.rows - row);
            most += pattern.offsets[row + rows] - pattern.offsets[row];
        }
        copies.reserve(most);  // so that they never move
        // List the segments group by group; `first` is the row pointer into them.
        for (const int32_t* group = begin; group < end; ++group) {
            first.push_back(segments.size());
            add(pattern, columns, int64_t{*group} * kGroup, panel);
        }
        first.push_back(segments.size());
    }

    void add(const Pattern& pattern, const Index* columns, int64_t row, int64_t panel) {
        const int rows = static_cast<int>(std::min<int64_t>(kGroup, pattern.rows - row));
        int64_t next[kGroup], end[kGroup];
        for (int r = 0; r < rows; ++r) next[r] = pattern.offsets[row + r];
        for (;;) {
            // Merge the rows' sorted columns panel by panel (next[r]: first column of row r not yet placed), skipping
            // panels that none of them has.
            int64_t at = INT64_MAX;  // the next panel of any row
            for (int r = 0; r < rows; ++r)
                if (next[r] < pattern.offsets[row + r + 1])
                    at = std::min(at, static_cast<int64_t>(columns[next[r]]) / panel);
            if (at == INT64_MAX) return;
            Segment<Index> segment{at, rows == kGroup ? ~uint64_t{0} : 0, {}, {}};
            // Intersect the bit masks of whole blocks: only blocks of all 8 rows become dense products.
            for (int r = 0; r < rows; ++r) {
                end[r] = until(columns, next[r], pattern.offsets[row + r + 1], (at + 1) * panel);
                if (segment.dense) segment.dense &= full_blocks(columns, next[r], end[r], at * panel);
            }
            // List the nonzeros that are left to each row.
            for (int r = 0; r < rows; ++r)
                take(segment, r, columns + next[r], end[r] - next[r], at * panel), next[r] = end[r];
            // Mark the dense blocks, whose columns of K are to be transposed.
            for (uint64_t left = segment.dense; left; left &= left - 1)
                used[at * panel / kBlock + __builtin_ctzll(left)] = 1;
            segments.push_back(segment);
        }
    }

    // A bit for each aligned block of columns that nonzeros first .. last - 1 hold whole.
    static uint64_t full_blocks(const Index* columns, int64_t first, int64_t last, int64_t start) {
        uint64_t full = 0;
        for (int64_t e = first; e + kBlock <= last;) {
            // Columns ascend without repeats: first and last 15 apart means that all between are there.
            if (columns[e] % kBlock == 0 && columns[e + kBlock - 1] - columns[e] == kBlock - 1) {
                full |= uint64_t{1} << (columns[e] - start) / kBlock;
                e += kBlock;
            } else {
                ++e;
            }
        }
        return full;
    }

    void take(Segment<Index>& segment, int r, const Index* columns, int64_t count, int64_t start) {
        segment.columns[r] = columns;
        const int64_t blocks = __builtin_popcountll(segment.dense);
        // Filter dense blocks out into a copy; without any, the topology's own list serves.
        if (blocks) {
            segment.columns[r] = copies.data() + copies.size();
            for (int64_t e = 0; e < count;) {
                if (segment.dense >> (columns[e] - start) / kBlock & 1) e += kBlock;
                else copies.push_back(columns[e++]);
            }
        }
        segment.count[r] = static_cast<int32_t>(count - blocks * kBlock);
        longest = std::max(longest, blocks * kBlock + padded(segment.count[r]));
    }
};

// scores (kRows of them, row_stride apart; kVectors vectors each) <- q times columns of K transposed.
template <int kRows, int kVectors>
void dense_scores(const float* q, int64_t q_stride, int64_t depth, const float* const* keys, float* scores,
                  int64_t row_stride) {
    Vec sum[kRows][kVectors] = {};
    // Rank-1 updates of a register tile: one load of a key vector serves kRows queries.
    for (int64_t d = 0; d < depth; ++d) {
        Vec key[kVectors];
        for (int v = 0; v < kVectors; ++v) key[v] = load(keys[v] + d * kBlock);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
            for (int v = 0; v < kVectors; ++v)
                sum[r][v] = multiply_add(broadcast(q[r * q_stride + d]), key[v], sum[r][v]);
    }
    for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) store(sum[r][v], scores + r * row_stride + v * kLanes);
}

// out (4 rows of kVectors vectors) += weights times rows of V, for `count` blocks that begin at rows `blocks`.
template <int kVectors>
void dense_values(const float* weights, int64_t weight_stride, const float* v, int64_t stride, const int64_t* blocks,
                  int64_t count, float* out, int64_t out_stride) {
    Vec sum[4][kVectors];
    // Load the register tile of outputs once for all blocks.
    for (int r = 0; r < 4; ++r)
        for (int i = 0; i < kVectors; ++i) sum[r][i] = load(out + r * out_stride + i * kLanes);
    for (int64_t b = 0; b < count; ++b) {
        // Each row of V is loaded once for 4 rows of weights.
        const float *row = v + blocks[b] * stride, *weight = weights + b * kBlock;
        for (int c = 0; c < kBlock; ++c, row += stride) {
            Vec value[kVectors];
            for (int i = 0; i < kVectors; ++i) value[i] = load(row + i * kLanes);
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r)
                for (int i = 0; i < kVectors; ++i)
                    sum[r][i] = multiply_add(broadcast(weight[r * weight_stride + c]), value[i], sum[r][i]);
        }
    }
    for (int r = 0; r < 4; ++r)
        for (int i = 0; i < kVectors; ++i) store(sum[r][i], out + r * out_stride + i * kLanes);
}

// out (kVectors vectors) += weights[e] * row columns[e] of V, for `count` nonzeros. v is the chunk of row 0.
// Few vectors make few chains, so nonzeros are added up in kParts sums.
template <int kVectors, class Index>
void weighted_rows(const float* weights, const float* v, int64_t stride, const Index* columns, int64_t count,
                   float* out) {
    constexpr int kParts = kVectors >= 8 ? 1 : 8 / kVectors;
    Vec sum[kParts][kVectors] = {};
    for (int i = 0; i < kVectors; ++i) sum[0][i] = load(out + i * kLanes);
    // Gather a row of V, scaled by its weight; the first sum continues what earlier panels gave.
    auto add = [&](int part, int64_t e) __attribute__((always_inline)) {
        const float* row = v + static_cast<int64_t>(columns[e]) * stride;
        const Vec weight = broadcast(weights[e]);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) sum[part][i] = multiply_add(weight, load(row + i * kLanes), sum[part][i]);
    };
    // Nonzeros go to the partial sums in turn: independent chains hide the latency of a multiply-add.
    int64_t e = 0;
    for (; e + kParts <= count; e += kParts) {
#pragma GCC unroll 8
        for (int part = 0; part < kParts; ++part) add(part, e + part);
    }
    for (; e < count; ++e) add(0, e);
    // Reduce the partial sums.
    for (int i = 0; i < kVectors; ++i) {
        for (int part = 1; part < kParts; ++part) sum[0][i] += sum[part][i];
        store(sum[0][i], out + i * kLanes);
    }
}

template <class Index>
auto weighted_rows_of(int vectors) {
    return by_vectors(vectors, [](auto count) { return weighted_rows<count, Index>; });
}

// A matrix of one batch entry as the kernels read it: as given, or packed chunk by chunk.
struct Operand {
    const float* data;
    int64_t rows, depth;
    bool packed;
    const float* chunk(const Chunk& c) const { return data + (packed ? rows * c.first : c.first); }
    int64_t stride(const Chunk& c) const { return packed ? c.vectors * kLanes : depth; }
};

// A thread's scratch: q of a group and its scores; of a tile's rows the output accumulators O (sums), row maxima m
// (tops) and row sums l (totals) of FlashAttention.
struct Room {
    float *query, *scores, *sums, *tops, *totals;
    int64_t score_stride;
    static int64_t floats(int64_t depth, int64_t value_depth, int64_t longest, int64_t tile) {
        return kGroup * (padded(depth) + longest) + tile * (padded(value_depth) + 2);
    }
    Room(float* at, int64_t depth, int64_t value_depth, int64_t longest, int64_t tile) : score_stride(longest) {
        query = at, scores = query + kGroup * padded(depth), sums = scores + kGroup * longest;
        tops = sums + tile * padded(value_depth), totals = tops + tile;
    }
};

template <class Real, class Index>
struct Rows {
    const Attention<Real>& work;
    const Vector<Chunk> keys = chunks_of(work.depth), values = chunks_of(work.value_depth);
    const int64_t query_stride = padded(work.depth), sum_stride = padded(work.value_depth);

    // q of the group, widened and scaled.
    void fetch(int64_t b, int64_t row, const Room& room) const {
        const Vec scale = broadcast(work.scale);
        for (int r = 0; r < std::min<int64_t>(kGroup, work.pattern.rows - row); ++r) {
            float* query = room.query + r * query_stride;
            widen(work.q + (b * work.pattern.rows + row + r) * work.depth, work.depth, query_stride, query);
            for (int64_t d = 0; d < query_stride; d += kLanes) store(load(query + d) * scale, query + d);
        }
    }

    void score_blocks(const float* transposed, const int64_t* blocks, int64_t count, const Room& room) const {
        constexpr int kVectors = kBlock / kLanes;  // of a block
        // The block's columns of K transposed, a pointer for each vector of them.
        const float* columns[kMostPanel / kLanes];
        for (int64_t i = 0; i < count * kVectors; ++i)
            columns[i] = transposed + blocks[i / kVectors] * work.depth + i % kVectors * kLanes;
        for (int r = 0; r < kGroup; r += kScoreRows) {
            const float* query = room.query + r * query_stride;
            float* scores = room.scores + r * room.score_stride;
            int64_t i = 0;
            // Two vectors at a time fill the registers; a single one may be left.
            for (; i + 2 <= count * kVectors; i += 2)
                dense_scores<kScoreRows, 2>(query, query_stride, work.depth, columns + i, scores + i * kLanes,
                                            room.score_stride);
            if (i < count * kVectors)
                dense_scores<kScoreRows, 1>(query, query_stride, work.depth, columns + i, scores + i * kLanes,
                                            room.score_stride);
        }
    }

    // Scores become weights under the largest score so far; sums so far are rescaled where it grew.
    void weigh(float* scores, int64_t count, float* sums, float& top, float& total) const {
        // Online softmax: the largest score of all panels so far.
        const float before = top, now = std::max(before, largest_of(scores, count));
        if (now == -INFINITY) {  // every score is -inf, so all weights are 0; a NaN score still reaches the total
            for (int64_t s = 0; s < count; ++s) total += scores[s] = scores[s] == -INFINITY ? 0 : scores[s];
            return;
        }
        // Exponentials relative to it are at most 1, so none overflows.
        const float sum = lane_sum(exponentials(scores, count, now));
        // It grew: rescale what earlier panels gave to the new reference.
        if (now != before) {
            const Vec factor = exponential(broadcast(before - now));
            for (int64_t d = 0; d < sum_stride; d += kLanes) store(load(sums + d) * factor, sums + d);
            total *= factor[0], top = now;
        }
        total += sum;
    }

    void add_blocks(const Operand& v, const int64_t* blocks, int64_t count, const Room& room, float* sums) const {
        for (const Chunk& chunk : values)
            // As many vectors of V as a register tile of 4 rows has room for.
            for (int part = 0; part < chunk.vectors;) {
                const int vectors = std::min(chunk.vectors - part, kValueVectors);
                const float* value = v.chunk(chunk) + part * kLanes;
                for (int r = 0; r < kGroup; r += 4) {
                    const float* weights = room.scores + r * room.score_stride;
                    float* out = sums + r * sum_stride + chunk.first + part * kLanes;
                    const auto run = vectors == 4   ? dense_values<kValueVectors>
                                     : vectors == 2 ? dense_values<2>
                                                    : dense_values<1>;
                    run(weights, room.score_stride, value, v.stride(chunk), blocks, count, out, sum_stride);
                }
                part += vectors;
            }
    }

    // One group in one panel; its rows are rows `from` .. of the tile.
    void segment(const Segment<Index>& segment, int64_t panel, const Operand& k, const float* transposed,
                 const Operand& v, const Room& room, int64_t from) const {
        // Expand the mask to a list of first columns, and score these blocks for all rows.
        int64_t blocks[64], count = 0;
        for (uint64_t left = segment.dense; left; left &= left - 1)
            blocks[count++] = segment.panel * panel + __builtin_ctzll(left) * kBlock;
        if (count) score_blocks(transposed, blocks, count, room);
        float* const sums = room.sums + from * sum_stride;
        // Each step for all rows: they do not wait for each other.
        // Scores of the other nonzeros: gather rows of K, chunk by chunk, behind those of the blocks; pad with -inf.
        for (int r = 0; r < kGroup; ++r) {
            float* const scores = room.scores + r * room.score_stride + count * kBlock;
            for (const Chunk& chunk : keys)
                if (segment.count[r])
                    row_dots_of<Index>(chunk.vectors)(room.query + r * query_stride + chunk.first, k.chunk(chunk),
                                                      k.stride(chunk), segment.columns[r], segment.count[r], scores,
                                                      chunk.first > 0);
            fill_up(scores, segment.count[r]);
        }
        // Softmax over both kinds of scores at once.
        for (int r = 0; r < kGroup; ++r)
            if (const int64_t all = count * kBlock + padded(segment.count[r]))
                weigh(room.scores + r * room.score_stride, all, sums + r * sum_stride, room.tops[from + r],
                      room.totals[from + r]);
        // Accumulate the weighted rows of V: dense blocks first, then gathered rows.
        if (count) add_blocks(v, blocks, count, room, sums);
        for (int r = 0; r < kGroup; ++r)
            for (const Chunk& chunk : values)
                if (segment.count[r])
                    weighted_rows_of<Index>(chunk.vectors)(room.scores + r * room.score_stride + count * kBlock,
                                                           v.chunk(chunk), v.stride(chunk), segment.columns[r],
                                                           segment.count[r], sums + r * sum_stride + chunk.first);
    }

    bool finish(int64_t b, int64_t row, const Room& room, int64_t from) const {
        Vec nan = {};
        for (int64_t r = 0; r < std::min<int64_t>(kGroup, work.pattern.rows - row); ++r) {
            Real* out = work.out + (b * work.pattern.rows + row + r) * work.value_depth;
            if (work.pattern.offsets[row + r] == work.pattern.offsets[row + r + 1]) {
                // No nonzero, no softmax: the row is zero by definition.
                std::fill(out, out + work.value_depth, Real{});
                continue;
            }
            // Normalize once, at the end of all panels.
            const Vec total = broadcast(room.totals[from + r]);
            for (int64_t d = 0; d < work.value_depth; d += kLanes) {
                const int64_t left = work.value_depth - d;
                const Vec y = load(room.sums + (from + r) * sum_stride + d) / total;
                store_part(y, out + d, left);
                nan = y != y ? y : nan;  // lanes past the last are 0 / total: NaN only where the row is
            }
        }
        return any_nan(nan);
    }

    // The columns of a segment that comes soon: they are short pieces far apart, which no hardware sees coming.
    static void prefetch(const Plan<Index>& plan, int64_t s) {
        if (s >= static_cast<int64_t>(plan.segments.size())) return;
        const Segment<Index>& segment = plan.segments[s];
        for (int r = 0; r < kGroup; ++r)
            for (int32_t e = 0; e < segment.count[r]; e += 64 / sizeof(Index))
                __builtin_prefetch(segment.columns[r] + e);
    }

    // Groups first .. last - 1 of the plan through all panels.
    bool tile(int64_t b, const Plan<Index>& plan, const int32_t* groups, int64_t first, int64_t last, int64_t panel,
              const Operand& k, const float* transposed, const Operand& v, const Room& room) const {
        const int64_t rows = (last - first) * kGroup;
        // Initial state of the online softmax: sums 0, largest score -inf, total 0.
        std::fill(room.sums, room.sums + rows * sum_stride, 0.0f);
        std::fill(room.tops, room.tops + rows, -INFINITY);
        std::fill(room.totals, room.totals + rows, 0.0f);
        Vector<int64_t> next(plan.first.begin() + first, plan.first.begin() + last);
        // Panels ascend for the whole tile, so that K and V of one are reused from the cache; unused ones are skipped.
        for (int64_t at = 0, following; at != INT64_MAX; at = following) {
            following = INT64_MAX;
            for (int64_t g = first; g < last; ++g) {
                // Software prefetch: the segment two groups ahead, the columns of the next group, whose segment is here
                // by now.
                if (g + 2 < last) {
                    const Segment<Index>* const ahead =
                        plan.segments.data() + next[g + 2 - first];  // perhaps past the last
                    __builtin_prefetch(ahead),
                        __builtin_prefetch(reinterpret_cast<const char*>(ahead) + offsetof(Segment<Index>, count));
                }
                if (g + 1 < last) prefetch(plan, next[g + 1 - first]);
                // Process the group if it has nonzeros in this panel, and find the next panel that any group has.
                int64_t& s = next[g - first];
                if (s < plan.first[g + 1] && plan.segments[s].panel == at) {
                    fetch(b, int64_t{groups[g]} * kGroup, room);
                    segment(plan.segments[s++], panel, k, transposed, v, room, (g - first) * kGroup);
                }
                if (s < plan.first[g + 1]) following = std::min(following, plan.segments[s].panel);
            }
        }
        bool nan = false;
        for (int64_t g = first; g < last; ++g)
            nan |= finish(b, int64_t{groups[g]} * kGroup, room, (g - first) * kGroup);
        return nan;
    }
};

// Blocks first .. last - 1 of K (width, depth) transposed: (block, depth, kBlock), those in use alone.
template <class Real>
void transpose(const Real* k, int64_t width, int64_t depth, const uint8_t* used, int64_t first, int64_t last,
               float* to) {
    Vector<float> rows(kBlock * padded(depth));
    for (int64_t block = first; block < last; ++block) {
        // A block that no dense product reads, or that K's end cuts off, is not needed.
        if (!used[block] || (block + 1) * kBlock > width) continue;
        // Widen the rows of the block, then transpose: lanes become columns.
        for (int c = 0; c < kBlock; ++c)
            widen(k + (block * kBlock + c) * depth, depth, padded(depth), rows.data() + c * padded(depth));
        float* out = to + block * kBlock * depth;
        for (int64_t d = 0; d < depth; ++d)
            for (int c = 0; c < kBlock; ++c) out[d * kBlock + c] = rows[c * padded(depth) + d];
    }
}

template <class Real>
bool needs_packing(const Real* data, int64_t depth) {
    return sizeof(Real) == 2 || depth % kLanes != 0 || reinterpret_cast<uintptr_t>(data) % SPDNN_VECTOR_BYTES != 0;
}

int64_t panel_of(int64_t depth, int64_t value_depth) {
    // Halve the panel until its rows of K and V fit half of the second-level cache, or it has 8 blocks.
    int64_t panel = kMostPanel;
    while (panel > 8 * kBlock && panel * (depth + value_depth) > kPanelFloats) panel /= 2;
    return panel;
}

thread_local KeptMemory kept_keys, kept_values, kept_transposed, kept_room;

template <class Real, class Index>
bool attention_of(const Attention<Real>& work, double* busy, int threads) {
    const Pattern& pattern = work.pattern;
    const Rows<Real, Index> rows{work};
    const Shares shares(pattern, kGroup, threads);
    const int64_t width = pattern.width, panel = panel_of(work.depth, work.value_depth);
    const int64_t groups = std::max<int64_t>(1, (work.tile > 0 ? work.tile : kTile) / kGroup);
    Vector<std::unique_ptr<Plan<Index>>> plans(threads);
    std::fill(busy, busy + threads, 0.0);
    // Plan: each thread analyses its own groups, once for the whole batch. No exception may leave a parallel region.
    std::atomic<bool> out_of_memory{false};
#pragma omp parallel num_threads(threads)
    own_shares(threads, busy, [&](int t) {
        try {
            plans[t].reset(new Plan<Index>(pattern, shares.begin(t), shares.end(t), panel));
        } catch (const std::bad_alloc&) { out_of_memory = true; }
    });
    if (out_of_memory) throw std::bad_alloc();
    // Union of the dense blocks of all threads, and room for the longest segment.
    Vector<uint8_t> used((width + kBlock - 1) / kBlock);
    int64_t longest = 0, dense = 0;
    for (int t = 0; t < threads; ++t) {
        longest = std::max(longest, plans[t]->longest);
        for (size_t i = 0; i < used.size(); ++i) dense |= used[i] |= plans[t]->used[i];
    }
    const int64_t all_blocks = static_cast<int64_t>(used.size());
    // Scratch for copies of K and V where they are needed, and for each thread's state.
    float* const keys = needs_packing(work.k, work.depth) ? kept_keys.floats(width * padded(work.depth)) : nullptr;
    float* const values =
        needs_packing(work.v, work.value_depth) ? kept_values.floats(width * padded(work.value_depth)) : nullptr;
    float* const transposed = dense ? kept_transposed.floats(all_blocks * kBlock * work.depth) : nullptr;
    const int64_t room = padded(Room::floats(work.depth, work.value_depth, longest, groups * kGroup)) + 16;
    float* const rooms = kept_room.floats(room * threads);
    bool nan = false;
#pragma omp parallel num_threads(threads) reduction(|| : nan)
    for (int64_t b = 0; b < work.batch; ++b) {
        const Real *k = work.k + b * width * work.depth, *v = work.v + b * width * work.value_depth;
        if (keys || values || transposed) {
            own_shares(threads, busy, [&](int t) {
                // All threads pack and transpose K and V together; the barrier completes them before anyone reads.
                const int64_t first = width * t / threads, last = width * (t + 1) / threads;
                if (keys) pack(k, width, work.depth, rows.keys, keys, first, last);
                if (values) pack(v, width, work.value_depth, rows.values, values, first, last);
                if (transposed)
                    transpose(k, width, work.depth, used.data(), all_blocks * t / threads,
                              all_blocks * (t + 1) / threads, transposed);
            });
#pragma omp barrier
        }
        own_shares(threads, busy, [&](int t) {
            const Operand of_keys{keys ? keys : reinterpret_cast<const float*>(k), width, work.depth, keys != nullptr};
            const Operand of_values{values ? values : reinterpret_cast<const float*>(v), width, work.value_depth,
                                    values != nullptr};
            // Each thread takes its groups through all panels, a tile of rows at a time.
            const Room own(rooms + t * room, work.depth, work.value_depth, longest, groups * kGroup);
            const int64_t count = shares.end(t) - shares.begin(t);
            for (int64_t first = 0; first < count; first += groups)
                nan |= rows.tile(b, *plans[t], shares.begin(t), first, std::min(first + groups, count), panel, of_keys,
                                 transposed, of_values, own);
        });
        // Nobody packs the next entry over one that is still read.
        if ((keys || values || transposed) && b + 1 < work.batch) {
#pragma omp barrier
        }
    }
    return nan;
}

template <class Real>
bool attention(const Attention<Real>& work, double* busy, int threads) {
    return work.pattern.index_bytes == 2 ? attention_of<Real, uint16_t>(work, busy, threads)
                                         : attention_of<Real, int32_t>(work, busy, threads);
}

}  // namespace

extern const AttentionLevel SPDNN_JOIN(attention_, SPDNN_LEVEL);
const AttentionLevel SPDNN_JOIN(attention_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), attention<float>,
                                                            attention<uint16_t>};

}  // namespace spdnn
