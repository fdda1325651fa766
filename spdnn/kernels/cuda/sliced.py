"""Weights in slices for the CUDA kernels, and the staging maps of footprints; NumPy and SciPy alone, no device.

Outputs are in groups of `shared` (1, 2 or 4) that read the same inputs, so that one load of a feature serves them all;
`grouped` finds the groups, spdnn/kernels/cuda/groups.py says how. A slice holds SLICE groups, in chunks of CHUNK
gathers: (chunks, SLICE, CHUNK). It is as wide as the widest of its groups, and lanes that share a group take CHUNK of
its indices in one load. Each output's edges stay in ascending order; padding reads a neuron of zeros. The order of
groups, and a width for each slice, keep the padding small.
Source: sliced ELLPACK (Monakov et al., HiPEAC 2010); staging maps and 16-bit indices into a stage: Hidayetoglu et al.,
HPEC 2020, section III-B (padding there: 2.2 times at large widths).
"""

from dataclasses import dataclass

import numpy as np

from spdnn.core.network import Layer, index_dtype
from spdnn.kernels.cuda.groups import Gathers, Groups, group_outputs, sums

SLICE = 4  # groups: what a warp works on side by side when eight lanes share one
CHUNK = 8  # gathers: 16 bytes of 16-bit indices
VECTOR = 4  # values in one load
PIECES = 8  # loads that a neuron's 32 inputs take: what indices into a stage count, so that kernels need not multiply
MOST_ROOM = (2**16 - 1) // PIECES  # neurons of a stage: those and the zeros that padding reads have 16-bit indices
MARKS = 1 << 28  # of a table of parts x inputs; beyond it, footprints come from sorting


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

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.order, self.starts, self.indices, self.values))


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

    @property
    def nbytes(self) -> int:
        return self.slices.nbytes + self.stages.nbytes + self.map_starts.nbytes + self.map.nbytes


