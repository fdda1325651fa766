"""What GPUs can do at best by public figures, and the least time of counted work there. Nothing of it is measured.

A multiprocessor has four schedulers, each of which issues one instruction of a warp a cycle, and shared memory that
delivers at most 128 bytes a cycle. Whatever a kernel does may go on at the same time, so the slowest of them counts;
launches, latencies, barriers and the host cost nothing. Sources: NVIDIA's architecture whitepapers, programming guide.
"""

from typing import NamedTuple

import numpy as np

SCHEDULERS = 4
WARP = 32
PARTS = ("instructions", "multiply-adds", "shared memory", "L2", "memory")  # what may bind


class Gpu(NamedTuple):
    """A GPU by its data sheet.

    Attributes:
        capability: 90 for compute capability 9.0; clock: hertz, boosted; lanes: float32 multiply-adds of a
            multiprocessor in a cycle.
        l2_bytes_per_cycle: of all multiprocessors together; bytes_per_second: of memory.
        l2_bytes: of the second-level cache; shared_per_block, shared: bytes, of a block and of a multiprocessor.
    """

    name: str
    capability: int
    multiprocessors: int
    clock: float
    lanes: int
    l2_bytes_per_cycle: int
    l2_bytes: int
    bytes_per_second: float
    shared_per_block: int
    shared: int


# L2 of sm_90: no figure is public; it is taken to be that of sm_80.
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("V100", 70, 80, 1.53e9, 64, 2048, 6 << 20, 9e11, 96 << 10, 96 << 10),
        Gpu("A100", 80, 108, 1.41e9, 64, 5120, 40 << 20, 1.555e12, 163 << 10, 164 << 10),
        Gpu("H100", 90, 132, 1.98e9, 128, 5120, 50 << 20, 3.35e12, 227 << 10, 228 << 10),
        Gpu("H200", 90, 132, 1.98e9, 128, 5120, 50 << 20, 4.8e12, 227 << 10, 228 << 10),
        Gpu("RTX 2080 Ti", 75, 68, 1.545e9, 64, 1408, 5632 << 10, 6.16e11, 64 << 10, 64 << 10),
    )
}


class TileWork(NamedTuple):
    """What a kernel does in one layer for the inputs that its blocks take together.

    Attributes:
        inputs: of a tile; blocks: that a tile is cut into.
        instructions, multiply_adds: of warps, of the whole tile, padding included.
        deliveries: of shared memory, of 128 bytes or less; l2_bytes: read and written, of the tile.
        weight_bytes: of the layer, read once; row_bytes: of a row of features, before the layer and after it.
    """

    inputs: int
    blocks: int
    instructions: float
    multiply_adds: float
    deliveries: float
    l2_bytes: float
    weight_bytes: float
    row_bytes: float


def parts(gpu: Gpu, work: TileWork, rows: np.ndarray) -> np.ndarray:
    """Seconds of each of PARTS for so many rows, float64 (len(PARTS), *rows.shape).

    The busiest multiprocessor has the largest whole number of blocks; rows pass through memory where those before the
    layer and after it do not both fit the second-level cache.
    """
    rows = np.asarray(rows, float)
    tiles = np.ceil(rows / work.inputs)
    busiest = np.ceil(tiles * work.blocks / gpu.multiprocessors) / work.blocks / gpu.clock
    features = rows * work.row_bytes
    return np.array(
        [
            busiest * work.instructions / SCHEDULERS,
            busiest * work.multiply_adds * WARP / gpu.lanes,
            busiest * work.deliveries,
            tiles * work.l2_bytes / (gpu.l2_bytes_per_cycle * gpu.clock),
            (np.where(features > gpu.l2_bytes, features, 0.0) + work.weight_bytes) / gpu.bytes_per_second,
        ]
    )


def seconds(gpu: Gpu, work: TileWork, rows: np.ndarray) -> tuple[float, str]:
    """(the least seconds of layers with so many rows each, which part binds in most of that time)."""
    found = spent(gpu, work, rows)
    return sum(found.values()), max(found, key=found.__getitem__)


def spent(gpu: Gpu, work: TileWork, rows: np.ndarray) -> dict[str, float]:
    """The least seconds of layers with so many rows each, by the part that binds."""
    each = parts(gpu, work, np.atleast_1d(rows))
    least, binds = each.max(axis=0), each.argmax(axis=0)
    return dict(zip(PARTS, np.bincount(binds.ravel(), least.ravel(), len(PARTS)).tolist(), strict=True))
