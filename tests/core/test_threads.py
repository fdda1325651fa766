"""Work on several items at once (spdnn/core/threads.py)."""

import subprocess
import sys
import threading

import pytest

from spdnn.core.resources import usable_cores
from spdnn.core.threads import in_order


@pytest.mark.parametrize(("threads", "ahead"), [(1, None), (1, 2), (3, None), (3, 5)])
def test_results_come_in_order_and_no_more_wait_than_may(threads, ahead):
    taken = []
    results = in_order(lambda item: item * item, iter_noting(range(20), taken), threads, ahead)
    for k in range(20):
        assert next(results) == k * k
        assert len(taken) <= k + 1 + (ahead or threads)
    assert next(results, None) is None


def iter_noting(items, taken):
    for item in items:
        taken.append(item)
        yield item


def test_an_error_comes_at_its_item():
    results = in_order(lambda item: 6 // item, [3, 2, 0, 1], 2)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_whoever_stops_early_does_not_wait():
    """Collected in a thread that is beginning, an iterator that waited for its threads never came back."""
    going_on, ended = threading.Event(), threading.Event()

    def stops_early():
        results = in_order(lambda item: item and going_on.wait(), range(4), 2)
        assert next(results) == 0
        del results
        ended.set()

    thread = threading.Thread(target=stops_early)
    thread.start()
    try:
        assert ended.wait(30)
    finally:
        going_on.set()
        thread.join()


CALLS = """
import warnings, numpy as np, spdnn
from spdnn import models, ops
net, A = spdnn.from_matrices([np.eye(4)], last="none"), ops.SparseMatrix.from_dense(np.eye(4))
x, n = np.eye(4, dtype=np.float32), {number}
for _ in range(3): spdnn.compile(net, threads=n)(x)
spdnn.compile(net, threads=np.int64(n), engine="spgemm")(x); spdnn.infer(net, x, threads=n)
for _ in range(3):
    ops.spmm(A, x, threads=n)
    ops.softmax(A, threads=n)
small = models.MobileNetConfig(width=0.25, size=32, classes=4)
models.MobileNet(small).images(np.ones((1, 3, 32, 32), np.float32), threads=n)
"""


@pytest.mark.parametrize("more", [False, True])
def test_more_threads_than_cores_warn_once_a_place(tmp_path, more):
    """By the caller's line: that of a call of the API, whichever."""
    cores = usable_cores()
    (script := tmp_path / "script.py").write_text(CALLS.format(number=cores + 3 * more))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    places = [line.partition(": RuntimeWarning: ")[::2] for line in done.stderr.splitlines() if "Warning" in line]
    said = f"{cores + 3} threads on {cores} core{'s' * (cores > 1)} run slower than {cores}"
    assert places == [(f"{script}:{line}", said) for line in (6, 7, 9, 10, 12) if more]


def test_a_command_says_it_once():
    cores = usable_cores()
    code = (
        "from spdnn.core.threads import threads; from spdnn.ops.backends import thread_count; "
        f"threads({cores + 1}); thread_count({cores + 1})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = f"{cores + 1} threads on {cores} core{'s' * (cores > 1)} run slower than {cores}"
    assert done.stderr == f"spdnn: warning: {said}\n"
