// Threads of a kernel at one instruction-set level, and the processor time that each spent.
#pragma once

#include "aside.hpp"
#include "level.hpp"
#include "ops.hpp"

#include <atomic>
#include <new>

namespace spdnn {
namespace SPDNN_LEVEL {

// share(k) on thread k, timed; whether one returned true.
template <class Share>
bool on_threads(int threads, double* busy, Share share) {
    std::atomic<bool> any{false}, out_of_memory{false};
    const int caller = sched_getcpu();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int k = 0; k < threads; ++k) {
        if (k) step_aside(caller);
        const double began = processor_seconds();
        try {
            if (share(k)) any = true;
        } catch (const std::bad_alloc&) { out_of_memory = true; }
        busy[k] = processor_seconds() - began;
    }
    if (out_of_memory) throw std::bad_alloc();
    return any;
}

}  // namespace SPDNN_LEVEL
}  // namespace spdnn
