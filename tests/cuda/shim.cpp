// The runtime of the CUDA shim (shim.hpp says what is modelled): fibers, barriers, warp primitives, blocks on OS
// threads.
//
// A fiber runs until it waits or exits, and then goes straight on to the next thread of the block's order that can run.
// When none can and some wait, nothing ever releases them: that is the deadlock that is reported. A thread that starts
// where another has exited takes over its stack, so a kernel that never synchronises runs as one loop on one stack.
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#if !defined(__x86_64__) || defined(SHIM_UCONTEXT)
#include <ucontext.h>
#endif

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "shim.hpp"  // last, for its words are used by the headers above

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

__thread ShimPlace shim_place __attribute__((tls_model("initial-exec")));

// Only in a process that AddressSanitizer's library was loaded into.
extern "C" {
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void*, size_t);
__attribute__((weak)) const char* __asan_locate_address(void*, char*, size_t, void**, size_t*);
}

namespace {

constexpr int MOST_THREADS = 1024, WARP = 32;
constexpr size_t STACK = 256 << 10, GUARD = 4096;  // bytes; a stack that is overrun ends in its guard, a crash
const char* const NAMES[SHIM_KINDS] = {"__syncthreads",   "__syncwarp",    "__shfl_sync",
                                       "__shfl_xor_sync", "__ballot_sync", "__all_sync"};

void fiber();

// A context: where a fiber, or the scheduler, goes on.
#if defined(__x86_64__) && !defined(SHIM_UCONTEXT)
struct Context {
    void** stack;
};

// Pushes what a call must preserve, leaves its stack in *rdi, takes the one in *rsi, and goes on there.
__attribute__((naked, noinline)) void change(Context*, const Context*) {
    asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n movq (%rsi), %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
}
void begin(Context& context, char* stack) {
    void** top = reinterpret_cast<void**>(stack + STACK);
    context.stack = top - 8;  // six registers, the address to return to, and one word, so that calls are aligned
    std::fill(context.stack, top, nullptr);
    context.stack[6] = reinterpret_cast<void*>(fiber);
}
#else
struct Context {
    ucontext_t state;
};

void change(Context* from, const Context* to) { swapcontext(&from->state, &to->state); }
void begin(Context& context, char* stack) {
    getcontext(&context.state);
    context.state.uc_stack.ss_sp = stack;
    context.state.uc_stack.ss_size = STACK;
    context.state.uc_link = nullptr;
    makecontext(&context.state, fiber, 0);
}
#endif

struct Random {  // splitmix64
    uint64_t state;
    uint64_t operator()() {
        uint64_t value = state += 0x9e3779b97f4a7c15u;
        value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
        value = (value ^ value >> 27) * 0x94d049bb133111ebu;
        return value ^ value >> 31;
    }
};

// 0: ascending, 1: descending, from 2 on: a permutation.
template <class Integer>
void arrange(Integer* items, size_t count, int order, Random& random) {
    std::iota(items, items + count, Integer(0));
    if (order == 1) std::reverse(items, items + count);
    if (order > 1)
        for (size_t left = count; left > 1; --left) std::swap(items[left - 1], items[random() % left]);
}

struct Code {  // a copy of the compiled kernel
    void (*entry)(void** arguments);
    void (*shared_variables)(char** begin, char** end);
};

struct Launch {
    void** arguments;
    int64_t blocks;
    int threads;
    int64_t dynamic;
    int order;
    uint64_t serial;
    char* error;
    size_t error_bytes;

    std::vector<uint32_t> sequence;  // of blocks, where it is a permutation
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};

    int64_t block(int64_t turn) const { return order == 0 ? turn : order == 1 ? blocks - 1 - turn : sequence[turn]; }
};

enum State : uint8_t { FRESH, READY, WAITING, EXITED };  // those before WAITING can run

struct Thread {
    Context context;
    char* stack;
    State state;
    ShimKind kind;  // what it waits at, and with what
    int position;   // in the order
    unsigned mask, argument;
    int width;
    uint64_t value;
    std::vector<ShimCopy> copies;  // on their way
};

