"""Attention masks: each query sees a band along the diagonal, and far keys drawn at random, nearer ones more often."""

import numpy as np

from spdnn.core.errors import InputError
from spdnn.ops import Topology
from spdnn.ops.models.arithmetic import check_below, check_whole

MOST_SEQUENCE = 1 << 16
DRAWN_AT_ONCE = 1 << 21  # positions; some 40 bytes each
SPARE = 1.02  # of the drawn positions that pass the first threshold


def band_and_decay(sequence: int, band: int, sparsity: float, seed: int = 0) -> Topology:
    """A causal mask (sequence, sequence): row i sees i - band + 1 .. i, and some of 0 .. i - band.

    Of all positions beyond the band a part 1 - sparsity stays, drawn without replacement with weights 1 / distance:
    each gets an exponential random number times its distance, and the least ones stay, which is the same draw in one
    pass (Efraimidis, Spirakis, "Weighted random sampling with a reservoir", 2006). The same arguments give the same
    mask.

    Costs:
        a random number for each of sequence^2 / 2 positions, in pieces; memory of a few times the positions that stay.

    Raises:
        InputError: sequence not 1 to 65,536, band not 1 to 65,536, or sparsity not in 0 to below 1.

    Source: Gale et al., "Sparse GPU Kernels for Deep Learning", section VIII-A (band 256, sparsity 0.95).
    """
    sequence, band = check_whole("sequence", sequence, 1, MOST_SEQUENCE), check_whole("band", band, 1, MOST_SEQUENCE)
    sparsity, seed = check_below("sparsity", sparsity, 0, 1), check_whole("seed", seed, 0, (1 << 63) - 1)
    far = max(sequence - band, 0)
    far_rows, far_columns = _draw(far, band, round(far * (far + 1) / 2 * (1 - sparsity)), seed)
    rows = np.arange(sequence)
    near = np.minimum(rows + 1, band)
    counts = near + np.bincount(far_rows, minlength=sequence)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    columns = np.empty(offsets[-1], np.uint16)
    indices = offsets[far_rows] + np.arange(far_rows.size) - np.searchsorted(far_rows, far_rows)
    columns[indices] = far_columns
    starts = offsets[1:] - near  # the band is last in each row
    steps = np.arange(near.sum()) - np.repeat(np.cumsum(near) - near, near)
    columns[np.repeat(starts, near) + steps] = np.repeat(rows + 1 - near, near) + steps
    return Topology((sequence, sequence), offsets, columns)


def first_rows(mask: Topology, rows: int) -> Topology:
    """The mask of the first positions of a sequence alone. Raises InputError for more than it has."""
    if not 1 <= rows <= mask.rows:
        raise InputError(f"{rows} positions: the mask has {mask.rows}")
    if rows == mask.rows:
        return mask
    return Topology((rows, rows), mask.offsets[: rows + 1], mask.columns[: mask.offsets[rows]])


def _draw(far: int, band: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) of `count` positions with row - column >= band, in order of rows, then columns."""
    total = far * (far + 1) // 2
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    most = np.inf if count == total else _threshold(far, band, min(count * SPARE + 100, total))
    while True:
        rows, columns, keys = _below(far, band, most, seed)
        if keys.size >= count:
            break
        most *= 2
    least = np.sort(np.argpartition(keys, count - 1)[:count])
    return rows[least] + band, columns[least]


def _below(far: int, band: int, most: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row - band, column, key) of each position whose key is at most `most`."""
    random = np.random.default_rng(seed)
    pieces = []
    step = max(1, DRAWN_AT_ONCE // far)
    for first in range(0, far, step):
        rows = np.arange(first, min(first + step, far))
        ends = np.cumsum(rows + 1)
        row = np.repeat(rows, rows + 1)
        column = np.arange(ends[-1]) - np.repeat(ends - rows - 1, rows + 1)
        keys = random.standard_exponential(row.size, np.float32) * (row - column + band).astype(np.float32)
        below = np.flatnonzero(keys <= most)
        pieces.append((row[below], column[below], keys[below]))
    rows, columns, keys = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return rows, columns, keys


def _threshold(far: int, band: int, expected: float) -> float:
    """The key below which `expected` positions are expected: sum (1 - exp(-t / distance)) = expected, by halving."""
    distances = np.arange(band, band + far, dtype=np.float64)
    positions = np.arange(far, 0, -1, dtype=np.float64)  # how many have each distance
    low, high = 0.0, float(distances[-1])
    while (positions * -np.expm1(-high / distances)).sum() < expected and high < 1e12:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (positions * -np.expm1(-middle / distances)).sum() < expected else (low, middle)
    return high
