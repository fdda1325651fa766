// One layer of any width: footprints staged through shared memory (the at-scale method, made to fit any network).
//
// A block computes HELD * THREADS / LANES outputs for one tile of inputs. The inputs that these outputs read, the
// block's footprint, pass through shared memory in stages of at most `room` neurons; `map` lists them, stage after
// stage. Sums stay in registers from stage to stage; weights come in slices with indices into the stage (gather.cuh),
// one slice for each SLICE groups and stage, as wide as its widest group there. A thread has the SHARED outputs of a
// group: one gather serves them all. Outputs are ordered so that those of one block share inputs
// (spdnn/kernels/cpu/layouts.cpp).
//
// There are two stages in shared memory: the next one, be it of the next item, is copied while this one is gathered
// from, with one barrier a stage. From sm_80 on copies go on by themselves; before, they wait for what they load, and
// so of each scheduler's warps one half copies first and then gathers, and the other half the other way round. Where
// the rows of a tile lie side by side a lane copies 16 bytes, else 4.
//
// SOURCE is float; or unsigned int, for a first layer on binary inputs: a neuron is a word of the 32 inputs' bits
// (inputs.cu), in a stage too.
//
// Left out, without a gain: bulk copies (cp.async.bulk, one instruction for the 128 bytes of a neuron). They were 0 to
// 1 % slower with reductions, and at most 2 % faster without (H100, 1024 to 65536 neurons).
//
// Launch: THREADS a block, any number of blocks. Shared bytes: those of 2 * (room + 1) neurons, and 32; the last neuron
// of each stage is zeros, which padding reads. Macros: THREADS, HELD, SHARED, VALUED, SOURCE. INPUTS is TILE.
// Source: Hidayetoglu et al., HPEC 2020, section III-B: staging, 16-bit indices, reuse from registers.
#define INPUTS 32
#define UNIT 1
#include "async.cuh"
#include "common.cuh"
#include "gather.cuh"

// Copies every `step`th of the neurons map[0..size-1] from `first` on, a T of the NEURON of each, from `rows` to
// `stage`.
template <int NEURON, class T>
__device__ __forceinline__ void copy_neurons(T* stage, const T* rows, const unsigned int* map, int first, int step,
                                             int size) {
    constexpr int ONCE = 4;  // on their way together
    for (int begin = first; begin < size; begin += ONCE * step) {
        unsigned int neurons[ONCE];
        // Load the map entries together, so that their latencies overlap; past the end, the last one again.
#pragma unroll
        for (int i = 0; i < ONCE; ++i) neurons[i] = map[min(begin + i * step, size - 1)];
        // Issue the copies together.
#pragma unroll
        for (int i = 0; i < ONCE; ++i)
            if (begin + i * step < size)
                copy_async(stage + (begin + i * step) * NEURON, rows + (long long)neurons[i] * NEURON);
    }
}

// Copies a stage of a tile of `list`, neurons map[0..size-1], to `stage`.
__device__ __forceinline__ void copy_stage(float* stage, const float* source, const int* list, int tile, int count,
                                           int inputs, const unsigned int* map, int size) {
    const int lane = threadIdx.x % 32;
    // Each lane finds its row through `list`, which skips dead rows.
    const int index = list[min(tile * TILE + lane, count - 1)], first = __shfl_sync(FULL_WARP, index, 0);
    const float* row = source + row_start(index, inputs);
    // Warp vote: do the rows of this tile lie side by side, in one tile of the source?
    const bool together = __all_sync(FULL_WARP, first % TILE == 0 && index == first + lane);
    if (together) {
        // Contiguous: LANES lanes copy the line of a neuron, 16 bytes each.
        const int part = threadIdx.x % LANES;
        copy_neurons<LANES>(reinterpret_cast<Lane*>(stage) + part, reinterpret_cast<const Lane*>(row - lane) + part,
                            map, threadIdx.x / LANES, THREADS / LANES, size);
    } else {
        // Scattered: a warp gathers a neuron, each lane 4 bytes of its own row.
        copy_neurons<TILE>(stage + lane, row, map, threadIdx.x / 32, WARPS, size);
    }
}

__device__ __forceinline__ void copy_stage(unsigned int* stage, const unsigned int* words, const int*, int tile, int,
                                           int inputs, const unsigned int* map, int size) {
    // A word is the neuron's bits of the whole tile: a thread for each.
    copy_neurons<1>(stage, words + (long long)tile * inputs, map, threadIdx.x, THREADS, size);
}