struct Worker {  // an OS thread, and the block on it
    Launch* launch;
    const Code* code;
    Context main;
    int count, cursor, current;
    int arrived;             // at the barrier
    unsigned waiting[WARP];  // lanes of each warp
    int order[MOST_THREADS];
    Thread threads[MOST_THREADS];
    std::vector<char*> free;  // stacks
    char* stacks;
    Random random;

    Worker() {
        stacks = static_cast<char*>(mmap(nullptr, MOST_THREADS * (STACK + GUARD), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (stacks == MAP_FAILED) abort();
        for (int i = 0; i < MOST_THREADS; ++i) mprotect(stacks + i * (STACK + GUARD), GUARD, PROT_NONE);
    }
    void reclaim() {
        free.clear();
        for (int i = MOST_THREADS; i--;) free.push_back(stacks + i * (STACK + GUARD) + GUARD);
    }

    void rearrange() {
        arrange(order, count, launch->order, random);
        for (int i = 0; i < count; ++i) threads[order[i]].position = i;
        cursor = 0;
    }
    void release(int id) {
        threads[id].state = READY;
        cursor = std::min(cursor, threads[id].position);
    }
    // The next thread that can run, -1 for none. All such are at the cursor or after it.
    int pick() {
        if (launch->failed.load(std::memory_order_relaxed)) return -1;
        for (; cursor < count; ++cursor)
            if (threads[order[cursor]].state < WAITING) return order[cursor];
        return -1;
    }
    // Leave `from` for thread `id`, or for the scheduler.
    void leave(Context* from, int id) {
        if (id < 0) return change(from, &main);
        Thread& to = threads[id];
        if (to.state == FRESH) {
            to.stack = free.back(), free.pop_back();
            begin(to.context, to.stack);
        }
        enter(id);
        change(from, &to.context);
    }
    void enter(int id) {
        threads[id].state = READY;
        shim_place.thread.x = current = id;
    }
    void park() {
        const int id = current, next = pick();
        if (next != id) leave(&threads[id].context, next);
    }
    unsigned exist(int warp) const {  // the lanes that the block has of a warp
        const int lanes = std::min(count - warp * WARP, WARP);
        return lanes == WARP ? ~0u : (1u << lanes) - 1;
    }
    void run(int64_t block);
    void report_deadlock();
};

__thread Worker* worker __attribute__((tls_model("initial-exec")));

// Record the launch's first error; the sentence names block and thread, and Python puts the kernel's name before it.
__attribute__((format(printf, 2, 3))) void record(int thread, const char* format, ...) {
    Launch& launch = *worker->launch;
    static std::mutex lock;
    std::lock_guard<std::mutex> locked(lock);
    if (launch.failed.load()) return;
    const int written = snprintf(launch.error, launch.error_bytes, "block %u: thread %d ", shim_place.block.x, thread);
    va_list values;
    va_start(values, format);
    vsnprintf(launch.error + written, launch.error_bytes - written, format, values);
    va_end(values);
    launch.failed.store(true);
}
#define FAIL(...) \
    (record(worker->current, __VA_ARGS__), worker->park())  // the block is abandoned, so this does not return

void fiber() {
    Worker& here = *worker;
    for (;;) {
        here.code->entry(here.launch->arguments);
        Thread& me = here.threads[here.current];
        me.state = EXITED;
        const int next = here.pick();
        if (next >= 0 && here.threads[next].state == FRESH) {
            here.threads[next].stack = me.stack;
            here.enter(next);
            continue;
        }
        here.free.push_back(me.stack);
        here.leave(&me.context, next);
    }
}

void Worker::run(int64_t block) {
    shim_place.block = {unsigned(block), 0, 0};
    random.state = (launch->serial << 32 ^ uint64_t(block)) * 0xd1342543de82ef95u + launch->order;
    arrived = 0;
    std::fill(std::begin(waiting), std::end(waiting), 0u);
    for (int i = 0; i < count; ++i) threads[i].state = FRESH, threads[i].kind = SHIM_BARRIER, threads[i].copies.clear();
    rearrange();
    leave(&main, pick());
    const bool done = std::all_of(threads, threads + count, [](const Thread& one) { return one.state == EXITED; });
    if (done) return;
    if (!launch->failed.load()) report_deadlock();
    if (__asan_unpoison_memory_region)  // what fibers left on their stacks
        __asan_unpoison_memory_region(stacks, MOST_THREADS * (STACK + GUARD));
}

// The first thread that waits, and the first that it waits for.
void Worker::report_deadlock() {
    int id = 0;
    while (threads[id].state != WAITING) ++id;
    const Thread& one = threads[id];
    const bool warp = one.kind != SHIM_BARRIER;
    const int first = warp ? id / WARP * WARP : 0, last = std::min(count, warp ? first + WARP : count);
    for (int other = first; other < last; ++other) {
        const Thread& two = threads[other];
        if (warp && !(one.mask >> (other - first) & 1)) continue;
        if (two.state == WAITING && two.kind == one.kind && (!warp || two.mask == one.mask)) continue;
        char at[2][80];
        for (int i = 0; i < 2; ++i) {
            const Thread& thread = i ? two : one;
            const char* form = thread.kind != SHIM_BARRIER ? "waits at %s (mask 0x%08x)" : "waits at %s";
            snprintf(at[i], sizeof at[i], thread.state == EXITED ? "has exited" : form, NAMES[thread.kind],
                     thread.mask);
        }
        return record(id, "%s, thread %d %s, and none can go on", at[0], other, at[1]);
    }
}

// The lane that `lane` reads in a shuffle: PTX's rules for shfl.sync, where a lane out of range reads itself.
int source(ShimKind kind, int lane, unsigned argument, int width) {
    const int first = lane & -width, last = first + width - 1, by = int(argument & 31), across = lane ^ by;
    if (kind == SHIM_SHFL) return first | (by & (width - 1));
    return across > last ? lane : across;
}

// All lanes of `mask` have come: give each its result.
void complete(Worker& here, ShimKind kind, unsigned mask, Thread* warp) {
    uint64_t results[WARP];
    unsigned ballot = 0;
    for (int lane = 0; lane < WARP; ++lane)
        if (mask >> lane & 1) ballot |= unsigned(warp[lane].value & 1) << lane;
    for (int lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        const Thread& one = warp[lane];
        if (kind == SHIM_BALLOT) results[lane] = ballot;
        if (kind == SHIM_ALL) results[lane] = ballot == mask;
        if (kind < SHIM_SHFL || kind > SHIM_SHFL_XOR) continue;
        const int from = source(kind, lane, one.argument, one.width);
        if (!(mask >> from & 1)) {
            record(int(warp - here.threads) + lane,
                   "reads lane %d in %s, which is not among the lanes 0x%08x that take part", from, NAMES[kind], mask);
            return here.park();
        }
        results[lane] = warp[from].value;
    }
    for (int lane = 0; lane < WARP; ++lane) {
        if (!(mask >> lane & 1)) continue;
        if (kind != SHIM_SYNCWARP) warp[lane].value = results[lane];
        here.release(int(warp - here.threads) + lane);
    }
}

void work(Launch* launch, const Code* code, Worker* mine) {
    worker = mine;
    mine->launch = launch;
    mine->code = code;
    mine->count = launch->threads;
    mine->reclaim();
    shim_place = {};
    shim_place.threads = {unsigned(launch->threads), 1, 1}, shim_place.blocks = {unsigned(launch->blocks), 1, 1};
    char *begin, *end;
    code->shared_variables(&begin, &end);
    void* dynamic = nullptr;
    if (posix_memalign(&dynamic, 128, launch->dynamic)) abort();
    shim_place.dynamic = static_cast<unsigned char*>(dynamic);
    for (int64_t turn; !launch->failed.load() && (turn = launch->next.fetch_add(1)) < launch->blocks;) {
        memset(dynamic, 0xff, launch->dynamic);
        if (!__asan_unpoison_memory_region) memset(begin, 0xff, end - begin);
        else  // not memset, which is checked: sanitized variables have guarded bytes between them
            for (volatile char* byte = begin; byte < end; ++byte) *byte = char(0xff);
        mine->run(launch->block(turn));
    }
    free(dynamic);
    worker = nullptr;
}

}  // namespace

void shim_barrier() {
    Worker& here = *worker;
    Thread& me = here.threads[here.current];
    me.state = WAITING, me.kind = SHIM_BARRIER;
    if (++here.arrived == here.count) {
        here.arrived = 0;
        here.rearrange();
        for (int i = 0; i < here.count; ++i) here.threads[i].state = READY;
    }
    here.park();
}

uint64_t shim_warp(ShimKind kind, unsigned mask, uint64_t value, unsigned argument, int width) {
    Worker& here = *worker;
    const int id = here.current, lane = id % WARP, number = id / WARP;
    Thread& me = here.threads[id];
    Thread* warp = here.threads + (id - lane);
    if (!(mask >> lane & 1))
        FAIL("calls %s with the mask 0x%08x, which lacks its own lane %d", NAMES[kind], mask, lane);
    if (width < 1 || width > WARP || (width & (width - 1)))
        FAIL("calls %s with the width %d; it must be 1, 2, 4, 8, 16 or 32", NAMES[kind], width);
    me.kind = kind, me.mask = mask, me.value = value, me.argument = argument, me.width = width;
    me.state = WAITING;
    unsigned& waiting = here.waiting[number];
    waiting |= 1u << lane;
    const unsigned needed = mask & here.exist(number);
    bool all = (waiting & needed) == needed;
    for (int other = 0; all && other < WARP; ++other)
        if (needed >> other & 1) all = warp[other].kind == kind && warp[other].mask == mask;
    if (all) {
        waiting &= ~needed;
        complete(here, kind, needed, warp);
    }
    here.park();
    return me.value;
}

void shim_copy(const ShimCopy* copy) { worker->threads[worker->current].copies.push_back(*copy); }
int shim_landed(ShimCopy* copy) {
    auto& copies = worker->threads[worker->current].copies;
    if (copies.empty()) return 0;
    *copy = copies.back(), copies.pop_back();
    return 1;
}

// What kernels of the sanitized build call on an access out of bounds, before it is made.
// The current thread does what it may not.
extern "C" SHIM_EXPORT void shim_fail(const char* what) { FAIL("%s", what); }

extern "C" SHIM_EXPORT void shim_bad_access(bool write, uintptr_t address, size_t size) {
    char name[100] = "";
    void* start = nullptr;
    size_t bytes = 0;
    const char* kind = __asan_locate_address(reinterpret_cast<void*>(address), name, sizeof name, &start, &bytes);
    const long long offset = address - reinterpret_cast<uintptr_t>(start);
    const bool heap = kind && !strcmp(kind, "heap"), inside = offset >= 0 && size_t(offset) < bytes;
    const char* what = start == shim_place.dynamic ? "the block's dynamic shared memory"
                       : heap                      ? inside ? "a freed array" : "an array"
                       : *name                     ? "the variable "
                                                   : "a local variable";
    const char* act = write ? "writes" : "reads";
    if (!start) FAIL("%s %zu bytes out of bounds, near no array", act, size);
    FAIL("%s %zu bytes at byte %lld of %s%s, which has %zu bytes", act, size, offset, what, heap ? "" : name, bytes);
    abort();
}
extern "C" SHIM_EXPORT void shim_misaligned(const char* type, uintptr_t address, size_t alignment) {
    FAIL("accesses %s at an address that is %zu bytes past a multiple of %zu", type, address % alignment, alignment);
    abort();
}

// Run a grid, on as many OS threads as there are copies of the kernel. Returns 0, or 1 with a sentence in `error`.
extern "C" SHIM_EXPORT int shim_run(const Code* copies, int workers, void** arguments, int64_t blocks, int threads,
                                    int64_t dynamic, int order, uint64_t serial, char* error, size_t error_bytes) {
    // Workers are kept, for their stacks; launches come one at a time.
    static std::mutex lock;
    static std::vector<std::unique_ptr<Worker>> kept;
    std::lock_guard<std::mutex> locked(lock);
    Launch launch{arguments, blocks, threads, dynamic, order, serial, error, error_bytes};
    if (order > 1) {
        Random random{serial * 0xd1342543de82ef95u + order};
        launch.sequence.resize(blocks);
        arrange(launch.sequence.data(), blocks, order, random);
    }
    while (int(kept.size()) < workers) kept.push_back(std::make_unique<Worker>());
    std::vector<std::thread> others;
    for (int i = 1; i < workers; ++i) others.emplace_back(work, &launch, copies + i, kept[i].get());
    work(&launch, copies, kept[0].get());
    for (auto& other : others) other.join();
    return launch.failed.load();
}
