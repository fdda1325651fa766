// Which rows there are: at the start, after each pass, and at the end. The host never needs to know how many.
//
// A row represents one input at first, its *origin*. Where rows became identical (merge.cu), `parent` leads from an
// origin to the one that its row was merged into, and `weight` of an origin is how many inputs its row represents.
//
// begin      all inputs have a row of their own, in the order of their numbers; counters are zero
// next_rows  the rows that `keep` has set, in order, are the ones that go on: `list` has their row indices; and the
//            survivors of the layers first..last-1 of the pass are counted. A block takes WARPS tiles, and adds up the
//            marks of all tiles before its own itself: reading them costs less than a second launch would.
// cut_rows   `list` is cut into sub-batches of `size` rows, of which the last takes all that are left; indices count
//            from the first row of each. How many rows each has goes to counts[0], counts[step], ..., and the number of
//            all to `total`
// row_index  of each origin, the index of its row at the end
// resolve    of each input, the index of the row that it has at the end, or -1
//
// `batch`: where in the inputs of all batches this one begins, and how many inputs it has, as inputs.cu takes it.
//
// Launch: begin, cut_rows, row_index, resolve: any number of blocks; next_rows: one for every WARPS tiles.
#include "common.cuh"
#include "rows.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    begin(const int* __restrict__ batch, int layers, int tiles, int* list, int* origin, int* parent, int* weight,
          int* rows, unsigned int* active, unsigned long long* survivors, unsigned long long* work, int* failed,
          int* merged) {
    const int count = batch[1];
    const long long first = (long long)blockIdx.x * THREADS + threadIdx.x, step = (long long)gridDim.x * THREADS;
    // Each input begins as a row of its own: its own parent, of weight 1.
    for (long long i = first; i < count; i += step) {
        list[i] = origin[i] = parent[i] = (int)i;
        weight[i] = 1;
    }
    // Clear counters and marks in the same launch, which a captured graph repeats for each batch.
    for (long long i = first; i < layers; i += step) survivors[i] = work[i] = 0;
    for (long long i = first; i < (long long)layers * tiles; i += step) active[i] = 0;
    for (long long i = first; i <= layers; i += step) rows[i] = i ? 0 : count;
    // A number past the last layer says that none failed.
    if (first == 0) *failed = layers, *merged = 0;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    next_rows(const unsigned int* __restrict__ keep, const unsigned int* __restrict__ active, int tiles, int first,
              int last, const int* __restrict__ rows, int* __restrict__ next, int may_leave,
              const int* __restrict__ origin, const int* __restrict__ weight, int* __restrict__ list,
              int* __restrict__ next_origin, unsigned long long* survivors) {
    __shared__ int before[WARPS];
    const int count = *rows, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int block_tile = blockIdx.x * WARPS, tile = block_tile + warp;
    if (block_tile * TILE >= count) {
        // Without any rows, one block has to say so.
        if (blockIdx.x == 0 && threadIdx.x == 0) *next = 0;
        return;
    }
    // Exclusive prefix of this block: a strided sum of all marks before it, reduced by shuffles in each warp.
    int sum = 0;  // of the marks in tiles before this block's
    for (int i = threadIdx.x; i < block_tile; i += THREADS) sum += may_leave ? __popc(keep[i]) : TILE;
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, distance);
    if (lane == 0) before[warp] = sum;
    __syncthreads();
    // Every thread adds the warps' sums, so that none has to be sent back.
    sum = 0;
    for (int i = 0; i < WARPS; ++i) sum += before[i];
    __syncthreads();
    // Prefix within the block: population counts of the warps' tiles, added up to this warp.
    const bool any = tile * TILE < count;
    const unsigned int marks = !any ? 0 : may_leave ? keep[tile] : valid_lanes(tile * TILE, count);
    if (lane == 0) before[warp] = __popc(marks);
    __syncthreads();
    for (int i = 0; i < warp; ++i) sum += before[i];
    if (!any) return;

    const int row = tile * TILE + lane;
    const int mine = row < count ? origin[row] : -1;
    // Compact: a row's place is the prefix and the number of marked lanes below its own.
    if (marks >> lane & 1) {
        const int to = sum + __popc(marks & ((1u << lane) - 1));
        list[to] = row;
        next_origin[to] = mine;
    }
    // Prefix and marks of the last tile are the number of rows that go on.
    if (tile == tiles_of(count) - 1 && lane == 0) *next = sum + __popc(marks);
    if (first < last) tally(active, tiles, first, last, tile, mine < 0 ? 0 : weight[mine], survivors);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    cut_rows(const int* rows, int size, int number, int step, int* __restrict__ list, int* __restrict__ counts,
             int* total) {
    const int count = *rows, first = blockIdx.x * THREADS + threadIdx.x;
    // Rows moved to the front, never back: an index is no less than its place in `list`, so none becomes negative.
    for (int row = first; row < count; row += gridDim.x * THREADS) list[row] -= min(row / size, number - 1) * size;
    for (int i = first; i < number; i += gridDim.x * THREADS) {
        const int left = max(0, count - i * size);
        counts[(long long)i * step] = i < number - 1 ? min(size, left) : left;
    }
    if (first == 0) *total = count;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    row_index(const int* __restrict__ rows, const int* __restrict__ origin, int* __restrict__ index_of) {
    for (int row = blockIdx.x * THREADS + threadIdx.x; row < *rows; row += gridDim.x * THREADS)
        index_of[origin[row]] = row;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    resolve(const int* __restrict__ batch, const int* __restrict__ parent, const int* __restrict__ index_of,
            int* __restrict__ row_of) {
    const int count = batch[1];
    for (int input = blockIdx.x * THREADS + threadIdx.x; input < count; input += gridDim.x * THREADS) {
        // Follow the parents to the root: a row that absorbed others may have been merged itself.
        int root = input;
        while (parent[root] != root) root = parent[root];
        row_of[input] = index_of[root];
    }
}
