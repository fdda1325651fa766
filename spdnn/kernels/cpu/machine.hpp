// What one thread does while the machine's limits are measured; the same interface at every instruction-set level.
//
// Each function does a known amount of work that the compiler can neither leave out nor shorten. Windows, threads and
// the clock are in machine_module.cpp.
#pragma once

#include <cstdint>

namespace spdnn {

constexpr int64_t kLoadFloats = 128;  // what is loaded comes in multiples of it: 8 of the widest vectors

struct MachineWork {
    const char* name;
    // dst <- src, `floats` (a multiple of 16) of them, 64-byte aligned, with stores that do not read what they replace.
    void (*copy)(const float* src, float* dst, int64_t floats);
    // Every float of src (a multiple of kLoadFloats, 64-byte aligned) is loaded and added up, `rounds` times.
    void (*load)(const float* src, int64_t floats, int64_t rounds);
    // `rounds` x `multiply_adds` multiply-adds of float32, in chains that do not wait for each other.
    void (*multiply_add)(int64_t rounds);
    int64_t multiply_adds;
};

}  // namespace spdnn
