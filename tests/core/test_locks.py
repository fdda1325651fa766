"""Locks in forked processes (spdnn/core/locks.py)."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spdnn.core.locks import Lock, cached_property

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
SECONDS = 60


def in_child(body):
    """Whether body() is true in a forked child, where SIGALRM ends what waits for ever."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            os._exit(not body())
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class Numbers:
    def __init__(self):
        self.begun, self.goes_on, self.counts = threading.Event(), threading.Event(), []

    @cached_property
    def late(self):
        self.counts.append(1)
        self.begun.set()
        assert self.goes_on.wait(SECONDS)
        return 7


def test_a_lock_that_another_thread_holds_is_open_in_a_child():
    lock, held, over = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            over.wait(SECONDS)

    def taken():
        with ThreadPoolExecutor(1) as pool:
            return not pool.submit(lock._lock.acquire, blocking=False).result()

    def takes_it():
        with lock, lock:  # its thread may, and no other
            return taken()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        assert held.wait(SECONDS)
        assert in_child(takes_it)
        assert taken()
        over.set()
    assert in_child(takes_it)


def test_a_value_that_another_thread_computes_is_computed_in_a_child():
    numbers = Numbers()

    def computes():
        numbers.goes_on = threading.Event()  # the other thread may have held a lock in the old one
        numbers.goes_on.set()
        return numbers.late == 7

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: numbers.late)
        assert numbers.begun.wait(SECONDS)
        assert in_child(computes)
        numbers.goes_on.set()
        assert other.result() == numbers.late == 7
    assert numbers.counts == [1]
    assert isinstance(Numbers.late, cached_property)
