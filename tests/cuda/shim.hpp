// CUDA C++ for the CPU, as much of it as our kernels use: what stands before the text of a `.cu` file so that g++
// compiles it unmodified. The threads of a block are fibers of one OS thread (shim.cpp); each runs until it meets a
// synchronisation. Blocks run on several OS threads at once, so atomics are real.
//
// Modelled: what each primitive returns, who waits for whom, memory that nobody has written (0xFF bytes: NaN as float).
// Not modelled: the memory model (everything is seen at once), bank conflicts, coalescing, registers, time; threads
// that spin until another thread of their block writes (they hang, for nothing takes the processor from a fiber).
//
// Stricter than CUDA's guide, which excuses threads that have exited: a barrier waits for every thread of the block, a
// warp primitive for every lane of its mask that the block ever had, and to wait for one that has exited is an error.
//
// `__shared__` variables are static ones. Blocks on several OS threads have their own, for each thread runs its own
// copy of the compiled library (thread_local ones would be slow to find, and AddressSanitizer would not guard them).
// Variables in device memory would have as many copies: they do not compile.
#pragma once

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's math.h alone: C++'s takes a third of a kernel's compilation
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <utility>

// Vectors. Their alignment is CUDA's, so that misaligned ones are found (shim.py).
#define SHIM_VECTORS(base, name)                                               \
    struct alignas(2 * sizeof(base)) name##2 { base x, y; };                   \
    struct alignas(4 * sizeof(base)) name##4 { base x, y, z, w; };             \
    inline constexpr name##2 make_##name##2(base x, base y) { return {x, y}; } \
    inline constexpr name##4 make_##name##4(base x, base y, base z, base w) { return {x, y, z, w}; }
SHIM_VECTORS(float, float)
SHIM_VECTORS(unsigned, uint)
#undef SHIM_VECTORS

struct uint3 {
    unsigned x, y, z;
};
using dim3 = uint3;  // which kernels only read

// Where the running thread is. The runtime keeps it; initial-exec makes reading it one load.
struct ShimPlace {
    uint3 thread, block;
    dim3 threads, blocks;
    unsigned char* dynamic;
};
enum ShimKind : int {  // what a thread can wait at; shim.cpp names them
    SHIM_BARRIER,
    SHIM_SYNCWARP,
    SHIM_SHFL,
    SHIM_SHFL_XOR,
    SHIM_BALLOT,
    SHIM_ALL,
    SHIM_KINDS
};
#define SHIM_EXPORT __attribute__((visibility("default")))
extern "C" {
extern SHIM_EXPORT __thread ShimPlace shim_place __attribute__((tls_model("initial-exec")));
SHIM_EXPORT void shim_barrier();
SHIM_EXPORT uint64_t shim_warp(ShimKind kind, unsigned mask, uint64_t value, unsigned argument, int width);
}

#define threadIdx (shim_place.thread)
#define blockIdx (shim_place.block)
#define blockDim (shim_place.threads)
#define gridDim (shim_place.blocks)

#define __global__
#define __device__ __attribute__((no_instrument_function))  // which only functions can have
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static __attribute__((section("shim_variables")))
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(shim_place.dynamic)

// The barrier, and warp primitives.
inline void __syncthreads() { shim_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { shim_warp(SHIM_SYNCWARP, mask, 0, 0, 32); }
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return shim_warp(SHIM_BALLOT, mask, predicate != 0, 0, 32);
}
inline int __all_sync(unsigned mask, int predicate) { return shim_warp(SHIM_ALL, mask, predicate != 0, 0, 32); }

template <class T>
inline T shim_shuffle(ShimKind kind, unsigned mask, T value, unsigned argument, int width) {
    static_assert(std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = shim_warp(kind, mask, bits, argument, width);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return shim_shuffle(SHIM_SHFL, mask, value, lane, width);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    return shim_shuffle(SHIM_SHFL_XOR, mask, value, lanes, width);
}

// Atomics: each returns what was there before. The second argument converts to the type of the first, as CUDA's do.
template <class T>
using ShimArgument = std::common_type_t<T>;

template <class T, class Change>
inline T shim_atomic(T* address, Change change) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    static_assert(sizeof(T) == sizeof(Bits), "atomics work on 4 or 8 bytes");
    Bits* place = reinterpret_cast<Bits*>(address);
    Bits before = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        T old, changed;
        Bits after;
        memcpy(&old, &before, sizeof(T));
        changed = change(old);
        memcpy(&after, &changed, sizeof(T));
        if (__atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
    }
}
#define SHIM_ATOMIC(name, expression)                                        \
    template <class T>                                                       \
    inline T name(T* address, ShimArgument<T> value) {                       \
        return shim_atomic(address, [=](T old) -> T { return expression; }); \
    }
SHIM_ATOMIC(atomicAdd, old + value)
SHIM_ATOMIC(atomicOr, old | value)
SHIM_ATOMIC(atomicMin, value < old ? value : old)
#undef SHIM_ATOMIC
template <class T>
inline T atomicCAS(T* address, ShimArgument<T> compare, ShimArgument<T> value) {
    return shim_atomic(address, [=](T old) -> T { return old == compare ? value : old; });
}

