"""The rows of the engine `cpu` between two passes, as other ranks see them (`spdnn.engines.exchange.HeldRows`)."""

import time
from collections.abc import Callable

import numpy as np

from spdnn.engines.cpu.batch import BatchKernels, Counters
from spdnn.engines.cpu.rows import Rows
from spdnn.engines.exchange import HeldRows, Parcel
from spdnn.engines.reductions.inputs import DuplicateSearch, Representatives
from spdnn.kernels.tiles import tiles_of


class CpuRows(HeldRows):
    """The rows of a batch before layer k, less the dead ones. Equal ones are merged where that is due.

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
        spent = self._rows.follow(self._indices[kept], values, arrived.numbers, arrived.row_of)
        if self.gaps:
            self.closing += spent
            self._tally.closing += spent
        self._indices = np.arange(self.count)

    def finish_exchange(self) -> None:
        """Close the gaps that are left."""
        if self.gaps:
            begun = time.perf_counter()
            self._rows.close(self._indices, self.neurons)
            self._tally.closing += time.perf_counter() - begun

    def set_merged(self, rows: int) -> None:
        self._rows.merged = bool((self._rows.inputs.weights != 1).any())
        self._tally.merged += rows
        # Rows equal to those of other ranks make the next search worth while, however few were equal here.
        if self.searched and rows:
            self._search.finish(self._k, 1, rows)
