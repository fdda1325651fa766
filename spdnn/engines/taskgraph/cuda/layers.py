"""Weights of the task graph on CUDA devices: the layers of a stage in one block, which one copy brings to a buffer.

A block holds the arrays of its layers, each at a multiple of ALIGNED bytes. A stage always uses the same buffer, so
launches that are bound to the arrays in it, and the table that the persistent kernel reads, stay as they are.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.network import Network
from spdnn.engines.cuda.buffers import KernelPlan
from spdnn.engines.cuda.layers import LayerLayout, lay_out_ahead
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.kernels.cuda.device import Device

ALIGNED = 256  # bytes; more than any load of a kernel wants


@dataclass(frozen=True)
class LayerOffsets:
    """Where the arrays of a layer are in a block; `host` is the layer without them.

    Attributes:
        fields: (name, dtype, elements, offset) of each array; nbytes: of all, a multiple of ALIGNED.
    """

    host: LayerLayout
    fields: tuple[tuple[str, np.dtype, int, int], ...]
    nbytes: int

    @classmethod
    def of(cls, host: LayerLayout) -> "LayerOffsets":
        # Arrays of a layer lie in one block, each aligned, so that one copy brings a whole stage.
        fields, offset = [], 0
        for name, array in host.arrays.items():
            fields.append((name, array.dtype, array.size, offset))
            offset += whole(array.nbytes)
        return cls(replace(host, arrays={}), tuple(fields), offset)

    @property
    def shared(self) -> int:
        return self.host.shared

    @property
    def padding(self) -> float:
        return self.host.padding

    def fill(self, block: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
        """Put the arrays where they belong in `block`, uint8, which is this layer's from its first byte on."""
        for name, dtype, size, offset in self.fields:
            block[offset : offset + size * dtype.itemsize].view(dtype)[:] = arrays[name]

    def on(self, block: Any) -> LayerLayout:
        """The layer in a block on a device."""
        arrays = {
            name: block[offset : offset + size * dtype.itemsize].view(dtype)
            for name, dtype, size, offset in self.fields
        }
        return replace(self.host, arrays=arrays)


class HostWeights:
    """All layers laid out on the host; then, once the decomposition is chosen, in a block for each stage.

    Attributes:
        laid: of each layer.
    """

    def __init__(self, network: Network, plan: KernelPlan, threads: int):
        self.laid: list[LayerOffsets] = []
        self._arrays: list[dict[str, np.ndarray]] = []
        with closing(lay_out_ahead(network, plan.kinds, plan.choice.room, threads)) as arranged:
            for host in progress.bar(arranged, "weights", network.depth):
                self.laid.append(LayerOffsets.of(host))
                self._arrays.append(host.arrays)

    def block(self, first: int, last: int, empty: Callable[[int], np.ndarray], keep: bool = False) -> np.ndarray:
        """Layers first..last-1 in one block that `empty` makes of its bytes; without `keep`, nowhere else any more."""
        block, offset = empty(sum(layer.nbytes for layer in self.laid[first:last])), 0
        for k in range(first, last):
            self.laid[k].fill(block[offset:], self._arrays[k])
            self._arrays[k] = self._arrays[k] if keep else {}
            offset += self.laid[k].nbytes
        return block


class DeviceWeights:
    """The buffers of one device, and its layers in them.

    Attributes:
        layers: by their numbers, each in the buffer that its stage always uses.
    """

    def __init__(self, device: Device, cut: Decomposition, sizes: RunSizes, number: int, laid: Sequence[LayerOffsets]):
        # Rolling buffers: a stage always uses the same one, so that launches keep the addresses they were bound to.
        self.device, self._cut, self._number = device, cut, number
        self._buffers = [device.empty(nbytes, np.uint8) for nbytes in cut.buffer_bytes(sizes, number)]
        self.layers: dict[int, LayerLayout] = {}
        for stage in range(*cut.range_of(number)):
            offset, buffer = 0, self._buffers[cut.buffer_of(number, stage)]
            for k in range(*cut.stages[stage]):
                self.layers[k] = laid[k].on(buffer[offset : offset + laid[k].nbytes])
                offset += laid[k].nbytes

    def copy(self, stage: int, block: np.ndarray) -> None:
        """Bring a stage's block, pinned, to its buffer; on the current stream, without waiting."""
        self.device.copy_in(self._buffers[self._cut.buffer_of(self._number, stage)][: block.size], block)


def whole(nbytes: int) -> int:
    """Bytes in whole units of ALIGNED."""
    return -(-nbytes // ALIGNED) * ALIGNED
