// Sparse features times sparse weights, row by row, with bias and activation in the emission of each row. Compiled once
// for each instruction-set level, without contraction of a * b + c, so that every level gives the same bits.
//
// Algorithm  Gustavson: output row = sum over the nonzeros x_i of a feature row of x_i times row i of W, i ascending.
//            Where the sums are kept is chosen by the expected density of the output row, 1 - exp(-products / outputs):
//              touched  one float an output and a mark for every 16: only marked outputs are looked at again
//              sweep    one float an output, all looked at again
//              panel    sweep for as many neighbouring rows as a vector has lanes at once, a vector an output: where
//                       their nonzeros meet often enough in the same inputs
//            When zeros do not stay zeros (a positive bias, say), touched becomes sweep.
// Order      Every output adds its products in ascending order of inputs, whatever the accumulator: a panel adds 0 * w
//            for rows without that input, which changes no sum.
// Threads    Blocks of rows, dealt out dynamically; a block writes its rows one after the other from its first row's
//            offset in a buffer that has room for full rows, so blocks need neither locks nor a second pass.
// Macros     SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source     Ellis and Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos Kernels", HPEC
//            2019 (sparse-sparse product, accumulators by density, fused bias and ReLU); Gustavson, "Two Fast
//            Algorithms for Sparse Matrices", ACM TOMS 4(3), 1978.
#include "spgemm.hpp"

#include "transposed.hpp"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

constexpr int64_t kLargestBlock = 64;  // rows that a thread takes at most
constexpr int64_t kAhead = 8;          // nonzeros between the one used and the one whose weights are fetched
// Where one accumulator overtakes another (benchmarks/density.py --accumulators).
constexpr int64_t kTouchedBelow = 16;  // touched: products * kTouchedBelow <= outputs
constexpr double kPanelFrom = 0.5;     // panel: nonzeros of its rows >= kPanelFrom * inputs,
constexpr double kPanelMeet = 2.5;     //        and >= kPanelMeet * the inputs that they reach

static_assert(kGroup % kLanes == 0, "a marked group must be whole vectors");

// A row while it is written.
struct Writer {
    uint32_t* columns;
    float* values;
    int64_t length = 0;

    // Writes past `length` what may turn out to be zeros, but never past the outputs seen: a row is never longer.
    inline void add(uint32_t output, float y) {
        columns[length] = output, values[length] = y;
        length += y != 0.0f;
    }
    inline void add(int64_t output, Vec y) {
#ifdef __AVX512F__
        const __m512 vector = reinterpret_cast<__m512>(y);
        // Unordered counts as unequal, so that a NaN is kept, as y != 0 keeps it.
        const __mmask16 nonzero = _mm512_cmp_ps_mask(vector, _mm512_setzero_ps(), _CMP_NEQ_UQ);
        const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(output)), lanes);
        // Compress: nonzero lanes move to the front of a whole vector; what is behind them is overwritten by the next.
        _mm512_storeu_si512(columns + length, _mm512_maskz_compress_epi32(nonzero, numbers));
        _mm512_storeu_ps(values + length, _mm512_maskz_compress_ps(nonzero, vector));
        length += __builtin_popcount(nonzero);
#else
        for (int i = 0; i < kLanes; ++i) add(static_cast<uint32_t>(output + i), y[i]);
#endif
    }
};

// From sums to outputs: the common weight, the bias, the activation.
template <bool kValued>
struct Epilogue {
    float value, low, high;
    const float* bias;
    int64_t bias_stride;
    float poison = 0.0f;  // sum of 0 * y: 0 while every y is finite, else NaN
    Vec poisons = {};

    explicit Epilogue(const Layer& layer)
        : value(layer.value), low(layer.low), high(layer.high), bias(layer.bias), bias_stride(layer.bias_stride) {}

