// The helpers behind team.hpp: one word tells the stage, its units, and the next unit to take.
#include "team.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace spdnn {
namespace {

constexpr int64_t kMostUnits = (1 << 24) - 1;  // of a stage
constexpr int kSpins = 4000;                   // looks for work before a helper sleeps: some 100 us
constexpr int kAside = 16;                     // looks after which it sees again whether it is in the caller's way
constexpr int kPatience = 400;  // looks for the end of others' units before the caller lets go of its core

// The cores of all places of OpenMP where it binds threads; else none. The first thread of the process has its first place
// alone, and what that starts inherits it.
cpu_set_t cores_of_places() {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (omp_get_proc_bind() == omp_proc_bind_false) return cores;
    for (int place = 0; place < omp_get_num_places(); ++place) {
        std::vector<int> numbers(omp_get_place_num_procs(place));
        omp_get_place_proc_ids(place, numbers.data());
        for (const int number : numbers) CPU_SET(number, &cores);  // from 1,024 on it does nothing
    }
    return cores;
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// stage (16 bits) | units (24) | next unit (24)
inline uint64_t word(uint64_t stage, uint64_t units) { return stage << 48 | units << 24; }
inline uint64_t units_of(uint64_t state) { return state >> 24 & 0xffffff; }
inline uint64_t next_of(uint64_t state) { return state & 0xffffff; }

}  // namespace

class Helpers {
  public:
    // Makes helpers up to `count`, as far as the system lets it.
    void grow(const std::shared_ptr<Helpers>& self, int count) {
        wanted = count, woken = false;
        try {
            for (; made < count; ++made) std::thread([self, number = made] { self->help(number); }).detach();
        } catch (const std::system_error&) {}
    }

    void stage(int64_t units, void (*work)(const void*, int64_t), const void* with) {
        // Publish the stage: all that a helper reads is written before `state`, which releases it.
        call = work, context = with;
        done.store(0, std::memory_order_relaxed);
        home.store(sched_getcpu(), std::memory_order_relaxed);
        state.store(word(++stages, units), std::memory_order_seq_cst);
        if (!woken && sleeping.load(std::memory_order_seq_cst)) {
            woken = true;  // once a call: those that are wanted stay awake until its next stage
            std::lock_guard<std::mutex> lock(mutex);
            wake.notify_all();
        }
        // The caller takes units, too: nothing waits for a helper that is not awake.
        while (take()) {}
        // Units that others have begun: spin, as they are short, then yield, in case they have no core.
        for (int looks = 0; done.load(std::memory_order_acquire) != units; ++looks)
            looks < kPatience ? relax() : void(sched_yield());
    }

    std::mutex calls;  // held by the call that has the helpers

  private:
    // Takes one unit and does it; whether there was one. A stage ends after its units are done, so that a unit taken is
    // of the stage whose call and context are here.
    bool take() {
        // Claim a unit by compare and swap; the stage in the word fails a claim on an older stage.
        uint64_t seen = state.load(std::memory_order_acquire);
        do {
            if (next_of(seen) >= units_of(seen)) return false;
        } while (!state.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
        call(context, static_cast<int64_t>(next_of(seen)));
        // Release: the caller sees the unit's results once it counts it.
        done.fetch_add(1, std::memory_order_release);
        return true;
    }

    bool work_waits(int number) const {
        const uint64_t seen = state.load(std::memory_order_seq_cst);
        return number < wanted.load(std::memory_order_relaxed) && next_of(seen) < units_of(seen);
    }

    [[noreturn]] void help(int number) {
        const cpu_set_t places = cores_of_places();
        const bool bound = CPU_COUNT(&places);
        if (bound) sched_setaffinity(0, sizeof places, &places);
        pthread_setname_np(pthread_self(), "spdnn helper");  // for top -H and debuggers
        for (int looks = 0;; ++looks) {
            // Leave the caller's core, on which the system may have woken this thread.
            if (looks % kAside == 0) {
                const int caller = home.load(std::memory_order_relaxed);
                bound ? step_aside(caller, places) : step_aside(caller);
            }
            if (work_waits(number)) {
                if (take()) looks = 0;
            } else if (looks < kSpins) {
                // Spin for a while: the next stage mostly comes sooner than a wake-up would take.
                relax();
            } else {
                std::unique_lock<std::mutex> lock(mutex);
                // Announce sleep before the last look at `state`: so a new stage is seen, or its caller sees the
                // sleeper.
                ++sleeping;
                wake.wait(lock, [&] { return work_waits(number); });
                --sleeping;
                looks = -1;
            }
        }
    }

    std::atomic<uint64_t> state{0};
    std::atomic<int64_t> done{0};
    std::atomic<int> sleeping{0}, wanted{0};
    std::atomic<int> home{-1};  // the core of the caller
    void (*call)(const void*, int64_t) = nullptr;
    const void* context = nullptr;
    uint64_t stages = 0;
    int made = 0;
    bool woken = false;  // in this call
    std::mutex mutex;
    std::condition_variable wake;
};

namespace {

// Never destroyed: helpers that run at the end of the process hold on to it. A forked process has none of them.
auto* const present = new std::shared_ptr<Helpers>(std::make_shared<Helpers>());
[[maybe_unused]] const int registered_for_forks =
    pthread_atfork(nullptr, nullptr, [] { new (present) std::shared_ptr<Helpers>(std::make_shared<Helpers>()); });

}  // namespace

Team::Team(int threads) {
    // Another call has the helpers: work alone rather than wait for it.
    if (threads < 2 || !(*present)->calls.try_lock()) return;
    helpers = *present;
    helpers->grow(helpers, threads - 1);
}

Team::~Team() {
    if (helpers) helpers->calls.unlock();
}

void Team::run(int64_t units, Call call, const void* context) {
    if (helpers && units > 1 && units <= kMostUnits) return helpers->stage(units, call, context);
    for (int64_t unit = 0; unit < units; ++unit) call(context, unit);
}

}  // namespace spdnn
