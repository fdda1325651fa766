// What the kernels of spdnn.ops share that knows no instruction set: topologies, how rows are dealt out, scratch
// memory.
#pragma once

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace spdnn {

// A sparse matrix by rows without its values; columns ascend in a row and are below `width`.
struct Pattern {
    int64_t rows, width;
    const int64_t* offsets;  // rows + 1
    const void* columns;     // uint16 or int32 by index_bytes
    int index_bytes;
    const int32_t* order;  // the order in which rows are dealt out, or null
    int64_t nonzeros() const { return offsets[rows]; }
};

// A kernel for numbers of either type, at one level. Threads' processor seconds go to busy (threads); what the result
// says, the file of `Work` has.
template <template <class> class Work>
struct OnNumbers {
    const char* name;
    bool (*single)(const Work<float>&, double* busy, int threads);
    bool (*half)(const Work<uint16_t>&, double* busy, int threads);
    bool run(const Work<float>& work, double* busy, int threads) const { return single(work, busy, threads); }
    bool run(const Work<uint16_t>& work, double* busy, int threads) const { return half(work, busy, threads); }
};

// All below is each file's own: files of several instruction-set levels include it, and where the linker is given one
// function several times it keeps any, so that one made for the best level would run on a processor without it. That is
// why vectors have an allocator of their own, too.
namespace {

template <class T>
struct Own : std::allocator<T> {
    template <class U>
    struct rebind {
        typedef Own<U> other;
    };
    Own() = default;
    template <class U>
    Own(const Own<U>&) {}
};

template <class T>
using Vector = std::vector<T, Own<T>>;

inline double processor_seconds() {  // of this thread
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Which rows each thread takes: groups of `group` neighbours, in the order of their first row in `order`, each to the
// thread with the fewest nonzeros so far (Graham's list scheduling; with the longest rows first, his LPT rule). A row
// counts as kRowCost nonzeros more than it has, so that empty ones are shared out too.
class Shares {
  public:
    Shares(const Pattern& pattern, int group, int threads) : first(threads + 1, 0), nonzeros(threads, 0) {
        const int64_t groups = (pattern.rows + group - 1) / group;
        // List scheduling with a heap of threads, the least loaded one at its root.
        Vector<int32_t> thread_of(groups, -1);
        Vector<Load> heap(threads);
        for (int t = 0; t < threads; ++t) heap[t] = {0, t};
        for (int64_t p = 0; p < pattern.rows; ++p) {
            const int64_t g = (pattern.order ? pattern.order[p] : p) / group;
            if (thread_of[g] >= 0) continue;
            const int64_t begin = g * group, end = std::min(begin + group, pattern.rows);
            const int64_t edges = pattern.offsets[end] - pattern.offsets[begin];
            const int thread = heap[0].thread;
            thread_of[g] = thread;
            nonzeros[thread] += edges;
            ++first[thread + 1];
            add(heap, edges + (end - begin) * kRowCost);
        }
        // Counting sort of the groups by thread: prefix sum, then scatter, so that a thread's groups ascend.
        for (int t = 0; t < threads; ++t) first[t + 1] += first[t];
        Vector<int64_t> next(first.begin(), first.end() - 1);
        groups_.resize(groups);
        for (int64_t g = 0; g < groups; ++g) groups_[next[thread_of[g]]++] = static_cast<int32_t>(g);
    }
    // The groups of a thread, ascending.
    const int32_t* begin(int thread) const { return groups_.data() + first[thread]; }
    const int32_t* end(int thread) const { return groups_.data() + first[thread + 1]; }

  private:
    static constexpr int64_t kRowCost = 4;
    struct Load {
        int64_t work;
        int thread;
        bool operator<(const Load& other) const {
            return work < other.work || (work == other.work && thread < other.thread);
        }
    };
    // The least loaded thread, the root, gets more work and sinks to its position.
    static void add(Vector<Load>& heap, int64_t work) {
        heap[0].work += work;
        for (size_t at = 0, child; (child = 2 * at + 1) < heap.size(); at = child) {
            if (child + 1 < heap.size() && heap[child + 1] < heap[child]) ++child;
            if (!(heap[child] < heap[at])) break;
            std::swap(heap[at], heap[child]);
        }
    }

    Vector<int32_t> groups_;
    Vector<int64_t> first;

  public:
    Vector<int64_t> nonzeros;  // of each thread
};

// Where thread `thread` of `threads` begins when rows are cut into ranges of equal nonzeros (and rows).
inline int64_t first_row(const int64_t* offsets, int64_t rows, int thread, int threads) {
    const int64_t work =
        (offsets[rows] + rows) / threads * thread + (offsets[rows] + rows) % threads * thread / threads;
    // Binary search: offsets[row] + row ascends, and counts a row as one nonzero more.
    int64_t low = 0, high = rows;  // the first row with offsets[row] + row >= work
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (offsets[middle] + middle < work) low = middle + 1;
        else high = middle;
    }
    return thread == threads ? rows : low;
}

// In a team of threads: body(t) for the shares t of `threads` that are this member's (one, unless the team is smaller
// than asked for), its processor seconds added to busy[t].
template <class Body>
void own_shares(int threads, double* busy, const Body& body) {
    for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads()) {
        const double began = processor_seconds();
        body(t);
        busy[t] += processor_seconds() - began;
    }
}

// The first of the layers that failed, which threads find in any order.
class FirstFailed {
  public:
    void at(int64_t layer) {
        // Atomic minimum by compare and swap.
        int64_t least = first.load(std::memory_order_relaxed);
        while (layer < least && !first.compare_exchange_weak(least, layer, std::memory_order_relaxed)) {}
    }
    // -1: none.
    int64_t layer() const { return first == kNone ? -1 : first.load(); }

  private:
    static constexpr int64_t kNone = INT64_MAX;
    std::atomic<int64_t> first{kNone};
};

// Memory that a thread keeps for the next call; only ever grows. Pages are made once, and stay warm.
class KeptMemory {
  public:
    KeptMemory() = default;
    KeptMemory(const KeptMemory&) = delete;
    ~KeptMemory() { std::free(data); }
    float* floats(int64_t count) {
        const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 4095) / 4096 * 4096;
        if (bytes > size) {
            std::free(data);
            data = nullptr, size = 0;
            data = std::aligned_alloc(4096, bytes);
            if (!data) throw std::bad_alloc();
            size = bytes;
        }
        return static_cast<float*>(data);
    }

  private:
    void* data = nullptr;
    size_t size = 0;
};

}  // namespace
}  // namespace spdnn