    inline float scalar(float sum, int64_t output) {
        // A common weight is applied once an output instead of once a product.
        float y = (kValued ? sum : sum * value) + bias[output * bias_stride];
        // Range check without a branch, before the clamp hides what is not finite.
        poison += y * 0.0f;
        y = y > low ? y : low;
        return y < high ? y : high;
    }
    inline Vec activated(Vec sum, Vec shift) {
        Vec y = (kValued ? sum : sum * broadcast(value)) + shift;
        poisons += y * 0.0f;
        y = y > broadcast(low) ? y : broadcast(low);
        return y < broadcast(high) ? y : broadcast(high);
    }
    // kLanes neighbouring outputs of one row.
    inline Vec outputs_of_row(Vec sum, int64_t output) {
        return activated(sum, bias_stride ? load<Vec>(bias + output) : broadcast(bias[0]));
    }
    // One output of kLanes rows.
    inline Vec output_of_rows(Vec sum, int64_t output) { return activated(sum, broadcast(bias[output * bias_stride])); }
    bool finite() const {
        float all = poison;
        for (int i = 0; i < kLanes; ++i) all += poisons[i];
        return all == 0.0f;
    }
};

// Outputs first .. last - 1 from their sums, which are zero again afterwards.
template <bool kValued>
inline void emit(Epilogue<kValued>& epilogue, float* sums, int64_t first, int64_t last, Writer& out) {
    Writer writer = out;  // copies, for stores through pointers must not force these into memory
    Epilogue<kValued> local = epilogue;
    int64_t output = first;
    // Whole vectors: load the sums, clear them for the next row while their line is near, append the nonzeros.
    for (; output + kLanes <= last; output += kLanes) {
        const Vec sum = load<Vec>(sums + sum_index(output));
        std::memset(sums + sum_index(output), 0, sizeof sum);
        writer.add(output, local.outputs_of_row(sum, output));
    }
    // The remainder, one output at a time.
    for (; output < last; ++output) {
        writer.add(static_cast<uint32_t>(output), local.scalar(sums[sum_index(output)], output));
        sums[sum_index(output)] = 0.0f;
    }
    out = writer, epilogue = local;
}

// One row of features as the accumulators see it.
struct Row {
    const uint32_t* columns;
    const float* values;
    int64_t length;
};

// Calls product(output, x * w) for all products of a row, inputs ascending. With one weight for all, w is left out.
template <class Index, bool kValued, class Product>
inline void for_each_product(const Layer& layer, const Row& row, Product product) {
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    for (int64_t k = 0; k < row.length; ++k) {
        // Prefetch the weight row of a later nonzero: rows of W are short and lie anywhere.
        if (k + kAhead < row.length) {
            const int64_t ahead = layer.offsets[row.columns[k + kAhead]];
            __builtin_prefetch(indices + ahead);
            if (kValued) __builtin_prefetch(layer.values + ahead);
        }
        // Gustavson's step: the nonzero scales its row of W.
        const int64_t input = row.columns[k], end = layer.offsets[input + 1];
        const float x = row.values[k];
        for (int64_t e = layer.offsets[input]; e < end; ++e) product(indices[e], kValued ? x * layer.values[e] : x);
    }
}

// Adds the products of a row to the sums of their outputs, and calls mark(output) for each.
template <class Index, bool kValued, class Mark>
inline void scatter(const Layer& layer, const Row& row, float* __restrict sums, Mark mark) {
    // Scatter the products to a dense accumulator, one sum an output.
    if (sum_index(layer.outputs - 1) ==
        layer.outputs - 1) {  // indices are the outputs themselves: spare the arithmetic
        for_each_product<Index, kValued>(layer, row, [&](Index output, float y) { sums[output] += y, mark(output); });
    } else {
        for_each_product<Index, kValued>(layer, row,
                                         [&](Index output, float y) { sums[sum_index(output)] += y, mark(output); });
    }
}

template <class Index, bool kValued>
void sweep(const Layer& layer, const Row& row, const Scratch& scratch, Epilogue<kValued>& epilogue, Writer& out) {
    // Scatter, then emit every output: in a dense row few sums are zero, so none is remembered.
    scatter<Index, kValued>(layer, row, scratch.sums, [](Index) {});
    emit(epilogue, scratch.sums, 0, layer.outputs, out);
}

