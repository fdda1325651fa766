"""Weights in slices for the CUDA kernels, and the staging maps of footprints; NumPy alone, no device.

A slice holds SLICE outputs, in chunks of CHUNK edges: (chunks, SLICE, CHUNK). It is as wide as the widest of its
outputs, and lanes that share an output take CHUNK of its indices in one load. Each output's edges stay in ascending
order; padding reads a neuron of zeros. The order of outputs, and a width for each slice, keep the padding small.
Source: sliced ELLPACK (Monakov et al., HiPEAC 2010); staging maps and 16-bit indices into a stage: Hidayetoglu et al.,
HPEC 2020, section III-B (padding there: 2.2 times at large widths).
"""

from dataclasses import dataclass

import numpy as np

from spdnn.problem.network import Layer, index_dtype

SLICE = 4  # outputs: what a warp works on side by side when eight lanes share one
CHUNK = 8  # edges: 16 bytes of 16-bit indices
MARKS = 1 << 28  # of a table of parts x inputs; beyond it, footprints come from sorting
NO_OUTPUT = -1


@dataclass(frozen=True)
class Sliced:
    """A layer in slices.

    Attributes:
        order: int32 (entries,), the output of each entry, NO_OUTPUT for none; a multiple of SLICE.
        starts: int32 (slices + 1,), the first chunk of each slice, and where the last one ends.
        indices: uint16 or uint32 (chunks, SLICE, CHUNK).
        values: float32 alike, 0 for padding; or (1,), the value of all edges.
        edges: of the layer; `padding` is the share of entries in slices without an edge.
    """

    order: np.ndarray
    starts: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    edges: int

    @property
    def padding(self) -> float:
        return 1 - self.edges / max(1, self.indices.size)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.order, self.starts, self.indices, self.values))


