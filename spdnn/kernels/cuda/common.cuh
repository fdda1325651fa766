// What every kernel of ours may use. The CPU shim of the tests defines SPDNN_SHIM and its own DYNAMIC_SHARED.
//
// Features are tiles of TILE inputs: float (tiles, neurons, TILE), so the TILE values of one neuron are one cache line.
#pragma once

#define TILE 32
#define FULL_WARP 0xffffffffu

#ifndef SPDNN_SHIM
// The block's dynamic shared memory, as an array of `type` named `name`.
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    type* name = reinterpret_cast<type*>(name##_bytes)
#endif