template <class Index, bool kValued>
void touched(const Layer& layer, const Row& row, const Scratch& scratch, Epilogue<kValued>& epilogue, Writer& out) {
    float* sums = scratch.sums;
    uint8_t* __restrict marks = scratch.marks;
    // Scatter and mark: a store of 1 needs no test of whether the group was marked before.
    scatter<Index, kValued>(layer, row, sums, [&](Index output) { marks[output / kGroup] = 1; });
    const int64_t groups = (layer.outputs + kGroup - 1) / kGroup;
    for (int64_t start = 0; start < groups; start += 8) {  // marks are padded to whole words
        // Test eight marks at once: most words are zero, and each skips 8 kGroup outputs.
        uint64_t word;
        std::memcpy(&word, marks + start, sizeof word);
        if (!word) continue;
        // Emit and clear the marked groups alone; outputs ascend without a sort.
        for (int64_t group = start; group < start + 8; ++group)
            if (marks[group]) emit(epilogue, sums, group * kGroup, std::min(layer.outputs, (group + 1) * kGroup), out);
        std::memset(marks + start, 0, sizeof word);
    }
}

// `filled` neighbouring rows; each is written to a Writer of its own. Their values are spread out for 64 inputs at a
// time.
template <class Index, bool kValued>
void panel(const Layer& layer, const Row* rows, int filled, const Scratch& scratch, Epilogue<kValued>& epilogue,
           Writer* out) {
    constexpr int kBits = 64;
    alignas(64) float spread[kBits * kLanes];
    Vec* __restrict sums = reinterpret_cast<Vec*>(scratch.panel);
    const Index* __restrict indices = static_cast<const Index*>(layer.indices);
    int64_t used[kLanes] = {};
    // Windows of 64 inputs: one word says which of them are reached, and their values fit the first-level cache.
    for (int64_t start = 0; start < layer.inputs; start += kBits) {
        // Union of the rows' columns in this window.
        uint64_t reached = 0;
        for (int r = 0; r < filled; ++r) {
            int64_t k = used[r];
            for (; k < rows[r].length && rows[r].columns[k] < start + kBits; ++k)
                reached |= uint64_t{1} << (rows[r].columns[k] - start);
        }
        // Clear the vectors of reached inputs alone; no other is read.
        for (uint64_t rest = reached; rest; rest &= rest - 1)
            std::memset(spread + __builtin_ctzll(rest) * kLanes, 0, sizeof(Vec));
        // Scatter the values into vectors with a lane for each row; a row without the input keeps 0.
        for (int r = 0; r < filled; ++r) {
            int64_t k = used[r];
            for (; k < rows[r].length && rows[r].columns[k] < start + kBits; ++k)
                spread[(rows[r].columns[k] - start) * kLanes + r] = rows[r].values[k];
            used[r] = k;
        }
        // Gustavson's step for all rows at once: each row of W is read once for the panel.
        for (; reached; reached &= reached - 1) {
            const int64_t input = start + __builtin_ctzll(reached), end = layer.offsets[input + 1];
            const Vec x = load<Vec>(spread + (input - start) * kLanes);
            for (int64_t e = layer.offsets[input]; e < end; ++e)
                sums[panel_index(indices[e])] += kValued ? x * broadcast(layer.values[e]) : x;
        }
    }
    // Epilogue. A vector holds one output of all rows, a Writer wants many of one row: transpose blocks in between.
    int64_t output = 0;
    for (; output + kLanes <= layer.outputs; output += kLanes) {
        Vec block[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            Vec& sum = sums[panel_index(output + i)];
            block[i] = epilogue.output_of_rows(sum, output + i);
            sum = Vec{};
        }
        transpose(block);
        for (int r = 0; r < filled; ++r) out[r].add(output, block[r]);
    }
    // Outputs that fill no block, lane by lane.
    for (; output < layer.outputs; ++output) {
        Vec& sum = sums[panel_index(output)];
        const Vec y = epilogue.output_of_rows(sum, output);
        sum = Vec{};
        for (int r = 0; r < filled; ++r) out[r].add(static_cast<uint32_t>(output), y[r]);
    }
}

