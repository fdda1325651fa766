// Numbers of 16 bits, in memory alone: widened to float when they are loaded, rounded once (to nearest, ties to even)
// when they are stored. The conversions are one instruction each, inline PTX as in the toolkit's cuda_fp16.h, which
// NVRTC does not bring along; on the CPU shim the compiler's own type does the same.
#pragma once

struct half {
    unsigned short bits;
};

#ifdef SPDNN_SHIM
__device__ __forceinline__ float widened(half value) {
    _Float16 number;
    memcpy(&number, &value, sizeof number);
    return number;
}
__device__ __forceinline__ void narrow(half& to, float value) {
    const _Float16 number = value;
    memcpy(&to, &number, sizeof number);
}
#else
__device__ __forceinline__ float widened(half value) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(value.bits));
    return number;
}
__device__ __forceinline__ void narrow(half& to, float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
}
#endif
__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ void narrow(float& to, float value) { to = value; }
