"""A session of the engine `spgemm`: batches through the layers, one after the other, their rows sparse; and layers by
input neuron, as the sparse-sparse kernels take them.
"""

import contextlib
import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import past_float32
from spdnn.core.features import Inputs
from spdnn.core.network import Layer, Network, index_dtype
from spdnn.core.result import LastLayer, LastRows, Result, RowStatistics
from spdnn.core.threads import in_order
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, SharesRows
from spdnn.engines.exchange import RowExchange
from spdnn.engines.reductions.inputs import DuplicateSearch, representatives, search_note
from spdnn.engines.spgemm import schedule
from spdnn.engines.spgemm.rows import Buffer, SparseRows, SpgemmRows
from spdnn.kernels import dispatch
from spdnn.kernels.tiles import bind_inputs

ACCUMULATORS = ("hash", "touched", "sweep", "panel")  # as the kernels number them
BEST = -1  # the kernels choose for each row


@dataclass
class SpgemmCounters:
    """What one run counted, over all its batches.

    Attributes:
        survivors: int64 (layers,), inputs with a nonzero row after each layer.
        accumulators: int64 (ACCUMULATORS,), output rows that each of them took.
        edges: multiply-adds done.
    """

    survivors: np.ndarray
    accumulators: np.ndarray
    edges: int = 0


