"""How much memory an engine may take: what this process holds, what is free, what the caller allows.

Linux tells these numbers in /proc.
"""

import contextlib
import ctypes

from spdnn.common.errors import SpdnnError

DEFAULT_SHARE = 0.7  # of the memory that is free without a limit
INPUT_BYTES = 160  # of every input, besides its features: its number, its row, its statistics, twice


def kernel_bytes(path: str, name: str) -> int | None:
    """Bytes that a file of /proc tells in kB in its line `name`; None where it has no such line."""
    with open(path, encoding="ascii", errors="replace") as stream:
        return next((int(line.split()[1]) * 1024 for line in stream if line.startswith(f"{name}:")), None)


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
    try:
        return kernel_bytes("/proc/self/smaps_rollup", "Pss")
    except OSError:
        return None


def limit_bytes(limit: int | None) -> int:
    """`limit`, or without one what this process holds now and DEFAULT_SHARE of what can be taken without swapping.

    Raises:
        SpdnnError: /proc/meminfo does not say what is free.
    """
    if limit is not None:
        return limit
    free = available_bytes()
    if free is None:
        raise SpdnnError("/proc/meminfo does not say MemAvailable; give a memory limit (--memory)")
    return resident_bytes() + int(DEFAULT_SHARE * free)


def available_bytes() -> int | None:
    """Bytes that can be taken without swapping, by /proc/meminfo; None where it does not say."""
    return kernel_bytes("/proc/meminfo", "MemAvailable")
