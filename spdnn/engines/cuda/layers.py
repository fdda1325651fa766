"""Layers on a device, each laid out for one kind of kernel, and the launches that take features through them.

A layer is first arranged on the host, then copied. `Run` binds the launches of one batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spdnn.core.errors import Unsuitable
from spdnn.core.network import Layer, Network
from spdnn.core.numbers import ceil_div
from spdnn.core.threads import in_order
from spdnn.engines.cuda import schedule
from spdnn.engines.cuda.schedule import BITS, CSR, ELL, PERSISTENT, STAGED, PersistentSetting
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.copies import Copies
from spdnn.kernels.cuda.device import Device
from spdnn.kernels.cuda.sliced import MOST_ROOM, SLICE, slice_layer, stage_layer

WAITING = 8  # resident blocks of SIMPLE threads a multiprocessor, enough to hide latency
TABLE_WORDS = 8  # 64-bit words of a layer in the table of the persistent kernel (struct Layer of persistent.cu)
MOST_CHUNKS = 2**28  # of a layer: kernels count the loads of its values, eight for each output of a chunk, in an int


@dataclass(frozen=True)
class LayerLayout:
    """A layer laid out for one kind of kernel, on the host or, once its arrays are copied, on a device.

    Attributes:
        arrays, numbers: by the names of its kernel's arguments.
        valued: whether its edges have values of their own.
        groups, shared: of its outputs, with padding, and how many outputs each has.
        padding: the share of places for edges without one.
    """

    kind: str
    inputs: int
    outputs: int
    valued: bool
    arrays: dict[str, Any]
    numbers: dict[str, Any]
    groups: int
    shared: int
    padding: float

    @property
    def nbytes(self) -> int:
        """Of its arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    def row(self, device: Device) -> np.ndarray:
        """uint64 (TABLE_WORDS,), as struct Layer of persistent.cu reads it."""
        # The persistent kernel goes through layers by itself, so it reads pointers and numbers of each from a table.
        row = np.zeros(TABLE_WORDS, np.uint64)
        for i, name in enumerate(("starts", "indices", "values", "ends")):
            row[i] = device.address(self.arrays[name])
        row.view(np.int32)[8:12] = self.groups, self.outputs, self.shared, self.numbers["chunks"]
        row.view(np.float32)[12:15] = [self.numbers[name] for name in ("low", "high", "weight")]
        return row


