// Copies from global to shared memory that take no register while they are on their way: from sm_80 on, inline PTX; before,
// and on the CPU shim, a plain copy. After waiting, a barrier lets other threads read what was copied.
#pragma once

#if defined(SPDNN_SHIM) || __CUDA_ARCH__ < 800
__device__ __forceinline__ void copy_async(float* shared, const float* global) { *shared = *global; }
__device__ __forceinline__ void wait_for_copies() {}
#else
__device__ __forceinline__ void copy_async(float* shared, const float* global)
{
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif
