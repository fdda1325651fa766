"""A function of several items at once, by threads, with results in the order of the items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from spdnn.common.resources import usable_cores

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
    pool, coming = ThreadPoolExecutor(threads), deque()
    try:
        for item in items:
            if len(coming) == (ahead or threads):
                yield coming.popleft().result()
            coming.append(pool.submit(function, item))
        while coming:
            yield coming.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
