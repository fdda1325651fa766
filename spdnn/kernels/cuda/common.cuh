// What the kernels share: the layout of features, the activation, marks of active inputs.
//
// Features are tiles of TILE inputs, float (tiles, neurons, TILE): the TILE values of one neuron are one cache line.
// The features that go into a layer have a *row index* there; `list` has the indices of the rows that are still needed,
// in order, so a layer that reads through it leaves the dead ones behind, and writes row r to index r.
//
// Every sum is one chain in ascending order of inputs, so all kernels give the same bits; padding adds weight times 0.
#pragma once

#define TILE 32
#define SLICE 4  // groups of outputs, and
#define CHUNK 8  // gathers of each: sliced weights (spdnn/kernels/cuda/sliced.py)
#define FULL_WARP 0xffffffffu
#define WARPS (THREADS / 32)
#define LARGEST 3.402823466e38f

#ifndef SPDNN_SHIM
// The block's dynamic shared memory, as an array of `type` named `name`.
#define DYNAMIC_SHARED(type, name)                                \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    type* name = reinterpret_cast<type*>(name##_bytes)
#endif

__device__ __forceinline__ int tiles_of(int count) { return (count + TILE - 1) / TILE; }

// Where the first neuron of the row of that index is; its neuron n follows at n * TILE.
__device__ __forceinline__ long long row_start(int row, int neurons) {
    return (long long)(row / TILE) * neurons * TILE + row % TILE;
}

// Where this lane's row of a tile of `list` begins in features of so many neurons; past the last row, the last one's.
__device__ __forceinline__ const float* lane_row(const float* features, const int* list, int tile, int count,
                                                 int neurons) {
    return features + row_start(list[min(tile * TILE + (int)threadIdx.x % 32, count - 1)], neurons);
}

// The lanes of a tile, from its first row on, that hold rows.
__device__ __forceinline__ unsigned int valid_lanes(int first, int count) {
    return count - first >= TILE ? FULL_WARP : (1u << (count - first)) - 1;
}

// min(max(sum, low), high); `beyond` is set for a sum past float32, which a clip would hide.
__device__ __forceinline__ float activated(float sum, float low, float high, bool& beyond) {
    beyond |= !(fabsf(sum) <= LARGEST);
    return fminf(fmaxf(sum, low), high);
}

// Set bits of a mask in global memory that many blocks set: no atomic where they are set already.
__device__ __forceinline__ void mark(unsigned int* mask, unsigned int bits) {
    if (bits & ~*reinterpret_cast<volatile unsigned int*>(mask)) atomicOr(mask, bits);
}
