"""Sparse times dense on CPU: the kernel of spdnn.ops against MKL, SciPy and dense BLAS, on layers of deep networks.

    python benchmarks/spmm.py [--shapes MxKxN ...] [--sparsity S ...] [--seconds S] [--threads T] [--tiles | --ladder]

C (M, N) = A (M, K) B (K, N), float32, A uniformly random at each sparsity, nothing fused. The shapes are layers of a
Transformer and, convolutions of 1x1 and 3x3 as products, of ResNet-50. The clock holds the product alone: A is in every
program's own format before it starts, optimised for such a B by MKL (and as it is, where that is faster; B and C by
columns took it 2 to 3 times longer and are left out). All programs compute into one C (but SciPy, which makes one), are
compared with a float64 product before they are timed, and take turns, again and again: a run to wake the threads, and
a timed one. No threads spin while another program has its turn; on a busy machine --threads 1 tells more. Medians are
in 10^9 multiply-adds of nonzeros a second, for dense programs too, so that numbers of a line compare. `sparse` and
`dense` are the times of the fastest sparse (MKL, SciPy) and dense program (OpenBLAS, MKL) over ours with the best of
its settings; `default`: sparse over ours with the first. --tiles prints all settings; p: packed. --ladder: each step.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from spdnn.bench.engines.mkl import _runtime
from spdnn.core.resources import usable_cores
from spdnn.kernels import _cpu, dispatch
from spdnn.ops.cpu import SETTINGS

TRANSFORMER = "512x512x256 2048x512x256 512x2048x256 512x512x2048 2048x512x2048 512x2048x2048"
RESNET = "64x256x3136 256x64x3136 128x512x784 128x1152x784 256x1024x196 256x2304x196 2048x512x49 512x4608x49"
SPARSITIES = (0.8, 0.9, 0.95, 0.98)
AT_ONCE_ASLEEP = {"OPENBLAS_THREAD_TIMEOUT": "4", "KMP_BLOCKTIME": "0"}  # read when the libraries are loaded
BY_ROWS, GENERAL, PLAIN, PLAIN_DENSE = 101, 20, 10, 111  # MKL's constants
# (tile, packed, swizzled): B where it lies; a wider tile; next to each other; rows of one length together; other tiles.
LADDER = ((16, 0, 0), (64, 0, 0), (64, 1, 0), (64, 1, 1), (32, 1, 1), (128, 0, 1))


def aligned(*shape: int) -> np.ndarray:
    """Zeros (float32) at a multiple of 64 bytes, so that no program has luck that another has not."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    return memory[start : start + count].reshape(shape)


class Case:
    """One product: A as CSR and dense, B, and the C that is computed into."""

    def __init__(self, shape: str, sparsity: float):
        rows, inner, width = map(int, shape.split("x"))
        rng = np.random.default_rng(0)
        self.a = sp.random_array((rows, inner), density=1 - sparsity, format="csr", dtype=np.float32, rng=rng)
        self.a.sort_indices()
        self.b, self.c, self.dense = aligned(inner, width), aligned(rows, width), aligned(rows, inner)
        self.b[:], self.dense[:] = rng.standard_normal(self.b.shape), self.a.toarray()
        self.expected = self.a.astype(np.float64) @ self.b.astype(np.float64)
        self.work = self.a.nnz * width

    def verified(self, run: Callable) -> Callable:
        """`run`, after the C that it computes was compared with the float64 product."""
        self.c[:] = np.nan
        run()
        np.testing.assert_allclose(self.c, self.expected, rtol=1e-4, atol=1e-4)
        return run

    def ours(self, level: str, threads: int, tile: int, packed: bool, swizzled: bool = True) -> Callable:
        offsets, columns = self.a.indptr.astype(np.int64), self.a.indices.astype(np.uint16)
        order = np.argsort(-np.diff(offsets), kind="stable") if swizzled else np.arange(self.a.shape[0])
        arguments = (level, offsets, columns, order.astype(np.int32), self.a.data[None], self.b[None])
        arguments += (np.zeros(self.a.shape[0], np.float32), -np.inf, np.inf, self.c[None], tile, packed, threads)
        return self.verified(lambda: _cpu.spmm(*arguments))

    def peers(self, mkl: Mkl) -> tuple[dict[str, Callable], dict[str, Callable]]:
        """The sparse programs, and the dense ones."""
        sparse = {name: self.verified(mkl.sparse(self, name == "mkl")) for name in ("mkl", "mkl as it is")}
        dense = {
            "openblas": self.verified(lambda: np.matmul(self.dense, self.b, out=self.c)),
            "mkl dense": self.verified(mkl.dense(self)),
        }
        return sparse | {"scipy": lambda: self.a @ self.b}, dense


class _Description(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("type", "mode", "diagonal")]


def _at(array: np.ndarray, index: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data + index * array.itemsize)


