"""How much memory an engine may take: what this process holds, what is free, what the caller allows."""

from __future__ import annotations

from spdnn.errors import SpdnnError

DEFAULT_SHARE = 0.7  # of the memory that is free when no limit was given
INPUT_BYTES = 160  # of what is kept of every input, beside its features: its number, its row, its statistics, twice


def resident_bytes() -> int:
    """Bytes of this process in memory now, less what it shares with the other ranks of its node."""
    return _status("VmRSS") - shared_bytes()


def shared_bytes() -> int:
    """Bytes of shared-memory windows that this process has touched."""
    return _status("RssShmem")


def _status(name: str) -> int:
    """A number of bytes from /proc/self/status; 0 where it is not told."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
        return next((int(line.split()[1]) * 1024 for line in stream if line.startswith(f"{name}:")), 0)


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
    with open("/proc/meminfo", encoding="ascii") as stream:
        return next((int(line.split()[1]) * 1024 for line in stream if line.startswith("MemAvailable:")), None)
