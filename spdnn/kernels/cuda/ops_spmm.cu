// C = activation(A B + bias): A sparse by rows, B and C dense and row-major, for a batch at once.
//
// Algorithm   One-dimensional tiling (section V-A of the reference): LANES threads, a subwarp, compute COLUMNS columns
//             of one row of C, and no thread shares a sum with another, so an output is one ascending chain of fused
//             multiply-adds: its bits depend on no macro, and on no other matrix of the batch.
//             Subwarp tiling (V-B): LANES < 32 puts 32 / LANES rows on a warp, for few columns, and vector loads of B.
//             Reverse-offset memory alignment (V-B): a row begins at a multiple of STEP nonzeros at or before its
//             first, so that values and indices are loaded as vectors; what belongs to the row before is masked. Values
//             that do not begin at such an address (a caller's slice, odd numbers of nonzeros in a batch) are loaded
//             one by one.
//             Row swizzle (V-C): `order` has rows by descending length: a bundle of rows has like lengths, long ones
//             begin.
//             Residues (V-D): groups of STEP nonzeros that belong to the row as a whole take the loop without masks; at
//             most the first and the last group of a row do not. A masked nonzero adds nothing: infinities and NaNs of
//             rows of B that this row of A does not name cannot reach it.
//             Index pre-scaling (V-D): an index is multiplied by the row's length in vectors once, when it is staged,
//             where that fits 32 bits (`scale`, `unit`). From sm_70 on one wide multiply-add makes the address either
//             way.
//             Past the reference: the next chunk of nonzeros is loaded into registers while one is computed; half in
//             memory with HELD vectors; blocks are dealt so that those which a multiprocessor holds together share a
//             tile of B (`located`), which then comes from its first-level cache.
// Layout      offsets (rows + 1); columns: ops.cuh; values (nnz), `values_step` from one matrix of the batch to the
//             next (0: shared); b (batch, inner, width); c (batch, rows, width); bias at row * bias_step. b and c begin
//             at multiples of a vector, and VECTOR divides width.
// Launch      blocks: groups of ROWS rows x tiles of COLUMNS columns x batch, numbered as `located` does (`grid` in
//             spdnn/ops/cuda_launches.py).
// Shared      static: 8 bytes a staged nonzero, ROWS x (CHUNK + 2): 4 KB and a little. The two are padding, so that
//             subwarps read their nonzeros from different banks.
// Macros      THREADS; VALUE (float, half); LANES (4..32, a power of two); VECTOR, numbers of a load of B; HELD,
//             vectors of a thread; TOGETHER, nonzeros whose rows of B are loaded at once: as many as there are
//             registers for, and more where there are few warps, for each waits for its loads; BLOCKS, that a
//             multiprocessor holds at least.
// Reference   Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, sections V-A to V-D.
//
// Predicted: every multiply-add needs a number of B from the first-level cache, 128 bytes a cycle: 32 floats, of 64
// multiply-adds a cycle on sm_70 and sm_80 and 128 on sm_86 to sm_120. With the staged nonzeros' loads (one of 16
// bytes for two nonzeros and COLUMNS columns: 1/9 of the cycles at LANES = 32, VECTOR = 4) float reaches at best 44 %
// of a V100's or A100's peak (the reference measured 27 % on V100), 22 % of an H200's; half twice as much. So what
// counts is that B's tile is in the first-level cache (inner x COLUMNS x 4 bytes: 128 KB at 1024 x 32), and how many
// bytes come from the second: 24 a cycle on each multiprocessor of an H200, so at least four of five loads must hit.
// Issue (6.5 instructions for 128 multiply-adds) and latency (4 loads of 16 bytes in flight for each lane of 28 warps:
// 56 KB) bind later. Measured on an H100: 12 to 13 % of its peak on the largest layer (33,288 x 512 by 256 columns).
// Small layers wait for their loads: 256 x 2304 by 196 columns has 392 warps for 132 multiprocessors, and took 20.8 us
// with 4 loads of a thread in flight, 13.2 with 16, 12.8 with 16 and a column of each thread (one run). Over 25 layers
// the tiles for few threads make it 1.13 times as fast at 90 % zeros, 1.17 at 80 %.
#include "ops.cuh"

