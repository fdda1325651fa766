"""Engine `spgemm`: sparse features times sparse weights, row by row, bias and activation in the emission of each row.

Algorithm: Gustavson's. Features are sparse rows in one of two buffers, weights are rows by input neuron; an output row
is the sum of the weight rows that its nonzeros select, kept in an accumulator that is chosen by the density expected of
the output row (kernels/cpu/spgemm.cpp). Exact zeros are dropped. The values do not depend on threads, batches,
accumulators or the instruction set. `edges_computed` counts the multiply-adds really done: for each nonzero of the
features, the length of its weight row; on sparse rows that is far less than inputs x edges.

Reductions: `dead`, rows that became empty leave while no later bias revives them; `inputs`, rows that became identical
share one representative (spdnn/reductions/inputs.py). To leave costs nothing, as rows are found by their places.
Source: Ellis and Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos Kernels", HPEC 2019.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np

from spdnn.common import progress
from spdnn.common.errors import MemoryTooSmall
from spdnn.engines.base import RESIDENT, STREAMED, LastLayer, Options, Prepared, Session, values_bytes
from spdnn.engines.compiled import CompiledEngine, past_float32, read_ahead
from spdnn.engines.exchange import Meetings
from spdnn.engines.memory import INPUT_BYTES, limit_bytes, resident_bytes
from spdnn.engines.spgemm.rows import NONZERO_BYTES, Buffer, SparseRows, SpgemmRows
from spdnn.kernels import dispatch
from spdnn.problem.features import Inputs, Result
from spdnn.problem.network import Header, Layer, Network, index_dtype
from spdnn.reductions.inputs import Looks, representatives, searched

ACCUMULATORS = ("hash", "touched", "sweep", "panel")  # as the kernels number them
BEST = -1  # the kernels choose for each row
ROW_BYTES = 256  # what is kept of each row besides: places, hashes, representatives, statistics
SMALL_BYTES = 4 << 20  # stacks of threads, small objects: 1.2 MB were seen beyond all that is counted


class SpgemmEngine(CompiledEngine):
    name = "spgemm"
    summary = "sparse features times sparse weights (Gustavson) in C++, all threads; equal rows computed once"

    def layout(self, layer: Layer) -> tuple[np.ndarray, ...]:
        return by_input(layer)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return SpgemmSession(prepared, inputs, options)


class SpgemmSession(Session):
    """Weights of all layers by input neuron, or a way to stream them, and two feature buffers for one batch."""

    meets = True

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared)
        network = prepared.network
        inputs.check_width(network.inputs)
        self.network, self.inputs = network, inputs
        self.threads, self.keep_values = options.threads, options.values
        self.kernels, self.accumulator = level(), BEST
        self.dead_from = prepared.dead_from
        self.looking = "inputs" in prepared.reductions
        self.batch, resident = _plan(network, inputs, options, self.kernels.panel, prepared.layout is not None)
        self.edges = 0
        self.span = RESIDENT if resident else STREAMED
        self.layers = None
        if resident:
            given = progress.bar(prepared.layout or [None] * network.depth, "weights", network.depth)
            self.layers = [bind(network, k, arrays) for k, arrays in enumerate(given)]
        self.buffers = [Buffer(self.batch, network.width) for _ in range(2)]
        self.course, self.widths = prepared.course(), [network.header(k).inputs for k in range(network.depth)]
        self.layer_edges = np.array([float(network.header(k).edges) for k in range(network.depth)])
        self.workspace = workspace(network, self.kernels.panel, self.threads)
        self.last = LastLayer(network)
        if inputs.kind == "csr":
            data = inputs.data
            self.rows = (*(array.astype(np.int64, copy=False) for array in (data.indptr, data.indices)), data.data)

    @property
    def batches(self) -> int:
        return -(-self.inputs.count // self.batch)

    def run(self, meetings: Meetings | None = None) -> Result:
        turns, self.edges = self.turns or self.batches, 0
        size = -(-self.inputs.count // turns)
        if self.looking:
            self.found["inputs"] = searched()
        with progress.Inference(self.course, self.inputs.count, turns) as stage:
            parts = [self._batch(turn * size, size, stage, meetings) for turn in range(turns)]
        alive, hashes, sums, projections, mins, maxs = (np.concatenate([part[i] for part in parts]) for i in range(6))
        chosen = np.sum([part[9] for part in parts], axis=0).tolist()
        notes = {
            "instruction_set": self.kernels.name,
            "rows_by_accumulator": dict(zip(ACCUMULATORS, chosen, strict=True)),
            "batches": len(parts),
            "batch_inputs": size,
        }
        return Result(
            self.inputs.total,
            self.last.outputs,
            alive,
            sums,
            projections,
            mins,
            maxs,
            hashes,
            sum(part[7] for part in parts),
            sum(part[8] for part in parts),
            self.last.gathered([(part[6], part[10]) for part in parts]) if self.keep_values else None,
            notes,
        )

    def _layers(self) -> Iterator:
        """The layers in order: from memory, or each read and transposed while the one before it is computed."""
        yield from self.layers or read_ahead(self.network.depth, lambda k: bind(self.network, k))

    def _load(self, numbers: np.ndarray, target: Buffer):
        """The inputs `numbers` as sparse rows in `target`."""
        stored, rows = self.inputs.stored(numbers), target.rows(slice(0, numbers.size))
        if self.inputs.kind == "csr":
            self.kernels.load_csr(*self.rows, self.inputs.neurons, stored, rows, self.threads)
        elif self.inputs.kind == "bits":
            self.kernels.load_bits(self.inputs.data, self.inputs.neurons, stored, rows, self.threads)
        else:
            self.kernels.load_dense(self.inputs.data, stored, rows, self.threads)

    def _batch(self, start: int, size: int, stage: progress.Inference, meetings: Meetings | None) -> tuple:
        """One batch through all layers."""
        numbers, depth = self.inputs.numbered(start, start + size), self.network.depth
        rows, looks = SparseRows(numbers, *self.buffers), Looks()
        self._load(numbers, rows.source)
        stage.begin(numbers.size, lambda k: (self.edges, rows.nonzeros / self.widths[min(k, depth - 1)]))
        survivors, computed, chosen = np.zeros(depth, np.int64), 0, np.zeros(len(ACCUMULATORS), np.int64)
        meeting = meetings.first(1, depth, numbers.size) if meetings else depth
        with contextlib.closing(self._layers()) as layers:
            for k, layer in enumerate(layers, 1):
                finite, work, kinds = self.kernels.layer(
                    layer, rows.features(), rows.results(), self.workspace, self.accumulator
                )
                if not finite:
                    raise past_float32(k - 1)
                computed, chosen = computed + work, chosen + kinds
                self.edges += work
                nonzero = rows.turn()
                left = survivors[k - 1] = rows.inputs.weights[nonzero].sum()
                stage.at(k, left)
                if k == depth:
                    break
                if k >= self.dead_from and not nonzero.all():
                    rows.keep(nonzero)
                looked = self.looking and looks.due(work, rows.nonzeros, rows.count)
                if looked:
                    self._look(rows, looks)
                if k == meeting:
                    meeting = meetings.meet(k, SpgemmRows(self, k, rows, looked))
        if meetings:
            meetings.end(self.edges)
        return (*self._finish(rows), survivors, computed, chosen, rows.inputs.row_of)

    def _look(self, rows: SparseRows, looks: Looks) -> None:
        """Merge equal rows."""
        start, features, before = time.perf_counter(), rows.features(), rows.count
        hashes = np.empty(before, np.uint64)
        self.kernels.hashes(features, hashes, self.threads)

        def same(first, second):
            equal = np.empty(first.size, bool)
            self.kernels.same(features, first, second, equal, self.threads)
            return equal

        merged = rows.merge(representatives(hashes, same))
        looks.looked(before, merged)
        found = self.found["inputs"]
        found["looks"] += 1
        found["rows_merged"] += merged
        found["seconds"] += time.perf_counter() - start

    def _finish(self, rows: SparseRows) -> tuple:
        """(alive, hashes, sums, projections, mins, maxs) of the inputs whose row is nonzero at the end, and values of
        each distinct row."""
        rows.keep(rows.source.length[rows.kept] != 0)
        inputs, count = rows.inputs, rows.count
        sums, projections, hashes = np.empty(count), np.empty(count), np.empty(count, np.uint64)
        mins, maxs = np.empty(count, np.float32), np.empty(count, np.float32)
        found = (sums, projections, mins, maxs, hashes)
        self.kernels.statistics(rows.features(), self.last.counts, self.last.weights, *found, self.threads)
        of, values = inputs.row_of, None
        if self.keep_values:
            values = np.empty((count, self.network.outputs), np.float32)
            self.kernels.expand(rows.features(), values, self.threads)
        return inputs.numbers, hashes[of], sums[of], projections[of], mins[of], maxs[of], values


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
    return _cpu.BoundInputLayer(header.inputs, header.outputs, *arrays, bias, low, high, header.keeps_zero)


def _bytes_by_input(header: Header) -> int:
    """Bytes of a layer's arrays when they are by input neuron, and of the counters that put them so."""
    edge = index_dtype(header.outputs).itemsize + (0 if header.single_value else 4)
    return header.edges * edge + 16 * (header.inputs + 1) + 4 * np.size(header.bias)


