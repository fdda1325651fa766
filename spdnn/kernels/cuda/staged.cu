// One layer of any width: footprints staged through shared memory (the at-scale method, made to fit any network).
//
// A block computes HELD * THREADS / LANES outputs for one tile of inputs. The inputs that these outputs read, the block's
// footprint, pass through shared memory in stages of at most `room` neurons; `map` lists them, stage after stage. Sums
// stay in registers from stage to stage; weights come in slices with indices into the stage (gather.cuh), one slice for
// each SLICE outputs and stage, as wide as its widest output there. Outputs are ordered so that those of one block
// share inputs (spdnn/kernels/layouts/sliced.py).
//
// Launch: THREADS a block, any number of blocks. Shared bytes: (room + 1) * TILE * 4; the last neuron is zeros, which
// padding reads. Macros: THREADS, HELD, VALUED. INPUTS is TILE.
// Source: Hidayetoglu et al., HPEC 2020, section III-B: staging, 16-bit indices, reuse from registers.
#define INPUTS 32
#include "async.cuh"
#include "common.cuh"
#include "gather.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 2) staged_layer(
    const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
    const int* __restrict__ rows, int inputs, int outputs, int room, int parts, const int* __restrict__ stages,
    const int* __restrict__ map_starts, const unsigned int* __restrict__ map, const int* __restrict__ order,
    const int* __restrict__ starts, const unsigned short* __restrict__ indices, const float* __restrict__ values,
    const float* __restrict__ bias, int bias_step, float low, float high, unsigned int* active,
    unsigned long long* work, int* failed, int layer)
{
    DYNAMIC_SHARED(float, staged);
    constexpr int groups = THREADS / LANES;
    static_assert(groups % SLICE == 0, "the outputs of a slice are computed side by side");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part_of_tile = threadIdx.x % LANES;
    const int group = threadIdx.x / LANES;
    const int count = *rows;
    const int items = tiles_of(count) * parts; // the host sees to it that they can be counted
    if (warp == 0) staged[room * TILE + lane] = 0.f;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const int tile = item / parts, part = item % parts;
        Held sums[HELD];
#pragma unroll
        for (int held = 0; held < HELD; ++held) sums[held] = nothing();

        for (int stage = stages[part]; stage < stages[part + 1]; ++stage) {
            const int first = map_starts[stage], size = map_starts[stage + 1] - first;
            const float* row = lane_row(source, list, tile, count, inputs);
            __syncthreads(); // the stage before is read
#pragma unroll 8 // copies in flight: their latency is what a stage waits for
            for (int i = warp; i < size; i += WARPS)
                copy_async(staged + i * TILE + lane, row + (long long)map[first + i] * TILE);
            wait_for_copies();
            __syncthreads();
#pragma unroll
            for (int held = 0; held < HELD; ++held) {
                const int slice = (stage * HELD + held) * (groups / SLICE) + group / SLICE;
                add_chunks(sums[held], reinterpret_cast<const Held*>(staged) + part_of_tile, indices, values,
                           group % SLICE, starts[slice], starts[slice + 1]);
            }
        }

        unsigned int bits = 0;
#pragma unroll
        for (int held = 0; held < HELD; ++held) {
            const int output = order[(part * HELD + held) * groups + group];
            if (output < 0) continue;
            const Held value = finished(sums[held], bias[output * bias_step], low, high, failed, layer, bits);
            reinterpret_cast<Held*>(target + ((long long)tile * outputs + output) * TILE)[part_of_tile] = value;
        }
        bits <<= part_of_tile * VECTOR;
        for (int distance = 16; distance; distance /= 2) bits |= __shfl_xor_sync(FULL_WARP, bits, distance);
        if (lane == 0) mark(active + tile, bits & held_lanes(tile * TILE, count));
        if (threadIdx.x == 0 && part == 0) atomicAdd(work + layer, (unsigned long long)TILE);
    }
}