inline int64_t products_of(const Layer& layer, const Row& row) {
    int64_t sum = 0;
    for (int64_t k = 0; k < row.length; ++k) sum += layer.offsets[row.columns[k] + 1] - layer.offsets[row.columns[k]];
    return sum;
}

// Whether a panel pays for these rows: whether their nonzeros meet often enough in the same inputs.
inline bool panel_pays(const Layer& layer, const Row* rows, int filled, const Scratch& scratch) {
    int64_t nonzeros = 0, reached = 0;
    for (int r = 0; r < filled; ++r) nonzeros += rows[r].length;
    // A cheap test first: too few nonzeros cannot repay vectors of all outputs.
    if (static_cast<double>(nonzeros) < kPanelFrom * static_cast<double>(layer.inputs)) return false;
    // Mark and count the distinct inputs that any row has: here a mark for each input, in `touched` one for each kGroup
    // outputs.
    for (int r = 0; r < filled; ++r)
        for (int64_t k = 0; k < rows[r].length; ++k) scratch.marks[rows[r].columns[k]] = 1;
    for (int64_t input = 0; input < layer.inputs; ++input) reached += scratch.marks[input];
    std::memset(scratch.marks, 0, layer.inputs);
    // Nonzeros for each of them: how often a row of W is reused within the panel.
    return static_cast<double>(nonzeros) >= kPanelMeet * static_cast<double>(reached);
}

inline Accumulator accumulator(const Layer& layer, int64_t products, int choice) {
    // An output without products may be nonzero here, so all outputs must be looked at.
    if (!layer.keeps_zero || choice == kSweep || choice == kPanel) return kSweep;
    // By expected density: the sparser the row, the more a search for its outputs saves.
    return choice == kTouched || products * kTouchedBelow <= layer.outputs ? kTouched : kSweep;
}

// Rows first .. last - 1 of src; their results follow each other from offset first * outputs of dst.
template <class Index, bool kValued>
Work block(const Layer& layer, const SparseRows& src, const NewRows& dst, int64_t first, int64_t last,
           const Scratch& scratch, int choice) {
    Work work{true, 0, {}};
    Epilogue<kValued> epilogue{layer};
    int64_t offset = first * layer.outputs;
    // Groups of kLanes rows, the height of a panel.
    for (int64_t start = first; start < last; start += kLanes) {
        const int filled = static_cast<int>(std::min<int64_t>(kLanes, last - start));
        Row rows[kLanes];
        for (int r = 0; r < filled; ++r) {
            const int64_t at = src.begin[start + r];
            rows[r] = {src.columns + at, src.values + at, src.length[start + r]};
        }
        const bool together = choice == kPanel || (choice == kBest && panel_pays(layer, rows, filled, scratch));
        if (together) {  // rows grow side by side, so each gets room for a full row
            offset = start * layer.outputs;
            Writer out[kLanes];
            for (int r = 0; r < filled; ++r) {
                const int64_t at = dst.begin[start + r] = offset + r * layer.outputs;
                out[r] = {dst.columns + at, dst.values + at};
                work.multiply_adds += products_of(layer, rows[r]);
            }
            panel<Index, kValued>(layer, rows, filled, scratch, epilogue, out);
            for (int r = 0; r < filled; ++r) dst.length[start + r] = out[r].length;
            offset += filled * layer.outputs;
            work.rows[kPanel] += filled;
            continue;
        }
        // Otherwise every row gets the accumulator that suits the number of its products.
        for (int r = 0; r < filled; ++r) {
            const int64_t count = products_of(layer, rows[r]);
            const Accumulator chosen = accumulator(layer, count, choice);
            Writer out{dst.columns + offset, dst.values + offset};
            if (chosen == kTouched) touched<Index, kValued>(layer, rows[r], scratch, epilogue, out);
            else sweep<Index, kValued>(layer, rows[r], scratch, epilogue, out);
            // The row's exact length is known now: the next one begins behind it, without a gap.
            dst.begin[start + r] = offset, dst.length[start + r] = out.length;
            offset += out.length;
            work.multiply_adds += count, ++work.rows[chosen];
        }
    }
    work.finite = epilogue.finite();
    return work;
}

