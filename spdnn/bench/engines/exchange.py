"""The rows of an engine around a library between two layers, as other ranks see them
(`spdnn.engines.exchange.HeldRows`).
"""

from typing import Any

import numpy as np

from spdnn.core.result import row_hashes
from spdnn.engines.exchange import HeldRows, Parcel
from spdnn.engines.reductions.inputs import Representatives


class LibraryRows(HeldRows):
    """In the library's layout until one of them moves.

    Args:
        library: a Library (library.py).
        features: in the library's layout; numbers: int64, the inputs that they are of.
        others: attributes of HeldRows.

    Attributes:
        rows: float32 (count, neurons) once the ranks have exchanged some, else None.
    """

    def __init__(self, library: Any, features: Any, numbers: np.ndarray, **others):
        self._library, self._features, self._inputs = library, features, Representatives(numbers)
        self.rows: np.ndarray | None = None
        vars(self).update(others)

    def inputs(self) -> Representatives:
        return self._inputs

    def hashes(self) -> np.ndarray:
        return row_hashes(self._dense())

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return np.full(rows.size, 4 * self.neurons), self._dense()[rows].reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        # The first exchange brings all rows to NumPy, for a library's layout has no way to put rows in.
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        rows = np.concatenate([self._dense()[kept], values])
        self._inputs.keep(kept)
        self._inputs.add(arrived.numbers, int(kept.sum()) + arrived.row_of, len(rows))
        # Each row represents one input here; they go on in the order of these.
        self.rows, self._inputs = rows[self._inputs.row_of], Representatives(self._inputs.numbers)

    def set_merged(self, rows: int) -> None:
        """No library offers to merge equal rows."""

    def _dense(self) -> np.ndarray:
        if self.rows is not None:
            return self.rows
        if not self.count:
            return np.zeros((0, self.neurons), np.float32)
        return np.ascontiguousarray(self._library.dense(self._features), np.float32)
