"""How much memory an engine may take: what this process holds, what is free (core/resources.py), what the caller
allows.
"""

import contextlib
import ctypes

from spdnn.core.errors import SpdnnError
from spdnn.core.resources import available_bytes, kernel_bytes, tightest

DEFAULT_SHARE = 0.7  # of the memory that is free without a limit
INPUT_BYTES = 160  # of every input, besides its features: its number, its row, its statistics, twice


def resident_bytes() -> int:
    """Bytes of this process in memory now, less what it shares with the other ranks of its node."""
    return (kernel_bytes("/proc/self/status", "VmRSS") or 0) - shared_bytes()


def give_back() -> None:
    """Return memory that is free inside this process to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def shared_bytes() -> int:
    """Bytes of shared-memory windows that this process has touched."""
    return kernel_bytes("/proc/self/status", "RssShmem") or 0


def proportional_bytes() -> int | None:
    """Bytes of this process, what it shares divided by those that share it; None where the system does not tell."""
    return kernel_bytes("/proc/self/smaps_rollup", "Pss")


def limit_bytes(limit: int | None) -> int:
    """Bytes that this process may hold: `limit`, or less where a control group or resource limit allows less; without
    a `limit`, what the process holds now and `free_share`.

    Raises:
        SpdnnError: the system does not say what is free.
    """
    if limit is None:
        return resident_bytes() + free_share()
    return int(min(limit, resident_bytes() + tightest()[1]))


def more_memory(least: int) -> str:
    """What a caller raises so that this process may hold `least` bytes: --memory, or a limit of the system below it."""
    name, room = tightest()
    return "--memory" if least <= resident_bytes() + room else f"raise {name}"


def free_share() -> int:
    """DEFAULT_SHARE of the bytes that can be taken without swapping and within all limits; raises as `limit_bytes`."""
    free = available_bytes()
    if free is None:
        raise SpdnnError("/proc/meminfo does not say MemAvailable; give a memory limit (--memory)")
    return int(DEFAULT_SHARE * free)
