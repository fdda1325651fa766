// 3 x 3 convolution of each channel with its own weights, padding 1, stride 1 or 2; bias and activation in the
// epilogue.
//
// Algorithm   depthwise_nchw: a thread computes RUN outputs of one column, below each other, so that a row of inputs
//             that it loads serves up to three of them; neighbours in a warp are neighbours in memory.
//             depthwise_nhwc: a thread computes RUN outputs side by side of VECTOR channels. A block keeps the weights
//             of `across` x VECTOR channels in shared memory, tap by tap, and strides over runs.
//             An output is one chain of nine fused multiply-adds, row by row, from 0; padding takes part as zeros.
//             So both layouts and all settings give the same bits.
// Layout      x (images, channels, height, width), or (images, height, width, channels), out alike; weights (channels,
//             3, 3); bias at channel * bias_step. depthwise_nhwc: x and out begin at multiples of a vector, and VECTOR
//             divides channels.
// Launch      depthwise_nchw: any number of blocks. depthwise_nhwc: a multiple of the tiles of channels, ceil(channels
//             / (across x VECTOR)); 1 <= across <= MOST_ACROSS.
// Shared      depthwise_nhwc, static: 9 x MOST_ACROSS x VECTOR floats (4.6 KB).
// Macros      THREADS; VALUE (float, half); VECTOR (1, 4); BLOCKS, that a multiprocessor holds at least.
// Reference   Gale et al., SC 2020, section VIII-B (MobileNetV1, whose depthwise layers are dense).
//
// Predicted, not measured: 18 operations an output against 2 x sizeof(VALUE) bytes of memory: bound by memory, if the
// first-level cache serves what neighbours read again: 4.5 loads an output at stride 1 (RUN = 4) where nine are needed.
#include "ops.cuh"

#define RUN 4
#define TAPS 9
#define MOST_ACROSS 32

