"""How busy the machine is with other work.

Other work is what the cores that we may use did (/proc/stat, less the processor time of our processes; time that a
hypervisor took is in it). Throttling is time that a limit of the control group kept from us. Both are parts of cores x
seconds. The system counts in ticks of 10 ms.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

from spdnn.core.fields import Part, Record, column
from spdnn.core.resources import affinity, groups

_BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; the others are idle, or in these already
_TICK = os.sysconf("SC_CLK_TCK")
_ROOT = Path("/")
_PER_SECOND = {"throttled_usec": 1e6, "throttled_time": 1e9}  # of control groups v2 and v1


class Load(Record):
    """How busy the machine was with other work while the clock ran; of several nodes, the busiest.

    Attributes:
        others: processor time of other processes on the cores of the run / (cores x seconds); null where it is unknown.
        throttled: time that a limit of the control group took / (cores x seconds); null where it is unknown.
    """

    others: Annotated[Part | None, column("other_work_share")]
    throttled: Annotated[Part | None, column("throttled_share")]

    @property
    def busy(self) -> float:
        """Both parts together; of what is unknown, 0."""
        return (self.others or 0.0) + (self.throttled or 0.0)


class Usage(NamedTuple):
    """What was used since a watch began: seconds, processor seconds by core (None: unreadable), ours, throttled."""

    seconds: float
    cores: dict[int, float] | None
    ours: float
    throttled: float | None


class LoadMonitor:
    """Looks at the system's counters now, and again when asked."""

    def __init__(self):
        self._began = _counters()

    def usage(self, least: float = 0.0) -> Usage:
        """What was used since it began; it sleeps until `least` seconds have passed."""
        began = self._began
        time.sleep(max(0.0, began.seconds + least - time.perf_counter()))
        now = _counters()
        cores = None
        if began.cores and now.cores:
            cores = {core: spent - began.cores.get(core, spent) for core, spent in now.cores.items()}
        throttled = None if None in (began.throttled, now.throttled) else now.throttled - began.throttled
        return Usage(now.seconds - began.seconds, cores, now.ours - began.ours, throttled)

    def load(self, least: float = 0.0) -> Load:
        """`load_of` what this process used."""
        return load_of([self.usage(least)])


def load_of(together: Iterable[Usage]) -> Load:
    """The field `load` of a record, of processes of one node that were watched at the same time."""
    together = list(together)
    seconds, ours = max(load.seconds for load in together), sum(load.ours for load in together)
    spent: dict[int, float] = {}
    for load in together:
        spent |= load.cores or {}
    cores = len(spent) or len(affinity())
    throttled = [load.throttled for load in together if load.throttled is not None]

    def part(amount: float) -> float:
        return min(1.0, max(0.0, amount / (cores * seconds))) if seconds else 0.0

    return Load(
        others=part(sum(spent.values()) - ours) if spent else None,
        throttled=part(max(throttled)) if throttled else None,
    )


def _counters() -> Usage:
    return Usage(time.perf_counter(), _cores(), time.process_time(), _throttled_seconds())


def _cores() -> dict[int, float] | None:
    """Seconds that each core which we may use was not idle, since the boot; None: the system does not say."""
    own, spent = affinity(), {}
    try:
        for line in (_ROOT / "proc/stat").read_text("ascii").splitlines():
            name, *fields = line.split()
            if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in own:
                spent[int(name[3:])] = sum(int(fields[k]) for k in _BUSY_FIELDS) / _TICK
    except (OSError, ValueError, IndexError):
        return None
    return spent or None


def _throttled_seconds() -> float | None:
    """Seconds that the control group of this process was throttled; None: no group says."""
    for group in groups("cpu", _ROOT):
        try:
            fields = dict(line.split() for line in (group / "cpu.stat").read_text("ascii").splitlines())
            for name, scale in _PER_SECOND.items():
                if name in fields:
                    return int(fields[name]) / scale
        except (OSError, ValueError):
            continue
    return None
