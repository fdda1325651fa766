"""The sparse rows of one batch of the engine `spgemm`, and these rows as other ranks see them.

Rows are reached by index, so that some of them leave without a copy of the others.
"""

from collections.abc import Callable

import numpy as np

from spdnn.engines.exchange import HeldRows, Parcel
from spdnn.engines.reductions.inputs import Representatives

NONZERO_BYTES = 8  # a column and a value


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
        from spdnn.kernels import _cpu

        return _cpu.FeatureRows(self.begin[indices], self.length[indices], self.columns, self.values)


class SparseRows:
    """Rows `kept` (a slice, or int64 indices) of `source`; the next layer writes to `target`.

    Attributes:
        inputs: which row represents which inputs.
    """

    def __init__(self, numbers: np.ndarray, source: Buffer, target: Buffer):
        self.source, self.target, self.inputs = source, target, Representatives(numbers)
        self.kept: slice | np.ndarray = slice(0, numbers.size)

    @property
    def count(self) -> int:
        return self.inputs.weights.size

    @property
    def nonzeros(self) -> int:
        return int(self.source.length[self.kept].sum())

    def features(self):
        """The rows as the kernels take them."""
        return self.source.rows(self.kept)

    def results(self):
        """As many rows to write to."""
        return self.target.rows(slice(0, self.count))

    def keep(self, kept: np.ndarray) -> None:
        """Rows that are not `kept` (bool), and the inputs that they represent, leave."""
        self.inputs.keep(kept)
        self.kept = self._indices()[kept]

    def merge(self, representative: np.ndarray) -> int:
        """Row i is from now on row representative[i]; the number of rows that left."""
        before = self.count
        self.kept = self._indices()[self.inputs.merge(representative)]
        return before - self.count

    def pack(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(sizes, data) of a parcel of these rows: their columns and values, two by two."""
        # A nonzero goes as its column and the bits of its value, so that equal rows have equal bytes.
        indices = self._indices()[rows]
        edges, lengths = self._edges(indices), self.source.length[indices]
        pairs = np.empty((edges.size, 2), np.uint32)
        pairs[:, 0], pairs[:, 1] = self.source.columns[edges], self.source.values[edges].view(np.uint32)
        return NONZERO_BYTES * lengths, pairs.reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        """Rows that are not `kept` (bool) leave, and those of the parcel follow; all move to the other buffer."""
        # Gather: rows that stay are copied together, nonzero by nonzero; those of the parcel follow without gaps.
        indices, target = self._indices()[kept], self.target
        edges, pairs = self._edges(indices), arrived.data.view(np.uint32).reshape(-1, 2)
        lengths = np.concatenate([self.source.length[indices], arrived.sizes // NONZERO_BYTES])
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

    def _indices(self) -> np.ndarray:
        return np.arange(self.source.length.size)[self.kept]

    def _edges(self, indices: np.ndarray) -> np.ndarray:
        """Where the nonzeros of the rows at `indices` are, one row after the other."""
        # Of each nonzero: its number in the result, moved by the distance between where its row is and where it goes.
        begin, lengths = self.source.begin[indices], self.source.length[indices]
        starts = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(begin - starts, lengths)


class SpgemmRows(HeldRows):
    """The rows of a batch before a layer; those that died have left. See spdnn.engines.exchange.

    Args:
        hashes: gives HeldRows.hashes of the rows.
        layer_edges: float64 (layers,), of the network.
        note: counts rows that merged with those of other ranks (a dictionary with rows_merged).
        others: attributes of HeldRows.
    """

    def __init__(
        self, rows: SparseRows, hashes: Callable[[], np.ndarray], layer_edges: np.ndarray, note: dict, **others
    ):
        self._rows, self._hashes, self._note = rows, hashes, note
        vars(self).update(others)
        # Work ahead: a sparse row goes through the edges of its nonzeros alone, taken to stay as dense as now.
        self.work = rows.nonzeros / max(1, rows.count * self.neurons) * layer_edges

    def inputs(self) -> Representatives:
        return self._rows.inputs

    def hashes(self) -> np.ndarray:
        return self._hashes()

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return self._rows.pack(rows)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        self._rows.replace(kept, arrived)

    def set_merged(self, rows: int) -> None:
        self._note["rows_merged"] += rows