#define COLUMNS (LANES * VECTOR * HELD)
#define ROWS (THREADS / LANES)
#define CHUNK (LANES * STEP)  // nonzeros of a row that are staged at once
static_assert(THREADS % 32 == 0 && 32 % LANES == 0, "a subwarp is a part of a warp, and a block has whole warps");
static_assert(VECTOR * sizeof(VALUE) <= 16, "a load has at most 16 bytes");
static_assert(LANES >= 4, "eight subwarps of a warp read from eight quarters of the banks; more would meet");
static_assert(CHUNK % TOGETHER == 0, "a chunk is whole groups of loads");

typedef Raw<VALUE, VECTOR> Piece;

// Where a block works. Tiles go to `wide` multiprocessors side by side and the row groups of a tile to the same ones,
// as far as blocks are dealt to multiprocessors round robin; with one multiprocessor it is tile after tile. Order
// alone: any would do.
__device__ __forceinline__ bool located(unsigned int block, int groups, int tiles, int multiprocessors, int& group,
                                        int& tile) {
    const int side = min(multiprocessors, tiles);  // tiles that are in work at once
    const int wide = multiprocessors / side;       // multiprocessors of each
    const int steps = (groups + wide - 1) / wide;
    const unsigned int row_of_blocks = (unsigned int)(side * wide);
    const unsigned int number = block / row_of_blocks, column = block % row_of_blocks;
    tile = (int)(number / steps) * side + (int)(column / wide);
    group = (int)(number % steps) * wide + (int)(column % wide);
    return group < groups && tile < tiles;
}

struct Fetched {  // STEP nonzeros on their way from memory to the staged chunk
    float values[STEP];
    unsigned int columns[STEP];
};

// Nonzeros at, .., at + STEP - 1 of a row that has `length` from its aligned begin on; past its end, columns that
// can be read.
__device__ __forceinline__ void fetch(Fetched& next, const VALUE* values, bool vectors, const unsigned short* columns,
                                      int at, int length, int index_bytes, unsigned int scale) {
    if (at >= length) {
#pragma unroll
        for (int i = 0; i < STEP; ++i) next.columns[i] = 0;
        return;
    }
    // One vector load of indices; pre-scale them here, once for all lanes that use them.
    load_indices(next.columns, columns, at, index_bytes);
#pragma unroll
    for (int i = 0; i < STEP; ++i) next.columns[i] *= scale;
    // Values as one vector where aligned and whole, else one by one, zeros past the end.
    if (vectors && at + STEP <= length) {
        spread(next.values, load<VALUE, STEP>(values + at));
    } else {
#pragma unroll
        for (int i = 0; i < STEP; ++i) next.values[i] = at + i < length ? widened(values[at + i]) : 0.f;
    }
}

