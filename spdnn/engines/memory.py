"""How much memory an engine may take: what this process holds, what is free, what the caller allows."""

from __future__ import annotations

import os

from spdnn.errors import SpdnnError

DEFAULT_SHARE = 0.7  # of the memory that is free when no limit was given
INPUT_BYTES = 160  # of what is kept of every input, beside its features: its number, its row, its statistics, twice


def resident_bytes() -> int:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def limit_bytes(limit: int | None) -> int:
    """`limit`, or without one what this process holds now and DEFAULT_SHARE of what can be taken without swapping.

    Raises:
        SpdnnError: /proc/meminfo does not say what is free.
    """
    return limit if limit is not None else resident_bytes() + int(DEFAULT_SHARE * _available_bytes())


def _available_bytes() -> int:
    """Bytes that can be taken without swapping, by /proc/meminfo."""
    with open("/proc/meminfo") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise SpdnnError("/proc/meminfo does not say MemAvailable; give a memory limit (--memory)")
