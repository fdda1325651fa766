"""The kernels of spdnn.ops at the settings in use: which there are, and what each computes at once.

A setting never changes a bit of a result, so whoever launches may take any that fits the shape and the alignment.
"""

from typing import NamedTuple

import numpy as np

from spdnn.kernels.cuda.declarations import Kernel

THREADS = 128
LEAST_BLOCKS = 7  # at least, on a multiprocessor: 896 threads of 72 registers
SPMM_BLOCKS = {1: 7, 2: 5, 4: 7}  # of spmm, by the vectors that a thread holds; 4 are of single numbers
SPMM_FEW_BLOCKS = 3  # of spmm where many loads are in flight
STEP = 4  # nonzeros of a vector load; columns are padded to a multiple of it (ops.cuh)
DOT_BLOCKS = {8: 5, 4: 6, 1: 7}  # of sddmm, by its vector: each number of it has 4 sums in registers
DOT_UNROLL, DEEP_UNROLL = {8: 1, 4: 1, 1: 2}, 4  # of dots, by their vector; where a warp waits for its loads
DEEP_BLOCKS = 3  # of sddmm then
ATTENTION_BLOCKS = {8: 4, 4: 5, 1: 7}  # which has the weighted rows of V with them
VALUES = {np.dtype(np.float32): "float", np.dtype(np.float16): "half"}
HELD = 8  # times 32 values of a row that softmax keeps in registers


class Tile(NamedTuple):
    """How spmm is cut.

    Attributes:
        lanes: threads of a row; vector: numbers of one load of B; held: vectors of a thread; loads: nonzeros whose rows
            of B are loaded at once.
    """

    lanes: int
    vector: int
    held: int
    loads: int

    @property
    def columns(self) -> int:
        """Of one row, that a subwarp computes."""
        return self.lanes * self.vector * self.held

    @property
    def rows(self) -> int:
        """Of a block."""
        return THREADS // self.lanes

    @property
    def blocks(self) -> int:
        """At least, on a multiprocessor."""
        return SPMM_FEW_BLOCKS if self.loads * max(2, self.vector) * self.held > 16 else SPMM_BLOCKS[self.held]


# By dtype: the tiles there are, narrow ones first. 16-byte loads for widths that they divide, the others for the rest.
SPMM_TILES = {
    np.dtype(np.float32): (
        Tile(8, 4, 1, 4), Tile(16, 4, 1, 4), Tile(8, 4, 2, 2), Tile(32, 4, 1, 4), Tile(16, 4, 2, 2),
        Tile(16, 2, 2, 2),
        Tile(8, 1, 1, 8), Tile(32, 1, 2, 2), Tile(32, 1, 4, 2),
    ),
    np.dtype(np.float16): (
        Tile(8, 8, 1, 2), Tile(16, 8, 1, 2),
        Tile(32, 2, 2, 2),
        Tile(8, 1, 1, 8), Tile(32, 1, 2, 2),
    ),
}  # fmt: skip
# Besides these where there are few threads, which then wait for their loads: more threads, or more loads of each.
SPMM_FEW_TILES = {
    np.dtype(np.float32): (
        Tile(8, 4, 1, 16), Tile(32, 4, 1, 16), Tile(8, 2, 1, 16), Tile(8, 1, 1, 16), Tile(32, 1, 1, 16),
    ),
    np.dtype(np.float16): (Tile(8, 8, 1, 8), Tile(8, 2, 1, 16), Tile(32, 2, 1, 16), Tile(8, 1, 1, 16)),
}  # fmt: skip
SPMM_VECTORS = {  # by dtype: of its tiles, wide ones first
    dtype: tuple(sorted({tile.vector for tile in tiles}, reverse=True)) for dtype, tiles in SPMM_TILES.items()
}
VECTORS = {np.dtype(np.float32): (4, 1), np.dtype(np.float16): (8, 1)}  # of dots, by dtype: numbers of a load
WIDE, HELD_COLUMNS = {4: 2, 8: 2, 1: 1}, {4: 2, 8: 2, 1: 4}  # of attention, by that: numbers of a load of V, such loads
ATTENTION_COLUMNS = 128  # of V, that a warp computes: 32 x WIDE x HELD_COLUMNS
CHANNELS = (4, 1)  # of a load of depthwise_nhwc
MOST_ACROSS, RUN = 32, 4  # threads side by side on channels; outputs of a thread
DEPTHWISE_BLOCKS = {4: 4, 1: 5}  # by the channels of a load


def _kernel(file: str, name: str, dtype: np.dtype, **macros: int) -> Kernel:
    return Kernel(file, name, THREADS, (("VALUE", VALUES[dtype]), *macros.items()))


def spmm(dtype: np.dtype, tile: Tile) -> Kernel:
    """C = activation(A B + bias)."""
    macros = {"LANES": tile.lanes, "VECTOR": tile.vector, "HELD": tile.held, "TOGETHER": tile.loads}
    return _kernel("ops_spmm.cu", "spmm", dtype, **macros, BLOCKS=tile.blocks)


def sddmm(dtype: np.dtype, vector: int, unroll: int) -> Kernel:
    """scale * Q K^T at the nonzeros, with loads of so many numbers, 5 x `unroll` of them in flight."""
    blocks = DOT_BLOCKS[vector] if unroll == DOT_UNROLL[vector] else DEEP_BLOCKS
    return _kernel("ops_sddmm.cu", "sddmm", dtype, VECTOR=vector, UNROLL=unroll, BLOCKS=blocks)


def rowwise(name: str, dtype: np.dtype) -> Kernel:
    """sparse_softmax or gather_values."""
    return _kernel("ops_softmax.cu", name, dtype, HELD=HELD, BLOCKS=LEAST_BLOCKS)


def attention(dtype: np.dtype, vector: int) -> Kernel:
    """softmax(scale * Q K^T at the nonzeros) V, with loads of Q and K of so many numbers."""
    macros = {"VECTOR": vector, "UNROLL": DOT_UNROLL[vector], "WIDE": WIDE[vector], "HELD": HELD_COLUMNS[vector]}
    return _kernel("ops_attention.cu", "sparse_attention", dtype, **macros, BLOCKS=ATTENTION_BLOCKS[vector])


def depthwise(dtype: np.dtype, vector: int, nhwc: bool) -> Kernel:
    """3 x 3 convolution by channel, with loads of so many channels (without `nhwc`: 1)."""
    name = "depthwise_nhwc" if nhwc else "depthwise_nchw"
    return _kernel("ops_depthwise.cu", name, dtype, VECTOR=vector, BLOCKS=DEPTHWISE_BLOCKS[vector])
