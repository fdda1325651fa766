"""The reduction `inputs`: rows of features that became equal are computed once.

Equal rows of features have equal rows ever after, so one of them, the representative, is kept. In saturating networks
almost all rows become one: after some layers, every survivor of a RadiX-Net is the same row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spdnn.reductions.base import Reduction

# What a look costs in multiply-adds of the engine `spgemm`, about: to hash a nonzero; to sort and compare a row.
COST_OF_NONZERO = 4
COST_OF_ROW = 400
# A look is due when the work since the last one is PATIENCE times its cost, so that looking takes about 1/16 of the
# time at most; a look that found less than WORTH of the rows equal to others doubles the wait, any other resets it.
PATIENCE = 16
WORTH = 1 / 16


class IdenticalInputs(Reduction):
    name = "inputs"
    label = "identical inputs"
    meaning = "Identical inputs: one representative of equal rows is kept."
    left_out = "inputs that became identical"


def searched(searches: int = 0, merged: int = 0, seconds: float = 0.0) -> dict:
    """The note of a run: so many searches for equal rows, which merged so many rows, in so many seconds."""
    return {"looks": searches, "rows_merged": merged, "seconds": seconds}


class Representatives:
    """Which row stands for which inputs.

    Attributes:
        numbers: int64, ascending inputs that still have a row.
        row_of: int64, the row of each of them.
        weights: int64 (rows,), for how many inputs each row stands.
        moved: whether inputs came in, so that rows need not be in the order of their inputs.
    """

    def __init__(self, numbers: np.ndarray):
        self.numbers, self.row_of = numbers, np.arange(numbers.size)
        self.weights = np.ones(numbers.size, np.int64)
        self.moved = False

    def keep(self, kept: np.ndarray) -> None:
        """Rows that are not `kept` (bool) leave, and their inputs with them; the others close up in order."""
        if not self.moved and self.weights.size == self.numbers.size:  # each input still has the row at its place
            self.numbers = self.numbers[kept]
            self.row_of, self.weights = np.arange(self.numbers.size), np.ones(self.numbers.size, np.int64)
            return
        place = np.cumsum(kept) - 1
        stay = kept[self.row_of]
        self.numbers, self.row_of = self.numbers[stay], place[self.row_of[stay]]
        self.weights = self.weights[kept]

    def merge(self, representative: np.ndarray) -> np.ndarray:
        """Row i is from now on the row representative[i] (int64); the bool mask of the rows that are left."""
        kept = representative == np.arange(representative.size)
        if not kept.all():
            self.row_of = (np.cumsum(kept) - 1)[representative[self.row_of]]
            self.weights = np.bincount(self.row_of, minlength=int(kept.sum()))
        return kept

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, places): the inputs that `rows` (int64, distinct) stand for, and the place in `rows` of each."""
        place = np.full(self.weights.size, -1)
        place[rows] = np.arange(rows.size)
        found = place[self.row_of]
        return self.numbers[found >= 0], found[found >= 0]

    def add(self, numbers: np.ndarray, rows: np.ndarray, count: int) -> None:
        """Inputs `numbers` come in, those of row rows[i] at place i; there are then `count` rows."""
        numbers, row_of = np.concatenate([self.numbers, numbers]), np.concatenate([self.row_of, rows])
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.row_of = numbers[order], row_of[order]
        self.weights, self.moved = np.bincount(self.row_of, minlength=count), True


class Looks:
    """When to look for equal rows, by the rule above. It depends on work, not on clocks: every run looks alike."""

    def __init__(self):
        self.work, self.patience = 0, PATIENCE

    def due(self, work: int, nonzeros: int, rows: int) -> bool:
        """Whether to look now.

        Args:
            work: multiply-adds since the last call.
            nonzeros, rows: of the features.
        """
        self.work += work
        return rows > 1 and self.work >= self.patience * (COST_OF_NONZERO * nonzeros + COST_OF_ROW * rows)

    def looked(self, rows: int, merged: int) -> None:
        """A look at `rows` rows found `merged` of them equal to others."""
        self.work = 0
        self.patience = PATIENCE if merged >= WORTH * rows else 2 * self.patience


def representatives(hashes: np.ndarray, same: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """For each row the first row that is equal to it, itself when there is none.

    Args:
        hashes: uint64 (rows,), equal for equal rows.
        same: (rows, other rows), both int64, to bool: whether they are equal.

    Returns:
        int64 (rows,). Of rows with one hash that are not equal to the first of them, each is its own.
    """
    order = np.argsort(hashes, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], hashes[order[1:]] != hashes[order[:-1]]]))
    firsts = order[np.repeat(starts, np.diff(np.append(starts, hashes.size)))]
    found = np.arange(hashes.size)
    like = firsts != order
    rows, first = order[like], firsts[like]
    equal = same(rows, first)
    found[rows[equal]] = first[equal]
    return found
