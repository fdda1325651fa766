"""The official problems: how many rows each layer has left, and which rank has them: inputs are in no random order.

MNIST puts harder and easier writers in stretches and, within them, alternately: contiguous parts and every R-th input
both end with up to half more categories than the mean. The official categories tell where they are.
"""

from functools import cache

import numpy as np

from spdnn.core import challenge, config_tables
from spdnn.engines.costs.costs import Work

STREAMED_BYTES = 6  # of an edge of streamed weights: an index of 2 bytes and a value of 4
# Inputs alive after each layer; the last number holds for all deeper layers. Measured here, in float32.
SURVIVORS = {
    1024: (54687, 40498, 23049, 12010, 6537, 4089, 2773, 2128, 1939, 1874, 1836, 1824, 1820, 1812),
    4096: (54554, 42478, 25926, 15028, 8651, 5008, 3724, 2979, 2426, 2022, 1877, 1836, 1825, 1814, 1810, 1806, 1801),
    16384: (52630, 40991, 26479, 16424, 10401, 6826, 4363, 3448, 2973, 2658, 2277, 2042, 1964, 1918),
    65536: (52502, 37889, 23602, 15354, 9982, 7303, 5192, 3829, 3204, 2852, 2638, 2514, 2264, 2087, 1994),
}


def official_work(neurons: int, layers: int) -> Work:
    """An official problem with all its inputs as at-scale computes it: dead inputs leave after every layer."""
    alive = (challenge.INPUTS, *SURVIVORS[neurons])
    alive = np.array((alive + alive[-1:] * layers)[:layers], float)
    edges = challenge.NONZEROS_PER_NEURON * neurons
    each = [np.full(layers, float(value)) for value in (edges, 4 * neurons, STREAMED_BYTES * edges)]
    return Work(challenge.INPUTS, each[0], alive, alive, each[1], each[2], neurons / 8)


def official_shares(work: Work, neurons: int, ranks: int, partition: str, distinct: bool = False) -> np.ndarray:
    """Each rank's part of the rows of each layer, float64 (ranks, layers), for all official inputs in their order.

    Inputs that survive to the end are counted where they are; the others are taken as spread evenly.

    Args:
        partition: `rebalanced` starts as `static`.
        distinct: leave out ranks that have as many as another.

    Raises:
        Unavailable: the table of official categories is absent.
    """
    # Of the survivors it is known where they are, from the official categories; those that die are spread evenly.
    positions = _categories(neurons) - 1
    rank = positions % ranks if partition == "cyclic" else positions * ranks // challenge.INPUTS
    counts = np.bincount(rank, minlength=ranks)
    counts = np.unique(counts) if distinct else counts
    others = np.maximum(0.0, work.survivors - positions.size)
    return (counts[:, None] + others / ranks) / (positions.size + others)


@cache
def _categories(neurons: int) -> np.ndarray:
    """The official categories, 1-based int64."""
    return np.loadtxt(config_tables.table(f"truth/{neurons}.tsv"), dtype=np.int64, ndmin=1)