class SpgemmSession(SharesRows):
    """Weights of all layers by input neuron, or a way to stream them, and two feature buffers for one batch."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared)
        network = prepared.network
        inputs.check_width(network.inputs)
        self.network, self.inputs = network, inputs
        self.threads, self.keep = options.threads, options.keep
        self.kernels, self.accumulator = level(), BEST
        self.dead_from = prepared.dead_from
        self.searches = "inputs" in prepared.reductions
        # Batches assume full rows, for no one knows how sparse they stay; weights by input neuron stay if they fit.
        shared = prepared.layout is not None
        self.batch, resident = schedule.batches(network, inputs, options, self.kernels.panel, shared)
        self.span = RESIDENT if resident else STREAMED
        self.layers = None
        if resident:
            arrays = progress.bar(prepared.layout or [None] * network.depth, "weights", network.depth)
            self.layers = [bind(network, k, layer) for k, layer in enumerate(arrays)]
        self.buffers = [Buffer(self.batch, network.width) for _ in range(2)]
        self.work_profile = prepared.work_profile()
        self.widths = [network.header(k).inputs for k in range(network.depth)]
        self.edges = np.array([float(network.header(k).edges) for k in range(network.depth)])
        self.ahead = np.concatenate([np.cumsum(self.edges[::-1])[::-1], [0]])  # edges of the layers from k on
        self.workspace = workspace(network, self.kernels.panel, self.threads)
        self.last = LastLayer(network)
        self.stored = bind_inputs(inputs)

    @property
    def batches(self) -> int:
        return -(-self.inputs.count // self.batch)

    def run(self, exchange: RowExchange | None = None) -> Result:
        count = max(self.batches, self.least_batches)
        size = -(-self.inputs.count // count)
        tally = SpgemmCounters(np.zeros(self.network.depth, np.int64), np.zeros(len(ACCUMULATORS), np.int64))
        if self.searches:
            self.findings["inputs"] = search_note()
        with progress.Inference(self.work_profile, self.inputs.count, count) as stage:
            batches = [self._batch(i * size, size, tally, stage, exchange) for i in range(count)]
        notes = {
            "instruction_set": self.kernels.name,
            "rows_by_accumulator": dict(zip(ACCUMULATORS, tally.accumulators.tolist(), strict=True)),
            "batches": len(batches),
            "batch_inputs": size,
        }
        return self.last.result(
            self.inputs.total, batches, self.keep, survivors=tally.survivors, edges_computed=tally.edges,
            notes=notes,
        )  # fmt: skip

    def _batch(
        self, start: int, size: int, tally: SpgemmCounters, stage: progress.Inference, exchange: RowExchange | None
    ) -> LastRows:
        """One batch through all layers."""
        numbers, depth = self.inputs.numbers_of(start, start + size), self.network.depth
        rows, search = SparseRows(numbers, *self.buffers), DuplicateSearch(schedule.SEARCH_SHARE)
        self.kernels.load(self.stored, self.inputs.stored_rows(numbers), rows.features(), self.threads)
        stage.begin(numbers.size, lambda k: (tally.edges, rows.nonzeros / self.widths[min(k, depth - 1)]))
        exchange_at = exchange.first(1, depth, numbers.size) if exchange else depth
        # Streamed weights: each layer is read and transposed while the one before it is computed.
        read = in_order(lambda k: bind(self.network, k), range(depth), threads=1, ahead=2)
        with contextlib.closing(read):
            for k, layer in enumerate(self.layers or read, 1):
                # Gustavson: an output row is the sum of the weight rows that its nonzeros select, in an accumulator
                # that suits how dense it becomes; bias and activation follow as it is written.
                finite, work, accumulators = self.kernels.layer(
                    layer, rows.features(), rows.results(), self.workspace, self.accumulator
                )
                if not finite:
                    raise past_float32(k - 1)
                tally.edges += work
                tally.accumulators += accumulators
                # The buffers change places. An output row without a nonzero is a dead input.
                rows.source, rows.target, rows.kept = rows.target, rows.source, slice(0, rows.count)
                nonzero = rows.source.length[rows.kept] != 0
                active = int(rows.inputs.weights[nonzero].sum())
                tally.survivors[k - 1] += active
                stage.at(k, active)
                if k == depth:
                    break
                # Dead inputs leave at once where no later bias revives them: rows are reached by index, so it is free.
                deaths = 0.0
                if k >= self.dead_from and not nonzero.all():
                    deaths = 1 - np.count_nonzero(nonzero) / nonzero.size
                    rows.keep(nonzero)
                # Identical inputs merge before ranks exchange rows, so that none is sent twice.
                searched_now = self.searches and self._search(k, rows, search, deaths, work)
                if k == exchange_at:
                    local = SpgemmRows(
                        rows, partial(self._hashes, rows), self.edges, self.findings.get("inputs", {}),
                        searched=searched_now, may_leave=k >= self.dead_from, capacity=self.batch, edges=tally.edges,
                        neurons=self.network.header(k - 1).outputs,
                    )  # fmt: skip
                    exchange_at = exchange.meet(k, local)
        if exchange:
            exchange.end(tally.edges)
        return self._finish(rows)

    def _search(self, k: int, rows: SparseRows, search: DuplicateSearch, deaths: float, work: int) -> bool:
        """Search for equal rows before layer k where that is due, and merge them; whether it was.

        Args:
            work: multiply-adds of the layer before, from which those ahead are estimated.
        """
        # The work ahead: later layers are taken to do as many multiply-adds an edge as the last one did.
        start, before = time.perf_counter(), rows.count
        cost = schedule.SEARCH_NONZERO * rows.nonzeros + schedule.SEARCH_ROW * before
        ahead = work / max(1.0, self.edges[k - 1]) * self.ahead[k]
        if search.layers_to_search(k, before, deaths, cost, ahead) != 0:
            return False
        features = rows.features()

        def same(first, second):
            equal = np.empty(first.size, bool)
            self.kernels.same(features, first, second, equal, self.threads)
            return equal

        # Rows of equal hashes are compared nonzero by nonzero; one of each group represents the others from now on.
        merged = rows.merge(representatives(self._hashes(rows), same))
        search.finish(k, before, merged)
        findings = self.findings["inputs"]
        findings["looks"] += 1
        findings["rows_merged"] += merged
        findings["seconds"] += time.perf_counter() - start
        return True

    def _hashes(self, rows: SparseRows) -> np.ndarray:
        """uint64 (rows,), equal for equal rows."""
        hashes = np.empty(rows.count, np.uint64)
        self.kernels.hashes(rows.features(), hashes, self.threads)
        return hashes

    def _finish(self, rows: SparseRows) -> LastRows:
        """Numbers, statistics and values of the rows that are nonzero at the end."""
        # Last rows: statistics are summed over the nonzeros; only rows whose values are kept are made dense.
        rows.keep(rows.source.length[rows.kept] != 0)
        statistics, last, inputs = RowStatistics.empty(rows.count), self.last, rows.inputs
        self.kernels.statistics(rows.features(), last.counts, last.weights, *statistics, self.threads)
        kept = self.keep.rows(inputs.numbers, inputs.row_of, rows.count)
        values = np.empty((kept.size, self.network.outputs), np.float32)
        self.kernels.expand(rows.source.rows(rows.kept[kept]), values, self.threads)
        return LastRows(inputs.numbers, inputs.row_of, statistics, kept, values)


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
    starts, weights = np.empty(layer.inputs + 1, np.int64), np.empty_like(values)
    outputs = np.empty(layer.edges, index_dtype(layer.outputs))
    _cpu.by_input(layer.offsets, layer.indices, values, starts, outputs, weights)
    return starts, outputs, weights


def bind(network: Network, k: int, arrays: tuple[np.ndarray, ...] | None = None):
    """Layer k by input neuron, as the kernels take it; `arrays`: what `by_input` gave for it."""
    from spdnn.kernels import _cpu

    header = network.header(k)
    low, high = header.activation.low, header.activation.high
    bias, arrays = np.atleast_1d(header.bias), arrays or by_input(network.layer(k))
    return _cpu.BoundLayer(header.inputs, header.outputs, *arrays, bias, low, high, True, header.keeps_zero)