// Calls run(first, last, thread) for blocks of the rows: some for each thread, of whole panels where all threads get
// one.
template <class Run>
void over_blocks(int64_t rows, int threads, Run run) {
    // Some eight blocks a thread, so that dynamic scheduling evens out rows of unequal work.
    int64_t size = std::min(kLargestBlock, std::max<int64_t>(1, rows / (8 * threads)));
    if (rows >= threads * kLanes) size = (size + kLanes - 1) / kLanes * kLanes;
    const int64_t blocks = (rows + size - 1) / size;
    const int used = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(threads, blocks)));
#pragma omp parallel for schedule(dynamic, 1) num_threads(used)
    for (int64_t b = 0; b < blocks; ++b) run(b * size, std::min(rows, (b + 1) * size), omp_get_thread_num());
}

using Block = Work (*)(const Layer&, const SparseRows&, const NewRows&, int64_t, int64_t, const Scratch&, int);

Work run_layer(const Layer& layer, const SparseRows& src, const NewRows& dst, const Scratch* scratch, int choice,
               int threads) {
    const Block run = layer.index_bytes == 2 ? (layer.values ? block<uint16_t, true> : block<uint16_t, false>)
                                             : (layer.values ? block<uint32_t, true> : block<uint32_t, false>);
    Work whole{true, 0, {}};
    std::mutex lock;  // not OpenMP's critical, whose lock is the process's: a child forked meanwhile would wait for it
    over_blocks(src.count, threads, [&](int64_t first, int64_t last, int thread) {
        const Work part = run(layer, src, dst, first, last, scratch[thread], choice);
        // Reduce once a block, seldom enough for a lock.
        const std::lock_guard<std::mutex> guard(lock);
        whole.finite &= part.finite, whole.multiply_adds += part.multiply_adds;
        for (int k = 0; k < kAccumulators; ++k) whole.rows[k] += part.rows[k];
    });
    return whole;
}

void load_row(const Rows& inputs, int64_t number, int64_t neurons, Writer& out) {
    if (inputs.bits) {
        const uint8_t* row = inputs.bits + number * inputs.row_bytes;
        for (int64_t byte = 0; byte < inputs.row_bytes; ++byte)
            for (uint32_t rest = row[byte]; rest;) {
                // Visit set bits alone, most significant first, so that columns ascend.
                const int bit = __builtin_clz(rest) - 24;  // 0: the most significant of the byte
                rest &= ~(0x80u >> bit);
                if (byte * 8 + bit < neurons) out.add(static_cast<uint32_t>(byte * 8 + bit), 1.0f);
            }
    } else if (inputs.dense) {
        const float* row = inputs.dense + number * neurons;
        // The Writer drops zeros without a branch.
        for (int64_t n = 0; n < neurons; ++n) out.add(static_cast<uint32_t>(n), row[n]);
    } else {
        for (int64_t e = inputs.csr_offsets[number]; e < inputs.csr_offsets[number + 1]; ++e)
            // A stored zero is dropped: sparse rows hold none.
            if (inputs.csr_values[e] != 0.0f)
                out.add(static_cast<uint32_t>(inputs.csr_columns[e]), inputs.csr_values[e]);
    }
}