// Adds TOGETHER staged nonzeros, whose loads are in flight at once; not WHOLE: of them those from `first` to before
// `last`.
template <bool WHOLE>
__device__ __forceinline__ void add(float (&sums)[HELD][VECTOR], const bool (&inside)[HELD], const uint4* staged,
                                    const char* from, unsigned int unit, int first, int last) {
    float weights[TOGETHER];
    Piece pieces[TOGETHER][HELD];
    // Issue all gathers from B before the first multiply-add, to overlap their latencies.
#pragma unroll
    for (int i = 0; i < TOGETHER; i += 2) {
        // A load of 16 bytes from shared memory, the same for the subwarp: two values and their columns.
        const uint4 two = staged[i / 2];
        weights[i] = __uint_as_float(two.x), weights[i + 1] = __uint_as_float(two.z);
#pragma unroll
        for (int one = 0; one < 2; ++one) {
            const char* row = from + (unsigned long long)(one ? two.w : two.y) * unit;
#pragma unroll
            for (int held = 0; held < HELD; ++held)
                if (inside[held])
                    pieces[i + one][held] = load<VALUE, VECTOR>(row + held * LANES * VECTOR * sizeof(VALUE));
        }
    }
    // Accumulate in ascending order; a masked nonzero is skipped, so that it brings no NaN.
#pragma unroll
    for (int i = 0; i < TOGETHER; ++i) {
        if (!WHOLE && (i < first || i >= last)) continue;
#pragma unroll
        for (int held = 0; held < HELD; ++held) {
            if (!inside[held]) continue;
            float numbers[VECTOR];
            spread(numbers, pieces[i][held]);
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) sums[held][k] = fmaf(weights[i], numbers[k], sums[held][k]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    spmm(const long long* __restrict__ offsets, const unsigned short* __restrict__ columns, int index_bytes,
         const int* __restrict__ order, const VALUE* __restrict__ values, long long values_step,
         const VALUE* __restrict__ b, const float* __restrict__ bias, int bias_step, float low, float high,
         VALUE* __restrict__ c, int rows, int inner, int width, int batch, unsigned int scale, unsigned int unit,
         int multiprocessors) {
    __shared__ __align__(16) uint4 chunks[ROWS][CHUNK / 2 + 1];

    // Who: a row, and a tile of columns of one matrix of the batch.
    const int lane = threadIdx.x % LANES, subwarp = threadIdx.x / LANES;
    const int across = (width - 1) / COLUMNS + 1;
    int group, tile;
    if (!located(blockIdx.x, (rows - 1) / ROWS + 1, across * batch, multiprocessors, group, tile)) return;
    const int matrix = tile / across;
    const int left = tile % across * COLUMNS, column = left + lane * VECTOR;
    const int position = group * ROWS + subwarp, row = position < rows ? order[position] : -1;

    // Its nonzeros, from an aligned begin on.
    const long long start = row < 0 ? 0 : offsets[row], begin = start & -STEP;
    const int masked = (int)(start - begin), length = row < 0 ? 0 : (int)(offsets[row + 1] - begin);
    values += matrix * values_step + begin;
    columns += begin * (index_bytes / 2);
    const bool vectors = aligned_to(values, STEP * sizeof(VALUE));
    int longest = length;  // of the rows of this warp: its lanes stay together
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2)
        longest = max(longest, __shfl_xor_sync(FULL_WARP, longest, distance));

    // A lane beyond the last column repeats the tile's first and writes nothing.
    const int from_column = column < width ? column : left;
    const char* from = reinterpret_cast<const char*>(b + (long long)matrix * inner * width + from_column);
    float sums[HELD][VECTOR];
    bool inside[HELD];
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
        inside[held] = held == 0 || column + held * LANES * VECTOR < width;
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) sums[held][k] = 0.f;
    }

    uint4* staged = chunks[subwarp];
    // Software pipeline, prologue: the first chunk into registers.
    Fetched next;
    fetch(next, values, vectors, columns, lane * STEP, length, index_bytes, scale);
    for (int at = 0; at < longest; at += CHUNK) {
        // Stage the chunk in shared memory, from where every lane of the subwarp reads it.
        __syncwarp();  // the chunk before is read
#pragma unroll
        for (int pair = 0; pair < STEP / 2; ++pair)
            staged[lane * (STEP / 2) + pair] =
                make_uint4(__float_as_uint(next.values[2 * pair]), next.columns[2 * pair],
                           __float_as_uint(next.values[2 * pair + 1]), next.columns[2 * pair + 1]);
        __syncwarp();
        // Load the next chunk into registers while this one is computed.
        fetch(next, values, vectors, columns, at + CHUNK + lane * STEP, length, index_bytes, scale);
        const int first = max(masked - at, 0), last = min(length - at, CHUNK);
#pragma unroll 1  // unrolled, it spills
        for (int i = 0; i < last; i += TOGETHER) {
            // Residues: only the first and the last group of a row need masks.
            if (i >= first && i + TOGETHER <= last) add<true>(sums, inside, staged + i / 2, from, unit, 0, TOGETHER);
            else add<false>(sums, inside, staged + i / 2, from, unit, first - i, last - i);
        }
    }

    // The epilogue.
    if (row < 0 || column >= width) return;
    const float added = bias[(long long)row * bias_step];
    VALUE* to = c + ((long long)matrix * rows + row) * width + column;
#pragma unroll
    for (int held = 0; held < HELD; ++held) {
        if (!inside[held]) continue;
        float results[VECTOR];
#pragma unroll
        for (int k = 0; k < VECTOR; ++k) results[k] = activated(sums[held][k] + added, low, high);
        store(to + held * LANES * VECTOR, results);
    }
}
