// Threads for calls of microseconds: they stay awake for a moment after a call, and nobody waits for one that sleeps.
//
// A call cuts its work into units. Whoever is awake takes the next one, the caller too, who waits only for units that
// another thread has begun: on a busy machine, where threads of OpenMP meet a time slice later, the caller does it all.
#pragma once

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

namespace spdnn {

class Helpers;

// The caller and the helpers of this process, unless another call has these; in a forked process, new ones.
class Team {
  public:
    explicit Team(int threads);
    ~Team();
    Team(const Team&) = delete;
    // work(unit) for units 0 .. units - 1, in any order, on any thread; returns when all are done. `work` throws
    // nothing.
    template <class Work>
    void each(int64_t units, const Work& work) {
        run(units, [](const void* context, int64_t unit) { (*static_cast<const Work*>(context))(unit); }, &work);
    }

  private:
    using Call = void (*)(const void* context, int64_t unit);
    void run(int64_t units, Call, const void* context);
    std::shared_ptr<Helpers> helpers;  // none: the caller is alone
};

// A system wakes a thread on the core of its caller, where it holds the caller up, and takes milliseconds to move it to
// an idle one. Kernels of less than that move it themselves.
//
// Moves this thread to another of these cores where it is on the caller's.
// Each file's own, as all in ops.hpp: files of several instruction-set levels include it.
static inline void step_aside(int caller, cpu_set_t cores) {
    if (caller < 0 || sched_getcpu() != caller) return;
    CPU_CLR(caller, &cores);
    if (CPU_COUNT(&cores)) sched_setaffinity(0, sizeof cores, &cores);
}

// The same for a thread of OpenMP, on the cores of the process, unless OpenMP binds its threads.
static inline void step_aside(int caller) {
    cpu_set_t cores;
    if (caller < 0 || sched_getcpu() != caller || omp_get_proc_bind() != omp_proc_bind_false) return;
    if (!sched_getaffinity(getpid(), sizeof cores, &cores)) step_aside(caller, cores);
}

}  // namespace spdnn
