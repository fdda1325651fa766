"""The rows of one batch on their way through the layers: in tiles, let go when dead, merged when identical."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spdnn.engines import plan
from spdnn.layouts import tiles_of


class Rows:
    """Slot i of `source` holds the row of input numbers[i].

    Args:
        level: the kernels at an instruction-set level, run on so many `threads`.
        tile_for: the tile for so many rows.
        numbers: int64 (slots,), consecutive inputs of the whole run.
        tile: of the features in `source`; `target` is as large, and the next pass writes to it.

    Attributes:
        counts: int64 (slots,), how many inputs each row stands for; None: one each.
        alive: rows that were nonzero after the last pass; `deaths`: the share of them that died in each of its layers.
        wasted: work on dead rows since gaps were last closed.
    """

    def __init__(
        self,
        level,
        threads: int,
        tile_for: Callable[[int], int],
        numbers: np.ndarray,
        tile: int,
        source: np.ndarray,
        target: np.ndarray,
    ):
        self.level, self.threads, self.tile_for = level, threads, tile_for
        self.numbers, self.tile, self.source, self.target = numbers, tile, source, target
        self.counts: np.ndarray | None = None
        self.alive, self.deaths, self.wasted = numbers.size, plan.FIRST_DEATHS, 0.0
        self._start = int(numbers[0])
        self._stands_for = np.arange(numbers.size)  # the place in the batch of each input's representative

    @property
    def tiles(self) -> int:
        return tiles_of(self.numbers.size, self.tile)

    def keep(self, slots: np.ndarray, neurons: int) -> None:
        """Let all rows but those in `slots` (int64, ascending) go."""
        tile = self.tile_for(slots.size)
        self.level.compact(self.source, self.tile, self.target, tile, neurons, slots, self.threads)
        self.source, self.target, self.tile, self.wasted = self.target, self.source, tile, 0.0
        self.numbers = self.numbers[slots]
        self.counts = self.counts if self.counts is None else self.counts[slots]

    def merge(self, neurons: int, worthwhile: Callable[[int], bool]) -> int:
        """Let one of each group of identical rows stand for all of them; the number of rows that left.

        Args:
            worthwhile: whether so many rows of equal signature are worth being hashed whole and compared.
        """
        size = self.numbers.size
        same = self._identical(neurons, worthwhile)
        gone = np.flatnonzero(same != np.arange(size))
        if gone.size:
            self.counts = np.ones(size, np.int64) if self.counts is None else self.counts
            np.add.at(self.counts, same[gone], self.counts[gone])
            self._stands_for[self.numbers[gone] - self._start] = self.numbers[same[gone]] - self._start
            self.keep(np.flatnonzero(same == np.arange(size)), neurons)
            self.alive = self.numbers.size
        return gone.size

    def _identical(self, neurons: int, worthwhile: Callable[[int], bool]) -> np.ndarray:
        """int64 (slots,): of each row, the first slot with the same values, or itself."""
        size, sample = self.numbers.size, max(1, neurons // plan.SAMPLE)
        itself = np.arange(size)
        for step in sorted({sample, 1}, reverse=True):
            hashes = np.empty(size, np.uint64)
            self.level.row_hashes(self.source, neurons, step, self.tile, hashes, self.threads)
            _, firsts, groups = np.unique(hashes, return_index=True, return_inverse=True)
            if firsts.size == size or (step > 1 and not worthwhile(size - firsts.size)):
                return itself
        first, differs = firsts[groups], np.empty(size, np.uint8)
        self.level.rows_differ(self.source, neurons, first, self.tile, differs, self.threads)
        return np.where(differs == 0, first, itself)

    def restored(self) -> tuple[np.ndarray, np.ndarray]:
        """(inputs, slots), both int64 and as long: the inputs that a row stands for, ascending, and its slot."""
        places = np.full(self._stands_for.size, -1)
        places[self.numbers - self._start] = np.arange(self.numbers.size)
        if self.counts is not None:
            while (self._stands_for[self._stands_for] != self._stands_for).any():
                self._stands_for = self._stands_for[self._stands_for]
            places = places[self._stands_for]
        alive = np.flatnonzero(places >= 0)
        return alive + self._start, places[alive]