def lay_out(layer: Layer, kind: str, room: int = 0) -> LayerLayout:
    """The layer for kernels of that kind, Unsuitable if it has more edges than these count; `room`: neurons of a stage
    at most."""
    valued = not layer.single_value
    numbers: dict[str, Any] = {"low": layer.activation.low, "high": layer.activation.high}
    host, bias = {}, np.atleast_1d(layer.bias).astype(np.float32)
    if kind != PERSISTENT:
        host["bias"], numbers["bias_step"] = bias, int(np.ndim(layer.bias) > 0)
    groups, shared, padding = layer.outputs, 1, 0.0
    # CSR takes the layer as it is; the others take slices (sliced ELL), whose indices warps load coalesced.
    if kind == CSR:
        values = np.atleast_1d(layer.values).astype(np.float32)
        host |= {"offsets": layer.offsets.astype(np.int64), "indices": layer.indices, "values": values}
    else:
        # Staging: the footprint of a block's outputs passes through shared memory in stages, with 16-bit indices.
        if kind in (BITS, STAGED):
            # A word is 1/32 of a neuron's floats; 1 is the neuron of zeros behind each stage.
            fits = min(32 * (room + 1) - 1, MOST_ROOM) if kind == BITS else room
            stages = stage_layer(layer, settings.staged_outputs(valued), fits, settings.STAGED_HELD)
            slices = stages.slices
            host |= {"stages": stages.stages, "map_starts": stages.map_starts, "map": stages.map}
            numbers |= {"parts": stages.parts, "room": stages.room}
        else:
            slices = slice_layer(layer, most_shared=settings.PERSISTENT_SHARED[valued] if kind == PERSISTENT else 1)
        chunks = int(slices.starts[-1])
        if chunks * slices.shared >= MOST_CHUNKS:
            raise Unsuitable(f"a layer of {layer.edges:,} edges is more than the kernel {kind} counts; use cuda-csr")
        host |= {"starts": slices.starts, "indices": slices.indices, "values": slices.values}
        # Epilogue: the persistent kernel reads an output and its bias in one load, side by side; the others apart.
        if kind == PERSISTENT:
            order = slices.order.reshape(-1, SLICE, slices.shared).swapaxes(1, 2)
            host["ends"] = np.stack([order, np.broadcast_to(bias, layer.outputs)[order].view(np.int32)], axis=-1)
            numbers |= {"chunks": chunks, "weight": 0.0 if valued else slices.values[0]}
        else:
            host["order"] = slices.order
            numbers |= {"slices": slices.order.size // SLICE} if kind == ELL else {}
        (groups, shared), padding = slices.order.shape, slices.padding
    arrays = {name: np.ascontiguousarray(array).reshape(-1) for name, array in host.items()}
    return LayerLayout(kind, layer.inputs, layer.outputs, valued, arrays, numbers, groups, shared, padding)


def lay_out_ahead(network: Network, kinds: Sequence[str], room: int, threads: int) -> Iterator[LayerLayout]:
    """`lay_out` of each layer, in order, by so many threads, which read them and are at most that many layers ahead."""
    return in_order(lambda k: lay_out(network.layer(k), kinds[k], room), range(network.depth), threads, threads + 1)


def to_device(device: Device | Copies, host: LayerLayout) -> LayerLayout:
    """The layer on the device, MemoryTooSmall if it has no room; through Copies it is there once they finish."""
    return replace(host, arrays={name: device.upload(array) for name, array in host.arrays.items()})


@dataclass(frozen=True)
class LayerLauncher:
    """What the kernels of a run share on the device.

    Attributes:
        tiles: that there is room for; list, active, work, failed: as kernels describe them; dead_from: as of Prepared.
        stride: from the marks of a layer in `active` to those of the next one.
    """

    device: Device
    tiles: int
    list: Any
    active: Any
    work: Any
    failed: Any
    dead_from: int
    stride: int

    def marks(self, k: int) -> Any:
        """uint32 (tiles,), the active inputs after layer k."""
        return self.active[k * self.stride : k * self.stride + self.tiles]

    def blocks(self, items: int, each: int = settings.SIMPLE // 32) -> int:
        """Blocks for so many items, `each` of which fill one: at most what all multiprocessors hold."""
        return max(1, min(ceil_div(items, each), WAITING * self.device.properties.multiprocessors))

    def layer(self, k: int, layer: LayerLayout, source: Any, target: Any, rows: Any) -> Callable[[], None]:
        """The launch of one layer; `source`: features, or words for BITS; `rows`: int32 (1,), how many there are."""
        # Sizes are what the kernel touches at most; the launch is checked against them when it is bound.
        bits, shared = layer.kind == BITS, 0
        sizes = {"source": self.tiles * layer.inputs * (1 if bits else 32), "target": 32 * self.tiles * layer.outputs}
        common = {"source": source, "target": target, "list": self.list, "rows": rows}
        common |= {"inputs": layer.inputs, "outputs": layer.outputs, "layer": k}
        common |= {"active": self.marks(k), "work": self.work, "failed": self.failed}
        common |= layer.arrays | layer.numbers
        if layer.kind in (BITS, STAGED):
            # Staged: no more blocks than shared memory holds at once, each of which takes tiles and parts in turn.
            items, properties = self.tiles * layer.numbers["parts"], self.device.properties
            kernel = settings.staged_kernel(layer.shared, layer.valued, bits)
            room = layer.numbers["room"] // (32 if bits else 1)  # neurons that are floats in as many bytes
            shared = schedule.stage_shared_bytes(room)
            blocks = min(items, schedule.stage_blocks(properties, room) * properties.multiprocessors)
            if items >= 2**31:
                raise Unsuitable(f"{self.tiles:,} tiles of {layer.outputs:,} outputs are more than the kernel counts")
        else:
            kernel = settings.layer(f"{layer.kind}_layer", layer.arrays["indices"].dtype.itemsize, layer.valued)
            blocks = self.blocks(self.tiles * ceil_div(layer.outputs, SLICE))
        return self.device.bind(kernel, blocks, common, shared, sizes)

    def layers(
        self, first: int, table: Any, setting: PersistentSetting, layers: Sequence[LayerLayout], source: Any,
        target: Any, rows: Any,
    ) -> Callable[[], None]:  # fmt: skip
        """The launch of `layers`, the network's from `first` on, which keep features in shared memory, at one setting;
        `table`: uint64 (depth x TABLE_WORDS,), a row for each layer of the network."""
        # Several settings are launched one after the other; each does nothing unless the rows are in its range, so
        # that the host need not know how many are left.
        size, (width, _) = 32 * self.tiles, widths(layers)
        arguments = {"source": source, "target": target, "list": self.list, "rows": rows, "layers": table}
        arguments |= {"least": setting.least, "most": setting.most, "width": width}
        arguments |= {"first": first, "last": first + len(layers)}
        arguments |= {"inputs": layers[0].inputs, "dead_from": self.dead_from, "tiles": self.stride}
        arguments |= {"active": self.active, "work": self.work, "failed": self.failed}
        kernel = settings.persistent(setting.inputs, setting.threads, layers[0].valued)
        groups = ceil_div(min(size, setting.most), setting.inputs)
        sizes = {"source": size * layers[0].inputs, "target": size * layers[-1].outputs}
        return self.device.bind(kernel, min(setting.blocks, groups), arguments, setting.shared, sizes)


def widths(layers: Sequence[LayerLayout]) -> tuple[int, int]:
    """(width, groups): of the widest features of these layers, and of the layer with most groups of outputs."""
    width = max(layers[0].inputs, *(layer.outputs for layer in layers))
    return width, max(layer.groups for layer in layers)
