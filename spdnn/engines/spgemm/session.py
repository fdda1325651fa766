"""A session of the engine `spgemm`: batches through the layers, one after the other, their rows sparse; and layers by
input neuron, as the sparse-sparse kernels take them.
"""

from functools import partial

import numpy as np

from spdnn.core import progress
from spdnn.core.features import Inputs
from spdnn.core.network import Layer, Network, index_dtype
from spdnn.core.result import LastLayer, LastRows, Result
from spdnn.engines.base import Options, Prepared
from spdnn.engines.execute import BatchSession
from spdnn.engines.spgemm import schedule
from spdnn.engines.spgemm.rows import ACCUMULATORS, Buffer, SparseRows, SpgemmCounters
from spdnn.kernels import dispatch
from spdnn.kernels.caches import UNKNOWN, caches
from spdnn.kernels.tiles import bind_inputs

BEST = -1  # the kernels choose for each row


class SpgemmSession(BatchSession):
    """Weights of all layers by input neuron, or a way to stream them, and two feature buffers for one batch."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared, inputs)
        network = prepared.network
        self.threads, self.keep, self.bind = options.threads, options.keep, partial(bind, network)
        self.kernels, self.accumulator = level(), BEST
        # Batches assume full rows, for no one knows how sparse they stay; weights by input neuron stay if they fit.
        shared = prepared.layout is not None
        self.batch, resident = schedule.batches(network, inputs, options, self.kernels.panel, shared)
        if resident:
            arrays = progress.bar(prepared.layout or [None] * network.depth, "weights", network.depth)
            self.layers = [bind(network, k, layer) for k, layer in enumerate(arrays)]
        self.buffers = [Buffer(self.batch, network.width) for _ in range(2)]
        self.workspace = workspace(network, self.kernels.panel, self.threads)
        self.last, self.stored = LastLayer(network), bind_inputs(inputs)
        self.cache = (caches() or UNKNOWN)[-1].bytes
        self.weight_bytes = [network.header(k).nbytes for k in range(network.depth)]
        self.network_bytes = sum(self.weight_bytes)

    def counters(self) -> SpgemmCounters:
        accumulators = np.zeros(len(ACCUMULATORS), np.int64)
        return SpgemmCounters.zeros(self.prepared.network.depth, accumulators=accumulators)

    def begin(self, numbers: np.ndarray, counters: SpgemmCounters) -> SparseRows:
        return SparseRows(self, numbers, counters)

    def result(self, parts: list[LastRows], counters: SpgemmCounters, size: int) -> Result:
        notes = {
            "instruction_set": self.kernels.name,
            "rows_by_accumulator": dict(zip(ACCUMULATORS, counters.accumulators.tolist(), strict=True)),
            "batches": len(parts),
            "batch_inputs": size,
        }
        return self.last.result(
            self.inputs.total, parts, self.keep, **counters.counted(self.prepared, sparse=True), notes=notes,
            bytes_moved=counters.moved,
        )  # fmt: skip


def level():
    """The sparse-sparse kernels at the level that this process uses."""
    return dispatch.compiled_module().spgemm_level(dispatch.level().name)


def workspace(network: Network, panel: int, threads: int):
    """The accumulators of all threads, for the widest layer."""
    headers = [network.header(k) for k in range(network.depth)]
    widths = max(header.inputs for header in headers), max(header.outputs for header in headers)
    return dispatch.compiled_module().SpgemmWorkspace(*widths, panel, threads)


def by_input(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The layer's edges by input neuron.

    Returns:
        int64 (inputs + 1,), where each input starts; uint16 or uint32 (edges,), the outputs, ascending within an input;
        float32 (edges,) or (1,), the weights.
    """
    # A transposition by counting: Gustavson needs the edges of an input side by side, layers are stored by output.
    values = np.atleast_1d(layer.values)
    starts, weights = np.empty(layer.inputs + 1, np.int64), np.empty_like(values)
    outputs = np.empty(layer.edges, index_dtype(layer.outputs))
    dispatch.compiled_module().by_input(layer.offsets, layer.indices, values, starts, outputs, weights)
    return starts, outputs, weights


def bind(network: Network, k: int, arrays: tuple[np.ndarray, ...] | None = None):
    """Layer k by input neuron, as the kernels take it; `arrays`: what `by_input` gave for it."""
    header = network.header(k)
    low, high = header.activation.low, header.activation.high
    bias, arrays = np.atleast_1d(header.bias), arrays or by_input(network.layer(k))
    return dispatch.compiled_module().BoundLayer(
        header.inputs, header.outputs, *arrays, bias, low, high, True, header.keeps_zero
    )
