"""How many threads a run has; and a function of several items at once, with results in the order of the items."""

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from spdnn.core.errors import InputError
from spdnn.core.resources import most_threads, usable_cores, use_all_cores
from spdnn.core.shown import plural

MAX_THREADS = 1024  # of a rank: a number beyond is a slip

PACKAGE = __name__.partition(".")[0]
Item, Result = TypeVar("Item"), TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None, ahead: int | None = None
) -> Iterator[Result]:
    """`function` of each item, in order; threads work on the next few while one is used.

    Whoever stops early does not wait for the threads. An iterator that an error left behind may be collected in any
    thread, also in one that holds the locks which waiting for a thread needs.

    Args:
        items: read by the caller's thread, no further than `ahead`.
        threads: by default as many as this process may use cores.
        ahead: results that may wait, by default as many as there are threads.

    Raises:
        whatever `function` or `items` raise, in the order of the items.
    """
    threads = threads or usable_cores()
    pool, coming = ThreadPoolExecutor(threads, initializer=use_all_cores), deque()
    try:
        for item in items:
            if len(coming) == (ahead or threads):
                yield coming.popleft().result()
            coming.append(pool.submit(function, item))
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_said: set[int] = set()  # numbers of threads of which a command has warned, or that another rank has


@cache
def _cores() -> int:
    """As many cores as this process could use at first: enough to pass over a call in no time."""
    return usable_cores()


def too_many(number: int, cores: int) -> str:
    return f"{number} threads on {plural(cores, 'core')} run slower than {cores}"


def warn_of(number: int) -> None:
    """Warn the caller of this package, by its line, of more threads than cores; a command says it itself."""
    if number <= _cores() or number in _said or number <= (cores := usable_cores()):
        return
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(too_many(number, cores), RuntimeWarning, stacklevel=level)


def threads(requested: int | None, ranks: int = 1, warn: bool = True) -> int:
    """The number of threads of each of so many ranks on this node; more than cores is allowed, with a warning.

    Raises:
        InputError: more than the resource limits of this process leave room for.
    """
    cores, most = usable_cores(), most_threads()
    if requested and requested > most:
        raise InputError(
            f"--threads {requested}: the limit of address space (ulimit -v) has room for "
            f"{plural(int(most), 'thread')}; raise it, or give fewer threads"
        )
    if requested and requested * ranks > cores:
        _said.add(requested)
        if warn:
            print(f"spdnn: warning: {too_many(requested * ranks, cores)}", file=sys.stderr)
    return requested or max(1, min(cores // ranks, int(min(most, cores))))
