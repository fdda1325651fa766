"""The parts that both arithmetics of a model share: threads with a BLAS thread each, a clock of parts, checks."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from spdnn.core.closeness import worst
from spdnn.core.errors import InputError
from spdnn.core.numbers import plain, real, whole
from spdnn.kernels import dispatch

ARITHMETIC_TOLERANCE = 2e-5  # of `difference` between two arithmetics of a model, or one of them and float64


def difference(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, over the largest absolute value of `expected`; infinite where they cannot be compared."""
    return worst(actual, expected, np.abs(expected).max(initial=0.0))


def check_arithmetic(arithmetic: Any, offered: tuple[str, ...]) -> None:
    """Raise InputError for a word that is no arithmetic."""
    if arithmetic not in offered:
        raise InputError(f"arithmetic {arithmetic!r}: it must be one of {', '.join(offered)}")


def check_whole(name: str, value: Any, least: int, most: int) -> int:
    """A value of a configuration as an int. Raises InputError when it is no whole number, or out of range."""
    number = whole(value)
    if number is None or not least <= number <= most:
        raise InputError(f"{name} {value!r}: it must be a whole number from {least} to {most:,}")
    return number


def check_below(name: str, value: Any, least: float, most: float) -> Any:
    """A value of a configuration as a number of Python's. Raises InputError when it is no number, or not from `least`
    to below `most`."""
    number = real(value)
    if number is None or not least <= number < most:
        raise InputError(f"{name} {value!r}: it must be a number from {least} to below {most}")
    return plain(value)


def finite(logits: np.ndarray) -> np.ndarray:
    """The same. Raises InputError when one of them is NaN or infinite."""
    if not np.isfinite(logits).all():
        raise InputError("a logit is NaN or infinite: an input or the weights are too large for float32, or NaN")
    return logits


class Clock:
    """Seconds that each part of a model took: `seconds`, by name.

    Threads that work side by side add a part of theirs each, so that the parts add up to the time on the wall, less
    what threads waited for one another.
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def __call__(self, part: str, threads: int = 1) -> Iterator[None]:
        """Time a block, which `threads` threads are in side by side."""
        began = time.perf_counter()
        yield
        took = (time.perf_counter() - began) / threads
        with self._lock:
            self.seconds[part] = self.seconds.get(part, 0.0) + took


class Workers:
    """Threads that take tasks one after the other, BLAS in each of them on one thread.

    One large product by all threads, again and again, waits at the end of each; products of parts do not, and what
    lies between them (norms, activations, copies) runs on all threads too, on data that is still in the caches.
    BLAS's number of threads is the process's, so other threads of the caller have one, too, while `with` lasts.
    """

    def __init__(self, threads: int):
        self.threads = threads

    def __enter__(self) -> "Workers":
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(blas_threads(1))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self.threads, initializer=dispatch.use_all_cores))
        return self

    def __exit__(self, *raised) -> None:
        self._stack.__exit__(*raised)

    def each(self, work: Callable[[Any, int], None], tasks: Iterable) -> None:
        """work(task, worker) for every task; `worker`, from 0, names the thread, for what it keeps to itself."""
        waiting = iter(list(tasks))  # next() on a list's iterator is one step for all threads

        def run(worker: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite in the end becomes a sentence
                for task in waiting:
                    work(task, worker)

        for done in [self._pool.submit(run, worker) for worker in range(self.threads)]:
            done.result()


def blas_threads(threads: int) -> contextlib.AbstractContextManager:
    """So many threads for NumPy's BLAS, where threadpoolctl is installed."""
    controller = _controller()
    return contextlib.nullcontext() if controller is None else controller.limit(limits=threads, user_api="blas")


@functools.cache
def _controller():
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    return ThreadpoolController()
