// Dots of one row of Q with STEP rows of K, by a subwarp of LANES threads: what sddmm and attention compute.
//
// A dot has 32 partial sums in every setting: partial p is the ascending chain of fused multiply-adds over d = p, p +
// 32 and so on, and neighbours are added, then neighbours of these, until one is left. A lane has VECTOR neighbouring
// partials, LANES * VECTOR = 32, so all settings give the same bits. The last steps of the tree reduce STEP dots at
// once: in each of the first two, a lane gives away half of the sums that it has and gets the other half of those that
// it keeps (STEP shuffles in place of STEP * log2 LANES); in the end lane l has dot l % STEP.
//
// Macros      VALUE; VECTOR, numbers of a load of Q and K; UNROLL, 5 loads of a thread that are in flight at once.
#pragma once
#include "ops.cuh"

#define LANES (32 / VECTOR)         // threads of a subwarp
#define SUBWARPS VECTOR             // of a warp
#define TOGETHER (SUBWARPS * STEP)  // dots that a warp computes at once
static_assert(LANES >= STEP, "a lane ends with one dot");

// The neighbours of this lane's partial sums, added up.
__device__ __forceinline__ float added(const float (&sums)[1]) { return sums[0]; }
__device__ __forceinline__ float added(const float (&sums)[4]) { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }
__device__ __forceinline__ float added(const float (&sums)[8]) {
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// q . k[indices[i]] for i = lane % STEP. All lanes of the warp come here; those of a subwarp that has nothing to do
// (`any` is false) read nothing.
//   q, k     from their row and matrix on; rows of `depth` numbers, which VECTOR divides
//   indices  the same for all lanes of the subwarp
__device__ __forceinline__ float dots(const VALUE* q, const VALUE* k, int depth, const unsigned int (&indices)[STEP],
                                      bool any) {
    const int lane = threadIdx.x % LANES;
    float sums[STEP][VECTOR];
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) sums[i][v] = 0.f;
    }
    // A subwarp without work reads nothing, but takes part in the shuffles below.
    if (any) {
        const VALUE* rows[STEP];
#pragma unroll
        for (int i = 0; i < STEP; ++i) rows[i] = k + (long long)indices[i] * depth;
        // Issue the loads of q and of STEP rows of K before the first is used.
#pragma unroll(UNROLL)
        for (int d = lane * VECTOR; d < depth; d += LANES * VECTOR) {
            const Raw<VALUE, VECTOR> one = load<VALUE, VECTOR>(q + d);
            Raw<VALUE, VECTOR> others[STEP];
#pragma unroll
            for (int i = 0; i < STEP; ++i) others[i] = load<VALUE, VECTOR>(rows[i] + d);
            float left[VECTOR], right[VECTOR];
            spread(left, one);
            // A vector of q serves STEP dots.
#pragma unroll
            for (int i = 0; i < STEP; ++i) {
                spread(right, others[i]);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) sums[i][v] = fmaf(left[v], right[v], sums[i][v]);
            }
        }
    }
    // Sum a lane's partials, then two steps of the tree in which it gives away the dots that it does not keep.
    const bool odd = lane & 1, upper = lane & 2;
    const float zero = added(sums[0]), one = added(sums[1]), two = added(sums[2]), three = added(sums[3]);
    const float low = (odd ? one : zero) + __shfl_xor_sync(FULL_WARP, odd ? zero : one, 1);
    const float high = (odd ? three : two) + __shfl_xor_sync(FULL_WARP, odd ? two : three, 1);
    float sum = (upper ? high : low) + __shfl_xor_sync(FULL_WARP, upper ? low : high, 2);
    // The rest of the tree, among lanes with the same dot.
#pragma unroll
    for (int distance = STEP; distance < LANES; distance *= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
    return sum;
}
