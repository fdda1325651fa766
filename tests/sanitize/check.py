"""The compiled kernels of a build folder in place of the package's, under the sanitizer that they were compiled with.

    python tests/sanitize/check.py FOLDER planted FAULT     a fault that is to be found; none: what is no fault
    python tests/sanitize/check.py FOLDER tests [PATHS]     the tests of the kernels, the operations and the engines
    python tests/sanitize/check.py FOLDER networks COUNT    random networks against the oracle, four at once
    python tests/sanitize/check.py FOLDER models COUNT      compiled networks, each called from four threads at once
    python tests/sanitize/check.py FOLDER operations        spdnn.ops from four threads at once

run.sh calls it. A sanitizer ends the process at the first thing that it finds.
"""

import ctypes
import importlib.util
import itertools
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/engines", "tests/kernels", "."):
    sys.path.insert(0, str(ROOT / folder))
THREADS = 4
ENGINE_TESTS = [f"tests/engines/test_{name}.py" for name in ("cpu", "engines", "model", "spgemm")]
TESTS = ["tests/kernels", "tests/ops", *ENGINE_TESTS]
ENGINES = ("cpu", "tiled", "csr", "spgemm", "taskgraph")


def load(folder: Path) -> None:
    """Put the module of the build in the place of the package's."""
    (path,) = folder.glob("_cpu.*.so")
    specification = importlib.util.spec_from_file_location("spdnn.kernels._cpu", path)
    module = sys.modules[specification.name] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    from spdnn.kernels import _cpu, dispatch

    assert _cpu is module
    assert dispatch.missing() is None, dispatch.missing()


def planted(folder: Path, fault: str) -> None:
    library = ctypes.CDLL(folder / "planted.so")
    assert library.ordered(1) == 8
    if fault != "none":
        getattr(library, fault)(1)


def tests(folder: Path, *paths: str) -> None:
    import pytest

    load(folder)
    os.chdir(ROOT)
    arguments = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not memory"]  # a sanitizer takes memory of its own
    status = pytest.main([*arguments, *(paths or TESTS)])
    if status:
        raise SystemExit(status)


def networks(folder: Path, count: str) -> None:
    load(folder)
    from spdnn.kernels import dispatch

    network(0)  # LLVM's OpenMP 14 fails in a critical section when the first thread that it knew has ended
    levels = [level.name for level in dispatch.levels()]
    for number, level in enumerate(levels):
        os.environ["SPDNN_ISA"] = level
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(network, range(number, int(count), len(levels))))
    print(f"{count} random networks: as the oracle has them")


def network(seed: int) -> None:
    """One random network, inputs, engine and reductions, and how many threads."""
    from engine_cases import assert_same, random_network, rows

    draw = random.Random(seed)
    widths = [draw.choice((1, 2, draw.randint(3, 40), draw.randint(41, 300))) for _ in range(draw.randint(2, 6))]
    if not seed % 50:
        widths[1] = 70_000  # indices of 32 bits
    density = draw.choice((0.02, 0.1, 0.5)) if seed % 50 else 0.001
    bias, clip = draw.choice((-0.1, 0.0, 0.2, "vector")), draw.choice((None, 0.5, 32.0))
    made = random_network(widths, density, seed, bias, clip, draw.choice(("relu", "none")), draw.choice((None, 0.125)))
    inputs = rows(draw.randint(1, 200), widths[0], seed, draw.choice(("bits", "dense", "csr")))
    name = draw.choice(ENGINES)
    reductions = "none" if name == "csr" else draw.choice(("none", "all", "dead", "inputs", "neurons"))
    assert_same(name, made, inputs, reductions=reductions, threads=draw.randint(1, 4))


def models(folder: Path, count: str) -> None:
    """Compiled networks of several threads each, called from several threads at once with batches of any size."""
    load(folder)
    from engine_cases import random_network

    import spdnn

    for seed in range(int(count)):
        draw = random.Random(seed)
        widths = [draw.choice((1, 5, draw.randint(6, 300))) for _ in range(draw.randint(2, 5))]
        made = random_network(widths, draw.choice((0.05, 0.5)), seed, 0.1, 32.0, "relu", draw.choice((None, 0.125)))
        batches = [np.random.default_rng(seed).random((size, widths[0]), "f") for size in (1, 2, 17, 64, 130)]
        with spdnn.compile(made, threads=draw.randint(1, 4)) as model, ThreadPoolExecutor(THREADS) as pool:
            expected = [model(batch) for batch in batches]
            turns = [(k + turn) % len(batches) for turn in range(THREADS) for k in range(2 * len(batches))]
            for one, got in zip(turns, pool.map(lambda one: model(batches[one]), turns), strict=True):  # noqa: B023
                np.testing.assert_array_equal(got, expected[one])
    print(f"{count} compiled networks from {THREADS} threads: the same bits as from one")


def operations(folder: Path) -> None:
    load(folder)
    from spdnn import ops
    from spdnn.ops import cpu

    cpu.LEAST_SHARED = 0  # small work goes to several threads, too
    rng = np.random.default_rng(1)
    for rows, columns, width in itertools.product((1, 37, 150), (5, 130), (1, 16, 70)):
        A = ops.SparseMatrix.from_dense(rng.standard_normal((rows, columns)).astype("f"), 0.7)
        B, Q, K = (rng.standard_normal(s).astype("f") for s in ((columns, width), (rows, width), (columns, width)))
        X, W = (rng.standard_normal(s).astype("f") for s in ((2, 3, 9, width), (3, 3, 3)))
        rows_of = np.ascontiguousarray(B.T)
        calls = [
            lambda: ops.spmm(A, B, threads=2),  # noqa: B023  called in this round alone
            lambda: ops.sddmm(A, Q, K, threads=2).values,  # noqa: B023
            lambda: ops.linear(rows_of, A, threads=2),  # noqa: B023
            lambda: ops.softmax(A, threads=2).values,  # noqa: B023
            lambda: ops.transpose(A, threads=2).values,  # noqa: B023
            lambda: ops.attention(A, Q, K, B, threads=2),  # noqa: B023
            lambda: ops.depthwise_conv(X, W, threads=2),  # noqa: B023
        ]
        expected = [call() for call in calls]
        turns = [(i + turn) % len(calls) for turn in range(THREADS) for i in range(3 * len(calls))]
        with ThreadPoolExecutor(THREADS) as pool:
            for one, got in zip(turns, pool.map(lambda one: calls[one](), turns), strict=True):  # noqa: B023
                np.testing.assert_array_equal(got, expected[one])
    print(f"spdnn.ops from {THREADS} threads: the same bits as from one")


if __name__ == "__main__":
    checks = {one.__name__: one for one in (planted, tests, networks, models, operations)}
    checks[sys.argv[2]](Path(sys.argv[1]), *sys.argv[3:])
