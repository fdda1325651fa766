// What the kernels on rows share: hashes, and the count of survivors.
#pragma once

// One neuron's part of a row's hash, which is their sum: it depends on the bits of the value and on the neuron.
__device__ __forceinline__ unsigned long long hashed(float value, int neuron) {
    unsigned long long mixed = ((unsigned long long)(unsigned int)neuron << 32 | __float_as_uint(value)) + 1;
    mixed *= 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
    return mixed ^ mixed >> 32;
}

// Survivors: the inputs behind the active rows of a tile, after each layer of a pass. A warp calls it for its tile.
//   weight  how many inputs the row of this lane represents; 0 for none
__device__ __forceinline__ void tally(const unsigned int* active, int tiles, int first, int last, int tile, int weight,
                                      unsigned long long* survivors) {
    // Warp vote: where no row stands for several inputs, ballot and population count replace the reduction.
    const bool single = __all_sync(FULL_WARP, weight <= 1);
    for (int k = first; k < last; ++k) {
        const unsigned int marks = active[(long long)k * tiles + tile];
        int sum = single                          ? __popc(marks & __ballot_sync(FULL_WARP, weight == 1))
                  : marks >> threadIdx.x % 32 & 1 ? weight
                                                  : 0;
        // Butterfly reduction of the weights of active rows.
        if (!single)
            for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
        // One atomic a tile and layer, none for a dead tile.
        if (threadIdx.x % 32 == 0 && sum) atomicAdd(survivors + k, (unsigned long long)sum);
    }
}
