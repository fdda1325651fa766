"""Sampled dense-dense products on topologies of pruned layers: our kernel against dense BLAS, gathers and libraries.

    python benchmarks/sddmm.py [--seconds S] [--threads T] [--depths D ...] [--sparsity X ...] [--shapes MxN ...]

Each problem is out[e] = scale * dot(Q[i], K[j]) for the nonzeros e = (i, j) of a random (M, N) topology, float32. Of
these, what is installed takes part: `blas` NumPy's dense product, then the nonzeros taken from it; `mkl` the same by
MKL's sgemm; `einsum` rows gathered and multiplied; `torch` torch.sparse.sampled_addmm; `jax` compiled, dense and
gathered. Each is compared with float64 before it is timed. All are timed alternately, again and again, so that a busy
machine slows all alike; a ratio is the median over turns of a peer's time over ours in the same turn. Ours is the
fastest setting of spdnn/ops/cpu.py; `busy` is its slowest thread's work over the mean.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable

import numpy as np

from spdnn.core.resources import usable_cores
from spdnn.kernels import _cpu, dispatch
from spdnn.ops.cpu import SETTINGS

SHAPES = ("512x512", "2048x512", "512x2048", "64x256", "512x128", "256x1024", "1024x256")
SCALE = 0.125
# Threads of a peer that wait for its next call leave the cores to the next program: read when libraries are loaded.
WAITS = {"KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "18"}


def peers(q, k, rows, columns, threads: int) -> dict[str, Callable]:
    """Functions that return the sampled products, of all that is installed."""
    nonzeros = rows * k.shape[0] + columns
    dense = np.empty((q.shape[0], k.shape[0]), np.float32)
    found = {
        "blas": lambda: np.matmul(q, k.T, out=dense).ravel()[nonzeros] * np.float32(SCALE),
        "einsum": lambda: np.einsum("ed,ed->e", q[rows], k[columns]) * np.float32(SCALE),
    }
    for maker in (mkl_peer, jax_peers, torch_peer):
        try:
            found |= maker(q, k, rows, columns, nonzeros, threads)
        except (ImportError, OSError, importlib.metadata.PackageNotFoundError):
            continue  # not installed here
    return found


def mkl_peer(q, k, rows, columns, nonzeros, threads) -> dict[str, Callable]:
    files = importlib.metadata.files("mkl") or ()
    library = ctypes.CDLL(str(next(file for file in files if "libmkl_rt.so" in file.name).locate()))
    library.MKL_Set_Num_Threads(threads)
    dense = np.empty((q.shape[0], k.shape[0]), np.float32)
    (m, depth), n, pointer = q.shape, k.shape[0], ctypes.c_void_p
    one, zero = ctypes.c_float(SCALE), ctypes.c_float(0)

    def run():
        library.cblas_sgemm(  # row-major, no transpose, transpose
            101, 111, 112, m, n, depth, one, pointer(q.ctypes.data), depth, pointer(k.ctypes.data), depth, zero,
            pointer(dense.ctypes.data), n,
        )  # fmt: skip
        return dense.ravel()[nonzeros]

    return {"mkl": run}


def jax_peers(q, k, rows, columns, nonzeros, threads) -> dict[str, Callable]:
    import jax

    dense = jax.jit(lambda q, k: (q @ k.T).ravel()[nonzeros] * SCALE)
    gather = jax.jit(lambda q, k: (q[rows] * k[columns]).sum(axis=1) * SCALE)
    on = jax.device_put((q, k))
    return {"jax dense": lambda: dense(*on).block_until_ready(), "jax gather": lambda: gather(*on).block_until_ready()}


def torch_peer(q, k, rows, columns, nonzeros, threads) -> dict[str, Callable]:
    import torch

    torch.set_num_threads(threads)
    offsets = np.searchsorted(rows, np.arange(q.shape[0] + 1))
    zeros = torch.zeros(rows.size)
    mask = torch.sparse_csr_tensor(
        torch.from_numpy(offsets), torch.from_numpy(columns), zeros, (q.shape[0], k.shape[0])
    )
    left, right = torch.from_numpy(q), torch.from_numpy(k).t()
    return {"torch": lambda: torch.sparse.sampled_addmm(mask, left, right, beta=0.0, alpha=SCALE).values().numpy()}


def problem(m: int, n: int, depth: int, sparsity: float, threads: int, seconds: float) -> tuple:
    """Our setting, our median time, each peer's ratio, and the imbalance."""
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((m, n)) >= sparsity)
    q, k = (rng.standard_normal((count, depth), np.float32) for count in (m, n))
    offsets = np.searchsorted(rows, np.arange(m + 1)).astype(np.int64)
    order = np.argsort(-np.diff(offsets), kind="stable").astype(np.int32)
    out, narrow, level = np.empty((1, rows.size), np.float32), columns.astype(np.uint16), dispatch.level().name
    given = (level, offsets, narrow, order, q[None], k[None], SCALE, out)
    every = [lambda setting=setting: _cpu.sddmm(*given, *setting, threads) for setting in SETTINGS["sddmm"]]
    run = dict(enumerate(every)) | peers(q, k, rows, columns, threads)
    expected = SCALE * np.einsum("ed,ed->e", q[rows].astype(np.float64), k[columns])
    for name, function in run.items():
        got = function()
        np.testing.assert_allclose(out[0] if isinstance(name, int) else got, expected, rtol=1e-4, atol=1e-4)
    turns = {name: [] for name in run}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(turns[0]) < 5:
        for name, function in run.items():
            function()  # its caches, its threads awake
            start = time.perf_counter()
            function()
            turns[name].append(time.perf_counter() - start)
    best = min(range(len(every)), key=lambda setting: np.median(turns[setting]))
    own_times = np.array(turns[best])
    ratios = {name: float(np.median(turns[name] / own_times)) for name in run if not isinstance(name, int)}
    busy = every[best]()[0]
    return SETTINGS["sddmm"][best], float(np.median(own_times)), ratios, busy.max() / busy.mean()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=0.5, help="for each problem (default: 0.5)")
    options.add_argument("--threads", type=int, default=usable_cores())
    options.add_argument("--depths", type=int, nargs="+", default=[64, 256, 1024])
    options.add_argument("--sparsity", type=float, nargs="+", default=[0.8, 0.9, 0.98])
    options.add_argument("--shapes", nargs="+", default=list(dict.fromkeys(SHAPES)))
    args = options.parse_args()
    print(f"{args.threads} threads, {dispatch.level().name}; ns a nonzero, then each peer's time over ours")
    best = []
    for shape in args.shapes:
        m, n = map(int, shape.split("x"))
        for depth in args.depths:
            for sparsity in args.sparsity:
                setting, seconds, ratios, busy = problem(m, n, depth, sparsity, args.threads, args.seconds)
                best.append(min(ratios.values()))
                each = "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
                nonzero = 1e9 * seconds / (m * n * (1 - sparsity))
                print(
                    f"{shape:>10} D {depth:4} {sparsity:.2f}  {nonzero:7.2f}  {setting!s:13} busy {busy:.2f}  {each}",
                    flush=True,
                )
    print(f"fastest peer / ours: geometric mean {np.exp(np.mean(np.log(best))):.2f}, least {min(best):.2f}")


if __name__ == "__main__":
    if not WAITS.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], WAITS | os.environ)
    main()
