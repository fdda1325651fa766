// Many layers in one launch: a block keeps the features of INPUTS inputs in shared memory while layers pass.
//
// Two buffers (neurons, INPUTS) alternate; weights, in slices (gather.cuh), are read from global memory, that is from
// the second-level cache which all blocks share. LANES threads share a group of outputs; each layer says how many
// outputs a group has, and so how many a gather serves. Each output is in `ends` once, with its bias. Rows go from
// `source` to `target` once for all layers. A group of rows that is zero after a layer from which zeros stay zeros goes
// no further.
//
// With few rows a layer takes as long as its loads take one after the other. So before a thread works on a group, it
// has loaded the group's chunk range, outputs, biases and first weights, for its first group before the barrier that
// ends the layer before. Rows of the table come two layers ahead; blocks bring the next layer's weights to the cache,
// each a part.
//
// Settings of different INPUTS are launched one after the other; only the one whose range of rows contains the current
// row count does the work. The device alone knows that count.
//
// Launch: THREADS a block, any number of blocks. Shared bytes: RING * 64 + 2 * (width + 1) * INPUTS * 4, width: of the
// widest features; the neuron after the last one is zeros, which padding reads. All shared memory is dynamic, since
// simulators are known to lay static variables over it. Macros: THREADS; INPUTS (1, 4, 8, 16, 32); VALUED.
#include "async.cuh"
#include "common.cuh"
#include "gather.cuh"

#define COLUMNS 8  // of `layers`, 8 bytes each: what Layer holds
#define RING 4  // of its rows are in shared memory: the layer before, whose mark is still read, this one, the next two
#define FEW (INPUTS == 1)
#define MOST (VALUED ? 2 : 4)           // outputs of a group: with values, four take more registers than there are
#define FIRST (FEW && !VALUED ? 4 : 0)  // chunks that are loaded ahead, likewise

struct __align__(16) Layer {
    const int* starts;
    const unsigned short* indices;
    const float* values;
    const uint2* ends;  // which output, or -1, and the bits of its bias: (slices, outputs of a group, SLICE)
    int groups, outputs, shared, chunks;
    float low, high, weight;
    unsigned int mark;  // 0 in the table; here, the inputs that are not zero after the layer
    __device__ __forceinline__ uint2 output_and_bias(int group, int outputs, int output) const {
        return __ldg(ends + ((group / SLICE * outputs + output) * SLICE + group % SLICE));
    }
};

// What a thread knows of a group before it works on it.
struct Ahead {
    int begin, end;  // its chunks, times SLICE; there is no group where `end` is negative
    uint4 indices[FIRST + 1];
    uint2 ends[MOST];

    __device__ __forceinline__ void find(const Layer& layer, int group, bool there) {
        there = there && group < layer.groups;
        begin = there ? __ldg(layer.starts + group / SLICE) * SLICE : 0;
        end = there ? __ldg(layer.starts + group / SLICE + 1) * SLICE : -1;
    }
    __device__ __forceinline__ void load(const Layer& layer, int group, int outputs) {
        // Indices of the first chunks into registers, long before they are used.
#pragma unroll
        for (int i = 0; i < FIRST; ++i)
            if (begin + i * SLICE < end)
                indices[i] = __ldg(reinterpret_cast<const uint4*>(layer.indices) + (begin + i * SLICE + group % SLICE));
        // Outputs and biases likewise, so that the epilogue need not wait for them.
#pragma unroll
        for (int i = 0; i < MOST; ++i)
            if (i < outputs && end >= 0) ends[i] = layer.output_and_bias(group, outputs, i);
    }
    __device__ __forceinline__ void first(const Layer& layer, bool there) {
        find(layer, threadIdx.x / LANES, there);
        load(layer, threadIdx.x / LANES, layer.shared);
    }
};

