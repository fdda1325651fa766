// One neuron's part of a row's hash, which is their sum: it depends on the bits of the value and on the neuron.
#pragma once

__device__ __forceinline__ unsigned long long hashed(float value, int neuron) {
    unsigned long long mixed = ((unsigned long long)(unsigned int)neuron << 32 | __float_as_uint(value)) + 1;
    mixed *= 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
    return mixed ^ mixed >> 32;
}
