"""The rows of one batch in tiles, and which inputs each represents.

Rows that died leave, rows that became identical merge, and the others close the gaps.
"""

import time
from collections.abc import Callable

import numpy as np

from spdnn.engines.cpu import schedule as plan
from spdnn.engines.reductions.inputs import Representatives, representatives
from spdnn.kernels.tiles import tiles_of


class Rows:
    """Row i of `source` is row i of `inputs`, also while it is dead: a row keeps its index until gaps are closed.

    Args:
        level: the kernels at an instruction-set level, run on so many `threads`.
        tile_for: the tile for so many rows.
        numbers: int64 (indices,), ascending inputs of the whole run.
        tile: of the features in `source`; `target` is as large, and the next pass writes to it.

    Attributes:
        inputs: which row represents which inputs.
        merged: whether any row represents more than one.
        alive: rows that were nonzero after the last pass; `deaths`: the share of them that died in each of its layers.
        left: the inputs that these represent.
        wasted: work on dead rows since gaps were last closed.
    """

    def __init__(
        self, level, threads: int, tile_for: Callable[[int], int], numbers: np.ndarray, tile: int,
        source: np.ndarray, target: np.ndarray,
    ):  # fmt: skip
        self.level, self.threads, self.tile_for = level, threads, tile_for
        self.tile, self.source, self.target = tile, source, target
        self.inputs, self.merged = Representatives(numbers), False
        self.alive, self.deaths, self.wasted = numbers.size, plan.FIRST_DEATHS, 0.0
        self.left = numbers.size

    @property
    def count(self) -> int:
        return self.inputs.weights.size

    @property
    def tiles(self) -> int:
        return tiles_of(self.count, self.tile)

    @property
    def lanes(self) -> int:
        """Rows that a layer goes through: those of whole tiles."""
        return self.tiles * self.tile

    def keep(self, indices: np.ndarray, neurons: int) -> None:
        """Let all rows but those at `indices` (int64, ascending), and the inputs that they represent, go."""
        self._let_go(indices)
        self.close(indices, neurons)

    def move(self, indices: np.ndarray, neurons: int, threads: int, source: np.ndarray, target: np.ndarray) -> None:
        """Let all rows but those at `indices` go, as `keep`, and take the others to two other buffers and threads."""
        # Rows are compacted straight into the first of the other buffers: the move costs no pass of its own.
        self._let_go(indices)
        self.target, self.threads = source, threads
        self.close(indices, neurons)
        self.target = target

    def merge(self, neurons: int, worthwhile: Callable[[int], bool]) -> int:
        """Let one of each group of identical rows represent all of them; the number of rows that left.

        Args:
            worthwhile: whether so many rows of equal signature are worth being hashed whole and compared.
        """
        before = self.count
        # Hashes of a sample of neurons come first: most rows differ there, and hashing whole rows reads all features.
        for step in sorted({max(1, neurons // plan.SAMPLE), 1}, reverse=True):
            hashes = np.empty(self.count, np.uint64)
            self.level.row_hashes(self.source, neurons, step, self.tile, hashes, self.threads)
            candidates = self.count - np.unique(hashes).size
            if not candidates or (step > 1 and not worthwhile(candidates)):
                return 0

        def same(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
            others, differs = np.arange(self.count), np.empty(self.count, np.uint8)
            others[rows] = first
            self.level.rows_differ(self.source, neurons, others, self.tile, differs, self.threads)
            return differs[rows] == 0

        # Equal hashes are confirmed value by value; then the representatives close up, and no row is dead any more.
        kept = self.inputs.merge(representatives(hashes, same))
        if self.count < before:
            self.merged = True
            self.close(np.flatnonzero(kept), neurons)
            self.alive = self.count
        return before - self.count

    def join(self, numbers: np.ndarray, row_of: np.ndarray, values: np.ndarray) -> None:
        """There are no rows yet: these become the rows.

        Args:
            numbers: int64, the inputs that they represent, in any order; row_of: int64, the row of each of these.
            values: float32 (rows, neurons).
        """
        self.inputs.add(numbers, row_of, len(values))
        self.left = numbers.size
        self.tile, self.alive, self.deaths = self.tile_for(len(values)), len(values), 0.0
        self.merged = bool((self.inputs.weights != 1).any())
        self.level.insert(values, self.source, self.tile, 0, self.threads)

    def _let_go(self, indices: np.ndarray) -> None:
        kept = np.zeros(self.count, bool)
        kept[indices] = True
        self.inputs.keep(kept)

    def take(self, indices: np.ndarray, neurons: int, spare: bool) -> np.ndarray:
        """float32 (indices, neurons): the rows at `indices` (int64); `spare`: it may lie in `target`."""
        size = indices.size * neurons
        fits = spare and size <= self.target.size
        values = (self.target[:size] if fits else np.empty(size, np.float32)).reshape(indices.size, neurons)
        self.level.take(self.source, self.tile, indices, values, self.threads)
        return values

    def follow(self, indices: np.ndarray, values: np.ndarray, numbers: np.ndarray, row_of: np.ndarray) -> float:
        """The rows at `indices` (int64, ascending), those that `inputs` knows, close up, and others follow them.

        Returns:
            seconds spent on closing up.

        Args:
            values: float32 (rows, neurons), the rows that come in; they may lie in `target`.
            numbers: int64, the inputs that they represent; row_of: int64, the row of each of these.
        """
        neurons, count = values.shape[1], indices.size + len(values)
        self.inputs.add(numbers, indices.size + row_of, count)
        tile, start = self.tile_for(count), time.perf_counter()
        # Rows that came may wait in `target`, which closing the gaps writes to: they are saved first.
        if tile != self.tile or (indices.size and indices[-1] >= indices.size):
            values = values.copy() if np.shares_memory(values, self.target) else values
            self.close(indices, neurons, tile)
        seconds = time.perf_counter() - start
        self.level.insert(values, self.source, self.tile, indices.size, self.threads)
        self.alive, self.merged = count, bool((self.inputs.weights != 1).any())
        return seconds

    def close(self, indices: np.ndarray, neurons: int, tile: int | None = None) -> None:
        """The rows at `indices` (int64, ascending), those that `inputs` knows, close up; `tile`: of the result."""
        # Fewer rows take smaller tiles at last, so that all threads have one; the rows change buffers on the way.
        tile = tile or self.tile_for(indices.size)
        self.level.compact(self.source, self.tile, self.target, tile, neurons, indices, self.threads)
        self.source, self.target, self.tile, self.wasted = self.target, self.source, tile, 0.0
