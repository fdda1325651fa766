"""The exact reductions: what a network's own data allows to leave out without changing any result.

Each is found by looking, never assumed. What depends on the network alone is here: `dead` (from which layer on rows of
zeros may leave) and `neurons` (identical ones, merged). `inputs` depends on the features and is the engines' part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from spdnn import progress
from spdnn.errors import InputError
from spdnn.network import Header, Layer, Network, index_dtype, shared_value

NAMES = ("dead", "inputs", "neurons")


def parse(text: str | Iterable[str], offered: Iterable[str] = NAMES) -> tuple[str, ...]:
    """The reductions named by `text`: 'none', 'all' (of those offered), or names separated by commas.

    Raises:
        InputError: a name that is not known, or not offered by the engine.
    """
    offered = tuple(offered)
    if not isinstance(text, (str, list, tuple)):
        raise InputError(f"reductions {text!r}: give all, none, or names")
    names = [part.strip() for part in text.split(",")] if isinstance(text, str) else list(text)
    if names == ["none"] or names == []:
        return ()
    if names == ["all"]:
        return offered
    for name in names:
        if name not in offered:
            allowed = ", ".join((*offered, "all", "none"))
            raise InputError(f"reduction {name!r} is not offered here: use one or more of {allowed}")
    return tuple(name for name in NAMES if name in names)


def reviving(network: Network) -> list[int]:
    """The layers (0-based) after which a row of zeros need not be zeros: those where activation(bias) is not 0.

    No positive bias under a ReLU, no bias at all without an activation: else the layer is one of them. Source: the
    "dead inputs" of every entry to the challenge, here with the condition that they need.
    """
    depth = network.depth
    return [k for k in progress.bar(range(depth), "prepare, biases", depth) if not network.header(k).keeps_zero]


def dead_from(layers: Iterable[int], depth: int) -> int:
    """The first layer (0-based) before which a row of zeros may leave a network of `depth` layers.

    Args:
        layers: those that revive zeros (`reviving`). `depth` when the last layer is one: no row may leave early.
    """
    return 1 + max((k for k in layers if k < depth), default=-1)


class MergedNetwork(Network):
    """A network whose identical neurons were merged.

    Args:
        source: the original network.
        layers: of each layer, the merged one; or its header, and it is merged again whenever it is read; or None where
            it is the original, which is then read.
        classes: of each layer, as Network.neuron_classes says.
    """

    def __init__(self, source: Network, layers: list[Layer | Header | None], classes: list[np.ndarray | None]):
        self._source, self._layers, self._classes = source, layers, classes
        self.description = {**source.description, "identical_neurons": "merged"}

    @property
    def depth(self) -> int:
        return self._source.depth

    def header(self, k: int) -> Header:
        known = self._layers[k]
        if known is None:
            return self._source.header(k)
        return known.header if isinstance(known, Layer) else known

    def layer(self, k: int) -> Layer:
        known = self._layers[k]
        if isinstance(known, Layer):
            return known
        layer = self._source.layer(k)
        return layer if known is None else merge_layer(layer, self._classes[k - 1] if k else None)[0]

    def in_memory(self, k: int) -> bool:
        return isinstance(self._layers[k], Layer) or (self._layers[k] is None and self._source.in_memory(k))

    def release(self, k: int) -> None:
        known = self._layers[k]
        if isinstance(known, Layer):
            self._layers[k] = known.header

    def neuron_classes(self, k: int) -> np.ndarray | None:
        return self._classes[k]


class _PastFloat32(Exception):
    """Weights that fall on one class add up past the range of float32."""


def merge_neurons(network: Network, memory: float = math.inf) -> tuple[Network, dict]:
    """The network with each group of identical neurons of a layer computed once, and what was found; fit for JSON.

    Two output neurons are identical when they have the same inputs, weights, bias and activation: their values are then
    equal for any input. The next layer's indices are mapped onto the classes; edges that fall on one class are summed
    (in float64, rounded once to float32). So sums have fewer terms in another order: results differ from those of the
    original network by rounding. A network whose weights would add up past float32 is left as it is. Source: the 16 x
    32 dense blocks of XY (Xin et al., HPEC 2021) compute what is identical in RadiX-Net once; here identical rows are
    looked for, and their copies are not kept.

    Args:
        memory: bytes of merged layers to keep; others are merged again when they are read.
    """
    start = time.perf_counter()
    layers, classes, previous, held, told = [], [], None, 0, {}
    try:
        for layer in progress.bar(network.layers(), "prepare, identical neurons", network.depth):
            merged, previous = merge_layer(layer, previous)
            if previous is not None and classes and np.array_equal(previous, classes[-1]):
                previous = classes[-1]  # one array for all layers that agree
            held += merged.nbytes if merged is not layer else 0
            layers.append(None if merged is layer else merged if held <= memory else merged.header)
            classes.append(previous)
    except _PastFloat32:
        layers, told = [None], {"left_as_it_is": f"weights of layer {len(layers) + 1} would add up past float32"}
    merged = network if all(known is None for known in layers) else MergedNetwork(network, layers, classes)
    return merged, {**neurons_found(network, merged), **told, "seconds": time.perf_counter() - start}


def neurons_found(source: Network, merged: Network) -> dict:
    """How many neurons and edges a network has, and how many are left of them where identical ones were merged."""
    headers = [merged.header(k) for k in range(merged.depth)]
    return {
        "neurons": sum(source.header(k).outputs for k in range(source.depth)),
        "neurons_left": sum(header.outputs for header in headers),
        "edges": source.edges,
        "edges_left": sum(header.edges for header in headers),
    }


def merge_layer(layer: Layer, previous: np.ndarray | None) -> tuple[Layer, np.ndarray | None]:
    """One layer with its identical outputs merged.

    Args:
        previous: of each of its inputs, the class; None: the inputs are as they were.

    Returns:
        the layer (itself when nothing changed) and the class of each original output, or None when each is its own.
    """
    first = identical_outputs(layer)
    merged = layer if first is None else _outputs(layer, np.flatnonzero(first == np.arange(first.size)))
    if previous is not None:
        merged = _on_classes(merged, previous)
        second = identical_outputs(merged)  # rows may be identical on classes that were not before
        if second is not None:
            merged = _outputs(merged, np.flatnonzero(second == np.arange(second.size)))
            first = second if first is None else _compose(first, second)
    if first is None:
        return merged, None
    classes = np.unique(first, return_inverse=True)[1].astype(index_dtype(merged.outputs))
    return merged, classes


def _compose(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The first equal output of each original one, when `second` was found among the outputs that `first` left."""
    left = np.flatnonzero(first == np.arange(first.size))
    place = np.zeros(first.size, np.int64)
    place[left] = np.arange(left.size)
    return left[second[place[first]]]