#if VECTOR == 1  // once is enough
template <int STRIDE>
__device__ __forceinline__ void column_of_outputs(float (&sums)[RUN], const VALUE* plane, const float (&weights)[TAPS],
                                                  int top, int left, int height, int width) {
    // A row of inputs is loaded once for all outputs of the column that it reaches.
#pragma unroll
    for (int r = 0; r < (RUN - 1) * STRIDE + 3; ++r) {
        const int y = top + r;
        const bool there = y >= 0 && y < height;
        const VALUE* row = plane + (long long)(there ? y : 0) * width;
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            const int x = left + c;
            const float number = there && x >= 0 && x < width ? widened(row[x]) : 0.f;
            // Which tap it is to output i is known after unrolling, so weights and sums stay in registers.
#pragma unroll
            for (int i = 0; i < RUN; ++i) {
                const int tap = r - i * STRIDE;
                if (tap >= 0 && tap < 3) sums[i] = fmaf(number, weights[tap * 3 + c], sums[i]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    depthwise_nchw(const VALUE* __restrict__ x, const VALUE* __restrict__ weights, const float* __restrict__ bias,
                   int bias_step, float low, float high, VALUE* __restrict__ out, int images, int channels, int height,
                   int width, int out_height, int out_width, int stride) {
    const int runs = (out_height + RUN - 1) / RUN;
    const long long all = (long long)images * channels * runs * out_width, step = (long long)gridDim.x * THREADS;
    for (long long item = (long long)blockIdx.x * THREADS + threadIdx.x; item < all; item += step) {
        int column, run, channel;
        // Columns vary fastest, so that the loads of a warp are coalesced.
        const long long plane = divided(divided(item, out_width, column), runs, run);
        divided(plane, channels, channel);
        float own[TAPS], sums[RUN];
#pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) own[tap] = widened(weights[(long long)channel * TAPS + tap]);
#pragma unroll
        for (int i = 0; i < RUN; ++i) sums[i] = 0.f;
        const VALUE* from = x + plane * height * width;
        // Padding 1: the window begins one above and one to the left.
        const int top = run * RUN * stride - 1, left = column * stride - 1;
        if (stride == 1) column_of_outputs<1>(sums, from, own, top, left, height, width);
        else column_of_outputs<2>(sums, from, own, top, left, height, width);
        // Epilogue; the last run may pass the end of the plane.
        const float added = bias[(long long)channel * bias_step];
        VALUE* to = out + (plane * out_height + run * RUN) * out_width + column;
#pragma unroll
        for (int i = 0; i < RUN; ++i)
            if (run * RUN + i < out_height) narrow(to[(long long)i * out_width], activated(sums[i] + added, low, high));
    }
}
#endif

template <int STRIDE>
__device__ __forceinline__ void row_of_outputs(float (&sums)[RUN][VECTOR], const VALUE* image, const float* weights,
                                               int pitch, int top, int left, int height, int width, int channels) {
#pragma unroll 1  // a row at a time: 9 loads of stride 2 are enough in flight, and more would spill
    for (int r = 0; r < 3; ++r) {
        const int y = top + r;
        const bool there = y >= 0 && y < height;
        const VALUE* row = image + (long long)(there ? y : 0) * width * channels;
        // The weights of this row of taps, from shared memory into registers, once for RUN outputs.
        float own[3][VECTOR];
#pragma unroll
        for (int c = 0; c < 3; ++c) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) own[c][v] = weights[(r * 3 + c) * pitch + v];
        }
        // Each input vector serves all outputs of the run that it reaches.
#pragma unroll
        for (int c = 0; c < (RUN - 1) * STRIDE + 3; ++c) {
            const int x = left + c;
            float numbers[VECTOR];
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) numbers[v] = 0.f;
            if (there && x >= 0 && x < width) spread(numbers, load<VALUE, VECTOR>(row + (long long)x * channels));
#pragma unroll
            for (int i = 0; i < RUN; ++i) {
                const int tap = c - i * STRIDE;
                if (tap < 0 || tap >= 3) continue;
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) sums[i][v] = fmaf(numbers[v], own[tap][v], sums[i][v]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    depthwise_nhwc(const VALUE* __restrict__ x, const VALUE* __restrict__ weights, const float* __restrict__ bias,
                   int bias_step, float low, float high, VALUE* __restrict__ out, int images, int channels, int height,
                   int width, int out_height, int out_width, int stride, int across) {
    constexpr int pitch = MOST_ACROSS * VECTOR;
    __shared__ __align__(16) float staged[TAPS * pitch];  // [tap][channel of the tile]
    const int tiles = (channels + across * VECTOR - 1) / (across * VECTOR);
    const int first = (int)(blockIdx.x % tiles) * across * VECTOR, held = min(across * VECTOR, channels - first);
    // Stage the weights transposed: the channels of a tap lie side by side, as lanes read them.
    for (int i = threadIdx.x; i < held * TAPS; i += THREADS)
        staged[i % TAPS * pitch + i / TAPS] = widened(weights[(long long)first * TAPS + i]);
    __syncthreads();

    const int group = threadIdx.x % across, together = THREADS / across;  // threads beyond together * across have none
    const int runs = (out_width + RUN - 1) / RUN, mine = group * VECTOR;
    if (mine >= held || (int)threadIdx.x >= together * across) return;
    const long long all = (long long)images * out_height * runs, step = (long long)(gridDim.x / tiles) * together;
    for (long long item = (long long)(blockIdx.x / tiles) * together + threadIdx.x / across; item < all; item += step) {
        int run, row;
        // Which image, row and run; threads of neighbouring groups read neighbouring channels, coalesced.
        const long long image = divided(divided(item, runs, run), out_height, row);
        float sums[RUN][VECTOR];
#pragma unroll
        for (int i = 0; i < RUN; ++i) {
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) sums[i][v] = 0.f;
        }
        const VALUE* from = x + image * height * width * channels + first + mine;
        const int top = row * stride - 1, left = run * RUN * stride - 1;
        if (stride == 1) row_of_outputs<1>(sums, from, staged + mine, pitch, top, left, height, width, channels);
        else row_of_outputs<2>(sums, from, staged + mine, pitch, top, left, height, width, channels);
        VALUE* to = out + ((image * out_height + row) * out_width + run * RUN) * channels + first + mine;
        // Epilogue with vector stores; the last run may pass the end of the row.
#pragma unroll
        for (int i = 0; i < RUN; ++i) {
            if (run * RUN + i >= out_width) continue;
#pragma unroll
            for (int v = 0; v < VECTOR; ++v)
                sums[i][v] = activated(sums[i][v] + bias[(long long)(first + mine + v) * bias_step], low, high);
            store(to + (long long)i * channels, sums[i]);
        }
    }
}
