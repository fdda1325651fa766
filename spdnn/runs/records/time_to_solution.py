"""Time to solution: what a user waits for, from the start of a process to verified categories, and its parts.

Published systems time the inference alone, and so does the challenge; both times are in a record. Repeats after the
first, and the measuring of the machine, are no part of it; nor are downloads.
"""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spdnn.core import safe_open
from spdnn.core.errors import InputError

if TYPE_CHECKING:  # the command starts without the library of records
    from spdnn.runs.records.samples import TimeToSolution

COMMAND, WORKFLOW = "command", "workflow"


def process_seconds() -> float:
    """Seconds since this process was started, to the hundredth."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def solution(of: str, seconds: float, excluded: float, cached: Sequence[str] = (), **parts: float) -> "TimeToSolution":
    """A record's `time_to_solution`.

    Args:
        of: COMMAND, one process; WORKFLOW, the sum of the stages of one case.
        seconds: the whole; what `parts` leave of it is `other`.
        excluded: seconds that are no part of it, and passed all the same.
        cached: the parts that came from a cache, which makes this no time of a first run.
    """
    from spdnn.runs.records.samples import PARTS, TimeToSolution

    other = max(0.0, seconds - sum(parts.values()))
    every = {name: float(parts.get(name, 0.0)) for name in PARTS} | {"other": other}
    return TimeToSolution(of, list(cached), **every, excluded=excluded)


def text(time: "TimeToSolution") -> str:
    """One line for a terminal."""
    parts = ", ".join(f"{name} {spent:.2f}" for name, spent in time.parts.items() if spent >= 0.005)
    cached = f"; from the cache: {', '.join(time.cached)}" if time.cached else ""
    return f"{time.seconds:.2f} s from the start to a verified result ({parts}{cached})"


def stage_seconds(path: str | Path) -> float:
    """Seconds that a job of the workflow took, from the file of Snakemake's directive `benchmark`.

    Raises:
        InputError: it is no such file.
    """
    try:
        with safe_open.name_errors(path, "not a job's time"):
            head, first = safe_open.text(path, "file", "UTF-8").splitlines()[:2]
        seconds = float(dict(zip(head.split("\t"), first.split("\t"), strict=True))["s"])
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not a job's time as Snakemake writes it ({safe_open.brief(error)})") from error
    raise InputError(f"{path}: a job of {seconds} s")
