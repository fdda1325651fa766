// What a device does at best: copies in its memory, loads from shared memory, loads from the second-level cache, and
// multiply-adds in registers. Each kernel does one thing again and again, and writes sums that the host foresees, so
// that no compiler leaves work out and no ceiling is of loads of something else.
//
// Algorithm   copy_memory: float4, grid-stride, `rounds` times.
//             load_shared: groups of 8 threads load lines of 32 floats, each thread its float4, and add them up. Which
//             line is next comes from registers, as in a gather of ours; the 8 loads of a group are one line, so no two
//             of them meet in a bank. Each round takes all lines, in another order.
//             load_second: float4 past the first-level cache, IN_FLIGHT of them in a round, and added up.
//             multiply_add: CHAINS sums that do not wait for each other, STEPS multiply-adds of each in a round.
// Layout      source, target, buffer: float4, `count` of them; load_second: a multiple of the threads of the grid.
//             Shared memory: ROWS lines of TILE floats; float f of line r is r + f.
// Launch      any number of blocks of THREADS, one-dimensional; ceilings.py fills the device.
// Shared      load_shared: 4 x TILE x ROWS bytes, dynamic.
// Macros      THREADS; ROWS, a power of two; CHAINS; STEPS.
// Reference   STREAM's copy (McCalpin 1995); the roofline model (Williams et al., CACM 52(4), 2009).
#include "common.cuh"

#define IN_FLIGHT 4       // loads of a thread before it needs the first of them
#define GROUP (TILE / 4)  // threads that load a line
#ifdef SPDNN_SHIM
#define PAST_L1(address) (*(address))
#else
#define PAST_L1(address) __ldcg(address)
#endif
static_assert(ROWS >= IN_FLIGHT && (ROWS & (ROWS - 1)) == 0, "ROWS is a power of two, and at least IN_FLIGHT");

__device__ __forceinline__ void add(float4& sum, const float4& value) {
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    copy_memory(const float* __restrict__ source, float* __restrict__ target, long long count, int rounds) {
    const float4* from = reinterpret_cast<const float4*>(source);
    float4* to = reinterpret_cast<float4*>(target);
    const long long all = (long long)gridDim.x * THREADS, first = (long long)blockIdx.x * THREADS + threadIdx.x;
    for (int round = 0; round < rounds; ++round) {
        long long at = first;
        for (; at + (IN_FLIGHT - 1) * all < count; at += IN_FLIGHT * all) {
            // All loads are issued before the first store waits for one.
            float4 held[IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k) held[k] = from[at + k * all];
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k) to[at + k * all] = held[k];
        }
        for (; at < count; at += all) to[at] = from[at];
    }
}

// sums: float4 of each thread; `rounds` times the sum over all lines of its four floats.
extern "C" __global__ void __launch_bounds__(THREADS) load_shared(float* __restrict__ sums, int rounds) {
    DYNAMIC_SHARED(float, lines);
    // Numbers whose sums the host foresees.
    for (int k = threadIdx.x; k < ROWS * TILE; k += THREADS) lines[k] = (float)(k / TILE + k % TILE);
    __syncthreads();
    const float4* held = reinterpret_cast<const float4*>(lines);
    const int column = threadIdx.x % GROUP, group = threadIdx.x / GROUP;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int round = 0; round < rounds; ++round) {
        // XOR with the shift permutes the lines: all are read, in another order each round.
        const int shift = (group + round) % ROWS;
        for (int line = 0; line < ROWS; line += IN_FLIGHT) {
#pragma unroll
            for (int k = 0; k < IN_FLIGHT; ++k) add(sum, held[((line + k) ^ shift) * GROUP + column]);
        }
    }
    reinterpret_cast<float4*>(sums)[(long long)blockIdx.x * THREADS + threadIdx.x] = sum;
}

// sums: float4 of each thread. After every count / (threads of the grid) rounds, all of them together have grown by
// IN_FLIGHT times the sum of the buffer.
extern "C" __global__ void __launch_bounds__(THREADS)
    load_second(const float* __restrict__ buffer, float* __restrict__ sums, int count, int rounds) {
    const float4* held = reinterpret_cast<const float4*>(buffer);
    const int all = gridDim.x * THREADS, first = blockIdx.x * THREADS + threadIdx.x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    int at = first;
    for (int round = 0; round < rounds; ++round) {
        float4 loaded[IN_FLIGHT];
        // Issue the loads of a round before its additions.
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k) {
            loaded[k] = PAST_L1(held + at);
            at += all;
            at -= at >= count ? count : 0;
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k) add(sum, loaded[k]);
    }
    reinterpret_cast<float4*>(sums)[first] = sum;
}

// sums: of each thread; chain k begins at k, and the sum is over all chains.
extern "C" __global__ void __launch_bounds__(THREADS)
    multiply_add(float* __restrict__ sums, float factor, float step, int rounds) {
    float chain[CHAINS];
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) chain[k] = (float)k;
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int one = 0; one < STEPS; ++one) {
            // Independent chains hide the latency of a multiply-add.
#pragma unroll
            for (int k = 0; k < CHAINS; ++k) chain[k] = fmaf(chain[k], factor, step);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < CHAINS; ++k) sum += chain[k];
    sums[(long long)blockIdx.x * THREADS + threadIdx.x] = sum;
}