// Layer k of groups of so many outputs, from `here` to `there`; the inputs of this lane that are not zero after it.
// `ahead`: of this thread's first group; then of its first one in the next layer, if there is one.
template <int OUTPUTS>
__device__ __forceinline__ unsigned int compute_layer(const Layer* ring, int k, int last, Ahead& ahead,
                                                      const Lane* here, Lane* there, int* failed) {
    const Layer& layer = ring[k & (RING - 1)];
    unsigned int bits = 0;
    const int first = threadIdx.x / LANES;
    for (int group = first; group < layer.groups;) {
        // The thread's next group: in this layer, or its first one in the next layer.
        const int following = group + THREADS / LANES;
        const bool more = following < layer.groups;
        const Layer& then = ring[(more ? k : k + 1) & (RING - 1)];
        if (!FEW) ahead.find(layer, group, true);
        const int begin = ahead.begin, end = ahead.end;
        // Few rows: load the next group's chunk range now, so that its latency overlaps with this group's computation.
        if (FEW) ahead.find(then, more ? following : first, more || k + 1 < last);
        Lane sums[OUTPUTS] = {};
        // Start with the chunks whose indices are in registers.
#pragma unroll
        for (int i = 0; i < FIRST; ++i)
            if (begin + i * SLICE < end)
                add_chunk<OUTPUTS>(sums, here, 0, ahead.indices[i], layer.weight, [](int) { return float4(); });
        // The other chunks, whose weights come from the second-level cache.
        add_chunks<OUTPUTS>(sums, here, 0, layer.indices, layer.values, layer.weight, group % SLICE,
                            begin + FIRST * SLICE, end);
        // Epilogue: bias, activation, scatter to the other buffer.
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) {
            const uint2 own = FEW ? ahead.ends[i] : layer.output_and_bias(group, OUTPUTS, i);
            if ((int)own.x < 0) continue;
            NonzeroBits nonzero = {};  // of each output by itself: registers are short
            bool beyond = false;
            there[own.x * LANES] = activated(sums[i], __uint_as_float(own.y), layer.low, layer.high, nonzero, beyond);
            bits |= alive_of(nonzero);
            if (beyond) atomicMin(failed, k);
        }
        // The chunk range has arrived: load the next group's first indices and outputs, in flight across the barrier.
        if (FEW) ahead.load(then, more ? following : first, then.shared);
        group = following;
    }
    return bits;
}