class Mkl:
    """MKL's products through ctypes, so that nothing but them is on the clock."""

    def __init__(self, threads: int):
        self.library = ctypes.CDLL(str(_runtime()))
        self.library.MKL_Set_Num_Threads(threads)

    def sparse(self, case: Case, optimised: bool) -> Callable:
        a, width, library = case.a, case.b.shape[1], self.library
        handle, whole = ctypes.c_void_p(), _Description(GENERAL, 0, 0)
        kept = starts, columns, values = a.indptr.astype(np.int32), a.indices.astype(np.int32), a.data
        places = (_at(starts), _at(starts, 1), _at(columns), _at(values))
        status = library.mkl_sparse_s_create_csr(ctypes.byref(handle), 0, *a.shape, *places)
        if optimised:
            status |= library.mkl_sparse_set_mm_hint(handle, PLAIN, whole, BY_ROWS, width, 1000)
            status |= library.mkl_sparse_optimize(handle)
        if status:
            raise RuntimeError(f"MKL made no handle of the matrix (status {status})")
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        arguments = (PLAIN, one, handle, whole, BY_ROWS, _at(case.b), width, width, zero, _at(case.c), width)
        return lambda kept=kept: library.mkl_sparse_s_mm(*arguments)

    def dense(self, case: Case) -> Callable:
        (rows, inner), width = case.dense.shape, case.b.shape[1]
        sizes, one, zero = (rows, width, inner), ctypes.c_float(1), ctypes.c_float(0)
        arguments = (BY_ROWS, PLAIN_DENSE, PLAIN_DENSE, *sizes, one, _at(case.dense), inner, _at(case.b), width)
        return lambda: self.library.cblas_sgemm(*arguments, zero, _at(case.c), width)


def medians(ways: dict[object, Callable], seconds: float) -> dict[object, float]:
    """The median time of each way, in seconds; they take turns, five times at least."""
    samples = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, samples.values())) < 5:
        for name, way in ways.items():
            way()
            start = time.perf_counter()
            way()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in samples.items()}


def compare(case: Case, args: argparse.Namespace, mkl: Mkl) -> tuple[str, tuple[float, float, float]]:
    """A line of the table, and its three ratios: sparse, dense, default."""
    settings = SETTINGS["spmm"]
    ours = {setting: case.ours(args.level, args.threads, *setting) for setting in settings}
    sparse, dense = case.peers(mkl)
    found = medians(ours | sparse | dense, args.seconds)
    rates = {name: f"{case.work / spent / 1e9:.1f}" for name, spent in found.items()}
    best, *others = (min(group, key=found.get) for group in (settings, sparse, dense))
    ratios = (found[others[0]] / found[best], found[others[1]] / found[best], found[others[0]] / found[settings[0]])
    label = {setting: f"{setting[0]}{'p' if setting[1] else ''}" for setting in settings}
    line = "".join(f"{value:>8.2f}" for value in ratios) + f"{rates[best]:>8} {label[best]:<4}"
    line += "".join(f"  {name} {rates[name]}" for name in others)
    if args.tiles:
        line += "  |" + "".join(f"  {label[setting]} {rates[setting]}" for setting in settings)
    return line, ratios


def ladder(case: Case, args: argparse.Namespace) -> str:
    """The rate of each rung."""
    ways = {}
    for tile, packed, swizzled in LADDER:
        name = f"{tile}{'p' if packed else ''}{' swizzled' if swizzled else ''}"
        ways[name] = case.ours(args.level, args.threads, tile, bool(packed), bool(swizzled))
    return "".join(f"  {name} {case.work / spent / 1e9:.1f}" for name, spent in medians(ways, args.seconds).items())


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shapes", nargs="+", default=f"{TRANSFORMER} {RESNET}".split(), metavar="MxKxN")
    options.add_argument("--sparsity", nargs="+", type=float, default=SPARSITIES)
    options.add_argument("--seconds", type=float, default=1.0, help="for each line (default: 1)")
    options.add_argument("--threads", type=int, default=usable_cores())
    options.add_argument("--level", default=dispatch.level().name)
    options.add_argument("--tiles", action="store_true", help="print every setting")
    options.add_argument("--ladder", action="store_true", help="print what each step gains, without other programs")
    args = options.parse_args()
    if not os.environ.keys() >= AT_ONCE_ASLEEP.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], AT_ONCE_ASLEEP | os.environ)
    mkl, ratios = Mkl(args.threads), []
    print(f"{args.threads} threads, {args.level}; 10^9 multiply-adds of nonzeros a second, medians")
    if not args.ladder:
        print(
            f"{'shape':<16}{'zeros':>6}{'sparse':>8}{'dense':>8}{'default':>8}{'ours':>8} with, and the fastest others"
        )
    with threadpool_limits(args.threads):
        for shape in args.shapes:
            for sparsity in args.sparsity:
                case = Case(shape, sparsity)
                line, found = (ladder(case, args), None) if args.ladder else compare(case, args, mkl)
                ratios += [found] if found else []
                print(f"{shape:<16}{sparsity:>6.0%}{line}", flush=True)
    if ratios:
        for name, values in (
            ("geometric mean", np.exp(np.log(ratios).mean(axis=0))),
            ("least", np.min(ratios, axis=0)),
        ):
            print(f"{name:<22}" + "".join(f"{value:>8.2f}" for value in values))


if __name__ == "__main__":
    main()
