"""Forked processes: a child has none of its parent's threads, and computes on as many of its own."""

import multiprocessing
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from onnx_models import Maker

import spdnn
from spdnn import ops
from spdnn.core.errors import SpdnnError

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
SECONDS = 60  # in which a child must end
TURNS = 9  # of all works, while other threads compute

rng = np.random.default_rng(0)
MATRICES = [(rng.random((512, 512)) < 0.1) * rng.standard_normal((512, 512)) for _ in range(2)]
NETWORK = spdnn.from_matrices(MATRICES, last="none")
DEEP = spdnn.from_matrices([np.eye(64, dtype="f") * 0.9] * 20, bias=-0.01, last="relu")
X = rng.random((1200, 512)).astype("f")
A = ops.SparseMatrix.from_dense(rng.standard_normal((2048, 2048)).astype("f"), 0.95)
B = rng.standard_normal((2048, 128)).astype("f")


@pytest.fixture(scope="module")
def works():
    """By name: a call on two threads that gives an array."""
    model, deep = spdnn.compile(NETWORK, threads=2), spdnn.compile(DEEP, threads=2)
    return {
        "a call": lambda: model(X[:200]),
        "a call with one input": lambda: model(X[:1]),
        "a call with a sparse array": lambda: model(sp.csr_array(X)),
        "a call of many layers and inputs": lambda: deep(np.ones((1100, 64), "f")),
        "model.infer": lambda: model.infer(X).row_sum,
        "engine spgemm": lambda: spdnn.infer(NETWORK, X, engine="spgemm", threads=2).row_sum,
        "engine taskgraph": lambda: spdnn.infer(NETWORK, X, engine="taskgraph", threads=2).row_sum,
        "spmm": lambda: ops.spmm(A, B, threads=2),
        "sddmm": lambda: ops.sddmm(A, B, B, threads=2).values,
        "attention": lambda: ops.attention(A, B, B, B, threads=2),
    }


NAMES = (
    "a call", "a call with one input", "a call with a sparse array", "a call of many layers and inputs", "model.infer",
    "engine spgemm", "engine taskgraph", "spmm", "sddmm", "attention",
)  # fmt: skip


def threads_here():
    return len(list(Path("/proc/self/task").iterdir()))


def in_child(body):
    """What a forked child ends with: 0 where `body()` is true; "hangs" where it did not end in time."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if body() else 1)
        except BaseException:
            os._exit(2)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hangs"


@pytest.mark.parametrize("name", NAMES)
def test_a_child_computes_what_its_parent_does(works, name):
    expected = works[name]()
    assert in_child(lambda: np.array_equal(works[name](), expected)) == 0
    assert np.array_equal(works[name](), expected)


def test_a_child_has_several_threads(works):
    works["spmm"]()
    assert in_child(lambda: threads_here() == 1 and works["spmm"]() is not None and threads_here() == 2) == 0


def test_a_child_of_a_child(works):
    expected = {name: work() for name, work in works.items()}

    def right():
        return all(np.array_equal(work(), expected[name]) for name, work in works.items())

    assert in_child(lambda: right() and in_child(right) == 0 and right()) == 0
    assert right()


def test_a_fork_by_a_thread_that_has_threads_of_its_own(works):
    expected, ends = works["spmm"](), []

    def run():
        assert np.array_equal(works["spmm"](), expected)
        ends.append(in_child(lambda: np.array_equal(works["spmm"](), expected)))
        ends.append(0 if np.array_equal(works["spmm"](), expected) else 1)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ends == [0, 0]
    assert np.array_equal(works["spmm"](), expected)


def test_forks_while_other_threads_compute(works):
    """At whatever moment of theirs: the child has their memory, with what they were about, and not them."""
    expected, over = {name: work() for name, work in works.items()}, threading.Event()
    ends, errors = [], []

    def right(name):
        return np.array_equal(works[name](), expected[name])

    def compute():
        while not over.is_set():
            errors.extend(name for name in NAMES if not right(name))

    threads = [threading.Thread(target=compute) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for name in NAMES * TURNS:
            ends.append(in_child(partial(right, name)))
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert set(ends) == {0}
    assert not errors


def _sums(part):
    return MODEL.infer(X[part]).row_sum


MODEL = None


def test_a_pool_of_processes(works):
    global MODEL
    MODEL = spdnn.compile(NETWORK, threads=2)
    expected, parts = MODEL.infer(X).row_sum, [slice(k, k + 100) for k in range(0, 1200, 100)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        sums = pool.map_async(_sums, parts).get(SECONDS)
    assert np.array_equal(np.concatenate(sums), expected)
    assert np.array_equal(MODEL.infer(X).row_sum, expected)


@pytest.mark.parametrize("pruned", [True, False])
def test_a_model_that_onnx_runtime_runs(tmp_path, monkeypatch, pruned):
    """The threads of its session are not in a child, nor the thread that holds the session's locks."""
    monkeypatch.setenv("SPDNN_TUNING", "off")
    made = Maker(1024, seed=1)
    for kind in ("MatMul", "Sigmoid", "MatMul"):
        made.add(kind, *[made.draw(1024, 1024, density=0.05 if pruned else 1.0)] * (kind == "MatMul"))
    model, x, over = (
        spdnn.compile(made.save(tmp_path / "a.onnx"), threads=2),
        X[:64, :1].repeat(1024, 1),
        threading.Event(),
    )
    expected = model(x)

    def compute():
        while not over.is_set():
            model(x)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        assert {in_child(lambda: np.allclose(model(x), expected, rtol=1e-4)) for _ in range(4)} == {0}
    finally:
        over.set()
        thread.join()
    assert np.array_equal(model(x), expected)
    os.truncate(tmp_path / "a.onnx", 0)

    def says_why():
        with pytest.raises(SpdnnError, match="it changed since it was compiled, so this model cannot be called in a f"):
            model(x)
        return True

    assert in_child(says_why) == 0
