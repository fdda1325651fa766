"""The rows of a batch that stops between stages: for the task that closes its gaps, to move, or to wait for others."""

import numpy as np

from spdnn.engines.cpu.rows import TiledRows


class TaskTiledRows(TiledRows):
    """Rows that leave and merge at the end of a stage alone.

    Attributes:
        stage_end: the layer before which the stage ends.
    """

    stage_end = 0

    def longest_pass(self) -> int:
        return self.stage_end - self.layer

    def compact(self, meeting: bool) -> None:
        if self.layer >= self.stage_end:
            super().compact(meeting)

    def move(self, indices: np.ndarray, threads: int, source: np.ndarray, target: np.ndarray) -> None:
        """Let all rows but those at `indices` go, as `keep`, and take the others to two other buffers and threads."""
        # Rows are compacted straight into the first of the other buffers: the move costs no pass of its own.
        self._let_go(indices)
        self.target, self.threads = source, threads
        self._close(indices)
        self.target, self.indices = target, np.arange(self.count)

    def join(self, numbers: np.ndarray, row_of: np.ndarray, values: np.ndarray) -> None:
        """There are no rows yet: `values`, float32 (rows, neurons), become the rows; `numbers`, int64, are the inputs
        that they represent, in any order, and `row_of`, int64, the row of each of these."""
        self.inputs.add(numbers, row_of, len(values))
        self.left, self.indices = numbers.size, np.arange(len(values))
        self.tile, self.alive, self.deaths = self.kernels.tile_for(len(values)), len(values), 0.0
        self.level.insert(values, self.source, self.tile, 0, self.threads)
