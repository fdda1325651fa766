"""Threads that take tasks, the number of BLAS's threads, the clock."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from spdnn.models.arithmetic import Clock, Workers, blas_threads, difference


def blas_counts():
    from threadpoolctl import threadpool_info

    return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


def test_every_task_once_on_all_threads():
    done, names, together = [], set(), threading.Barrier(3, timeout=10)

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


def test_blas_threads():
    with blas_threads(1):
        assert blas_counts() == {1}


def test_without_threadpoolctl(monkeypatch):
    from spdnn.models import arithmetic

    monkeypatch.setattr(arithmetic, "_controller", lambda: None)
    with Workers(2) as workers:
        found = []
        workers.each(lambda task, worker: found.append(task), [1, 2])
    assert sorted(found) == [1, 2]


def test_clock_adds_up():
    clock = Clock()
    with clock("a"):
        pass
    with clock("a", threads=4):
        pass
    assert list(clock.seconds) == ["a"]
    assert 0 <= clock.seconds["a"] < 1


def test_difference():
    assert difference(np.array([1.0, 2.5]), np.array([1.0, -2.0])) == 2.25
    assert np.isnan(difference(np.array([np.nan]), np.array([1.0])))
