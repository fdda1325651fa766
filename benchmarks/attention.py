"""Fused sparse attention on a causal topology against the same rows by dense products and by the parts of it.

    python benchmarks/attention.py [--length L] [--heads H] [--band B] [--sparsity X] [--depth D] [--turns N]

The topology: every position sees the `band` before it, and earlier ones at random, until `sparsity` of the square is
left out (as in the sparse Transformer of Gale et al. 2020: 12288 positions, 8 heads, band 256, 95 %). Timed in turn:
`fused` at each tile of spdnn/ops/cpu.py; `parts`: sampled product, softmax, and SciPy's sparse product with V;
`dense`: NumPy's products and a softmax over all positions up to the last, in blocks of 512 rows; `torch` dense causal
attention (scaled_dot_product_attention) where it is installed. Dense ones leave no weight out, so their results differ;
fused and parts are compared with float64 on some rows first. A ratio is the median over turns of the time over that of
the fastest tile in the same turn. Cycles are processor time of all threads at the clock that multiply-adds show.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import numpy as np
import scipy.sparse as sp

from spdnn.core.resources import usable_cores
from spdnn.kernels import _cpu, dispatch
from spdnn.ops.cpu import SETTINGS

# Threads of a peer that wait for its next call leave the cores to the next program: read when libraries are loaded.
WAITS = {"KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "18"}
BLOCK = 512  # rows of the dense product at a time


def topology(length: int, band: int, sparsity: float) -> tuple:
    rng, lengths, columns = np.random.default_rng(0), [], []
    inside = band * length
    far = max(0.0, ((1 - sparsity) * length**2 - inside) / max(1, length * (length - 1) / 2 - inside))
    for row in range(length):
        first = max(0, row - band + 1)
        columns.append(np.concatenate([np.flatnonzero(rng.random(first) < far), np.arange(first, row + 1)]))
        lengths.append(columns[-1].size)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    order = np.argsort(-np.array(lengths), kind="stable").astype(np.int32)
    index = np.uint16 if length <= 1 << 16 else np.int32
    return offsets, np.concatenate(columns).astype(index), order


def programs(arrays: tuple, q, k, v, out, scale: float, threads: int) -> dict:
    """Functions that compute attention, by name; `fused` and `parts` leave theirs in `out`."""
    level, (offsets, columns, _), length = dispatch.level().name, arrays, q.shape[1]
    scores = np.empty((q.shape[0], columns.size), np.float32)

    def fused(tile):
        return lambda: _cpu.attention(level, *arrays, q, k, v, scale, out, tile, threads)[0].sum()

    def parts():
        _cpu.sddmm(level, *arrays, q, k, scale, scores, *SETTINGS["sddmm"][0], threads)
        _cpu.softmax(level, offsets, scores, 1.0, scores, threads)
        wide = columns.astype(np.int32)
        for head in range(q.shape[0]):
            out[head] = sp.csr_array((scores[head], wide, offsets), (length, length)) @ v[head]

    def dense():
        for head in range(q.shape[0]):
            for first in range(0, length, BLOCK):
                last = min(first + BLOCK, length)
                weights = q[head, first:last] @ k[head, :last].T
                weights -= weights.max(axis=1, keepdims=True)
                np.exp(weights, out=weights)
                (weights @ v[head, :last]) / weights.sum(axis=1, keepdims=True)

    found = {f"fused {tile}": fused(tile) for tile in SETTINGS["attention"]}
    return found | {"parts": parts, "dense": dense} | torch_program(q, k, v, scale, threads)


def torch_program(q, k, v, scale, threads) -> dict:
    try:
        import torch
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    on = [torch.from_numpy(array)[None] for array in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return {"torch": lambda: attend(*on, is_causal=True, scale=scale)}


def verify(arrays: tuple, q, k, v, out, scale: float) -> None:
    """Compare some rows of `out` with float64."""
    offsets, columns, _ = arrays
    for row in np.linspace(0, q.shape[1] - 1, 50).astype(int):
        near = columns[offsets[row] : offsets[row + 1]].astype(np.int64)
        scores = scale * np.einsum("hd,hjd->hj", q[:, row].astype(np.float64), k[:, near])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected = np.einsum("hj,hjd->hd", weights / weights.sum(axis=1, keepdims=True), v[:, near])
        np.testing.assert_allclose(out[:, row], expected, rtol=1e-4, atol=1e-5)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--length", type=int, default=12288)
    options.add_argument("--heads", type=int, default=8)
    options.add_argument("--band", type=int, default=256)
    options.add_argument("--sparsity", type=float, default=0.95, help="of the square (default: 0.95)")
    options.add_argument("--depth", type=int, default=64)
    options.add_argument("--threads", type=int, default=usable_cores())
    options.add_argument("--turns", type=int, default=5)
    args = options.parse_args()
    arrays, rng = topology(args.length, args.band, args.sparsity), np.random.default_rng(1)
    q, k, v = (rng.standard_normal((args.heads, args.length, args.depth), np.float32) for _ in range(3))
    out, scale = np.empty_like(q), args.depth**-0.5
    run = programs(arrays, q, k, v, out, scale, args.threads)
    turns, busy = {name: [] for name in run}, {name: [] for name in run}
    for turn in range(args.turns + 1):
        for name, program in run.items():
            out.fill(np.nan)
            start = time.perf_counter()
            spent = program()
            if turn:  # the first is not timed
                turns[name].append(time.perf_counter() - start)
                busy[name].append(spent)
            if name == "parts" or name.startswith("fused"):
                verify(arrays, q, k, v, out, scale)
    edges = int(arrays[0][-1]) * args.heads
    best = min((name for name in run if name.startswith("fused")), key=lambda name: np.median(turns[name]))
    clock = max(_cpu.multiply_add_samples(dispatch.level().name, 1, 0.05)) / (dispatch.level().vector_bytes / 2)
    rows = args.length * args.heads
    print(f"{args.threads} threads, {dispatch.level().name}; {edges} edges, {edges / rows:.0f} a row")
    for name in run:
        ratio = np.median(np.array(turns[name]) / turns[best])
        cycles = f"{clock * np.median(busy[name]) / edges:6.2f} cycles an edge" if name.startswith("fused") else ""
        print(f"{name:>12}  {1e3 * np.median(turns[name]):9.1f} ms  {ratio:7.2f}  {cycles}")


if __name__ == "__main__":
    if not WAITS.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], WAITS | os.environ)
    main()