def slice_layer(layer: Layer, zero: int | None = None, most_shared: int = 1) -> Sliced:
    """The layer in slices, groups in descending order of their gathers, so that those of a slice have as many; among
    equals those side by side that share inputs, since lanes that read one address at once read it together.

    Args:
        zero: the index that padding reads; the layer's number of inputs by default.
        most_shared: outputs of a group at most.
    """
    # Sorting by degree makes slices even, for each is as wide as its widest group; a stable sort keeps neighbours.
    zero = layer.inputs if zero is None else zero
    groups = group_outputs(layer, most_shared)
    groups = groups.reorder(np.argsort(-groups.degrees, kind="stable"), SLICE)
    gathers = groups.gathers(layer)
    starts, where = _positions(gathers.group // SLICE, gathers.group % SLICE, gathers.step, len(groups.order) // SLICE)
    return _fill(layer, groups, gathers, starts, where, gathers.index, zero, index_dtype(zero + 1))


def stage_layer(layer: Layer, outputs: int, room: int, held: int = 4, most_shared: int = 4) -> Staged:
    """The layer in parts of so many outputs, of which a thread holds `held`, whose footprints pass in stages of at most
    `room` neurons (up to MOST_ROOM): of that many, or as many as there must be of equal size, whichever pads less.

    Groups that share inputs are neighbours, so that the outputs of a part share inputs. Those of a slice have about as
    many gathers, so that slices have little padding, and so have the slices of each warp, which are side by side.
    """
    # Parts: neighbours share inputs, so a part's footprint is small. Inside it groups are sorted by degree, and dealt
    # out so that the slices of a warp have about as many gathers.
    groups = group_outputs(layer, most_shared)
    in_part = outputs // groups.shared
    groups = groups.reorder(np.arange(len(groups.order)), in_part)
    by_degree = np.lexsort((-groups.degrees, np.arange(len(groups.order)) // in_part))
    rounds = by_degree.reshape(-1, held // groups.shared, in_part * groups.shared // held // SLICE, SLICE)
    groups = groups.reorder(rounds.swapaxes(1, 2).reshape(-1), in_part)
    gathers, parts = groups.gathers(layer), len(groups.order) // in_part
    sizes, footprint, rank = _footprints(gathers.group // in_part, gathers.index.astype(np.int64), parts, layer.inputs)
    # Stages: as few as the room allows; of equal height, or all full but the last, whichever needs fewer chunks.
    counts = np.maximum(1, -(-sizes // room))
    equal = np.maximum(1, -(-sizes // counts))
    heights = [equal] if counts.max(initial=1) == 1 else [equal, np.minimum(sizes.clip(1), room)]
    cuts = [_cut(gathers, in_part, rank, sums(counts), height) for height in heights]
    height, starts, where = min(cuts, key=lambda cut: int(cut[1][-1]))
    # Indices into a stage have 16 bits; the map says which input neuron is at each place of each stage.
    part, room = gathers.group // in_part, int(height.max(initial=1))
    inside = rank % height[part] * PIECES
    filled = _fill(layer, groups, gathers, starts, where, inside, room * PIECES, np.dtype(np.uint16))
    place = np.arange(int(sizes.sum())) - np.repeat(sums(sizes)[:-1], sizes)
    stage = np.repeat(sums(counts)[:-1], sizes) + place // np.repeat(height, sizes)
    map_starts = sums(np.bincount(stage, minlength=int(counts.sum())))
    return Staged(filled, sums(counts).astype(np.int32), map_starts.astype(np.int32), footprint, room)


def _cut(
    gathers: Gathers, in_part: int, rank: np.ndarray, stages: np.ndarray, height: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(height, starts, where): as `_positions`, where a part's footprint has stages of so many neurons.

    Args:
        rank: of each gather's input in the footprint; stages, height: of each part its first stage, neurons in one.
    """
    group, part = gathers.group, gathers.group // in_part
    stage = stages[part] + rank // height[part]
    # Gathers of a group ascend, and so do their stages: a new run begins where either changes.
    runs = np.flatnonzero(np.concatenate([[True], (group[1:] != group[:-1]) | (stage[1:] != stage[:-1])]))
    step = np.arange(group.size) - np.repeat(runs, np.diff(np.append(runs, group.size))) if group.size else group
    slices = in_part // SLICE
    return height, *_positions(stage * slices + group % in_part // SLICE, group % SLICE, step, int(stages[-1]) * slices)


def _positions(slices: np.ndarray, lane: np.ndarray, step: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, where): of `count` slices the first chunks, and of each gather its position in (chunks, SLICE, CHUNK).

    Args:
        slices, lane, step: of each gather its slice, its group in that, and its number among the gathers of both.
    """
    # A slice has the chunks of its widest group; in a chunk the groups lie side by side, so that a warp loads it whole.
    chunks = np.zeros(count, np.int64)
    np.maximum.at(chunks, slices, step // CHUNK + 1)
    starts = sums(chunks)
    where = ((starts[slices] + step // CHUNK) * SLICE + lane) * CHUNK + step % CHUNK
    return starts, where


def _fill(
    layer: Layer,
    groups: Groups,
    gathers: Gathers,
    starts: np.ndarray,
    where: np.ndarray,
    index: np.ndarray,
    zero: int,
    dtype: np.dtype,
) -> Sliced:
    # Padding reads a neuron of zeros, so that kernels need no test for it; its values are zero too.
    shape = int(starts[-1]), SLICE, CHUNK
    indices = np.full(int(np.prod(shape)), zero, dtype)
    indices[where] = index
    if layer.single_value:
        values = np.atleast_1d(layer.values).astype(np.float32)
    else:
        loads = CHUNK * groups.shared // VECTOR  # of the values of a chunk
        values = np.zeros((shape[0], loads, SLICE, VECTOR), np.float32)
        chunk, lane, step = np.unravel_index(where[gathers.of], shape)
        place = step * groups.shared + gathers.member
        values[chunk, place // VECTOR, lane, place % VECTOR] = layer.values[gathers.edges]
    return Sliced(groups.order, starts.astype(np.int32), indices.reshape(shape), values, layer.edges)


def _footprints(
    part: np.ndarray, index: np.ndarray, parts: int, inputs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sizes, footprints, ranks): of each part how many inputs it reads, which (uint32, ascending, part after part),
    and of each gather the rank of its input among them."""
    keys = part * inputs + index
    # Distinct pairs of part and input: by a table of marks where it is small enough, which is faster than sorting.
    if parts * inputs <= MARKS:
        marks = np.zeros(parts * inputs, bool)
        marks[keys] = True
        neurons = np.flatnonzero(marks)
        indices = np.cumsum(marks, dtype=np.int32)[keys].astype(np.int64) - 1
    else:
        neurons, indices = np.unique(keys, return_inverse=True)
    sizes = np.bincount(neurons // inputs, minlength=parts)
    return sizes, (neurons % inputs).astype(np.uint32), indices - sums(sizes)[part]
