// Stored inputs to what the first layer reads.
//
// words         packed bits (base, bytes), most significant bit first, to words (tiles, neurons): bit i is input i of
//               the tile. A warp takes 32 inputs x 32 neurons: each lane reads one input's 32 bits, and 32 votes
//               transpose them.
// dense_tiles   float (base, neurons) to features: 32 x 32 values at a time through shared memory, both sides
//               coalesced.
// sparse_tiles  CSR float to features that are zero already: a warp for each input.
//
// `stored` names the stored row behind each input of all batches; `batch` is where in it this one begins, and how many
// inputs it has: read here, so that one captured launch serves every batch. Launch: THREADS a block, any number of
// blocks.
#include "common.cuh"

#define GROUPS 8  // of 32 neurons that a warp transposes one after the other: a sector of each input's bits

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    words(const unsigned char* __restrict__ bits, const int* __restrict__ stored, const int* __restrict__ batch,
          int neurons, unsigned int* __restrict__ words) {
    const int count = batch[1];
    stored += batch[0];
    const int lane = threadIdx.x % 32, bytes = (neurons + 7) / 8;
    const int wide = (neurons + 32 * GROUPS - 1) / (32 * GROUPS);
    const long long items = (long long)tiles_of(count) * wide;
    for (long long item = (long long)blockIdx.x * WARPS + threadIdx.x / 32; item < items;
         item += (long long)gridDim.x * WARPS) {
        // Grid-stride over warps: a tile of inputs, GROUPS x 32 neurons; each lane reads one input's bits.
        const int tile = (int)(item / wide), row = tile * TILE + lane;
        const unsigned char* from = bits + (long long)stored[min(row, count - 1)] * bytes;
        for (int group = (int)(item % wide) * GROUPS; group < (int)(item % wide + 1) * GROUPS; ++group) {
            if (group * 32 >= neurons) break;
            unsigned int word = 0;  // the first bit is its highest
            // Aligned rows: one load of 32 bits, bytes reversed, so that the first neuron is the highest bit.
            if (bytes % 4 == 0) {
                if (row < count) word = __byte_perm(reinterpret_cast<const unsigned int*>(from)[group], 0, 0x0123);
            } else {
                // Others byte by byte, not past the end of the row.
                for (int byte = 0; byte < 4; ++byte)
                    if (row < count && group * 4 + byte < bytes)
                        word |= (unsigned int)from[group * 4 + byte] << (24 - 8 * byte);
            }
            // Transpose by 32 ballots: each collects a neuron's bit of all inputs, and lane n keeps that of neuron n.
            unsigned int mine = 0;
            for (int neuron = 0; neuron < 32; ++neuron) {
                const unsigned int column = __ballot_sync(FULL_WARP, word >> (31 - neuron) & 1);
                if (lane == neuron) mine = column;
            }
            if (group * 32 + lane < neurons) words[(long long)tile * neurons + group * 32 + lane] = mine;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    dense_tiles(const float* __restrict__ values, const int* __restrict__ stored, const int* __restrict__ batch,
                int neurons, float* __restrict__ features) {
    const int count = batch[1];
    stored += batch[0];
    __shared__ float square[TILE][TILE + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wide = (neurons + 31) / 32;
    const long long items = (long long)tiles_of(count) * wide;
    for (long long item = blockIdx.x; item < items; item += gridDim.x) {
        const int tile = (int)(item / wide), first = (int)(item % wide) * 32;
        // The square before has been read.
        __syncthreads();
        // Coalesced reads: a warp takes 32 values of an input.
        for (int i = warp; i < TILE; i += WARPS) {
            const int row = min(tile * TILE + i, count - 1);
            square[i][lane] = first + lane < neurons ? values[(long long)stored[row] * neurons + first + lane] : 0.f;
        }
        __syncthreads();
        // Coalesced writes of columns; a padded row of the square keeps these reads free of bank conflicts.
        for (int i = warp; i < 32 && first + i < neurons; i += WARPS)
            features[((long long)tile * neurons + first + i) * TILE + lane] = square[lane][i];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    sparse_tiles(const long long* __restrict__ offsets, const int* __restrict__ columns,
                 const float* __restrict__ values, const int* __restrict__ stored, const int* __restrict__ batch,
                 int neurons, float* __restrict__ features) {
    const int count = batch[1];
    stored += batch[0];
    for (int row = blockIdx.x * WARPS + threadIdx.x / 32; row < count; row += gridDim.x * WARPS) {
        const int from = stored[row];
        // Lanes take the row's nonzeros in turn: coalesced reads, scattered writes.
        for (long long i = offsets[from] + threadIdx.x % 32; i < offsets[from + 1]; i += 32)
            features[row_start(row, neurons) + (long long)columns[i] * TILE] = values[i];
    }
}
