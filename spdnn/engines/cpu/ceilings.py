"""The machine's limits, measured: copy bandwidth of memory, load bandwidth of the caches, multiply-adds a second.

Each takes a quarter of the time, in short windows; the best window is the limit, for a limit is what a machine can do.
Source: STREAM's copy (McCalpin 1995); the loads are what a gather of the kernels costs when it hits the nearest cache.
"""

from __future__ import annotations

from functools import partial

from spdnn.core import progress
from spdnn.core.errors import InputError, Unavailable
from spdnn.core.limits import LONGEST_MEASURING, STAGE, Machine
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import CEILING_SHARE, affinity, available_bytes
from spdnn.engines.base import Options
from spdnn.kernels import dispatch
from spdnn.kernels.caches import UNKNOWN, CacheLevel, caches
from spdnn.kernels.tiles import buffer

# Each array of the copy: that many times the last-level cache, which then holds no line for long, and at most so many
# bytes a thread. Streaming stores pass the cache, so smaller arrays change the rate little (one thread, a cache of 32
# MiB: 43.0 GB/s with 64 MiB, 42.5 with 960), and clearing the pages of larger ones took seconds.
COPY_CACHES, COPY_THREAD_BYTES = 2, 64 << 20
COPY_UNIT = 1 << 18  # bytes that a thread copies at a time (machine_module.cpp)
LOAD_UNIT = 512  # the buffers of loads come in multiples of it
SMALL = "memory of {:,} bytes is too small to measure the machine"


def measure(threads: int, seconds: float = 0.2, memory: int | None = None, together: int = 1) -> Machine:
    """Measure what this machine does at best on `threads` threads, at the kernels' instruction-set level.

    Args:
        seconds: that the windows take; making the arrays of the copy comes on top.
        memory: bytes that the arrays may take together; by default, and at most, a quarter of what is free.
        together: processes of this machine that measure at the same moment, this one included; the arrays of all
            are beyond the caches that they share.

    Raises:
        InputError: threads or seconds out of range.
        Unavailable: no compiled kernels, or too little memory for arrays that no cache holds.
    """
    Options(threads)  # refuses numbers of threads out of range
    if not 0 < seconds <= LONGEST_MEASURING:
        raise InputError(f"{seconds} seconds of measuring: it must be above 0 and at most {LONGEST_MEASURING:g}")
    level, quarter = dispatch.level().name, seconds / 4
    levels = caches() or UNKNOWN
    near, second = levels[0], levels[min(1, len(levels) - 1)]
    free = int(CEILING_SHARE * (available_bytes() or 0))
    allowed = free if memory is None else min(memory, free)
    # Copy bandwidth of memory: arrays far beyond the last-level caches that the threads can reach.
    copy_bytes = _copy_bytes(levels[-1], threads, allowed, together)
    # Load bandwidth of a cache: each thread reads half of its share again and again, so that all loads hit.
    if (load_bytes := max(_load_bytes(cache, threads) for cache in (near, second))) > allowed:
        raise Unavailable(f"{SMALL.format(allowed)}: what threads load from their caches needs {load_bytes:,}")
    kernels = dispatch.compiled_module()

    def copies() -> list[float]:
        source, target = (buffer(1, copy_bytes // 4, 1) for _ in range(2))
        return kernels.copy_samples(level, source, target, threads, quarter)

    def loads(cache: CacheLevel) -> list[float]:
        return kernels.load_samples(level, buffer(1, _load_bytes(cache, threads) // 4, 1), threads, quarter)

    def multiply_adds() -> list[float]:
        return kernels.multiply_add_samples(level, threads, quarter)

    kinds = (copies, partial(loads, near), partial(loads, second), multiply_adds)  # in the order of RATES
    rates = [kind() for kind in progress.bar(kinds, *STAGE)]
    return Machine(level, *rates, copy_array_bytes=copy_bytes)


def _load_bytes(cache: CacheLevel, threads: int) -> int:
    """Bytes that all threads load, each half of its share of a cache."""
    return threads * max(cache.bytes // (2 * cache.shared_by) // LOAD_UNIT, 1) * LOAD_UNIT


def _copy_bytes(last: CacheLevel, threads: int, memory: int, together: int) -> int:
    """Bytes of each array of the copy, which together fit into `memory`."""
    # Threads reach as many last-level caches as their cores have; processes that measure together share these.
    cached = last.bytes * min(threads, ceil_div(len(affinity()), last.shared_by)) // together
    unit = COPY_UNIT * threads
    size = max(min(COPY_CACHES * cached, COPY_THREAD_BYTES * threads) // unit, 1) * unit
    if 2 * size > memory:
        raise Unavailable(f"{SMALL.format(memory)}: two arrays beyond the caches need {2 * size:,}")
    return size
