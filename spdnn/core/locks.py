"""Locks that a forked process does not wait for: in it, the thread that would give one back does not exist."""

import functools
import os
import threading
import weakref
from typing import Any, TypeVar

Value = TypeVar("Value")


class Lock:
    """A lock for `with`, which its thread may take again, open in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in _locks:
        if not lock._lock._is_owned():  # by this thread, which gives it back
            lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_open_all)


class cached_property(functools.cached_property[Value]):
    """As that of functools, without the lock that it has up to Python 3.11: two threads may both compute a value."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.attrname, self.func(instance))
