// Copies from global to shared memory that take no register and no time of their thread while they are on their way:
// from sm_80 on, inline PTX; before, a plain copy. After waiting, a barrier lets other threads read what was copied.
#pragma once

#if __CUDA_ARCH__ < 800
#define ASYNC_COPIES false
template <class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
    *shared = *global;
}
__device__ __forceinline__ void wait_for_copies() {}
#else
#define ASYNC_COPIES true
#ifndef SPDNN_SHIM
__device__ __forceinline__ unsigned int in_shared(const void* address) {
    return (unsigned int)__cvta_generic_to_shared(address);
}
template <class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global)  // of 4 bytes
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(in_shared(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_async(float4* shared, const float4* global)  // not kept in the first-level cache
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(in_shared(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif
#endif

#ifndef SPDNN_SHIM
// Brings the line of that address to the second-level cache.
__device__ __forceinline__ void prefetch(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global)); }
#endif