def identical_outputs(layer: Layer) -> np.ndarray | None:
    """int64 (outputs,): the first output with the same inputs, weights and bias; None when all differ.

    Rows are hashed, and those of equal hash compared with the first of them; a row that differs all the same stays.
    """
    degrees = np.diff(layer.offsets)
    hashes = degrees.astype(np.uint64) * _MIX[0]
    arrays = [layer.indices] if layer.single_value else [layer.indices, layer.values.view(np.uint32)]
    for turn, array in enumerate(arrays):
        hashes ^= _hashes(array, layer.offsets, degrees) * _MIX[1 + turn]
    if np.ndim(layer.bias):
        hashes ^= layer.bias.view(np.uint32).astype(np.uint64) * _MIX[3]
    _, firsts, groups = np.unique(hashes, return_index=True, return_inverse=True)
    if firsts.size == hashes.size:
        return None
    own = np.arange(hashes.size)
    first = firsts[groups]
    copies = np.flatnonzero(first != own)
    same = _equal(layer, degrees, arrays, copies, first[copies])
    first[copies[~same]] = copies[~same]
    return None if (first == own).all() else first


# Odd numbers, drawn once, with which rows of edges are hashed: position by position, and parts against each other.
_MIX = np.random.RandomState(1).randint(0, 2**63, 68).astype(np.uint64) * np.uint64(2) + np.uint64(1)
_POSITIONS = _MIX[4:]


