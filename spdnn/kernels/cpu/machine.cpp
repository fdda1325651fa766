// The work behind the machine's limits. Compiled once for each instruction-set level, with that level's vectors.
//
// copy          One vector loaded and one stored at a time. Streaming stores where the level has them (x86): a plain
//               store reads the line that it replaces, so a third more traffic than counted (measured: 43 instead of
//               58 GB/s, memcpy the same).
// load          8 accumulators, as the kernels have: each waits for its own sum alone, 8 vectors back.
// multiply_add  12 chains: at most 5 cycles of latency times 2 a cycle are under way, and 12 with 2 factors still fit
//               the 16 registers of the lower levels. Levels without FMA take a multiplication and an addition.
// Macros        SPDNN_LEVEL (name), SPDNN_VECTOR_BYTES (16, 32, 64).
// Source        STREAM's copy (McCalpin 1995) and the peaks of the roofline model (Williams et al., CACM 52(4), 2009).
#include "machine.hpp"

#include "lanes.hpp"

namespace spdnn {
namespace {

using namespace SPDNN_LEVEL;

constexpr int kAccumulators = 8;
constexpr int kChains = 12;
static_assert(kLoadFloats % (kAccumulators * kLanes) == 0, "a round of loads must fill the accumulators");

// The compiler must hold `v` ready here, so it cannot leave out what made it; and it must read memory anew after.
inline void keep(const Vec& v) { asm volatile("" : : "m"(v) : "memory"); }

void copy(const float* __restrict src, float* __restrict dst, int64_t floats) {
    for (int64_t i = 0; i < floats; i += kLanes)
        stream(*reinterpret_cast<const Vec*>(src + i), reinterpret_cast<Vec*>(dst + i));
#ifdef __x86_64__
    _mm_sfence();  // streaming stores may still be under way
#endif
}

void load(const float* src, int64_t floats, int64_t rounds) {
    Vec s0 = {}, s1 = {}, s2 = {}, s3 = {}, s4 = {}, s5 = {}, s6 = {}, s7 = {};
    for (int64_t round = 0; round < rounds; ++round) {
        const Vec* row = reinterpret_cast<const Vec*>(src);
        const Vec* const end = row + floats / kLanes;
        // Independent accumulators: loads set the pace, not the latency of a chain of additions.
        for (; row < end; row += kAccumulators) {
            s0 += row[0], s1 += row[1], s2 += row[2], s3 += row[3];
            s4 += row[4], s5 += row[5], s6 += row[6], s7 += row[7];
        }
        asm volatile("" : : "r"(src) : "memory");  // the next round loads again
    }
    // Use the sums, or the compiler would remove the loads.
    keep(((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7)));
}

void multiply_add(int64_t rounds) {
    Vec chain[kChains], factor = broadcast(0.75f), term = broadcast(0.25f);  // sums stay at 1: no denormals
    asm volatile("" : "+m"(factor), "+m"(term));                             // values that the compiler does not know
    // Chains begin at different values, so that the compiler cannot compute one for all.
    for (int k = 0; k < kChains; ++k) chain[k] = broadcast(static_cast<float>(k));
    // All chains advance in each round, enough of them to hide the latency of a multiply-add.
    for (int64_t round = 0; round < rounds; ++round)
        for (int k = 0; k < kChains; ++k) chain[k] = chain[k] * factor + term;
    for (int k = 0; k < kChains; ++k) keep(chain[k]);
}

}  // namespace

extern const MachineWork SPDNN_JOIN(machine_, SPDNN_LEVEL);
const MachineWork SPDNN_JOIN(machine_, SPDNN_LEVEL) = {SPDNN_STRING(SPDNN_LEVEL), copy, load, multiply_add,
                                                       kChains * kLanes};

}  // namespace spdnn