// Brings lines of 128 bytes to the second-level cache: this block's of those that the blocks with any of the rows
// share.
__device__ __forceinline__ void prefetch_lines(const void* from, int lines, int rows) {
    // Blocks without rows do not come here: distribute the lines among the others.
    const int blocks = min((int)gridDim.x, (rows + INPUTS - 1) / INPUTS);
    for (int line = blockIdx.x * THREADS + threadIdx.x; line < lines; line += blocks * THREADS)
        prefetch(static_cast<const char*>(from) + line * 128LL);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    persistent_layers(const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
                      const int* __restrict__ rows, int least, int most, const unsigned long long* __restrict__ layers,
                      int first, int last, int inputs, int width, int dead_from, int tiles, unsigned int* active,
                      unsigned long long* work, int* failed) {
    static_assert(sizeof(Layer) == COLUMNS * sizeof(long long), "a row of the table is a Layer");
    const int count = *rows;
    // Another setting of INPUTS has this number of rows.
    if (count < least || count > most) return;
    DYNAMIC_SHARED(Layer, ring);
    float* shared = reinterpret_cast<float*>(ring + RING);
    // Rows of the table pass through a ring in shared memory, 16 bytes a thread, asynchronously.
    const auto copy_row = [&](int k) {
        if (k < last && threadIdx.x < sizeof(Layer) / sizeof(float4))
            copy_async(reinterpret_cast<float4*>(ring + (k & (RING - 1))) + threadIdx.x,
                       reinterpret_cast<const float4*>(layers + (long long)k * COLUMNS) + threadIdx.x);
    };
    const int part = threadIdx.x % LANES;
    for (int group = blockIdx.x; group * INPUTS < count; group += gridDim.x) {
        const int row = group * INPUTS;
        // Prologue: the first two rows of the table, and the features of this group of rows.
        copy_row(first), copy_row(first + 1);
        // Gather the rows that are left: neighbouring threads have neighbouring inputs of a neuron.
        for (int i = threadIdx.x; i < inputs * INPUTS; i += THREADS) {
            const int from = list[min(row + i % INPUTS, count - 1)];
            shared[i] = source[row_start(from, inputs) + (long long)(i / INPUTS) * TILE];
        }
        // The neuron of zeros, which padding gathers.
        if (threadIdx.x < INPUTS) shared[inputs * INPUTS + threadIdx.x] = 0.f;
        wait_for_copies();
        __syncthreads();

        Ahead ahead;
        if (FEW) ahead.first(ring[first & (RING - 1)], true);
        int here = 0, k = first;  // begin of the buffer that is read
        for (; k < last; ++k) {
            Layer &layer = ring[k & (RING - 1)], &next = ring[(k + 1) & (RING - 1)];
            if (FEW && k + 1 < last) {
                // Prefetch the next layer's weights to the second-level cache, each block a share.
                prefetch_lines(next.indices, (next.chunks + 1) / 2, count);
                if (VALUED) prefetch_lines(next.values, next.chunks * next.shared, count);
                prefetch_lines(next.ends, (next.groups * next.shared + 15) / 16, count);
            }
            // Copy the table's row two layers ahead; its slot in the ring is no longer read.
            copy_row(k + 2);
            // Ping-pong between the two buffers of features.
            const int there = (width + 1) * INPUTS - here;
            const Lane* from = reinterpret_cast<const Lane*>(shared + here) + part;
            Lane* to = reinterpret_cast<Lane*>(shared + there) + part;
            unsigned int bits;
            // The outputs of a group are a template argument, so that the sums are registers.
            if (layer.shared == MOST) bits = compute_layer<MOST>(ring, k, last, ahead, from, to, failed);
            else if (MOST == 4 && layer.shared == 2) bits = compute_layer<2>(ring, k, last, ahead, from, to, failed);
            else bits = compute_layer<1>(ring, k, last, ahead, from, to, failed);
            // A thread without a group in this layer has loaded nothing ahead: load its first group of the next one.
            if (FEW && threadIdx.x / LANES >= layer.groups) ahead.first(next, k + 1 < last);
            // Reduce the marks: shift to the lane's inputs, OR over the warp, then one atomic in shared memory a warp.
            bits <<= part * VECTOR;
            // Zeros behind the new features, for the padding of the next layer.
            if (threadIdx.x < INPUTS) shared[there + layer.outputs * INPUTS + threadIdx.x] = 0.f;
            __syncwarp();
            for (int distance = 16; distance; distance /= 2) bits |= __shfl_xor_sync(FULL_WARP, bits, distance);
            if (threadIdx.x % 32 == 0 && bits) atomicOr(&layer.mark, bits);
            // This barrier ends the layer: its features, its mark and the row k + 2 are complete.
            wait_for_copies();
            __syncthreads();
            const unsigned int alive = layer.mark & valid_lanes(row, INPUTS == TILE ? count : min(count, row + INPUTS));
            // One thread publishes the mark; groups of fewer than 32 inputs share a word.
            if (threadIdx.x == 0) {
                if (alive) atomicOr(active + ((long long)k * tiles + row / TILE), alive << row % TILE);
                atomicAdd(work + k, (unsigned long long)INPUTS);
            }
            here = there;
            // Early exit: zeros stay zeros in all layers that follow.
            if (!alive && k + 1 >= dead_from) break;
        }
        if (k == last) {
            // Write features to global memory once for all layers, and only if the group is alive.
            const int neurons = ring[(last - 1) & (RING - 1)].outputs;
            for (int i = threadIdx.x; i < neurons * INPUTS; i += THREADS)
                target[row_start(row + i % INPUTS, neurons) + (long long)(i / INPUTS) * TILE] = shared[here + i];
        }
        // Everybody has read the buffers before the next group overwrites them.
        __syncthreads();
    }
}
