"""The reduction `inputs`: rows of features that became equal are computed once.

Equal rows of features have equal rows ever after, so one of them, the representative, is kept. In saturating networks
almost all rows become one: after some layers, every survivor of a RadiX-Net is the same row.
"""

from collections.abc import Callable

import numpy as np

from spdnn.engines.reductions.base import Reduction

SEARCH_AHEAD, SEARCH_AHEAD_AGAIN = 0.005, 0.03  # of the work ahead that a search may cost; the same after one that paid
SETTLED = 0.05  # of the rows may die in a layer when searching makes sense
PAID = 0.1  # of the rows, merged: search again before the next layer; else after twice as many layers


class IdenticalInputs(Reduction):
    name = "inputs"
    label = "identical inputs"
    meaning = "Identical inputs: one representative of equal rows is kept."
    left_out = "inputs that became identical"


class Representatives:
    """Which row represents which inputs.

    Attributes:
        numbers: int64, ascending inputs that still have a row.
        row_of: int64, the row of each of them.
        weights: int64 (rows,), how many inputs each row represents.
        moved: whether inputs came in, so that rows need not be in the order of their inputs.
    """

    def __init__(self, numbers: np.ndarray):
        self.numbers, self.row_of = numbers, np.arange(numbers.size)
        self.weights = np.ones(numbers.size, np.int64)
        self.moved = False

    def keep(self, kept: np.ndarray) -> None:
        """Rows that are not `kept` (bool) leave, and their inputs with them; the others close up in order."""
        # Before anything merged or moved, each input has the row of its own index: no row has to be looked up.
        if not self.moved and self.weights.size == self.numbers.size:
            self.numbers = self.numbers[kept]
            self.row_of, self.weights = np.arange(self.numbers.size), np.ones(self.numbers.size, np.int64)
            return
        # Compaction: a kept row moves to the number of kept rows before it, and its inputs go with it.
        index = np.cumsum(kept) - 1
        stay = kept[self.row_of]
        self.numbers, self.row_of = self.numbers[stay], index[self.row_of[stay]]
        self.weights = self.weights[kept]

    def merge(self, representative: np.ndarray) -> np.ndarray:
        """Row i is from now on the row representative[i] (int64); the bool mask of the rows that are left."""
        kept = representative == np.arange(representative.size)
        if not kept.all():
            # Inputs are led to their representative's row; its weight counts them, so that categories stay exact.
            self.row_of = (np.cumsum(kept) - 1)[representative[self.row_of]]
            self.weights = np.bincount(self.row_of, minlength=int(kept.sum()))
        return kept

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, indices): the inputs that `rows` (int64, distinct) represent, and the index in `rows` of each."""
        index = np.full(self.weights.size, -1)
        index[rows] = np.arange(rows.size)
        kept = index[self.row_of]
        return self.numbers[kept >= 0], kept[kept >= 0]

    def add(self, numbers: np.ndarray, rows: np.ndarray, count: int) -> None:
        """Inputs `numbers` come in, those of row rows[i] at index i; there are then `count` rows."""
        numbers, row_of = np.concatenate([self.numbers, numbers]), np.concatenate([self.row_of, rows])
        # The rows are appended, the inputs sorted in: categories are reported in ascending order.
        order = np.argsort(numbers, kind="stable")
        self.numbers, self.row_of = numbers[order], row_of[order]
        self.weights, self.moved = np.bincount(self.row_of, minlength=count), True


class DuplicateSearch:
    """When to search a batch for identical rows.

    A search must cost little against the work ahead, so that a run which gains nothing loses next to nothing; it waits
    until few rows die; each one without success doubles the layers until the next. All of it depends on work, never on
    clocks, so that a run repeats to the bit. Costs are in any unit of the engine's.

    Args:
        share: of the work ahead that a search may cost, until one has paid.
    """

    def __init__(self, share: float = SEARCH_AHEAD):
        self.share, self._next, self._distance, self._paid = share, 1, 1, False

    def layers_to_search(
        self, k: int, rows: int, deaths: float, cost: float, ahead: float, stopped: bool = False
    ) -> int | None:
        """How many layers from layer k on until the next search among `rows` rows; None: none is in sight.

        Args:
            deaths: the share of the rows that died in the last layer.
            cost, ahead: of the search, and of all rows through the layers from k on.
            stopped: the batch is interrupted before layer k in any case, and others may hold equal rows.
        """
        # Rows that are about to die are not worth comparing, and a search may only cost a share of the work ahead.
        share = SEARCH_AHEAD_AGAIN if self._paid or stopped else self.share
        if rows <= 1 or deaths > SETTLED or cost > share * ahead:
            return None
        return max(0, self._next - k)

    def finish(self, k: int, rows: int, merged: int) -> None:
        """A search among the rows before layer k merged so many of them."""
        # Exponential back-off: searches in vain become rarer, so that all of them together cost little.
        self._paid = merged > PAID * rows
        self._distance = 1 if self._paid else 2 * self._distance
        self._next = k + self._distance


def representatives(hashes: np.ndarray, same: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """For each row the first row that is equal to it, itself when there is none.

    Args:
        hashes: uint64 (rows,), equal for equal rows.
        same: (rows, other rows), both int64, to bool: whether they are equal.

    Returns:
        int64 (rows,). Of rows with one hash that are not equal to the first of them, each is its own.
    """
    # Sorting by hash puts candidates side by side; it is stable, so a run of equal hashes begins with its lowest row.
    order = np.argsort(hashes, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], hashes[order[1:]] != hashes[order[:-1]]]))
    firsts = order[np.repeat(starts, np.diff(np.append(starts, hashes.size)))]
    result = np.arange(hashes.size)
    like = firsts != order
    rows, first = order[like], firsts[like]
    # Hashes may collide, so a row is given up only when all its values equal those of the first.
    equal = same(rows, first)
    result[rows[equal]] = first[equal]
    return result