def _even_rows(array: np.ndarray, degrees: np.ndarray) -> np.ndarray | None:
    """`array` (edges,) as (outputs, words), several values to a word where that fits; None: degrees differ."""
    degree = int(degrees[0])
    if not degree or (degrees != degree).any():
        return None
    rows = array.reshape(degrees.size, degree)
    return rows.view(np.uint64) if degree * array.itemsize % 8 == 0 else rows


def _hashes(array: np.ndarray, offsets: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """uint64 (outputs,): a hash of each output's part of `array` (edges,)."""
    rows = _even_rows(array, degrees)
    if rows is not None:
        return (rows * np.resize(_POSITIONS, rows.shape[1])).sum(axis=1, dtype=np.uint64)
    place = np.arange(array.size) - np.repeat(offsets[:-1], degrees)
    mixed = (array.astype(np.uint64) + np.uint64(1)) * _POSITIONS[place % _POSITIONS.size]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    return sums[offsets[1:]] - sums[offsets[:-1]]


def _equal(layer: Layer, degrees: np.ndarray, arrays: list, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether outputs `ones` and `others` are equal in all of `arrays` and in their bias."""
    same = degrees[ones] == degrees[others]
    if np.ndim(layer.bias):
        same &= layer.bias[ones] == layer.bias[others]
    even = [_even_rows(array, degrees) for array in arrays]
    if even[0] is not None:
        for rows in even:
            same &= (rows[ones] == rows[others]).all(axis=1)
        return same
    pairs = np.flatnonzero(same)
    (offsets, mine), (_, theirs) = (_edges_of(layer, outputs[pairs]) for outputs in (ones, others))
    pair = np.repeat(pairs, np.diff(offsets))
    for array in arrays:
        same[pair[array[mine] != array[theirs]]] = False
    return same


def _edges_of(layer: Layer, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, edges): the edges of some outputs, one output after the other."""
    degrees = np.diff(layer.offsets)[outputs]
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    return offsets, np.arange(offsets[-1]) + np.repeat(layer.offsets[outputs] - offsets[:-1], degrees)


def _outputs(layer: Layer, outputs: np.ndarray) -> Layer:
    """The layer of some of its outputs alone."""
    offsets, edges = _edges_of(layer, outputs)
    return replace(
        layer,
        outputs=outputs.size,
        offsets=offsets,
        indices=layer.indices[edges],
        values=layer.values if layer.single_value else layer.values[edges],
        bias=layer.bias[outputs] if np.ndim(layer.bias) else layer.bias,
    )


def _on_classes(layer: Layer, classes: np.ndarray) -> Layer:
    """The layer on the classes of its inputs, edges of one output and class summed."""
    inputs = int(classes.max()) + 1
    output = np.repeat(np.arange(layer.outputs, dtype=np.int64), np.diff(layer.offsets))
    keys = output * inputs + classes[layer.indices]
    if layer.single_value:
        keys.sort()
        values = None
    else:
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], layer.values[order].astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if keys.size else np.empty(0, np.int64)
    if values is None:
        sums = np.diff(starts, append=keys.size) * np.float64(layer.values)
    else:
        sums = np.add.reduceat(values, starts) if keys.size else values
    with np.errstate(over="ignore"):
        sums = sums.astype(np.float32)
    if not np.isfinite(sums).all():
        raise _PastFloat32
    keys = keys[starts]
    return replace(
        layer,
        inputs=inputs,
        offsets=np.searchsorted(keys, np.arange(layer.outputs + 1) * inputs).astype(np.int64),
        indices=(keys % inputs).astype(index_dtype(inputs)),
        values=shared_value(sums),
    )
