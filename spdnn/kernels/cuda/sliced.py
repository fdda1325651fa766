"""Weights in slices for the CUDA kernels, and the staging maps of footprints; made by compiled code, no device.

Outputs are in groups of `shared` (1, 2 or 4) that read the same inputs, so that one load of a feature serves them all;
where edges have values, two outputs may also read the union of their inputs. A slice holds SLICE groups, in chunks of
CHUNK gathers: (chunks, SLICE, CHUNK). It is as wide as the widest of its groups, and lanes that share a group take
CHUNK of its indices in one load. Each output's edges stay in ascending order; padding reads a neuron of zeros. The
order of groups, and a width for each slice, keep the padding small.
spdnn/kernels/cpu/layouts.cpp says how groups are found, ordered and laid out, without the interpreter's lock.
Source: sliced ELLPACK (Monakov et al., HiPEAC 2010); staging maps and 16-bit indices into a stage: Hidayetoglu et al.,
HPEC 2020, section III-B (padding there: 2.2 times at large widths).
"""

import functools
from dataclasses import dataclass

import numpy as np

from spdnn.core.network import Layer
from spdnn.kernels import dispatch

NO_OUTPUT = -1
SHARED = (1, 2, 4)  # outputs of a group
SLICE = 4  # groups: what a warp works on side by side when eight lanes share one
CHUNK = 8  # gathers: 16 bytes of 16-bit indices
VECTOR = 4  # values in one load
PIECES = 8  # loads that a neuron's 32 inputs take: what indices into a stage count, so that kernels need not multiply
MOST_ROOM = (2**16 - 1) // PIECES  # neurons of a stage: those and the zeros that padding reads have 16-bit indices


@dataclass(frozen=True)
class Sliced:
    """A layer in slices.

    Attributes:
        order: int32 (groups, shared), the output of each entry, NO_OUTPUT for none; the groups are a multiple of SLICE.
        starts: int32 (slices + 1,), the first chunk of each slice, and where the last one ends.
        indices: uint16 or uint32 (chunks, SLICE, CHUNK).
        values: float32 (chunks, CHUNK x shared / VECTOR, SLICE, VECTOR), of each gather one for each output of the
            group, 0 for padding; or (1,), the value of all edges.
        edges: of the layer; `padding` is the share of places for edges without one.
    """

    order: np.ndarray
    starts: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    edges: int

    @property
    def shared(self) -> int:
        return self.order.shape[1]

    @property
    def padding(self) -> float:
        return 1 - self.edges / max(1, self.indices.size * self.shared)


@dataclass(frozen=True)
class Staged:
    """A layer in slices of parts and stages.

    Attributes:
        slices: a slice for each SLICE groups of each stage, the stages of the first part first; indices are
            PIECES x positions in the stage, `room` where padded; `order` has each part once.
        stages: int32 (parts + 1,), the first stage of each part of the outputs.
        map_starts: int32 (stages + 1,), where each stage begins in `map`.
        map: uint32, the input neurons of each stage, ascending within a part.
        room: neurons in the largest stage, at least 1.
    """

    slices: Sliced
    stages: np.ndarray
    map_starts: np.ndarray
    map: np.ndarray
    room: int

    @property
    def parts(self) -> int:
        return self.stages.size - 1


def slice_layer(layer: Layer, zero: int | None = None, most_shared: int = 1) -> Sliced:
    """The layer in slices, groups in descending order of their gathers, so that those of a slice have as many; among
    equals those side by side that share inputs, since lanes that read one address at once read it together.

    Args:
        zero: the index that padding reads, at least the layer's number of inputs, which is the default.
        most_shared: outputs of a group at most.

    Raises:
        Unavailable: the compiled kernels are absent or stale.
    """
    zero = layer.inputs if zero is None else zero
    return _sliced(layer, dispatch.compiled_module().sliced_layout(*compiled_arguments(layer), zero, most_shared))


def stage_layer(layer: Layer, outputs: int, room: int, held: int = 4, most_shared: int = 4) -> Staged:
    """The layer in parts of so many outputs, of which a thread holds `held`, whose footprints pass in stages of at most
    `room` neurons (up to MOST_ROOM): of that many, or as many as there must be of equal size, whichever pads less.

    Groups that share inputs are neighbours, so that the outputs of a part share inputs. Those of a slice have about as
    many gathers, so that slices have little padding, and so have the slices of each warp, which are side by side.

    Raises:
        Unavailable: the compiled kernels are absent or stale.
    """
    compiled = dispatch.compiled_module()
    slices, *maps, room = compiled.staged_layout(*compiled_arguments(layer), outputs, room, held, most_shared)
    return Staged(_sliced(layer, slices), *maps, room)


def compiled_arguments(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, np.ndarray]:
    """(offsets, indices, values, valued, numbers): a layer as compiled code reads it; `valued`: values are of edges."""
    values = np.atleast_1d(layer.values)
    return layer.offsets, layer.indices, values, not layer.single_value, _numbers(layer.inputs)


def _sliced(layer: Layer, arrays: tuple) -> Sliced:
    shared, order, starts, indices, values = arrays
    values = np.atleast_1d(layer.values).astype(np.float32) if values is None else values
    return Sliced(order.reshape(-1, shared), starts, indices, values, layer.edges)


@functools.lru_cache(maxsize=4)  # networks have few widths
def _numbers(inputs: int) -> np.ndarray:
    # The hash of a set is the sum of its inputs' random numbers: always the same ones, so that results are too.
    return np.random.default_rng(0).integers(0, 2**64, inputs, np.uint64)
