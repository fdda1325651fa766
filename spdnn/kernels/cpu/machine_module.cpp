// The machine's limits for Python: short windows in which all threads do one kind of work, each a sample of its rate.
//
// Alone   What each core has for itself (its caches, its arithmetic): the sum of what each thread did in a second of
//         its own processor time. Another process that takes a core for a while does not lower it.
// Shared  What all share (memory): the work of all threads over the time from the moment when all are there to the
//         moment when the last has ended. Such a sample may be too low, where a thread lost its core, but never too
//         high.
// The best sample of several is the limit.
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>

#include "binding.hpp"
#include "machine.hpp"
#include "ops.hpp"

using namespace nb::literals;

namespace spdnn {

SPDNN_LEVELS(MachineWork, machine);

constexpr int kWindows = 16;
// Work between two readings of the clock (some 30 ns): 5 to 50 us.
constexpr int64_t kCopyFloats = 1 << 16, kLoadedFloats = 1 << 21, kMultiplyAdds = 1 << 21;

using Memory = Array<float, 1>;
using Clock = std::chrono::steady_clock;

static void check(const Memory& memory, int threads) {
    require(threads >= 1, "no threads");
    require(reinterpret_cast<uintptr_t>(memory.data()) % 64 == 0, "memory must be 64-byte aligned");
}

enum class Resource { kAlone, kShared };

struct Window {  // of one thread: what it did, in how many seconds, and its rate in its own processor time
    double chunks = 0, elapsed = 0, own_rate = 0;
};

// Samples of amount / second, where each call of chunk(thread, step) does `amount`; steps of a thread count from 0.
template <class Chunk>
std::vector<double> samples(Resource resource, int threads, double seconds, double amount, const Chunk& chunk) {
    std::vector<double> rates;
    std::vector<int64_t> steps(threads, 0);
    // Threads that share one core have that core's rate together.
    const double cores = std::min(1.0, static_cast<double>(omp_get_num_procs()) / threads);
    for (int window = -1; window < kWindows; ++window) {  // the first fills caches and wakes cores: no sample
        std::vector<Window> windows(threads);             // not a reduction, whose lock is the process's (module.cpp)
        Clock::time_point start;
#pragma omp parallel num_threads(threads)
        {
            const int thread = omp_get_thread_num();
            const int64_t first = steps[thread];
            int64_t step = first;
#pragma omp barrier
#pragma omp single
            start = Clock::now();  // and a barrier: none begins before
            const double began = processor_seconds();
            double elapsed;
            do {
                chunk(thread, step++);
                elapsed = std::chrono::duration<double>(Clock::now() - start).count();
            } while (elapsed < seconds / kWindows);
            const double own = processor_seconds() - began;  // in coarse ticks on some systems: 0, or beyond the window
            const double chunks = static_cast<double>(step - first);
            windows[thread] = {chunks, elapsed, chunks / (own > 0 ? std::min(own, elapsed) : elapsed)};
            steps[thread] = step;
        }
        Window whole;
        for (const Window& one : windows) {
            whole.chunks += one.chunks, whole.own_rate += one.own_rate;
            whole.elapsed = std::max(whole.elapsed, one.elapsed);
        }
        if (window >= 0)
            rates.push_back(amount *
                            (resource == Resource::kAlone ? whole.own_rate * cores : whole.chunks / whole.elapsed));
    }
    return rates;
}

// Where thread `thread` of `threads` begins in `floats`, in multiples of `unit`.
static int64_t begin(int64_t floats, int64_t unit, int thread, int threads) {
    return floats / unit * thread / threads * unit;
}

static std::vector<double> copy_samples(const std::string& level, Memory source, Memory target, int threads,
                                        double seconds) {
    const MachineWork& at = at_level(machine_levels, level);
    check(source, threads), check(target, threads);
    const int64_t floats = source.size();
    require(target.size() == source.size() && floats >= threads * kCopyFloats,
            "the two arrays must be of one size, and hold a chunk a thread");
    float *from = source.data(), *to = target.data();
    nb::gil_scoped_release release;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) {  // each thread's pages are first touched by it
        const int64_t first = begin(floats, kCopyFloats, thread, threads),
                      last = begin(floats, kCopyFloats, thread + 1, threads);
        std::fill(from + first, from + last, 1.0f);
        std::fill(to + first, to + last, 0.0f);
    }
    return samples(Resource::kShared, threads, seconds, 8.0 * kCopyFloats, [&](int thread, int64_t step) {
        const int64_t first = begin(floats, kCopyFloats, thread, threads),
                      last = begin(floats, kCopyFloats, thread + 1, threads);
        const int64_t offset = first + step % ((last - first) / kCopyFloats) * kCopyFloats;
        at.copy(from + offset, to + offset, kCopyFloats);
    });
}

static std::vector<double> load_samples(const std::string& level, Memory memory, int threads, double seconds) {
    const MachineWork& at = at_level(machine_levels, level);
    check(memory, threads);
    const int64_t floats = memory.size() / threads;
    require(floats > 0 && floats % kLoadFloats == 0, "each thread's memory must be a multiple of 128 floats");
    float* all = memory.data();
    const int64_t rounds = std::max<int64_t>(1, kLoadedFloats / floats);
    nb::gil_scoped_release release;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread)
        std::fill(all + thread * floats, all + (thread + 1) * floats, 1.0f);
    return samples(Resource::kAlone, threads, seconds, 4.0 * floats * rounds,
                   [&](int thread, int64_t) { at.load(all + thread * floats, floats, rounds); });
}

static std::vector<double> multiply_add_samples(const std::string& level, int threads, double seconds) {
    const MachineWork& at = at_level(machine_levels, level);
    require(threads >= 1, "no threads");
    const int64_t rounds = kMultiplyAdds / at.multiply_adds;
    nb::gil_scoped_release release;
    return samples(Resource::kAlone, threads, seconds, static_cast<double>(rounds * at.multiply_adds),
                   [&](int, int64_t) { at.multiply_add(rounds); });
}

void bind_machine(nb::module_& m) {
    m.def("copy_samples", &copy_samples, "level"_a, "source"_a, "target"_a, "threads"_a, "seconds"_a,
          "Bytes read and bytes written a second, memory to memory, in each window.");
    m.def("load_samples", &load_samples, "level"_a, "memory"_a, "threads"_a, "seconds"_a,
          "Bytes loaded and added up a second, each thread from its part of `memory`, in each window.");
    m.def("multiply_add_samples", &multiply_add_samples, "level"_a, "threads"_a, "seconds"_a,
          "Multiply-adds of float32 a second, in each window.");
}

}  // namespace spdnn
