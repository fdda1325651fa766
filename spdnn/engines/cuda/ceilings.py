"""The limits of a device, measured: copies in its memory, loads from shared memory and from the second-level cache,
multiply-adds.

Each takes a quarter of the time, in short windows between two events; the best window is the limit, for a limit is what
a device can do. Before its windows each kernel must give the sums that its work comes to: a ceiling of other work is
none. Kernels: ceilings.cu.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError, Unavailable
from spdnn.core.limits import ARCHITECTURE, LONGEST_MEASURING, STAGE, Machine
from spdnn.core.resources import CEILING_SHARE
from spdnn.kernels.cuda.declarations import Kernel
from spdnn.kernels.cuda.device import Device
from spdnn.kernels.cuda.settings import TILE

LOAD_THREADS, LOAD_BLOCKS = 256, 4  # of a block; blocks of a multiprocessor
SHARED_ROWS, CHAINS, STEPS, IN_FLIGHT = 128, 8, 16, 4  # see ceilings.cu
MACROS = (("ROWS", SHARED_ROWS), ("CHAINS", CHAINS), ("STEPS", STEPS))
COPY, SHARED, SECOND, FMA = KERNELS = tuple(
    Kernel("ceilings.cu", name, LOAD_THREADS, MACROS)
    for name in ("copy_memory", "load_shared", "load_second", "multiply_add")
)
SHARED_BYTES = 4 * TILE * SHARED_ROWS
VECTOR_BYTES = 16  # bytes of a float4
WINDOWS = 8
MOST_ROUNDS = 1 << 24
COPY_L2, LEAST_L2 = 4, 2  # each array of the copy: that many times the second-level cache, and at least
SECOND_SHARE = 4  # the buffer of load_second: this part of the cache
SEEN = 1024  # numbers at either end of the copy that are checked
PATTERN = 0x3F  # every byte that is copied

Bind = Callable[[int], Callable[[], None]]  # a launch of so many rounds


def measure(device: Device, seconds: float = 0.2) -> Machine:
    """Measure what `device` does at best.

    Args:
        seconds: that the windows take; compiling and the making of arrays come on top.

    Returns:
        a Machine: its nearest cache is shared memory, its instruction set the device's architecture ("sm_90").

    Raises:
        InputError: seconds out of range.
        Unavailable: too little of the device's memory is free for arrays that its cache does not hold.
        SpdnnError: a kernel failed, or did not do its work.
    """
    if not 0 < seconds <= LONGEST_MEASURING:
        raise InputError(f"{seconds} seconds of measuring: it must be above 0 and at most {LONGEST_MEASURING:g}")
    blocks, rates, amounts = LOAD_BLOCKS * device.properties.multiprocessors, [], []
    kinds = (_copy, _bind_shared, _second, _multiply_add)  # in the order of RATES
    for kind in progress.bar(kinds, *STAGE):
        try:
            bind, work = kind(device, blocks)
        except MemoryTooSmall as error:
            raise Unavailable(f"too little memory to measure the device: {error}") from error
        rates.append(_windows(device, bind, work, seconds / 4))
        amounts.append(work)
    # A round of the first copies an array: it reads and writes as many bytes as that has.
    return Machine(f"{ARCHITECTURE}{device.properties.capability}", *rates, copy_array_bytes=amounts[0] // 2)


def _windows(device: Device, bind: Bind, work: int, seconds: float) -> list[float]:
    """Work a second in each of WINDOWS launches, which together take about `seconds`; `work` is that of one round."""
    # Length of a window: rounds grow until one takes long enough that the two events cost nothing next to it.
    window, rounds = seconds / WINDOWS, 1
    while (taken := device.seconds(bind(rounds))) < window / 2 and rounds < MOST_ROUNDS:
        rounds = min(MOST_ROUNDS, rounds * max(2, min(16, int(window / max(taken, 1e-9)))))
    launch = bind(rounds)
    return [work * rounds / device.seconds(launch) for _ in range(WINDOWS)]


def _rounds(device: Device, kernel: Kernel, blocks: int, shared: int = 0, **arguments: Any) -> Bind:
    """What binds launches of the kernel on these arguments."""
    return lambda rounds: device.bind(kernel, blocks, {**arguments, "rounds": rounds}, shared)


def _copy(device: Device, blocks: int) -> tuple[Bind, int]:
    count = _copy_bytes(device.properties.l2_bytes, device.free_bytes()) // VECTOR_BYTES
    source, target = (device.empty(4 * count, np.float32) for _ in range(2))
    device.fill(source, PATTERN)
    device.fill(target, 0xFF)
    bind = _rounds(device, COPY, blocks, source=source, target=target, count=count)
    # Check: the pattern must have arrived at both ends of the target, which began with another one.
    bind(1)()
    ends = [device.read(part).view(np.uint8) for part in (target[:SEEN], target[-SEEN:])]
    _check(COPY, all((part == PATTERN).all() for part in ends))
    return bind, 2 * VECTOR_BYTES * count


def _copy_bytes(cache: int, free: int) -> int:
    """Bytes of each array of the copy, which fit into what is free."""
    # Far more than the second-level cache holds, so that every byte comes from the device's memory and goes there.
    least = max(LEAST_L2 * cache, 4 * SEEN)
    size = min(COPY_L2 * cache, int(CEILING_SHARE * free)) // VECTOR_BYTES * VECTOR_BYTES
    if size < least:
        raise Unavailable(
            f"{free:,} free bytes are too few to measure the device: two arrays beyond its cache need "
            f"{int(least / CEILING_SHARE):,}"
        )
    return size


def _bind_shared(device: Device, blocks: int) -> tuple[Bind, int]:
    sums = device.empty(4 * blocks * LOAD_THREADS, np.float32)
    bind = _rounds(device, SHARED, blocks, SHARED_BYTES, sums=sums)
    bind(1)()
    line = SHARED_ROWS * (SHARED_ROWS - 1) / 2 + SHARED_ROWS * np.arange(TILE)
    _check(SHARED, (device.read(sums).reshape(-1, TILE) == line).all())
    return bind, VECTOR_BYTES * SHARED_ROWS * blocks * LOAD_THREADS


def _second(device: Device, blocks: int) -> tuple[Bind, int]:
    # A buffer of a part of the second-level cache, and no smaller than what all threads load at once.
    all_threads = blocks * LOAD_THREADS
    repeats = max(1, device.properties.l2_bytes // SECOND_SHARE // (VECTOR_BYTES * all_threads))
    count = repeats * all_threads
    values = (np.arange(4 * count) % 64).astype(np.float32)
    buffer, sums = device.upload(values), device.empty(4 * all_threads, np.float32)
    bind = _rounds(device, SECOND, blocks, buffer=buffer, sums=sums, count=count)
    bind(repeats)()
    _check(SECOND, device.read(sums).sum(dtype=np.float64) == IN_FLIGHT * values.sum(dtype=np.float64))
    return bind, VECTOR_BYTES * IN_FLIGHT * all_threads


def _multiply_add(device: Device, blocks: int) -> tuple[Bind, int]:
    sums = device.empty(blocks * LOAD_THREADS, np.float32)
    _rounds(device, FMA, blocks, sums=sums, factor=1.0, step=1.0)(1)()
    _check(FMA, (device.read(sums) == CHAINS * (CHAINS - 1) / 2 + CHAINS * STEPS).all())
    return _rounds(device, FMA, blocks, sums=sums, factor=0.5, step=1.0), CHAINS * STEPS * blocks * LOAD_THREADS


def _check(kernel: Kernel, right: Any) -> None:
    if not right:
        raise SpdnnError(f"kernel {kernel}: what it wrote is not what its work comes to, so it measures nothing")
