"""Threads that take tasks, the number of BLAS's threads, the clock."""

import threading
import types

import numpy as np
import pytest

from spdnn.ops.models import arithmetic
from spdnn.ops.models.arithmetic import Clock, Workers, difference


@pytest.fixture(autouse=True)
def every_library():
    """Libraries that other tests loaded meanwhile are limited, too."""
    arithmetic._controller.cache_clear()


def blas_counts():
    from threadpoolctl import threadpool_info

    return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


def test_every_task_once_on_all_threads():
    done, names, together = [], set(), threading.Barrier(3, timeout=300)

    def work(task, worker):
        if task < 3:
            together.wait()  # three tasks are under way at once, or this breaks
        names.add((worker, threading.get_ident()))
        done.append(task)

    with Workers(3) as workers:
        workers.each(work, range(50))
        workers.each(work, [])
    assert sorted(done) == list(range(50))
    assert {worker for worker, _ in names} == {0, 1, 2}


def test_an_error_comes_out_and_blas_is_as_before():
    before = blas_counts()
    with pytest.raises(ZeroDivisionError), Workers(2) as workers:
        assert blas_counts() == {1}
        workers.each(lambda task, worker: 1 // task, [1, 0, 2])
    assert blas_counts() == before


def test_without_threadpoolctl(monkeypatch):
    monkeypatch.setattr(arithmetic, "_controller", lambda: None)
    with Workers(2) as workers:
        found = []
        workers.each(lambda task, worker: found.append(task), [1, 2])
    assert sorted(found) == [1, 2]


def test_clock_adds_up(monkeypatch):
    times = iter((1.0, 3.0, 10.0, 30.0, 7.0, 8.0))
    monkeypatch.setattr(arithmetic, "time", types.SimpleNamespace(perf_counter=lambda: next(times)))
    clock = Clock()
    for part, threads in (("a", 1), ("a", 4), ("b", 1)):
        with clock(part, threads):
            pass
    assert clock.seconds == {"a": 2 + 20 / 4, "b": 1}


def test_difference():
    assert difference(np.array([1.0, 2.5]), np.array([1.0, -2.0])) == 2.25
    assert difference(np.array([np.nan]), np.array([1.0])) == np.inf
