// Rows that became identical: recognised by their hashes, compared bit by bit, merged into the first of them.
//
// hash_rows     `keep` becomes the rows that go on: the active ones, or all where dead rows may not leave. Each gets a
//               hash, a 64-bit sum over its neurons. The survivors of the pass are counted before any row is merged.
//               Whether a search pays is decided here: when more than `settled` of 1,024 rows left in a layer of
//               the pass, the next two kernels do nothing.
// insert_rows   each hash into a table (open addressing, linear probing), with the lowest row that has it
// compare_rows  each row with the lowest of its hash; where all bits are equal, it leaves: its mark in `keep` goes, its
//               origin's parent becomes the other's. So which row represents others depends on no order of threads.
//
// Layout: a block takes a tile; a lane is a row, a warp takes every WARPS-th neuron. Launch: any number of blocks.
// The table has `mask` + 1 entries, at least twice the rows, keys all ones (none) and firsts 0x7f7f7f7f at the start.
#include "common.cuh"
#include "rows.cuh"

#define NO_KEY 0xffffffffffffffffull

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    hash_rows(const float* __restrict__ features, int neurons, const int* __restrict__ rows, int tiles, int first,
              int last, const unsigned int* __restrict__ active, int may_leave, int settled,
              const int* __restrict__ origin, const int* __restrict__ weight, unsigned long long* __restrict__ hashes,
              unsigned int* __restrict__ keep, int* __restrict__ open, unsigned long long* survivors) {
    __shared__ unsigned long long sums[TILE];
    __shared__ int counted[WARPS];
    const int count = *rows, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned int* marks = active + (long long)(last - 1) * tiles;
    int going = 0;  // rows that go on, counted by every block for itself
    for (int i = threadIdx.x; i < tiles_of(count); i += THREADS) going += __popc(marks[i]);
    for (int distance = 16; distance; distance /= 2) going += __shfl_xor_sync(FULL_WARP, going, distance);
    if (lane == 0) counted[warp] = going;
    __syncthreads();
    going = 0;
    for (int i = 0; i < WARPS; ++i) going += counted[i];
    if (!may_leave) going = count;
    // While many rows still leave by themselves, a search for identical ones costs more than it brings.
    const bool worth = going > 1 && (long long)(count - going) * 1024 <= (long long)settled * (last - first) * count;
    if (blockIdx.x == 0 && threadIdx.x == 0) *open = worth;
    for (int tile = blockIdx.x; tile * TILE < count; tile += gridDim.x) {
        const int row = tile * TILE + lane;
        // Count survivors and copy the marks before any row is merged.
        if (warp == 0) {
            tally(active, tiles, first, last, tile, row < count ? weight[origin[row]] : 0, survivors);
            if (lane == 0) keep[tile] = may_leave ? marks[tile] : valid_lanes(tile * TILE, count);
        }
        if (!worth) continue;
        if (warp == 0) sums[lane] = 0;
        __syncthreads();
        // Hash: warps take neurons in turn, the lanes are rows.
        const float* values = features + row_start(row, neurons);
        unsigned long long sum = 0;
        for (int neuron = warp; neuron < neurons; neuron += WARPS)
            sum += hashed(values[(long long)neuron * TILE], neuron);
        // Add up the warps' parts in shared memory; integer sums do not depend on the order.
        atomicAdd(sums + lane, sum);
        __syncthreads();
        // A hash that looks like an empty entry becomes 0.
        if (warp == 0 && row < count) hashes[row] = sums[lane] == NO_KEY ? 0 : sums[lane];
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    insert_rows(const int* __restrict__ open, const int* __restrict__ rows, const unsigned int* __restrict__ keep,
                const unsigned long long* __restrict__ hashes, int mask, unsigned long long* keys, int* firsts,
                int* __restrict__ entry_of) {
    if (!*open) return;
    for (int row = blockIdx.x * THREADS + threadIdx.x; row < *rows; row += gridDim.x * THREADS) {
        // Rows that leave are not worth an entry.
        if (!(keep[row / TILE] >> row % TILE & 1)) continue;
        const unsigned long long hash = hashes[row];
        // Open addressing, linear probing.
        int entry = (int)(hash >> 20) & mask;
        while (true) {
            // Thousands of rows may have one hash: no atomic where it is there already.
            unsigned long long key = *reinterpret_cast<volatile unsigned long long*>(keys + entry);
            if (key == NO_KEY) key = atomicCAS(keys + entry, NO_KEY, hash);
            if (key == NO_KEY || key == hash) break;
            entry = (entry + 1) & mask;
        }
        // Atomic minimum, where it changes anything: the lowest row represents its hash.
        if (*reinterpret_cast<volatile int*>(firsts + entry) > row) atomicMin(firsts + entry, row);
        entry_of[row] = entry;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    compare_rows(const int* __restrict__ open, const float* __restrict__ features, int neurons,
                 const int* __restrict__ rows, const int* __restrict__ firsts, const int* __restrict__ entry_of,
                 const int* __restrict__ origin, int* parent, int* weight, unsigned int* __restrict__ keep,
                 int* merged) {
    if (!*open) return;
    __shared__ unsigned int differ;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int tile = blockIdx.x; tile * TILE < *rows; tile += gridDim.x) {
        const int row = tile * TILE + lane;
        const bool goes_on = keep[tile] >> lane & 1;
        // Candidate: the lowest row of the same hash.
        const int first = goes_on ? firsts[entry_of[row]] : row;
        // Warp vote, the same in all warps: a tile without candidates is skipped by the whole block.
        const unsigned int copies = __ballot_sync(FULL_WARP, first != row);
        if (threadIdx.x == 0) differ = 0;
        __syncthreads();
        if (copies) {
            const float *mine = features + row_start(row, neurons), *other = features + row_start(first, neurons);
            bool same = true;
            // Compare bit by bit, since hashes may collide; warps take neurons in turn.
            for (int neuron = warp; neuron < neurons; neuron += WARPS)
                same &=
                    __float_as_uint(mine[(long long)neuron * TILE]) == __float_as_uint(other[(long long)neuron * TILE]);
            // Reduce: a ballot in each warp, OR over the warps in shared memory.
            const unsigned int others = __ballot_sync(FULL_WARP, !same);
            if (lane == 0 && others) atomicOr(&differ, others);
        }
        __syncthreads();
        const unsigned int leave = copies & ~differ;
        // Merge: its parent is the candidate's origin, which takes over its weight.
        if (warp == 0 && leave >> lane & 1) {
            const int gone = origin[row], stays = origin[first];
            parent[gone] = stays;
            atomicAdd(weight + stays, weight[gone]);
            weight[gone] = 0;
        }
        // Take the merged rows off the marks, once a tile.
        if (threadIdx.x == 0 && leave) {
            keep[tile] &= ~leave;
            atomicAdd(merged, __popc(leave));
        }
        __syncthreads();
    }
}
