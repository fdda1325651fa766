"""Weights and inputs once a node: MPI-3 shared-memory windows that the node's leader fills and its ranks read.

Source: Hidayetoglu et al., HPEC 2020, replicate the weights on every device; a node's ranks can share theirs.
"""

import copy
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core import sparse as sp
from spdnn.core.features import Inputs
from spdnn.core.network import Header, Layer, Network
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import WINDOW_SHARE
from spdnn.engines.base import Prepared, SharesWeights
from spdnn.runs.world import World

WINDOW_ALIGNMENT = 64  # bytes
# Bytes of layers in one window, which the leader holds twice for a moment; and windows at most.
WINDOW_BYTES, MOST_WINDOWS = 32 << 20, 64
SHM = "/dev/shm"  # where MPI libraries keep the windows


class Window:
    """Arrays in memory that the ranks of a node share. All ranks of the node make one together.

    Args:
        arrays: on the leader, what to put there; not read on the others.

    Attributes:
        arrays: the same on each rank, read-only.
        nbytes: of the window.
    """

    def __init__(self, world: World, arrays: Sequence[np.ndarray] | None):
        mpi, local = world.mpi, world.local
        # Types and shapes first: the other ranks build the same views without a copy.
        specs = _broadcast_specs(world, arrays)
        sizes = [np.dtype(kind).itemsize * int(np.prod(shape)) for kind, shape in specs]
        starts = np.cumsum([0, *(ceil_div(size, WINDOW_ALIGNMENT) * WINDOW_ALIGNMENT for size in sizes)])
        self.nbytes = int(starts[-1])
        # The leader allocates all of it, aligned by hand: MPI promises no alignment for vectors.
        self._window = mpi.Win.Allocate_shared(self.nbytes + WINDOW_ALIGNMENT if world.leader else 0, 1, comm=local)
        memory = np.frombuffer(self._window.Shared_query(0)[0], np.uint8)
        memory = memory[-memory.ctypes.data % WINDOW_ALIGNMENT :]
        self.arrays = []
        for number, ((kind, shape), start, size) in enumerate(zip(specs, starts, sizes, strict=False)):
            view = memory[start : start + size].view(kind).reshape(shape)
            if world.leader:
                view[...] = arrays[number]
            view.flags.writeable = False
            self.arrays.append(view)
        # Nobody reads before the leader has written.
        local.Barrier()


def _broadcast(world: World, content: Any) -> Any:
    """The leader's content on every rank of its node; the others wait for it without taking a core."""
    world.wait(world.local.Ibarrier(), patient=True)
    return world.local.bcast(content)


def _broadcast_specs(world: World, arrays: Sequence[np.ndarray] | None) -> list[tuple[str, tuple[int, ...]]]:
    """(type, shape) of each of the leader's arrays, on every rank of its node."""
    return _broadcast(world, [(array.dtype.str, array.shape) for array in arrays] if world.leader else None)


def share_inputs(world: World, inputs: Inputs | None) -> tuple[Inputs, int]:
    """(the leader's inputs on every rank of its node, bytes of the window that holds them)."""
    if world.local_size == 1:
        return inputs, 0
    # The description travels as an object; the rows go through memory.
    skeleton = arrays = None
    if world.leader:
        skeleton, rows = copy.copy(inputs), inputs.data
        skeleton.data = None
        arrays = [rows]
        if inputs.kind == "csr":
            arrays = [rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)]
    shared, fits = _broadcast(world, (skeleton, world.leader and inputs.nbytes <= room()))
    # A full /dev/shm would kill the ranks at the first write, so room is asked for first.
    window = Window(world, arrays) if fits else None
    near = window.arrays if window else _copies(world, arrays)
    if shared.kind == "csr":
        # Set by parts: the constructor of SciPy would check and copy the arrays.
        shared.data = sp.csr_array((shared.base, shared.neurons), dtype=np.float32)
        shared.data.data, shared.data.indices, shared.data.indptr = near
    else:
        (shared.data,) = near
    shared.window, shared.own = window, True
    return shared, window.nbytes if window else 0


def _copies(world: World, arrays: Sequence[np.ndarray] | None) -> list[np.ndarray]:
    """The leader's arrays on every rank of its node, a copy each: where shared memory has no room for a window."""
    specs = _broadcast_specs(world, arrays)
    copies = list(arrays) if world.leader else [np.empty(shape, kind) for kind, shape in specs]
    for array in copies:
        world.local.Bcast(np.ascontiguousarray(array) if world.leader else array)
    return copies


