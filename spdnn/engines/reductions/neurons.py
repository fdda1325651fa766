"""The reduction `neurons`: outputs with the same inputs, weights and bias are computed once.

The next layer's indices are mapped onto the classes of equal outputs, and edges that fall on one class are summed. It
pays whenever there are such outputs, and is done once, in *prepare*.
"""

import math
import time
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.network import Header, Layer, Network, common_value, index_dtype
from spdnn.core.resources import usable_cores
from spdnn.core.threads import in_order
from spdnn.engines.reductions.base import Reduction
from spdnn.kernels import dispatch


class IdenticalNeurons(Reduction):
    name = "neurons"
    label = "identical neurons"
    meaning = (
        "Identical neurons: outputs with the same inputs, weights and bias are computed once; their sums are taken in "
        "another order, so rounding may differ."
    )
    left_out = "identical neurons"

    def prepare(self, network: Network, memory: float) -> tuple[Network, dict]:
        return merge_neurons(network, memory)

    def first(self, note: dict, source: Network, network: Network, layers: int) -> dict:
        """Counts are those of the first layers, seconds those of the whole preparation."""
        return {**note, **merge_notes(source, network), "layers_prepared": layers}


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
        layer = self._layers[k]
        if layer is None:
            return self._source.header(k)
        return layer.header if isinstance(layer, Layer) else layer

    def layer(self, k: int) -> Layer:
        merged = self._layers[k]
        if isinstance(merged, Layer):
            return merged
        layer = self._source.layer(k)
        return layer if merged is None else merge_layer(layer, self._classes[k - 1] if k else None)[0]

    def in_memory(self, k: int) -> bool:
        return isinstance(self._layers[k], Layer) or (self._layers[k] is None and self._source.in_memory(k))

    def release(self, k: int) -> None:
        layer = self._layers[k]
        if isinstance(layer, Layer):
            self._layers[k] = layer.header

    def neuron_classes(self, k: int) -> np.ndarray | None:
        return self._classes[k]


def merge_neurons(network: Network, memory: float = math.inf) -> tuple[Network, dict]:
    """The network with each group of identical neurons of a layer computed once, and notes; fit for JSON.

    Two output neurons are identical when they have the same inputs, weights, bias and activation: their values are then
    equal for any input. The next layer's indices are mapped onto the classes; edges that fall on one class are summed
    (in float64, rounded once to float32). So sums have fewer terms in another order: results differ from those of the
    original network by rounding. A network whose weights would add up past float32 is left as it is. Source: XY (Xin et
    al., HPEC 2021) computes the identical outputs of RadiX-Net's dense 16 x 32 blocks once by construction; here they
    are found by search, in any network. One that is made of repeated outputs is searched as it is made (`repeated`).

    Args:
        memory: bytes of merged layers to keep; others are merged again when they are read.
    """
    start = time.perf_counter()
    layers, classes, nbytes, notes = [], [], 0, {}
    # Two steps a layer, each for several layers at once: identical rows are searched for, which needs no other layer;
    # then inputs fall on the classes of the layer before, as that search found them. How many layers are read ahead is
    # bounded by the memory.
    largest = max(network.header(k).nbytes for k in range(network.depth))
    ahead = int(max(1, min(usable_cores(), memory / largest)))
    searched = in_order(partial(_search, network), range(network.depth), ahead)
    before: Any = (None, None)  # the layer before the first
    pairs = pairwise(chain([before], searched))
    steps = in_order(lambda pair: (pair[1], _on_classes(*pair[1], pair[0][1])), pairs, ahead)
    again = False  # whether outputs of the layer before became equal on classes only, so that the step is done anew
    for (distinct, own), merged in progress.bar(steps, "prepare, identical neurons", network.depth):
        if again:
            merged = _on_classes(distinct, own, classes[-1])
        if merged is None:
            layers, notes = [None], {"left_as_it_is": f"weights of layer {len(layers) + 1} would add up past float32"}
            break
        layer, found, again = merged
        if found is not None and classes and np.array_equal(found, classes[-1]):
            found = classes[-1]  # one array for all layers that agree
        # Merged layers that pass the memory are dropped, and merged again from the source when they are read.
        same = layer is distinct and own is None
        nbytes += 0 if same else layer.nbytes
        layers.append(None if same else layer if nbytes <= memory else layer.header)
        classes.append(found)
    merged = network if all(layer is None for layer in layers) else MergedNetwork(network, layers, classes)
    return merged, {**merge_notes(network, merged), **notes, "seconds": time.perf_counter() - start}


