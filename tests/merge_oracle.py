"""What `spdnn.reduce.merge_layer` finds, in NumPy: the oracle of the compiled functions, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spdnn.network import Layer, index_dtype, shared_value


def merge_layer(layer: Layer, previous: np.ndarray | None) -> tuple[Layer, np.ndarray | None]:
    rows, classes = _distinct(layer)
    layer = _outputs(layer, rows)
    if previous is not None:
        layer = _on_classes(layer, previous)
        rows, again = _distinct(layer)  # rows may be equal on classes that were not before
        layer, classes = _outputs(layer, rows), again[classes]
    alike = layer.outputs < classes.size
    return layer, classes.astype(index_dtype(layer.outputs)) if alike else None


def _distinct(layer: Layer) -> tuple[list[int], np.ndarray]:
    """The first output of each kind, and the kind of each output, counted in that order."""
    kinds, classes = {}, []
    for j, (begin, end) in enumerate(zip(layer.offsets[:-1], layer.offsets[1:], strict=True)):
        weights = b"" if layer.single_value else layer.values[begin:end].tobytes()
        bias = layer.bias[j].tobytes() if np.ndim(layer.bias) else b""
        kind = kinds.setdefault((layer.indices[begin:end].tobytes(), weights, bias), (len(kinds), j))
        classes.append(kind[0])
    return [j for _, j in kinds.values()], np.array(classes)


def _outputs(layer: Layer, outputs: list[int]) -> Layer:
    """The layer of some of its outputs alone."""
    degrees = np.diff(layer.offsets)[outputs]
    offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges = np.arange(offsets[-1]) + np.repeat(layer.offsets[outputs] - offsets[:-1], degrees)
    return replace(
        layer,
        outputs=len(outputs),
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
    assert np.isfinite(sums).all()
    keys = keys[starts]
    return replace(
        layer,
        inputs=inputs,
        offsets=np.searchsorted(keys, np.arange(layer.outputs + 1) * inputs).astype(np.int64),
        indices=(keys % inputs).astype(index_dtype(inputs)),
        values=shared_value(sums),
    )
