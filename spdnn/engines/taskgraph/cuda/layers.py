"""Weights of the task graph on CUDA devices: the layers of a stage in one block, which one copy brings to a buffer.

A block holds the arrays of its layers, each at a multiple of ALIGNED bytes. A stage always uses the same buffer, so
launches that are bound to the arrays in it, and the table that the persistent kernel reads, stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spdnn.core.numbers import ceil_div
from spdnn.engines.cuda.layers import LayerLayout
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.kernels.cuda.copies import Copies

ALIGNED = 256  # bytes; more than any load of a kernel wants


def block_bytes(layer: LayerLayout) -> int:
    """Of the layer's arrays in a block."""
    return sum(whole(array.nbytes) for array in layer.arrays.values())


def in_block(layer: LayerLayout, block: Any) -> LayerLayout:
    """The layer with arrays as large as its own, from the first byte of `block` on, uint8, on the host or a device."""
    arrays, offset = {}, 0
    for name, array in layer.arrays.items():
        arrays[name] = block[offset : offset + array.nbytes].view(array.dtype)
        offset += whole(array.nbytes)
    return replace(layer, arrays=arrays)


def move_to_block(laid: list[LayerLayout], first: int, last: int, empty: Callable[[int], np.ndarray]) -> np.ndarray:
    """Layers first..last-1 in one block that `empty` makes of its bytes, and from then on nowhere else."""
    block, offset = empty(sum(map(block_bytes, laid[first:last]))), 0
    for k in range(first, last):
        own, laid[k] = laid[k].arrays, in_block(laid[k], block[offset:])
        for name, array in own.items():
            laid[k].arrays[name][:] = array
        offset += block_bytes(laid[k])
    return block


class DeviceWeights:
    """The buffers of one device, the stream of copies to them, and its layers by their numbers, each in the buffer that
    its stage always uses."""

    def __init__(self, copies: Copies, cut: Decomposition, sizes: RunSizes, number: int, laid: Sequence[LayerLayout]):
        self.device, self.stream, self._cut, self._number = copies.device, copies.stream, cut, number
        with self.device.on(self.stream):
            self._buffers = [self.device.empty(nbytes, np.uint8) for nbytes in cut.buffer_bytes(sizes, number)]
        self.layers: dict[int, LayerLayout] = {}
        for stage in range(*cut.range_of(number)):
            offset, buffer = 0, self._buffers[cut.buffer_of(number, stage)]
            for k in range(*cut.stages[stage]):
                self.layers[k] = in_block(laid[k], buffer[offset:])
                offset += block_bytes(laid[k])

    def copy(self, stage: int, block: np.ndarray) -> None:
        """Bring a stage's block, pinned, to its buffer; on the current stream, without waiting."""
        self.device.copy_in(self._buffers[self._cut.buffer_of(self._number, stage)][: block.size], block)


def whole(nbytes: int) -> int:
    """Bytes in whole units of ALIGNED."""
    return ceil_div(nbytes, ALIGNED) * ALIGNED
