"""Which process is meant, on any machine that shares a folder, and whether it is gone, for its number comes again."""

import os
import re
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process, as others can find it; `str` and `parse` are a line of text of it.

    Attributes:
        host: its name; boot: what its system drew when it was started, and the namespace that numbers its processes.
        number: of the process; start: when it began, in ticks of the clock since the boot.
    """

    host: str
    boot: str
    number: int
    start: int

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.number} {self.start}"

    @property
    def here(self) -> bool:
        """Whether it is of the system that this process runs under."""
        return (self.host, self.boot) == _system()

    @property
    def gone(self) -> bool:
        """Whether it was of this system, and has ended."""
        return self.here and _start(self.number) != self.start


def parse(text: str) -> Process | None:
    """The process of a line of text; None: the line tells of none."""
    host, boot, number, start, *more = (*text.split(), "", "", "", "")
    whole = all(re.fullmatch(r"[0-9]{1,18}", text) for text in (number, start)) and not any(more)
    return Process(host, boot, int(number), int(start)) if whole else None


def process(number: int | None = None) -> Process | None:
    """The process of that number on this machine, this one by default; None: there is none."""
    number = os.getpid() if number is None else number
    start = _start(number)
    return None if start is None else Process(*_system(), number, start)


@cache
def _system() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return socket.gethostname(), f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


def _start(number: int) -> int | None:
    """When a process began; None: there is none, or it has ended and nobody has asked for its status yet."""
    try:
        # The name of the program is in brackets, and may hold anything.
        state, *fields = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])
