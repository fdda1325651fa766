"""The compiled functions on rows (spdnn/kernels/cpu/layer_rows.cpp) and layouts (numpy_layouts.py) in NumPy.

The same arguments and results, some ten times slower. A layer's row is what one output neuron reads.
"""

import numpy as np
from numpy_layouts import sliced_layout, staged_layout  # noqa: F401

# Odd numbers, drawn once, with which rows are hashed: position by position, and parts against each other.
_MIX = np.random.RandomState(1).randint(0, 2**63, 64).astype(np.uint64) * np.uint64(2) + np.uint64(1)


def equal_rows(offsets, indices, values, bias, classes, firsts) -> int:
    """Number the rows that differ, in `classes`; the first of each is in `firsts`. Returns how many there are."""
    degrees, own = np.diff(offsets), np.arange(offsets.size - 1)
    parts = [indices] if values.size != indices.size else [indices, values.view(np.uint32)]
    hashes = degrees.astype(np.uint64) * _MIX[0]
    position = np.arange(indices.size) - np.repeat(offsets[:-1], degrees)
    for number, part in enumerate(parts, 1):
        mixed = (part.astype(np.uint64) + np.uint64(1)) * _MIX[position % _MIX.size]
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        hashes ^= (sums[offsets[1:]] - sums[offsets[:-1]]) * _MIX[number]
    if bias.size == own.size:
        hashes ^= bias.view(np.uint32).astype(np.uint64) * _MIX[3]
    _, first_of, groups = np.unique(hashes, return_index=True, return_inverse=True)
    first = first_of[groups]
    copies = np.flatnonzero(first != own)
    same = degrees[copies] == degrees[first[copies]]
    if bias.size == own.size:
        same &= bias.view(np.uint32)[copies] == bias.view(np.uint32)[first[copies]]
    pairs = np.flatnonzero(same)
    mine, theirs = (_edges(offsets, rows[pairs]) for rows in (copies, first[copies]))
    pair = np.repeat(pairs, degrees[copies[pairs]])
    for part in parts:
        same[pair[part[mine] != part[theirs]]] = False
    first[copies[~same]] = copies[~same]
    left = np.flatnonzero(first == own)
    firsts[: left.size], classes[:] = left, np.searchsorted(left, first)
    return left.size


def take_rows(offsets, indices, values, rows, to, new_indices, new_values) -> None:
    """The edges of some rows, one row after the other."""
    edges = _edges(offsets, rows)
    new_indices[:] = indices[edges]
    if values.size == indices.size and new_values.size == new_indices.size:
        new_values[:] = values[edges]


def on_classes(offsets, indices, values, classes, to, new_indices, sums) -> int:
    """Rows on the classes of their inputs, edges of one class summed; how many are left, -1: some past float32."""
    inputs, rows = int(classes.max()) + 1, offsets.size - 1
    keys = np.repeat(np.arange(rows, dtype=np.int64), np.diff(offsets)) * inputs + classes[indices]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if keys.size else np.empty(0, np.int64)
    if values.size == indices.size and keys.size:
        summed = np.add.reduceat(values[order].astype(np.float64), starts)
    else:
        summed = np.diff(starts, append=keys.size) * np.float64(values[0] if values.size else 0)
    keys = keys[starts]
    to[:] = np.searchsorted(keys, np.arange(rows + 1) * inputs)
    new_indices[: keys.size] = keys % inputs
    with np.errstate(over="ignore"):
        sums[: keys.size] = summed
    return keys.size if np.isfinite(sums[: keys.size]).all() else -1


def radixnet_rows(groups, shift, indices) -> None:
    """Each row of `groups` merged with the one `shift` rows on; all of them as often as `indices` has room."""
    merged = np.sort(np.concatenate([groups, np.roll(groups, -shift, axis=0)], axis=1), axis=1)
    indices.reshape(-1, merged.size)[:] = merged.reshape(-1)


def _edges(offsets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The positions of the edges of some rows, one row after the other."""
    degrees = offsets[rows + 1] - offsets[rows]
    begins = np.cumsum(degrees) - degrees
    return np.arange(int(degrees.sum())) + np.repeat(offsets[rows] - begins, degrees)
