"""Work on several items at once, with results in the order of the items."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item, Found = TypeVar("Item"), TypeVar("Found")


def in_order(function: Callable[[Item], Found], items: Iterable[Item], most: int | None = None) -> Iterator[Found]:
    """`function` of each item, in order; threads work on the next few while one is used.

    Args:
        items: gone through by the caller's thread, no further than the threads have work for.
        most: threads, and results that may wait; by default as many as this process may use cores.

    Raises:
        whatever `function` or `items` raise, in the order of the items.
    """
    most = most or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(most) as threads:
        coming: deque = deque()
        try:
            for item in items:
                if len(coming) == most:
                    yield coming.popleft().result()
                coming.append(threads.submit(function, item))
            while coming:
                yield coming.popleft().result()
        finally:
            for one in coming:
                one.cancel()
