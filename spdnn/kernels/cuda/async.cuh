// Copies from global to shared memory that take no register and no time of their thread while they are on their way:
// from sm_80 on, inline PTX; before, a plain copy. After waiting, a barrier lets other threads read what was copied.
#pragma once

#if __CUDA_ARCH__ < 800
#define COPIES_GO_ON false
template <class T>
__device__ __forceinline__ void copy_async(T* shared, const T* global) {
    *shared = *global;
}
__device__ __forceinline__ void wait_for_copies() {}
#else
#define COPIES_GO_ON true
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

// From sm_90 on, one instruction copies all inputs of a neuron, and an mbarrier counts the bytes that have come.
#if BULK
typedef unsigned long long Arrivals;
#ifndef SPDNN_SHIM
// One thread makes it; a barrier then lets the others use it.
__device__ __forceinline__ void make_arrivals(Arrivals* arrivals) {
    // One arrival a round, that of expect_bytes; the bytes that come complete it.
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(in_shared(arrivals)) : "memory");
    // Make the new barrier visible before a bulk copy reports to it.
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One thread says how many bytes come in this round.
__device__ __forceinline__ void expect_bytes(Arrivals* arrivals, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(in_shared(arrivals)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void copy_bulk(float* shared, const float* global, int bytes, Arrivals* arrivals) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     in_shared(shared)),
                 "l"(global), "r"(bytes), "r"(in_shared(arrivals))
                 : "memory");
}
// Every thread waits for the round of that parity.
__device__ __forceinline__ void wait_for_bytes(Arrivals* arrivals, int parity) {
    unsigned int come = 0;
    // Spin on the parity; try_wait itself suspends the thread for a while.
    while (!come)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(come)
                     : "r"(in_shared(arrivals)), "r"(parity)
                     : "memory");
}
// What this thread has done in shared memory comes before bulk copies that begin after the next barrier.
__device__ __forceinline__ void before_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#endif
#endif
