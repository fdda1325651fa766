"""A session of the engine `cpu`: batches through the layers, one after the other, their rows in tiles."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spdnn.common import progress
from spdnn.common.endings import check_ended
from spdnn.common.threads import in_order
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, SharesRows
from spdnn.engines.compiled import read_ahead
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import BatchKernels, Counters
from spdnn.engines.cpu.exchange import CpuRows
from spdnn.engines.cpu.rows import Rows
from spdnn.engines.exchange import RowExchange
from spdnn.kernels.tiles import buffer, tiles_of, touch
from spdnn.problem.features import Inputs
from spdnn.problem.result import LastRows, Result
from spdnn.reductions.inputs import DuplicateSearch


@dataclass
class BatchRows:
    """A batch on its way through the layers.

    Attributes:
        indices: of the rows that were nonzero after the last pass, int64, ascending.
        exchange_at: the layer before which rows may next move between ranks; the depth: none is left.
        k: the next layer.
    """

    rows: Rows
    search: DuplicateSearch
    tally: Counters
    indices: np.ndarray
    exchange_at: int
    k: int = 0


class CpuSession(SharesRows):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs.

    Args:
        most: layers of a pass.
        tile: of the features, always; None: what fits the rows that are left.
    """

    def __init__(
        self,
        prepared: Prepared,
        inputs: Inputs,
        options: Options,
        most: int = plan.MOST_LAYERS,
        tile: int | None = None,
    ):
        super().__init__(prepared)
        self.work, self.threads, self.most = BatchKernels(prepared, inputs, options, tile), options.threads, most
        self.course = prepared.course()
        network, widest, tile = prepared.network, self.work.widest, self.work.tile
        self.batch, resident = plan.batches(network, inputs, widest, self.work.last.outputs, options, tile)
        self.span = RESIDENT if resident else STREAMED
        layers = in_order(self.work.bind, range(network.depth), options.threads)
        self.layers = self.work.resident(progress.bar(layers, "weights", network.depth)) if resident else None
        self.buffers = [buffer(self.batch, widest, tile) for _ in range(2)]
        for memory in self.buffers:
            touch(memory, self.threads)  # here, not on the clock

    @property
    def batches(self) -> int:
        return -(-self.work.inputs.count // self.batch)

    def run(self, exchange: RowExchange | None = None) -> Result:
        work, count = self.work, max(self.batches, self.least_batches)
        size = min(self.batch, tiles_of(-(-work.inputs.count // count), work.tile) * work.tile)
        tally = work.tally()
        with progress.Inference(self.course, work.inputs.count, count) as stage:
            parts = [self._batch(i * size, size, tally, stage, exchange) for i in range(count)]
        work.note(tally, self.findings)
        return work.result(parts, tally, {"batch_inputs": size})

    def _batch(
        self, start: int, size: int, tally: Counters, stage: progress.Inference, exchange: RowExchange | None
    ) -> LastRows:
        """One batch through all layers."""
        batch = self._begin(start, size, tally)
        stage.begin(batch.rows.count, lambda k: (tally.edges, batch.rows.lanes))
        if exchange:
            batch.exchange_at = exchange.first(self._plan_pass(batch), self.work.depth, batch.rows.count)
        with contextlib.closing(read_ahead(self.work.depth, self.work.bind)) as stream:
            while batch.k < self.work.depth:
                check_ended()
                self._pass(batch, stream)
                stage.at(batch.k, batch.rows.left)
                if batch.k < self.work.depth:
                    self._between_passes(batch, exchange)
                if not batch.rows.count:
                    batch.indices = np.empty(0, np.int64)
                    if batch.exchange_at == self.work.depth:  # no rows left, and none can come
                        stage.at(self.work.depth, 0)
                        break
        if exchange:
            exchange.end(tally.edges)
        return self.work.finish(batch.rows, batch.indices)

    def _begin(self, start: int, size: int, tally: Counters) -> BatchRows:
        """The batch of `size` inputs from `start` on, before the first layer."""
        numbers = self.work.inputs.numbers_of(start, start + size)
        rows = self.work.begin(numbers, self.threads, *self.buffers)
        return BatchRows(rows, DuplicateSearch(), tally, np.arange(numbers.size), self.work.depth)

    def _pass(self, batch: BatchRows, stream: Iterator) -> None:
        """All rows through the layers of the next pass, which come from memory or the stream."""
        k, most = batch.k, batch.exchange_at - batch.k
        if batch.rows.count:
            most = min(most, self._plan_pass(batch))
        layers = self.layers[k : k + most] if self.layers else [next(stream) for _ in range(most)]
        if batch.rows.count:
            batch.indices = self.work.through(k, layers, batch.rows, batch.tally)
        batch.k += most

    def _between_passes(self, batch: BatchRows, exchange: RowExchange | None) -> None:
        """Rows move between ranks, or dead ones leave and identical ones merge."""
        k, rows, search, tally = batch.k, batch.rows, batch.search, batch.tally
        if k < batch.exchange_at:
            batch.indices = self.work.compact(k, rows, batch.indices, search, tally)
            return
        held = CpuRows(self.work, k, rows, batch.indices, search, tally, self.batch, lambda: self._plan_pass(batch))
        batch.exchange_at = exchange.meet(k, held)
        held.settle()
        batch.indices = np.arange(rows.count)

    def _plan_pass(self, batch: BatchRows) -> int:
        """How many layers the next pass has."""
        work, rows, k = self.work, batch.rows, batch.k
        if self.layers is None or not rows.count:
            return 1
        wait = work.wait(k, rows, batch.search) or self.most
        return work.costs.layers(k, rows.tiles, rows.tile, work.deaths(k, rows), min(wait, self.most))
