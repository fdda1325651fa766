// A system wakes a thread on the core of its caller, where it holds the caller up, and takes milliseconds to move it to
// an idle one. Kernels of less than that move it themselves.
#pragma once

#include <omp.h>
#include <sched.h>
#include <unistd.h>

namespace spdnn {

// Moves this thread to another core of the process where it is on the caller's, unless cores were bound by the user.
inline void step_aside(int caller) {
    cpu_set_t cores;
    if (caller < 0 || sched_getcpu() != caller || omp_get_proc_bind() != omp_proc_bind_false) return;
    if (sched_getaffinity(getpid(), sizeof cores, &cores)) return;
    CPU_CLR(caller, &cores);
    if (CPU_COUNT(&cores)) sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace spdnn