@dataclass(frozen=True)
class Staged:
    """A layer in slices of parts and stages.

    Attributes:
        slices: a slice for each SLICE outputs of each stage, the stages of the first part first; indices are
            positions in the stage, `room` where padded.
        stages: int32 (parts + 1,), the first stage of each part of the outputs.
        map_starts: int32 (stages + 1,), where each stage begins in `map`.
        map: uint32, the input neurons of each stage, ascending within a part.
        room: neurons in a stage at most.
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


def sliced(layer: Layer, zero: int | None = None) -> Sliced:
    """The layer in slices, outputs in descending order of their edges, so that those of a slice have as many.

    Args:
        zero: the index that padding reads; the layer's number of inputs by default.
    """
    zero = layer.inputs if zero is None else zero
    degrees = np.diff(layer.offsets)
    order = _padded(np.argsort(-degrees, kind="stable"), SLICE)
    edges, position, step = _edges(layer, order)
    starts, where = _positions(position // SLICE, position % SLICE, step, order.size // SLICE)
    return _filled(layer, order, starts, where, edges, layer.indices[edges], zero, index_dtype(zero + 1))


def staged(layer: Layer, outputs: int, room: int) -> Staged:
    """The layer in parts of so many outputs, whose footprints pass in stages of at most `room` neurons (up to 65,535).

    Outputs with the same lowest input are neighbours, so that the outputs of a part share inputs; within a part, those
    with most edges come first, so that slices have little padding.
    """
    order = _grouped(layer, outputs)
    parts = order.size // outputs
    edges, at, _ = _edges(layer, order)
    part, index = at // outputs, layer.indices[edges].astype(np.int64)
    sizes, footprint, rank = _footprints(part, index, parts, layer.inputs)
    stages = _sums(np.maximum(1, -(-sizes // room)))
    stage = stages[part] + rank // room
    # Edges of an output ascend, and so do their stages: a new run begins where either changes.
    column = at % outputs
    runs = np.flatnonzero(np.concatenate([[True], (at[1:] != at[:-1]) | (stage[1:] != stage[:-1])]))
    step = np.arange(at.size) - np.repeat(runs, np.diff(np.append(runs, at.size))) if at.size else at
    slices = outputs // SLICE
    starts, where = _positions(stage * slices + column // SLICE, at % SLICE, step, int(stages[-1]) * slices)
    filled = _filled(layer, order, starts, where, edges, rank % room, room, np.dtype(np.uint16))
    held = np.arange(int(sizes.sum())) - np.repeat(_sums(sizes)[:-1], sizes)
    counts = np.bincount(np.repeat(stages[:-1], sizes) + held // room, minlength=int(stages[-1]))
    return Staged(filled, stages.astype(np.int32), _sums(counts).astype(np.int32), footprint, room)


def _sums(counts: np.ndarray) -> np.ndarray:
    """int64 (n + 1,): where each of n runs begins, and the end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _padded(order: np.ndarray, multiple: int) -> np.ndarray:
    """int32, `order` and NO_OUTPUT up to a multiple."""
    padded = np.full(-(-order.size // multiple) * multiple, NO_OUTPUT, np.int32)
    padded[: order.size] = order
    return padded


def _grouped(layer: Layer, outputs: int) -> np.ndarray:
    """The order of outputs: by their lowest and highest inputs, and within a part by descending degree."""
    degrees = np.diff(layer.offsets)
    ends = np.zeros((2, layer.outputs), np.int64)
    some = degrees > 0
    ends[0, some] = layer.indices[layer.offsets[:-1][some]]
    ends[1, some] = layer.indices[layer.offsets[1:][some] - 1]
    order = np.lexsort((ends[1], ends[0]))
    return _padded(order[np.lexsort((-degrees[order], np.arange(order.size) // outputs))], outputs)


def _edges(layer: Layer, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(edges, positions, steps): the edges of the outputs in `order`, the position of each one's output, and which
    edge of its output it is."""
    real = order != NO_OUTPUT
    degrees = np.zeros(order.size, np.int64)
    degrees[real] = np.diff(layer.offsets)[order[real]]
    begins = np.zeros(order.size, np.int64)
    begins[real] = layer.offsets[:-1][order[real]]
    position = np.repeat(np.arange(order.size), degrees)
    step = np.arange(position.size) - np.repeat(_sums(degrees)[:-1], degrees)
    return begins[position] + step, position, step


def _positions(slices: np.ndarray, output: np.ndarray, step: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, where): of `count` slices the first chunks, and of each edge its position in (chunks, SLICE, CHUNK).

    Args:
        slices, output, step: of each edge its slice, its output in that, and its number among the edges of both.
    """
    chunks = np.zeros(count, np.int64)
    np.maximum.at(chunks, slices, step // CHUNK + 1)
    starts = _sums(chunks)
    where = ((starts[slices] + step // CHUNK) * SLICE + output) * CHUNK + step % CHUNK
    return starts, where


def _filled(
    layer: Layer,
    order: np.ndarray,
    starts: np.ndarray,
    where: np.ndarray,
    edges: np.ndarray,
    index: np.ndarray,
    zero: int,
    dtype: np.dtype,
) -> Sliced:
    shape = int(starts[-1]), SLICE, CHUNK
    indices = np.full(int(np.prod(shape)), zero, dtype)
    indices[where] = index
    if layer.single_value:
        values = np.atleast_1d(layer.values).astype(np.float32)
    else:
        values = np.zeros(indices.size, np.float32)
        values[where] = layer.values[edges]
        values = values.reshape(shape)
    return Sliced(order, starts.astype(np.int32), indices.reshape(shape), values, int(edges.size))


def _footprints(
    part: np.ndarray, index: np.ndarray, parts: int, inputs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sizes, footprints, ranks): of each part how many inputs it reads, which (uint32, ascending, part after part),
    and of each edge the rank of its input among them."""
    keys = part * inputs + index
    if parts * inputs <= MARKS:
        marks = np.zeros(parts * inputs, bool)
        marks[keys] = True
        neurons = np.flatnonzero(marks)
        indices = np.cumsum(marks, dtype=np.int32)[keys].astype(np.int64) - 1
    else:
        neurons, indices = np.unique(keys, return_inverse=True)
    sizes = np.bincount(neurons // inputs, minlength=parts)
    return sizes, (neurons % inputs).astype(np.uint32), indices - _sums(sizes)[part]
