"""The sparse rows of one batch of the engine `spgemm`: they are reached by index, so that some of them leave without a
copy of the others.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.core.errors import past_float32
from spdnn.core.result import LastRows, RowStatistics
from spdnn.engines.base import Counters, MovableRows, Parcel
from spdnn.engines.reductions.inputs import DuplicateSearch, representatives
from spdnn.engines.spgemm import schedule
from spdnn.kernels import dispatch

ACCUMULATORS = ("touched", "sweep", "panel")  # as the kernels number them


class Buffer:
    """Sparse rows with room for `rows` full ones of `width` values; where each begins, and how long it is."""

    def __init__(self, rows: int, width: int):
        # Zeros touch the pages here, not on the clock.
        self.columns, self.values = np.empty(rows * width, np.uint32), np.empty(rows * width, np.float32)
        self.begin, self.length = np.empty(rows, np.int64), np.empty(rows, np.int64)
        for array in (self.columns, self.values, self.begin, self.length):
            array.fill(0)

    def rows(self, indices):
        """The rows at `indices` (a slice, or int64) as the kernels take them; only a slice can be written."""
        begin, length = self.begin[indices], self.length[indices]
        return dispatch.compiled_module().FeatureRows(begin, length, self.columns, self.values)


@dataclass(kw_only=True)
class SpgemmCounters(Counters):
    """What one run counted, over all its batches; `edges` are multiply-adds done, and `accumulators`, int64
    (ACCUMULATORS,), the output rows that each of them took; moved: bytes past the caches."""

    accumulators: np.ndarray
    moved: int = 0


class SparseRows(MovableRows):
    """Rows `kept` (a slice, or int64 indices) of `source`; the next layer writes to `target`. The batches of a run
    share the `session`, a SpgemmSession."""

    def __init__(self, session: Any, numbers: np.ndarray, counters: SpgemmCounters):
        super().__init__(session.prepared, numbers, counters, session.batch)
        self.session, self.kernels = session, session.kernels
        self.source, self.target = session.buffers
        self.search = DuplicateSearch(schedule.SEARCH_SHARE)
        self.kept: slice | np.ndarray = slice(0, numbers.size)
        self.nonzero = np.ones(numbers.size, bool)
        self.done, self.deaths, self.density = 0, 0.0, 0.0
        self.kernels.load(session.stored, session.inputs.stored_rows(numbers), self.features(), session.threads)

    @property
    def nonzeros(self) -> int:
        return int(self.source.length[self.kept].sum())

    @property
    def work(self) -> np.ndarray:
        # A sparse row goes through the edges of its nonzeros alone, taken to stay as dense as when ranks met.
        return self.density * self.prepared.edges

    def features(self):
        """The rows as the kernels take them."""
        return self.source.rows(self.kept)

    def compute(self, layers: list) -> None:
        # Gustavson: an output row is the sum of the weight rows that its nonzeros select, in an accumulator that suits
        # how dense it becomes; bias and activation follow as it is written.
        counters, session, results = self.counters, self.session, self.target.rows(slice(0, self.count))
        before = self.nonzeros
        finite, self.done, accumulators = self.kernels.layer(
            *layers, self.features(), results, session.workspace, session.accumulator
        )
        if not finite:
            raise past_float32(self.layer)
        counters.rows[self.layer] += self.count
        counters.edges[self.layer] += self.done
        counters.accumulators += accumulators
        # The buffers change places. An output row without a nonzero is a dead input.
        self.source, self.target, self.kept = self.target, self.source, slice(0, self.count)
        self.nonzero = self.source.length[self.kept] != 0
        self.left = int(self.inputs.weights[self.nonzero].sum())
        counters.survivors[self.layer] += self.left
        # Memory traffic: nonzeros in and out, or all weights, that fit the last-level cache do not pass it.
        features = schedule.NONZERO_BYTES * (before + self.nonzeros)
        counters.moved += features if features > session.cache else 0
        counters.moved += session.weight_bytes[self.layer] if session.network_bytes > session.cache else 0

    def compact(self, meeting: bool) -> None:
        # Dead inputs leave at once where no later bias revives them: rows are reached by index, so it is free.
        self.deaths = 0.0
        if self.may_leave and not self.nonzero.all():
            self.deaths = 1 - np.count_nonzero(self.nonzero) / self.nonzero.size
            self.keep(self.nonzero)
            self.nonzero = self.nonzero[self.nonzero]
        self.searched = self.merge_identical(False)
        if meeting:
            self.density = self.nonzeros / max(1, self.count * self.neurons)

    def search_costs(self, meeting: bool) -> tuple[float, float, float]:
        # The work ahead: later layers are taken to do as many multiply-adds an edge as the last one did.
        ahead, k = self.prepared.edges_ahead, self.layer
        cost = schedule.SEARCH_NONZERO * self.nonzeros + schedule.SPARSE_SEARCH_ROW * self.count
        return self.deaths, cost, self.done / max(1, ahead[k - 1] - ahead[k]) * ahead[k]

    def merge(self) -> int:
        before, features = self.count, self.features()

        def same(first, second):
            equal = np.empty(first.size, bool)
            self.kernels.same(features, first, second, equal, self.session.threads)
            return equal

        # Rows of equal hashes are compared nonzero by nonzero; one of each group represents the others from now on.
        self.kept = self._indices()[self.inputs.merge(representatives(self.hashes(), same))]
        return before - self.count

    def keep(self, kept: np.ndarray) -> None:
        """Rows that are not `kept` (bool), and the inputs that they represent, leave."""
        self.inputs.keep(kept)
        self.kept = self._indices()[kept]

    def hashes(self) -> np.ndarray:
        hashes = np.empty(self.count, np.uint64)
        self.kernels.hashes(self.features(), hashes, self.session.threads)
        return hashes

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        # A nonzero goes as its column and the bits of its value, so that equal rows have equal bytes.
        indices = self._indices()[rows]
        edges, lengths = self._edges(indices), self.source.length[indices]
        pairs = np.empty((edges.size, 2), np.uint32)
        pairs[:, 0], pairs[:, 1] = self.source.columns[edges], self.source.values[edges].view(np.uint32)
        return schedule.NONZERO_BYTES * lengths, pairs.reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        # All move to the other buffer: rows that stay are copied together, nonzero by nonzero, and those of the parcel
        # follow without gaps.
        indices, target = self._indices()[kept], self.target
        edges, pairs = self._edges(indices), arrived.data.view(np.uint32).reshape(-1, 2)
        lengths = np.concatenate([self.source.length[indices], arrived.sizes // schedule.NONZERO_BYTES])
        for own, come, array in (
            (self.source.columns, pairs[:, 0], target.columns),
            (self.source.values.view(np.uint32), pairs[:, 1], target.values.view(np.uint32)),
        ):
            array[: edges.size] = own[edges]
            array[edges.size : edges.size + len(pairs)] = come
        # The prefix sum of the lengths says where each row begins; the rows are then indices 0, 1, ... of this buffer.
        target.length[: lengths.size] = lengths
        target.begin[: lengths.size] = np.cumsum(lengths) - lengths
        self.inputs.keep(kept)
        self.inputs.add(arrived.numbers, indices.size + arrived.row_of, lengths.size)
        self.source, self.target, self.kept = target, self.source, slice(0, lengths.size)

    def finish(self) -> LastRows:
        # Last rows: statistics are summed over the nonzeros; only rows whose values are kept are made dense.
        self.keep(self.source.length[self.kept] != 0)
        session, statistics, inputs = self.session, RowStatistics.empty(self.count), self.inputs
        self.kernels.statistics(
            self.features(), session.last.counts, session.last.weights, *statistics, session.threads
        )
        kept = session.keep.rows(inputs.numbers, inputs.row_of, self.count)
        values = np.empty((kept.size, self.prepared.network.outputs), np.float32)
        self.kernels.expand(self.source.rows(self.kept[kept]), values, session.threads)
        return LastRows(inputs.numbers, inputs.row_of, statistics, kept, values)

    def _indices(self) -> np.ndarray:
        return np.arange(self.source.length.size)[self.kept]

    def _edges(self, indices: np.ndarray) -> np.ndarray:
        """Where the nonzeros of the rows at `indices` are, one row after the other."""
        # Of each nonzero: its number in the result, moved by the distance between where its row is and where it goes.
        begin, lengths = self.source.begin[indices], self.source.length[indices]
        starts = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(begin - starts, lengths)
