"""Attention by dense products (BLAS), for comparison with the sparse attention.

A block of queries takes one tile of keys after the other, all heads before the next tile; a running maximum and sum
make the softmax exact without storing the scores (Milakov, Gimelshein, "Online normalizer calculation for softmax",
2018; Dao et al., "FlashAttention", 2022). Scores of a tile stay in the second-level cache, keys past the diagonal are
skipped, and threads draw blocks of queries, the longest first. `attend_stored` keeps all scores in memory, as the
paper does.
"""

import numpy as np

from spdnn.ops import Topology
from spdnn.ops.models.arithmetic import Workers

QUERIES = 256  # of a block
KEYS = 1024  # of a tile
LEAST = np.float32(-1e30)  # below every score; finite, so that differences with it are no NaN


def attend_blocks(q, k, v, mask: Topology | None, out, workers: Workers, scratch: list) -> None:
    """out <- softmax(q k^T / sqrt(D), masked) v; everything (heads, sequence, D) float32, causal.

    Args:
        mask: the positions that are seen, none past the diagonal; None: all up to the diagonal.
        scratch: of `buffers`.
    """

    def work(rows: slice, worker: int) -> None:
        _block(q, k, v, mask, out, rows, scratch[worker])

    workers.each(work, _blocks(q.shape[1])[::-1])


def buffers(shape: tuple[int, int, int], masked: bool, threads: int) -> list[dict[str, np.ndarray]]:
    """What `attend_blocks` needs besides its arguments, for each thread: scores of a tile, sums, and a mask."""
    heads, sequence, depth = shape
    queries, keys = min(QUERIES, sequence), min(KEYS, sequence)
    sizes = {
        "scores": (queries * keys,),
        "queries": (heads, queries, depth),
        "part": (queries, depth),
        "total": (heads, queries, depth),
        "most": (heads, queries, 1),
        "sum": (heads, queries, 1),
        "mask": (queries, sequence if masked else keys),
    }
    return [{name: np.empty(size, np.float32) for name, size in sizes.items()} for _ in range(threads)]


def attend_stored(q, k, v, mask: Topology, out, workers: Workers) -> None:
    """The same with all scores in memory, and their softmax with them: 2 heads sequence^2 values, as in the paper."""
    heads, sequence, depth = q.shape
    scores = np.empty((heads, sequence, sequence), np.float32)
    weights = np.empty_like(scores)

    def work(task: tuple[int, slice], _worker: int) -> None:
        head, rows = task
        np.matmul(q[head, rows], k[head].T, out=scores[head, rows])
        hidden = np.full((rows.stop - rows.start, sequence), -np.inf, np.float32)
        _show(hidden, mask, rows)
        scores[head, rows] *= np.float32(depth**-0.5)
        scores[head, rows] += hidden
        part = np.subtract(scores[head, rows], scores[head, rows].max(1, keepdims=True), out=weights[head, rows])
        np.exp(part, out=part)
        part /= part.sum(1, keepdims=True)
        np.matmul(part, v[head], out=out[head, rows])

    workers.each(work, [(head, rows) for head in range(heads) for rows in _blocks(sequence)])


def _blocks(sequence: int) -> list[slice]:
    return [slice(first, min(first + QUERIES, sequence)) for first in range(0, sequence, QUERIES)]


def _block(q, k, v, mask, out, rows: slice, scratch: dict[str, np.ndarray]) -> None:
    """One block of queries of all heads."""
    heads, count = q.shape[0], rows.stop - rows.start
    scaled = scratch["queries"][:, :count]
    np.multiply(q[:, rows], np.float32(q.shape[2] ** -0.5), out=scaled)
    most, total, summed = (scratch[name][:, :count] for name in ("most", "total", "sum"))
    most.fill(LEAST)
    total.fill(0)
    summed.fill(0)
    hidden = scratch["mask"][:count]
    if mask is not None:
        hidden[:, : rows.stop] = -np.inf
        _show(hidden, mask, rows)
    for first in range(0, rows.stop, KEYS):
        keys = slice(first, min(first + KEYS, rows.stop))
        shifts = None
        if mask is not None:
            shifts = hidden[:, keys]
        elif keys.stop > rows.start + 1:
            shifts = hidden[:, : keys.stop - keys.start]
            later = np.arange(keys.start, keys.stop) > np.arange(rows.start, rows.stop)[:, None]
            np.multiply(later, LEAST, out=shifts)
        for head in range(heads):
            _tile(scaled[head], k[head, keys], v[head, keys], shifts, most[head], summed[head], total[head], scratch)
    np.divide(total, summed, out=out[:, rows], where=summed > 0)
    out[:, rows][np.broadcast_to(summed <= 0, total.shape)] = 0


def _tile(q, k, v, shifts, most, summed, total, scratch) -> None:
    """One tile of keys of one head: scores, and what they change in maximum, sum and result."""
    scores = scratch["scores"][: q.shape[0] * k.shape[0]].reshape(q.shape[0], k.shape[0])
    np.matmul(q, k.T, out=scores)
    if shifts is not None:
        scores += shifts
    largest = np.maximum(most, scores.max(axis=1, keepdims=True))
    factor = np.exp(most - largest)
    most[:] = largest
    scores -= largest
    np.exp(scores, out=scores)
    summed *= factor
    summed += scores.sum(axis=1, keepdims=True)
    total *= factor
    total += np.matmul(scores, v, out=scratch["part"][: q.shape[0]])


def _show(hidden: np.ndarray, mask: Topology, rows: slice) -> None:
    """0 in `hidden` (the rows of a block) where the mask has its positions."""
    first, last = mask.offsets[rows.start], mask.offsets[rows.stop]
    row = np.repeat(np.arange(rows.stop - rows.start), np.diff(mask.offsets[rows.start : rows.stop + 1]))
    hidden[row, mask.columns[first:last]] = 0
