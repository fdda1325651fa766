"""A session of the engine `cpu`: batches through the layers, one after the other, their rows in tiles.

Between two passes, rows move between ranks (`CpuRows`), or dead ones leave and identical ones merge.
"""

import contextlib
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from spdnn.core import progress
from spdnn.core.endings import check_ended
from spdnn.core.features import Inputs
from spdnn.core.result import LastRows, Result
from spdnn.core.threads import in_order
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, SharesRows
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import BatchKernels, Counters
from spdnn.engines.cpu.rows import Rows
from spdnn.engines.exchange import HeldRows, Parcel, RowExchange
from spdnn.engines.reductions.inputs import DuplicateSearch, Representatives
from spdnn.kernels.tiles import buffer, tiles_of, touch


class CpuSession(SharesRows):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs.

    Args:
        max_pass_layers: layers of a pass at most.
        tile: of the features, always; None: what fits the rows that are left.
    """

    def __init__(
        self, prepared: Prepared, inputs: Inputs, options: Options, max_pass_layers: int = plan.MOST_LAYERS,
        tile: int | None = None,
    ):  # fmt: skip
        super().__init__(prepared)
        self.work = BatchKernels(prepared, inputs, options, tile)
        self.threads, self.max_pass_layers = options.threads, max_pass_layers
        self.work_profile = prepared.work_profile()
        network, widest, tile = prepared.network, self.work.widest, self.work.tile
        self.batch, resident = plan.batches(network, inputs, widest, self.work.last.outputs, options, tile)
        self.span = RESIDENT if resident else STREAMED
        # Weights stay in memory, bound once, where they fit; else each batch streams them.
        layers = in_order(self.work.bind, range(network.depth), options.threads)
        self.layers = self.work.resident(progress.bar(layers, "weights", network.depth)) if resident else None
        self.buffers = [buffer(self.batch, widest, tile) for _ in range(2)]
        for memory in self.buffers:
            touch(memory, self.threads)  # here, not on the clock

    @property
    def batches(self) -> int:
        return -(-self.work.inputs.count // self.batch)

    def run(self, exchange: RowExchange | None = None) -> Result:
        # Batches of equal size in whole tiles; ranks that exchange rows make equally many, and some may be empty.
        work, count = self.work, max(self.batches, self.least_batches)
        size = min(self.batch, tiles_of(-(-work.inputs.count // count), work.tile) * work.tile)
        tally = work.tally()
        with progress.Inference(self.work_profile, work.inputs.count, count) as stage:
            parts = [self._batch(i * size, size, tally, stage, exchange) for i in range(count)]
        work.note(tally, self.findings)
        return work.result(parts, tally, {"batch_inputs": size})

    def _batch(
        self, start: int, size: int, tally: Counters, stage: progress.Inference, exchange: RowExchange | None
    ) -> LastRows:
        """The batch of `size` inputs from `start` on through all layers; `indices` are those of its nonzero rows."""
        work, depth, k = self.work, self.work.depth, 0
        numbers = work.inputs.numbers_of(start, start + size)
        rows, search = work.begin(numbers, self.threads, *self.buffers), DuplicateSearch()
        indices = np.arange(numbers.size)
        stage.begin(rows.count, lambda k: (tally.edges, rows.lanes))
        # Exchange points: all ranks stop before the same layer, since an exchange is collective; depth: never again.
        exchange_at = exchange.first(self._plan_pass(0, rows, search), depth, rows.count) if exchange else depth
        with contextlib.closing(in_order(work.bind, range(depth), threads=1, ahead=2)) as stream:
            while k < depth:
                check_ended()
                # Pass: as many layers as the cost model allows, but not past the next exchange. A batch without rows
                # skips its layers, and takes them from the stream all the same, since other ranks may send it rows.
                most = exchange_at - k
                if rows.count:
                    most = min(most, self._plan_pass(k, rows, search))
                layers = self.layers[k : k + most] if self.layers else [next(stream) for _ in range(most)]
                if rows.count:
                    indices = work.run_pass(k, layers, rows, tally)
                k += most
                stage.at(k, rows.left)
                # Between passes: rows move between ranks, or dead ones leave and identical ones merge where that pays.
                if k == exchange_at < depth:
                    planned = partial(self._plan_pass, k, rows, search)
                    local = CpuRows(work, k, rows, indices, search, tally, self.batch, planned)
                    exchange_at = exchange.meet(k, local)
                    local.finish_exchange()
                    indices = np.arange(rows.count)
                elif k < depth:
                    indices = work.compact(k, rows, indices, search, tally)
                if not rows.count:
                    indices = np.empty(0, np.int64)
                    if exchange_at == depth:  # no rows are left, and none can come
                        stage.at(depth, 0)
                        break
        if exchange:
            exchange.end(tally.edges)
        return work.finish(rows, indices)

    def _plan_pass(self, k: int, rows: Rows, search: DuplicateSearch) -> int:
        """How many layers the pass from layer k on has."""
        work = self.work
        # Streamed weights pass one layer at a time; else a pass ends where a search for equal rows is due.
        if self.layers is None or not rows.count:
            return 1
        wait = work.layers_to_search(k, rows, search) or self.max_pass_layers
        return work.costs.layers(k, rows.tiles, rows.tile, work.deaths(k, rows), min(wait, self.max_pass_layers))


class CpuRows(HeldRows):
    """The rows of a batch before layer k, less the dead ones, as other ranks see them. Equal ones are merged where
    that is due.

    Args:
        indices: of the rows that are nonzero, int64, ascending.
        capacity: rows that the batch has room for.
        planned: gives the layers of the next pass.
    """

    def __init__(
        self, work: BatchKernels, k: int, rows: Rows, indices: np.ndarray, search: DuplicateSearch, tally: Counters,
        capacity: int, planned: Callable[[], int],
    ):  # fmt: skip
        self._k, self._rows, self._search, self._tally = k, rows, search, tally
        self.neurons = int(work.costs.outputs[k - 1])
        self.may_leave = k >= work.dead_from
        # Dead rows leave the count of rows now; their gaps stay until it is known which rows go to other ranks.
        self._indices = np.arange(rows.count)
        if self.may_leave and indices.size < rows.count:
            kept = np.zeros(rows.count, bool)
            kept[indices] = True
            rows.inputs.keep(kept)
            self._indices = indices
        # Equal rows are merged before the exchange, so that none is sent twice.
        self.searched = bool(rows.count) and work.layers_to_search(k, rows, search, stopped=True) == 0
        if self.searched:
            self.finish_exchange()
            work.merge(k, rows, search, tally)
            self._indices = np.arange(rows.count)
        self.capacity = tiles_of(capacity, work.tile) * work.tile
        self.edges, self.work = tally.edges, work.edges.astype(np.float64)
        self.planned = planned()

    def inputs(self) -> Representatives:
        return self._rows.inputs

    @property
    def gaps(self) -> bool:
        return bool(self._indices.size and self._indices[-1] >= self._indices.size)

    def hashes(self) -> np.ndarray:
        rows, indices = self._rows, self._indices
        hashes = np.empty(int(indices[-1]) + 1 if indices.size else 0, np.uint64)
        rows.level.row_hashes(rows.source, self.neurons, 1, rows.tile, hashes, rows.threads)
        return hashes[indices]

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        values = self._rows.take(self._indices[rows], self.neurons, spare)
        return np.full(rows.size, 4 * self.neurons), values.reshape(-1).view(np.uint8)

    def scratch(self, nbytes: int) -> np.ndarray:
        memory = self._rows.target.view(np.uint8)
        return memory[:nbytes] if nbytes <= memory.size else np.empty(nbytes, np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        self._rows.inputs.keep(kept)
        seconds = self._rows.follow(self._indices[kept], values, arrived.numbers, arrived.row_of)
        if self.gaps:
            self.closing += seconds
            self._tally.closing += seconds
        self._indices = np.arange(self.count)

    def finish_exchange(self) -> None:
        """Close the gaps that are left."""
        if self.gaps:
            start = time.perf_counter()
            self._rows.close(self._indices, self.neurons)
            self._tally.closing += time.perf_counter() - start

    def set_merged(self, rows: int) -> None:
        self._rows.merged = bool((self._rows.inputs.weights != 1).any())
        self._tally.merged += rows
        # Rows equal to those of other ranks make the next search worth while, however few were equal here.
        if self.searched and rows:
            self._search.finish(self._k, 1, rows)