void load_rows(const Rows& inputs, int64_t neurons, const NewRows& dst, int threads) {
    over_blocks(inputs.count, threads, [&](int64_t first, int64_t last, int) {
        // A block packs its rows from its first row's offset, where full rows would have room.
        int64_t offset = first * neurons;
        for (int64_t i = first; i < last; ++i) {
            Writer out{dst.columns + offset, dst.values + offset};
            load_row(inputs, inputs.numbers[i], neurons, out);
            dst.begin[i] = offset, dst.length[i] = out.length;
            offset += out.length;
        }
    });
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Four chains, so that the multiplications of one row do not wait for each other.
uint64_t hash_of(const uint32_t* columns, const float* values, int64_t length) {
    constexpr int kChains = 4;
    uint64_t chain[kChains] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu, 0x2545f4914f6cdd1du};
    auto mix = [](uint64_t hash, uint64_t word) {
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        return hash ^ hash >> 32;
    };
    // Entries go to the chains in turn; column and value bits make one word.
    for (int64_t k = 0; k < length; ++k)
        chain[k % kChains] = mix(chain[k % kChains], uint64_t{columns[k]} << 32 | bits_of(values[k]));
    // Fold the chains into the length.
    uint64_t hash = mix(static_cast<uint64_t>(length), 0);
    for (uint64_t part : chain) hash = mix(hash, part);
    return hash;
}

void hashes(const SparseRows& rows, uint64_t* hash, int threads) {
    over_blocks(rows.count, threads, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i)
            hash[i] = hash_of(rows.columns + rows.begin[i], rows.values + rows.begin[i], rows.length[i]);
    });
}

void same(const SparseRows& rows, const int64_t* first_rows, const int64_t* second_rows, int64_t pairs, uint8_t* same,
          int threads) {
    over_blocks(pairs, threads, [&](int64_t first, int64_t last, int) {
        for (int64_t k = first; k < last; ++k) {
            const int64_t a = rows.begin[first_rows[k]], b = rows.begin[second_rows[k]],
                          length = rows.length[first_rows[k]];
            // Cheapest test first. Bits are compared, so that -0 differs from 0, and NaN equals itself.
            same[k] = length == rows.length[second_rows[k]] &&
                      !std::memcmp(rows.columns + a, rows.columns + b, length * sizeof *rows.columns) &&
                      !std::memcmp(rows.values + a, rows.values + b, length * sizeof *rows.values);
        }
    });
}

void statistics(const SparseRows& rows, int64_t neurons, const RowStatistics& out, int threads) {
    over_blocks(rows.count, threads, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            const uint32_t* columns = rows.columns + rows.begin[i];
            const float* values = rows.values + rows.begin[i];
            // Missing entries are zeros: they take part in the extremes unless the row is full.
            const bool full = rows.length[i] == neurons;
            float least = full ? std::numeric_limits<float>::infinity() : 0.0f, largest = full ? -least : 0.0f;
            double sum = 0, projection = 0;
            for (int64_t k = 0; k < rows.length[i]; ++k) {
                sum += out.counts[columns[k]] * values[k];
                projection += out.weights[columns[k]] * values[k];
                least = values[k] < least ? values[k] : least;
                largest = values[k] > largest ? values[k] : largest;
            }
            out.sum[i] = sum, out.projection[i] = projection, out.min[i] = least, out.max[i] = largest;
            out.hash[i] = hash_of(columns, values, rows.length[i]);
        }
    });
}

void expand(const SparseRows& rows, int64_t neurons, float* dst, int threads) {
    over_blocks(rows.count, threads, [&](int64_t first, int64_t last, int) {
        for (int64_t i = first; i < last; ++i) {
            float* row = dst + i * neurons;
            // Clear, then scatter the nonzeros.
            std::memset(row, 0, neurons * sizeof *row);
            for (int64_t k = rows.begin[i]; k < rows.begin[i] + rows.length[i]; ++k)
                row[rows.columns[k]] = rows.values[k];
        }
    });
}

}  // namespace

extern const SpgemmKernels SPDNN_JOIN(spgemm_, SPDNN_LEVEL);
const SpgemmKernels SPDNN_JOIN(spgemm_, SPDNN_LEVEL) = {
    SPDNN_STRING(SPDNN_LEVEL), kLanes, load_rows, run_layer, hashes, same, statistics, expand};

}  // namespace spdnn