class SharedNetwork(Network):
    """A prepared network whose layers, or an engine's layout of them, lie in shared memory.

    Attributes:
        layout: of each layer, the engine's arrays; None: they are those of the layers.
        shared_nbytes: of the windows.
    """

    def __init__(
        self,
        description: dict,
        headers: list[Header],
        arrays: list[tuple[np.ndarray, ...]],
        own: bool,
        classes: np.ndarray | None,
        windows: list[Window],
    ):
        self.description, self._headers, self._arrays, self._classes = description, headers, arrays, classes
        self.layout = arrays if own else None
        self._windows, self.shared_nbytes = windows, sum(window.nbytes for window in windows)

    @property
    def depth(self) -> int:
        return len(self._headers)

    def header(self, k: int) -> Header:
        return self._headers[k]

    def layer(self, k: int) -> Layer:
        if self.layout is not None:
            raise TypeError("this network is in the layout of its engine, and has no layers by output any more")
        header, (offsets, indices, values) = self._headers[k], self._arrays[k]
        values = values[0] if header.single_value else values
        return Layer.frozen(header.inputs, header.outputs, offsets, indices, values, header.bias, header.activation)

    def in_memory(self, k: int) -> bool:
        return True

    def neuron_classes(self, k: int) -> np.ndarray | None:
        """As Network.neuron_classes says, of the last layer alone: no other is asked for once layers are prepared."""
        if k != self.depth - 1:
            raise IndexError(f"the classes of layer {k + 1} are not kept")
        return self._classes


def room() -> float:
    """Bytes that windows may take where shared memory lies; infinity where it is somewhere else."""
    try:
        free = os.statvfs(SHM)
    except OSError:
        return math.inf
    return WINDOW_SHARE * free.f_bavail * free.f_frsize


def share_prepared(world: World, engine: SharesWeights, prepared: Prepared | None) -> Prepared:
    """The leader's prepared network on every rank of its node, in the engine's own layout where it has one.

    Args:
        prepared: on the leader; its layers are read once, and released as they are copied. Other ranks need no source,
            and get the prepared network instead.
    """
    notes = None
    if world.leader:
        network = prepared.network
        notes = (prepared.reductions, prepared.findings, network.description, network.depth)
    reductions, findings, description, depth = _broadcast(world, notes)
    # In groups, so that the leader never holds all weights twice.
    headers, arrays, windows = [], [], []
    groups = _groups(prepared.network, engine) if world.leader else None
    own = False
    with progress.Stage("share weights", depth) as stage:
        while len(headers) < depth:
            group = next(groups) if world.leader else None
            part = _broadcast(world, [(header, own) for header, own, _ in group] if world.leader else None)
            window = Window(world, [array for _, _, some in group for array in some] if world.leader else None)
            windows.append(window)
            own = part[0][1]
            # Each layer takes its arrays off the window in the order in which the leader put them there.
            views = iter(window.arrays)
            for header, _ in part:
                taken = tuple(next(views) for _ in range(3 + (np.ndim(header.bias) > 0)))
                headers.append(replace(header, bias=taken[3]) if len(taken) == 4 else header)
                arrays.append(taken[:3])
            stage.advance(len(part))
    # Identical neurons of the last layer are expanded in the result, on every rank.
    last = prepared.network.neuron_classes(depth - 1) if world.leader else None
    if _broadcast(world, last is not None):
        windows.append(Window(world, [last] if world.leader else None))
        (last,) = windows[-1].arrays
    network = SharedNetwork(description, headers, arrays, own, last, windows)
    source = prepared.source if world.leader else network
    return Prepared(source, network, reductions, findings, network.layout)


def _groups(network: Network, engine: SharesWeights) -> Iterator[list[tuple[Header, bool, tuple[np.ndarray, ...]]]]:
    """(header, whether the arrays are the engine's own, arrays) of the layers, some WINDOW_BYTES bytes at a time."""
    group, nbytes, enough = [], 0, max(WINDOW_BYTES, network.nbytes // MOST_WINDOWS)
    for k in range(network.depth):
        layer = network.layer(k)
        laid = engine.layout(layer)
        arrays = laid or (layer.offsets, layer.indices, np.atleast_1d(layer.values))
        header = layer.header
        # A bias for each output is an array too, and goes through the window.
        if np.ndim(header.bias):
            arrays, header = (*arrays, header.bias), replace(header, bias=np.empty(1, np.float32))
        group.append((header, laid is not None, arrays))
        nbytes += sum(array.nbytes for array in arrays)
        # The leader lets a layer go as soon as it is in a group.
        network.release(k)
        del layer
        if nbytes >= enough:
            yield group
            group, nbytes = [], 0
    if group:
        yield group
