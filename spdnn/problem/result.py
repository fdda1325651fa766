"""What comes out of an inference: the inputs that are left, and of each last row its sum, extremes and a hash.

The values of the rows are kept only when they are asked for.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spdnn.common.errors import InputError
from spdnn.problem.network import Network

BLOCK = 256  # rows handled at a time where a copy of all would take too much memory
BLOCK_BYTES = 2 << 20  # of the block that carries values of some inputs to their rows, twice for their classes


class RowStatistics(NamedTuple):
    """Of last rows, an entry for each; kept instead of their values.

    Attributes:
        row_sum, row_projection: float64; the projection is on the fixed pseudo-random `projection_weights`, so that it
            knows the positions of values.
        row_min, row_max: float32.
        row_hash: uint64, of the bits of the row; hashes of different engines are not comparable.
    """

    row_sum: np.ndarray
    row_projection: np.ndarray
    row_min: np.ndarray
    row_max: np.ndarray
    row_hash: np.ndarray

    @classmethod
    def empty(cls, count: int) -> "RowStatistics":
        """Of `count` rows, to be written to."""
        return cls(*(np.empty(count, kind) for kind in (np.float64, np.float64, np.float32, np.float32, np.uint64)))

    @classmethod
    def of(cls, rows: np.ndarray) -> "RowStatistics":
        """Of float32 or float64 rows (count, outputs), in NumPy."""
        result, weights = cls.empty(len(rows)), projection_weights(rows.shape[1]).astype(np.float64)
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            block = rows[part].astype(np.float64)
            result.row_sum[part], result.row_projection[part] = block.sum(axis=1), block @ weights
        result.row_min[:], result.row_max[:] = (rows.min(axis=1, initial=np.inf), rows.max(axis=1, initial=-np.inf))
        result.row_hash[:] = row_hashes(rows)
        return result

    @classmethod
    def joined(cls, parts: "Sequence[RowStatistics]") -> "RowStatistics":
        """Of the rows of all parts, one after the other."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def at(self, rows: np.ndarray) -> "RowStatistics":
        """Of the rows with these numbers (int64)."""
        return RowStatistics(*(column[rows] for column in self))