__device__ __forceinline__ const Lane* gathered_from(const float* stages) {
    return reinterpret_cast<const Lane*>(stages);
}
__device__ __forceinline__ const unsigned int* gathered_from(const unsigned int* stages) { return stages; }

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    staged_layer(const SOURCE* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
                 const int* __restrict__ rows, int inputs, int outputs, int room, int parts,
                 const int* __restrict__ stages, const int* __restrict__ map_starts,
                 const unsigned int* __restrict__ map, const int* __restrict__ order, const int* __restrict__ starts,
                 const unsigned short* __restrict__ indices, const float* __restrict__ values,
                 const float* __restrict__ bias, int bias_step, float low, float high, unsigned int* active,
                 unsigned long long* work, int* failed, int layer) {
    DYNAMIC_SHARED(SOURCE, staged);
    constexpr int groups = THREADS / LANES, rounds = HELD / SHARED;
    constexpr int NEURON = (SOURCE)0.5f ? TILE : 1;  // of SOURCE: a type without fractions holds words
    static_assert(groups % SLICE == 0 && HELD % SHARED == 0, "the groups of a slice are computed side by side");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part_of_tile = threadIdx.x % LANES;
    // A thread computes `rounds` groups of SHARED outputs, for the VECTOR inputs number part_of_tile of the tile.
    const int group = threadIdx.x / LANES;
    const bool ahead = ASYNC_COPIES || warp / 4 % 2;           // which of the two comes first
    const int count = *rows, items = tiles_of(count) * parts;  // the host sees to it that they can be counted
    // Grid-stride loop over items; an item is a tile of inputs and a part of the outputs.
    int item = blockIdx.x;
    if (item >= items) return;
    const int size = (room + 1) * NEURON;  // of a stage, in elements of SOURCE
    // Offset of the stage being filled, 0 or `size`; the other one is gathered from.
    int there = size;
    // Clear the neuron behind each stage, which padding gathers.
    if (warp < 2 && lane < NEURON) staged[warp * size + room * NEURON + lane] = 0;
    int stage = stages[item % parts];
    // Prologue: fill the first stage, from which nothing is gathered yet.
    copy_stage(staged, source, list, item / parts, count, inputs, map + map_starts[stage],
               map_starts[stage + 1] - map_starts[stage]);
    wait_for_copies();
    __syncthreads();
    // The accumulators stay in registers through all stages of an item.
    Lane sums[HELD] = {};
    while (item < items) {
        const int tile = item / parts, part = item % parts;
        // What comes next: this item's next stage, or the first stage of the block's next item.
        const bool last = stage + 1 == stages[part + 1];
        const int item_after = last ? item + (int)gridDim.x : item;
        const int after = !last ? stage + 1 : item_after < items ? stages[item_after % parts] : stage;
        // Spill the next item and stage to shared memory until the barrier, since registers are short; two slots
        // alternate.
        int* then = reinterpret_cast<int*>(staged + 2 * size) + (there ? 0 : 2);
        if (threadIdx.x == 0) then[0] = item_after, then[1] = after;
        const auto copy_next = [&] {
            if (item_after < items)
                copy_stage(staged + there, source, list, item_after / parts, count, inputs, map + map_starts[after],
                           map_starts[after + 1] - map_starts[after]);
        };
        // Double buffer: this half of the warps, or all with asynchronous copies, issue the next copy before they
        // gather.
        if (ahead) copy_next();
        // Offset of the gathered stage in Lanes; a word counts as LANES of them.
        const int here = part_of_tile + (there ? 0 : NEURON == 1 ? size * LANES : size / VECTOR);
        const int slice = (stage * (groups / SLICE) + group / SLICE) * rounds;  // those of a warp are side by side
        int begin = starts[slice] * SLICE;
        // Gather: add this stage's chunks of each group of SHARED outputs to its sums.
#pragma unroll
        for (int round = 0; round < rounds; ++round) {
            const int end = starts[slice + round + 1] * SLICE;
            add_chunks<SHARED>(sums + round * SHARED, gathered_from(staged), here, indices, values,
                               VALUED ? 0.f : values[0], group % SLICE, begin, end);
            begin = end;
        }
        // The other half gathered meanwhile, and copies now.
        if (!ahead) copy_next();
        if (last) {
            // Epilogue after the last stage: bias, activation and store, and sums cleared for the next item.
            NonzeroBits nonzero = {};
            bool beyond = false;
#pragma unroll
            for (int held = 0; held < HELD; ++held) {
                const int slice = (part * (groups / SLICE) + group / SLICE) * rounds + held / SHARED;
                const int output = order[(slice * SLICE + group % SLICE) * SHARED + held % SHARED];
                if (output >= 0)
                    reinterpret_cast<Lane*>(target + ((long long)tile * outputs + output) * TILE)[part_of_tile] =
                        activated(sums[held], bias[output * bias_step], low, high, nonzero, beyond);
                sums[held] = {};
            }
            if (beyond) atomicMin(failed, layer);
            // Reduce the marks: each lane has VECTOR inputs, the OR over the warp has all 32.
            unsigned int bits = alive_of(nonzero) << part_of_tile * VECTOR;
            for (int distance = 16; distance; distance /= 2) bits |= __shfl_xor_sync(FULL_WARP, bits, distance);
            // One mark a warp; past the last row are lanes without an input.
            if (lane == 0) mark(active + tile, bits & valid_lanes(tile * TILE, count));
            if (threadIdx.x == 0 && part == 0) atomicAdd(work + layer, (unsigned long long)TILE);
        }
        // Wait for this thread's own copies; the barrier then covers everybody's.
        wait_for_copies();
        __syncthreads();  // the next stage is there, and this one is read
        // Swap the buffers.
        item = then[0], stage = then[1];
        there = size - there;
    }
}
