"""Tiles of features for the CPU kernels: (tiles, neurons, tile) float32, `tile` inputs side by side.

Here are their sizes, buffers for them, and layers and inputs as the compiled kernels take them.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spdnn.core.arrays import LINE, aligned
from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import use_all_cores
from spdnn.kernels import dispatch

ALIGNMENT = LINE  # of a buffer
TILES = (16, 32, 64)
FEW = 2  # inputs that are faster one at a time
TILE_BYTES = 8 << 20  # of a tile's two buffers, which a thread's share of the caches holds
MASK_BITS = 64  # bits in a tile's activity mask


def best_tile(level, count: int, neurons: int) -> int:
    """The tile for `count` inputs at a kernel level, of layers of at most `neurons`.

    Four vectors side by side, two partial sums each, fill the eight accumulators, and were fastest at every level
    (benchmarks/fused_layer.py) as long as the caches hold a tile; fewer inputs take less, and very few one at a time.
    """
    if count <= FEW:
        return 1
    # The smallest tile that holds all inputs, at most four vectors, and halved until its two buffers fit the cache.
    fitting = next((tile for tile in TILES if tile >= count), TILES[-1])
    tile = min(fitting, max(TILES[0], level.vector_bytes))  # four vectors of floats: as many inputs as vector bytes
    while tile > TILES[0] and 2 * feature_bytes(1, neurons, tile) > TILE_BYTES:
        tile //= 2
    return tile


def feature_bytes(count: int, neurons: int, tile: int) -> int:
    """Bytes of one buffer for `count` inputs of `neurons` values."""
    return 4 * ceil_div(count, tile) * tile * neurons


def buffer(count: int, neurons: int, tile: int) -> np.ndarray:
    """An uninitialised, 64-byte aligned float32 buffer for `count` inputs of `neurons` values, one-dimensional."""
    return aligned(4 * ceil_div(count, tile) * tile * neurons).view(np.float32)


def touch(memory: np.ndarray, threads: int) -> None:
    """Fill a buffer with zeros, so that its pages are there: a virtual machine may take 10 microseconds for each."""
    # First touch by several threads: the system clears pages, and places them, where they are first written.
    parts = np.array_split(memory, threads)
    with ThreadPoolExecutor(threads, initializer=use_all_cores) as pool:
        for _ in pool.map(lambda part: part.fill(0), parts):
            pass


def tile_rows(rows: np.ndarray, tile: int) -> np.ndarray:
    """A buffer that holds `rows`, float32 (count, neurons), in tiles; the lanes past the last row are zero."""
    count, neurons = rows.shape
    padded = np.zeros((ceil_div(count, tile) * tile, neurons), np.float32)
    padded[:count] = rows
    features = buffer(count, neurons, tile)
    features[:] = padded.reshape(-1, tile, neurons).transpose(0, 2, 1).reshape(-1)
    return features


def active_indices(masks: np.ndarray, tile: int, count: int) -> np.ndarray:
    """The indices (int64, ascending, below `count`) whose bit is set in `masks`, uint64 (tiles,), bit i for lane i."""
    # Bit i of a mask is lane i of its tile; lanes past the last row are cut off.
    bits = np.unpackbits(masks.view(np.uint8).reshape(-1, MASK_BITS // 8), axis=1, bitorder="little")
    return np.flatnonzero(bits[:, :tile].reshape(-1)[:count])


def bind_inputs(inputs: Inputs):
    """The stored rows of the inputs as the compiled kernels take them; holds on to their arrays."""
    kernels = dispatch.compiled_module()
    data = inputs.data
    if inputs.kind == "csr":
        offsets, columns = (array.astype(np.int64, copy=False) for array in (data.indptr, data.indices))
        return kernels.StoredRows(offsets, columns, data.data, inputs.neurons)
    return kernels.StoredRows(data, inputs.neurons) if inputs.kind == "bits" else kernels.StoredRows(data)


def bind(layer: Layer, share: bool = False):
    """The layer as the compiled kernels take it; holds on to the layer's arrays.

    Args:
        share: outputs that read the same inputs share a list of them, in a copy, where that saves enough loads; not for
            the kernel `Forward`.
    """
    kernels = dispatch.compiled_module()
    arrays = layer.offsets, layer.indices, np.atleast_1d(layer.values), np.atleast_1d(layer.bias)
    low, high = layer.activation.low, layer.activation.high
    return kernels.BoundLayer(layer.inputs, layer.outputs, *arrays, low, high, share=share)