def _plan(network: Network, inputs: Inputs, options: Options, panel: int, shared: bool = False) -> tuple[int, bool]:
    """(inputs in a batch, whether all weights stay in memory) within the memory allowed, were every row full.

    Args:
        shared: the weights are in memory by input neuron already.

    Raises:
        MemoryTooSmall: not even one input fits; the sentence says the least that does.
    """
    from spdnn.kernels import _cpu

    held, limit = resident_bytes(), limit_bytes(options.memory)
    headers = [network.header(k) for k in range(network.depth)]
    moved = [_bytes_by_input(header) for header in headers]
    # The layer in use, the next one as it is read and by input, and the arrays that reading it needs.
    reading = 4 * max(header.nbytes for header in headers) + 2 * max(moved)
    widths = max(header.inputs for header in headers), max(header.outputs for header in headers)
    scratch = options.threads * _cpu.SpgemmWorkspace.bytes_of(*widths, panel)
    given = 2 * inputs.nbytes if inputs.kind == "csr" else 0
    # Values of the batches, and of all when they are put together; as many rows as there are inputs may survive.
    kept = values_bytes(inputs.count, LastLayer(network).outputs) if options.values else 0
    one_row = 2 * NONZERO_BYTES * network.width + ROW_BYTES
    fixed = held + reading + scratch + given + kept + INPUT_BYTES * inputs.count + SMALL_BYTES
    room = limit - fixed
    # All weights, when what is left still takes some rows for each thread.
    weights = 0 if shared else sum(moved)
    resident = shared or weights + min(inputs.count, 64 * options.threads) * one_row <= room
    room -= weights if resident else 0
    if room < one_row:
        raise MemoryTooSmall(
            f"memory of {limit:,} bytes is too small for one input at a time; this network, these inputs and "
            f"{options.threads} threads need at least {fixed + one_row:,} (--memory)",
            fixed + one_row,
        )
    rows = min(inputs.count, room // one_row)
    batches = -(-inputs.count // rows)
    return -(-inputs.count // batches), resident