@dataclass
class Result:
    """What an inference gives.

    Attributes:
        inputs, outputs: the number of inputs, and the width of the last layer.
        alive: int64, ascending 0-based inputs whose last row has a nonzero value.
        row_sum, row_projection, row_min, row_max, row_hash: (alive,), of each such last row as RowStatistics has them.
        survivors: int64 (layers,): inputs with a nonzero row after each layer.
        edges_computed: inputs x edges that were really gone through.
        values: float32 (alive, outputs), the last rows, when they were asked for.
        notes: what the engine has to tell (batches, layout, instruction set...), fit for JSON.
        bytes_loaded: that the edges gathered, from whichever cache; None: a float32 for each edge and input.
        bytes_moved: read and written past the caches by design: inputs, weights, features between passes; None where
            the engine does not count them.
    """

    inputs: int
    outputs: int
    alive: np.ndarray
    row_sum: np.ndarray
    row_projection: np.ndarray
    row_min: np.ndarray
    row_max: np.ndarray
    row_hash: np.ndarray
    survivors: np.ndarray
    edges_computed: int
    values: np.ndarray | None = None
    notes: dict = field(default_factory=dict)
    bytes_moved: int | None = None
    bytes_loaded: int | None = None

    @property
    def digest(self) -> str:
        """SHA-256 over `alive` and the hashes: two runs of one engine with equal digests have equal values to the bit,
        whatever the number of ranks.
        """
        return hashlib.sha256(self.alive.tobytes() + self.row_hash.tobytes()).hexdigest()

    @property
    def categories(self) -> np.ndarray:
        """The challenge's result: ascending 1-based inputs whose last row has a nonzero sum."""
        return self.alive[self.row_sum != 0] + 1

    def all_values(self) -> np.ndarray:
        """float32 (inputs, outputs): every last row, zeros where nothing survived."""
        rows = np.zeros((self.inputs, self.outputs), dtype=np.float32)
        rows[self.alive] = self._kept()
        return rows

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest last-layer values of each input, largest first, and their neurons (0-based).

        Returns:
            int64 (inputs, k) and float32 (inputs, k). Ties go to the lower neuron.

        Raises:
            InputError: more than there are outputs, or the values were not kept.
        """
        if not 1 <= k <= self.outputs:
            raise InputError(f"the {k} largest asked for; the last layer has {self.outputs}")
        neurons = np.tile(np.arange(k), (self.inputs, 1))
        values = np.zeros((self.inputs, k), np.float32)
        for start in range(0, self.alive.size, BLOCK):
            rows, part = self.alive[start : start + BLOCK], self._kept()[start : start + BLOCK]
            neurons[rows] = np.argsort(-part, axis=1, kind="stable")[:, :k]
            values[rows] = np.take_along_axis(part, neurons[rows], axis=1)
        return neurons, values

    def _kept(self) -> np.ndarray:
        if self.values is None:
            raise InputError("the values were not kept; ask for them before the inference")
        return self.values


class LastRows(NamedTuple):
    """What a batch leaves; one row may represent several inputs.

    Attributes:
        alive: int64, the inputs whose last row has a nonzero value; row_of: int64, the row of each of them.
        statistics: of each row; values: float32 (rows, outputs of the prepared network), or None.
    """

    alive: np.ndarray
    row_of: np.ndarray
    statistics: RowStatistics
    values: np.ndarray | None = None


class LastLayer:
    """The outputs of a prepared network, and those of the original one where identical neurons were merged.

    Attributes:
        outputs: of the original network.
        counts: float64 (outputs here,), how many of the original outputs each represents.
        weights: float64 (outputs here,), for projections: the sum of `projection_weights` over these.
    """

    def __init__(self, network: Network):
        self._classes = network.neuron_classes(network.depth - 1)
        classes = np.arange(network.outputs) if self._classes is None else self._classes
        self.outputs = classes.size
        self.counts = np.bincount(classes).astype(np.float64)
        self.weights = np.bincount(classes, projection_weights(classes.size).astype(np.float64))

    def rows(self, numbers: np.ndarray, rows: np.ndarray, values: bool) -> LastRows:
        """What a batch leaves whose inputs `numbers` (int64) have a row each, by NumPy; rows of zeros are left out.

        Args:
            rows: float32 (numbers, outputs of the prepared network).
            values: keep them.
        """
        nonzero = rows.any(axis=1)
        if not nonzero.all():
            numbers, rows = numbers[nonzero], rows[nonzero]
        whole = rows if self._classes is None else rows[:, self._classes]
        return LastRows(numbers, np.arange(numbers.size), RowStatistics.of(whole), rows if values else None)

    def result(self, inputs: int, batches: Sequence[LastRows], values: bool, **counted: Any) -> Result:
        """The result of all batches.

        Args:
            inputs: of the whole run.
            values: keep the values, which every batch with rows has then.
            counted: survivors, edges_computed and what else Result has.
        """
        alive = np.concatenate([batch.alive for batch in batches])
        statistics = RowStatistics.joined([batch.statistics.at(batch.row_of) for batch in batches])
        position = None
        if (np.diff(alive) < 0).any():  # rows came from other batches
            order = np.argsort(alive)
            position = np.empty_like(order)
            position[order] = np.arange(order.size)
            alive, statistics = alive[order], statistics.at(order)
        kept = self._values(batches, position) if values else None
        return Result(inputs, self.outputs, alive, *statistics, values=kept, **counted)

    def _values(self, batches: Sequence[LastRows], position: np.ndarray | None) -> np.ndarray:
        """float32 (inputs, outputs of the original network); `values_bytes` tells what it holds.

        Args:
            position: int64, where each of the inputs goes; None: they stay in their order.
        """
        values, first = np.empty((sum(batch.alive.size for batch in batches), self.outputs), np.float32), 0
        most = max(1, BLOCK_BYTES // (8 * self.outputs))
        for batch in batches:
            for start in range(0, batch.row_of.size, most):
                block = batch.values[batch.row_of[start : start + most]]
                where = slice(first, first + len(block)) if position is None else position[first : first + len(block)]
                values[where] = block if self._classes is None else block[:, self._classes]
                first += len(block)
        return values


def values_bytes(inputs: int, outputs: int) -> int:
    """Bytes that the values of so many inputs take: those of the batches, of all together, and a block."""
    return 8 * inputs * outputs + max(BLOCK_BYTES, 8 * outputs)


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """uint64 (count,): a hash of the bits of each row, any type (count, neurons)."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(digests), np.uint64)


def projection_weights(outputs: int) -> np.ndarray:
    """float32 (outputs,), from -1 to 1: the same on every machine (NumPy's frozen generator, seed 0)."""
    return (2 * np.random.RandomState(0).random_sample(outputs) - 1).astype(np.float32)
