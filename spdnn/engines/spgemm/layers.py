"""Layers by input neuron, as the sparse-sparse kernels take them, and the memory that these kernels work in."""

import numpy as np

from spdnn.core.network import Header, Layer, Network, index_dtype
from spdnn.kernels import dispatch


def level():
    """The sparse-sparse kernels at the level that this process uses."""
    name = dispatch.level().name
    from spdnn.kernels import _cpu

    return _cpu.spgemm_level(name)


def workspace(network: Network, panel: int, threads: int):
    """The accumulators of all threads, for the widest layer."""
    from spdnn.kernels import _cpu

    headers = [network.header(k) for k in range(network.depth)]
    return _cpu.SpgemmWorkspace(
        max(header.inputs for header in headers), max(header.outputs for header in headers), panel, threads
    )


def by_input(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The layer's edges by input neuron.

    Returns:
        int64 (inputs + 1,), where each input starts; uint16 or uint32 (edges,), the outputs, ascending within an input;
        float32 (edges,) or (1,), the weights.
    """
    from spdnn.kernels import _cpu

    # A transposition by counting: Gustavson needs the edges of an input side by side, layers are stored by output.
    values = np.atleast_1d(layer.values)
    starts, moved = np.empty(layer.inputs + 1, np.int64), np.empty_like(values)
    outputs = np.empty(layer.edges, index_dtype(layer.outputs))
    _cpu.by_input(layer.offsets, layer.indices, values, starts, outputs, moved)
    return starts, outputs, moved


def bind(network: Network, k: int, arrays: tuple[np.ndarray, ...] | None = None):
    """Layer k by input neuron, as the kernels take it; `arrays`: what `by_input` gave for it."""
    from spdnn.kernels import _cpu

    header = network.header(k)
    low, high = header.activation.low, header.activation.high
    bias, arrays = np.atleast_1d(header.bias), arrays or by_input(network.layer(k))
    return _cpu.BoundLayer(header.inputs, header.outputs, *arrays, bias, low, high, True, header.keeps_zero)


def bytes_by_input(header: Header) -> int:
    """Bytes of a layer's arrays when they are by input neuron, and of the counters that put them so."""
    edge = index_dtype(header.outputs).itemsize + (0 if header.single_value else 4)
    return header.edges * edge + 16 * (header.inputs + 1) + 4 * np.size(header.bias)
