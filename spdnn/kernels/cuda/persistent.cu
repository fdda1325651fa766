// Many layers in one launch: a block keeps the features of INPUTS inputs in shared memory while layers pass.
//
// Two buffers (neurons, INPUTS) alternate; weights, in slices (gather.cuh), are read from global memory, that is from the
// second-level cache which all blocks share. LANES threads share a group of outputs; each layer says how many outputs a
// group has, and so how many a gather serves. Each output is in `order` once. Rows go from `source` to `target` once for
// all layers. A group of rows that is zero after a layer from which zeros stay zeros goes no further.
//
// Of the settings of INPUTS that are launched one after the other, the one does the work whose range of rows holds the
// number that are left, which the device alone knows.
//
// Launch: THREADS a block, any number of blocks. Shared bytes: 2 * (width + 1) * INPUTS * 4 + 16, width: of the widest
// features; the neuron after the last one is zeros, which padding reads. All shared memory is dynamic, since simulators
// are known to lay static variables over it. Macros: THREADS; INPUTS (1, 4, 8, 16, 32); VALUED.
#include "common.cuh"
#include "gather.cuh"

#define COLUMNS 8 // of `layers`, 8 bytes each: what Layer holds

struct Layer {
    const int* starts;
    const unsigned short* indices;
    const float* values;
    const int* order;
    const float* bias;
    int bias_step, groups, outputs, shared;
    float low, high;
};

// One layer of groups of so many outputs, from `here` to `there`; the inputs of this lane that are not zero after it.
template <int OUTPUTS>
__device__ __forceinline__ unsigned int through(const Layer& layer, const Held* here, Held* there, int* failed, int k)
{
    unsigned int bits = 0;
    for (int group = threadIdx.x / LANES; group < layer.groups; group += THREADS / LANES) {
        const int slice = group / SLICE;
        Held sums[OUTPUTS];
#pragma unroll
        for (int one = 0; one < OUTPUTS; ++one) sums[one] = nothing();
        add_chunks<OUTPUTS>(sums, here, 0, layer.indices, layer.values, group % SLICE, __ldg(layer.starts + slice),
                            __ldg(layer.starts + slice + 1));
#pragma unroll
        for (int one = 0; one < OUTPUTS; ++one) {
            const int output = __ldg(layer.order + group * OUTPUTS + one);
            if (output < 0) continue;
            const float bias = __ldg(layer.bias + output * layer.bias_step);
            Seen seen = unseen(); // of each output by itself: registers are short
            bool beyond = false;
            there[output * LANES] = finished(sums[one], bias, layer.low, layer.high, seen, beyond);
            bits |= alive_of(seen);
            if (beyond) atomicMin(failed, k);
        }
    }
    return bits;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS) persistent_layers(
    const float* __restrict__ source, float* __restrict__ target, const int* __restrict__ list,
    const int* __restrict__ rows, int least, int most, const unsigned long long* __restrict__ layers, int first,
    int last, int inputs, int width, int dead_from, int tiles, unsigned int* active, unsigned long long* work,
    int* failed)
{
    static_assert(sizeof(Layer) == COLUMNS * sizeof(long long), "a row of the table is a Layer");
    const int count = *rows;
    if (count < least || count > most) return;
    DYNAMIC_SHARED(float, shared);
    // Three marks: of this layer; of the one before, which is still read; of the next, cleared.
    unsigned int* marks = reinterpret_cast<unsigned int*>(shared + 2 * (width + 1) * INPUTS);
    const int lane = threadIdx.x % 32, part = threadIdx.x % LANES;
    for (int group = blockIdx.x; group * INPUTS < count; group += gridDim.x) {
        int here = 0, there = (width + 1) * INPUTS; // begins of the two buffers
        const int row = group * INPUTS, tile = row / TILE, shift = row % TILE;
        for (int i = threadIdx.x; i < inputs * INPUTS; i += THREADS) {
            const int from = list[min(row + i % INPUTS, count - 1)];
            shared[i] = source[row_start(from, inputs) + (long long)(i / INPUTS) * TILE];
        }
        if (threadIdx.x < INPUTS) shared[inputs * INPUTS + threadIdx.x] = 0.f;
        if (threadIdx.x < 3) marks[threadIdx.x] = 0;
        const unsigned int held = INPUTS == TILE ? held_lanes(row, count)
                                                 : held_lanes(row, min(count, row + INPUTS));
        __syncthreads();

        int neurons = inputs;
        bool ended = false;
        for (int k = first; k < last; ++k) {
            const Layer& layer = *reinterpret_cast<const Layer*>(layers + (long long)k * COLUMNS);
            const Held* from = reinterpret_cast<const Held*>(shared + here) + part;
            Held* to = reinterpret_cast<Held*>(shared + there) + part;
            unsigned int bits;
#if !VALUED // with values, four outputs take more registers than there are
            if (layer.shared == 4) bits = through<4>(layer, from, to, failed, k);
            else
#endif
            if (layer.shared == 2) bits = through<2>(layer, from, to, failed, k);
            else bits = through<1>(layer, from, to, failed, k);
            bits <<= part * VECTOR;
            if (threadIdx.x < INPUTS) shared[there + layer.outputs * INPUTS + threadIdx.x] = 0.f;
            __syncwarp();
            for (int distance = 16; distance; distance /= 2) bits |= __shfl_xor_sync(FULL_WARP, bits, distance);
            unsigned int* mine = marks + (k - first) % 3;
            if (lane == 0 && bits) atomicOr(mine, bits);
            __syncthreads();
            const unsigned int alive = *mine & held;
            if (threadIdx.x == 0) {
                marks[(k - first + 2) % 3] = 0;
                if (alive) atomicOr(active + (long long)k * tiles + tile, alive << shift);
                atomicAdd(work + k, (unsigned long long)INPUTS);
            }
            here = there, there = (width + 1) * INPUTS - here, neurons = layer.outputs;
            if (!alive && k + 1 >= dead_from) {
                ended = true;
                break;
            }
        }
        if (!ended)
            for (int i = threadIdx.x; i < neurons * INPUTS; i += THREADS)
                target[row_start(row + i % INPUTS, neurons) + (long long)(i / INPUTS) * TILE] = shared[here + i];
        __syncthreads();
    }
}