// What is brought to the second-level cache (async.cuh) must be there.
inline void prefetch(const void* global) { (void)*static_cast<const volatile char*>(global); }

// Copies that go on by themselves (async.cuh), at their worst: they destroy what was there at once, and bring what they
// read only when the thread waits for them.
struct alignas(16) ShimCopy {
    uint32_t words[4];
    uint32_t* to;
    int count;
};
extern "C" {
SHIM_EXPORT void shim_copy(const ShimCopy* copy);
SHIM_EXPORT int shim_landed(ShimCopy* copy);  // 0: none is left
[[noreturn]] SHIM_EXPORT void shim_fail(const char* what);
}
#if __CUDA_ARCH__ >= 800
template <class T>
inline void copy_async(T* shared, const T* global) {
    ShimCopy copy{{}, reinterpret_cast<uint32_t*>(shared), sizeof(T) / 4};
    *reinterpret_cast<T*>(copy.words) = *global;
    for (int i = 0; i < copy.count; ++i) copy.to[i] = ~0u;
    shim_copy(&copy);
}
inline void wait_for_copies() {
    for (ShimCopy copy; shim_landed(&copy);)
        for (int i = 0; i < copy.count; ++i) copy.to[i] = copy.words[i];
}
#endif

// Integers.
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = uint64_t(high) << 32 | low;
    unsigned result = 0;
    for (int byte = 0; byte < 4; ++byte) result |= unsigned(bytes >> 8 * (selector >> 4 * byte & 7) & 0xff) << 8 * byte;
    return result;
}

// Floating point: every function here rounds once, as on the device; nothing is contracted (-ffp-contract=off), whereas
// NVRTC contracts products into fused multiply-adds unless it is told not to.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }

template <class To, class From>
inline To shim_bits(From value) {
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}
inline unsigned __float_as_uint(float value) { return shim_bits<unsigned>(value); }
inline float __uint_as_float(unsigned value) { return shim_bits<float>(value); }
inline long long __double_as_longlong(double value) { return shim_bits<long long>(value); }

// CUDA's min and max are fmin and fmax of floating-point numbers, and unsigned where one of two integers is.
template <class A, class B>
inline constexpr auto min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return T(sizeof(T) == 4 ? fminf(a, b) : fmin(a, b));
    else return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
inline constexpr auto max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return T(sizeof(T) == 4 ? fmaxf(a, b) : fmax(a, b));
    else return T(a) < T(b) ? T(b) : T(a);
}

template <class T>
inline T __ldg(const T* address) {
    return *address;
}

// What the runtime asks of a compiled kernel: to be called with unpacked arguments, and where its `__shared__`
// variables are.
template <class... P, size_t... I>
inline void shim_unpack(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<P>*>(arguments[I])...);
}
template <class... P>
inline void shim_call(void (*kernel)(P...), void** arguments) {
    shim_unpack(kernel, arguments, std::index_sequence_for<P...>());
}

extern "C" {
extern __attribute__((weak)) char __start_shim_variables[], __stop_shim_variables[];
SHIM_EXPORT void shim_shared(char** begin, char** end) {
    *begin = __start_shim_variables, *end = __stop_shim_variables;
}
}

#ifdef SHIM_SANITIZED
extern "C" {

// What sanitized code calls instead of the sanitizers' libraries: an error ends the launch, and not the process.
[[noreturn]] SHIM_EXPORT void shim_bad_access(bool write, uintptr_t address, size_t size);
[[noreturn]] SHIM_EXPORT void shim_misaligned(const char* type, uintptr_t address, size_t alignment);
#define SHIM_REPORT(size)                                                                    \
    void __asan_report_load##size(void* at) { shim_bad_access(false, uintptr_t(at), size); } \
    void __asan_report_store##size(void* at) { shim_bad_access(true, uintptr_t(at), size); }
SHIM_REPORT(1)
SHIM_REPORT(2) SHIM_REPORT(4) SHIM_REPORT(8) SHIM_REPORT(16) void __asan_report_load_n(void* at, size_t size) {
    shim_bad_access(false, uintptr_t(at), size);
}
void __asan_report_store_n(void* at, size_t size) { shim_bad_access(true, uintptr_t(at), size); }
void __asan_handle_no_return() {}  // the runtime cleans the stacks of fibers
struct ShimMismatch {              // as the undefined behaviour sanitizer's code is given it
    struct {
        const char* file;
        uint32_t line, column;
    } place;
    struct {
        uint16_t kind, info;
        char name[1];
    }* type;
    unsigned char log_alignment, access;
};
void __ubsan_handle_type_mismatch_v1_abort(ShimMismatch* found, void* at) {
    shim_misaligned(found->type->name, uintptr_t(at), size_t(1) << found->log_alignment);
}
}
#endif