def merge_notes(source: Network, merged: Network) -> dict:
    """How many neurons and edges a network has, and how many are left of them where identical ones were merged."""
    headers = [merged.header(k) for k in range(merged.depth)]
    return {
        "neurons": sum(source.header(k).outputs for k in range(source.depth)),
        "neurons_left": sum(header.outputs for header in headers),
        "edges": source.edges,
        "edges_left": sum(header.edges for header in headers),
    }


def merge_layer(layer: Layer, previous: np.ndarray | None) -> tuple[Layer, np.ndarray | None]:
    """One layer (itself when nothing changed) with its identical outputs merged, and the class of each original output,
    or None when each is its own; `previous`: the class of each input; None: the inputs are as they were."""
    return _on_classes(*_distinct(layer), previous)[:2]


def _search(network: Network, k: int) -> tuple[Layer, np.ndarray | None]:
    """As `_distinct`, of layer k of a network, which may be made of fewer outputs: then these are searched alone."""
    if (made := network.repeated(k)) is None:
        return _distinct(network.layer(k))
    (layer, again), classes = _distinct(made[0]), made[1]
    return layer, classes if again is None else again[classes]


def _distinct(layer: Layer) -> tuple[Layer, np.ndarray | None]:
    """The layer of the outputs that differ (the first of each kind), and which of them each output equals.

    None: all differ, and the layer is the same.
    """
    # Classes of outputs whose inputs, weights and bias are equal to the bit; `rows` has the first output of each.
    compiled = dispatch.compiled_module()
    values, bias = np.atleast_1d(layer.values), np.atleast_1d(layer.bias)
    classes, rows = np.empty(layer.outputs, np.uint32), np.empty(layer.outputs, np.int64)
    count = compiled.equal_rows(layer.offsets, layer.indices, values, bias, classes, rows)
    if count == layer.outputs:
        return layer, None
    # One CSR row of each class is taken; the copies are dropped, and with them their edges.
    rows = rows[:count]
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(layer.offsets[rows + 1] - layer.offsets[rows], out=offsets[1:])
    indices = np.empty(offsets[-1], layer.indices.dtype)
    row_values = values if layer.single_value else np.empty(offsets[-1], np.float32)
    compiled.take_rows(layer.offsets, layer.indices, values, rows, offsets, indices, row_values)
    bias = layer.bias[rows] if np.ndim(layer.bias) else layer.bias
    values = layer.values if layer.single_value else row_values
    return layer.changed(outputs=count, offsets=offsets, indices=indices, values=values, bias=bias), classes


def _on_classes(
    layer: Layer, classes: np.ndarray | None, previous: np.ndarray | None
) -> tuple[Layer, np.ndarray | None, bool] | None:
    """A layer that `_distinct` left, on the classes of its inputs; there rows may be equal that were not before.

    Returns:
        the layer, the class of each original output, and whether more rows were equal; None: weights that fall on one
        class add up past the range of float32.
    """
    again = None
    if previous is not None:
        # Edges from inputs of one class become one edge with the sum of their weights, as these inputs are equal.
        inputs = int(previous.max()) + 1
        indices, sums = np.empty(layer.edges, index_dtype(inputs)), np.empty(layer.edges, np.float32)
        offsets, values = np.empty(layer.outputs + 1, np.int64), np.atleast_1d(layer.values)
        edges = dispatch.compiled_module().on_classes(
            layer.offsets, layer.indices, values, previous.astype(np.uint32), offsets, indices, sums
        )
        if edges < 0:
            return None
        # Rows that differed may be equal on classes, so they are searched once more, and the two maps are composed.
        values, indices = common_value(sums[:edges].copy()), indices[:edges].copy()
        layer, again = _distinct(layer.changed(inputs=inputs, offsets=offsets, indices=indices, values=values))
        if again is not None:
            classes = again if classes is None else again[classes]
    found = None if classes is None else classes.astype(index_dtype(layer.outputs))
    return layer, found, again is not None
