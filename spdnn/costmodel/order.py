"""Which rank has the rows that are left: the official inputs are in no random order.

MNIST puts harder and easier writers in stretches and, within them, alternately: contiguous parts and every R-th input
both end with up to half more categories than the mean. The official categories tell where they are.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from spdnn.common import tables
from spdnn.costmodel.costs import Work
from spdnn.problem import challenge


def official_shares(work: Work, neurons: int, ranks: int, partition: str, distinct: bool = False) -> np.ndarray:
    """Each rank's part of the rows of each layer, float64 (ranks, layers), for all official inputs in their order.

    Inputs that survive to the end are counted where they are; the others are taken as spread evenly.

    Args:
        partition: `rebalanced` starts as `static`.
        distinct: leave out ranks that have as many as another.

    Raises:
        Unavailable: the table of official categories is absent.
    """
    positions = _categories(neurons) - 1
    rank = positions % ranks if partition == "cyclic" else positions * ranks // challenge.INPUTS
    kept = np.bincount(rank, minlength=ranks)
    kept = np.unique(kept) if distinct else kept
    others = np.maximum(0.0, work.survivors - positions.size)
    return (kept[:, None] + others / ranks) / (positions.size + others)


@cache
def _categories(neurons: int) -> np.ndarray:
    """The official categories, 1-based int64."""
    return np.loadtxt(tables.table(f"truth/{neurons}.tsv"), dtype=np.int64, ndmin=1)
