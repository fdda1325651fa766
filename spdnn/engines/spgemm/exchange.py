"""The rows of the engine `spgemm` between two layers, as other ranks see them (`spdnn.engines.exchange.HeldRows`)."""

from collections.abc import Callable

import numpy as np

from spdnn.engines.exchange import HeldRows, Parcel
from spdnn.engines.reductions.inputs import Representatives
from spdnn.engines.spgemm.rows import SparseRows


class SpgemmRows(HeldRows):
    """The rows of a batch before a layer; those that died have left.

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
