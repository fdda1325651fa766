"""What passed, what failed, what was left out for want of time, what this machine cannot do."""

import contextlib
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spdnn.core import endings
from spdnn.core.errors import InputError, SpdnnError

LONGEST = 400  # characters of a failure
ROOT = Path(__file__).resolve().parents[1]


class NotHere(Exception):
    """A case that this machine cannot run, which is no failure of it."""


class TooLittleTime(Exception):
    """A case that was stopped."""


class Tally:
    """Cases, counted as they run.

    Args:
        seconds: after which no new case starts; None: every case does.
        tell: is given what is said of each case; None: it is printed.
        probe: called after a case that failed; where it raises too, nothing can run any more and every later case is
            left out. (After an access out of bounds CUDA refuses all calls of the process.)
    """

    def __init__(
        self,
        seconds: float | None = None,
        tell: Callable[[str], Any] | None = None,
        probe: Callable[[], Any] | None = None,
    ):
        self.tell, self.began, self.seconds = tell or partial(print, flush=True), time.monotonic(), seconds
        self.probe, self.stopped = probe, False
        self.passed, self.failures, self.left_out, self.not_here = 0, [], [], []

    @property
    def left(self) -> float:
        """Seconds."""
        return float("inf") if self.seconds is None else self.seconds - (time.monotonic() - self.began)

    def starts(self, name: str, needs: float = 0.0) -> bool:
        """Whether a case that takes about so many seconds is begun; else it is left out, and told to be."""
        if self.left > needs and not self.stopped:
            return True
        self.left_out.append(name)
        return False

    def case(self, name: str, work: Callable[[], Any], needs: float = 0.0) -> Any:
        """What `work` returns; None where it failed, was left out or cannot run here."""
        if not self.starts(name, needs):
            return None
        try:
            found = work()
        except NotHere as reason:
            self.absent(f"{name}: {reason}")
            return None
        except TooLittleTime as reason:
            self.left_out.append(f"{name} ({reason})")
            return None
        except Exception as error:  # whatever goes wrong is a failure of this case, and the next one is still run
            self.fail(name, error)
            self._look()
            return None
        self.passed += 1
        return found

    def absent(self, told: str) -> None:
        """Something that this machine cannot run; once."""
        if told not in self.not_here:
            self.not_here.append(told)
            self.tell(f"not run here: {told}")

    def fail(self, name: str, error: Exception) -> None:
        told = _line(error)
        if not isinstance(error, (SpdnnError, AssertionError)):
            place = traceback.extract_tb(error.__traceback__)[-1]
            told = f"{type(error).__name__} in {place.filename}:{place.lineno}: {told}"
        self.failures.append(f"{name}: {told if len(told) <= LONGEST else told[: LONGEST - 3] + '...'}")
        self.tell(f"FAIL  {self.failures[-1]}")

    def _look(self) -> None:
        """Stop when the device does nothing any more."""
        if self.probe is None or self.stopped:
            return
        try:
            self.probe()
        except Exception as error:  # of whatever kind, it is the device that cannot be used
            self.stopped = True
            self.tell(f"STOP  the device does nothing any more, and the rest is left out: {_line(error)}")

    @property
    def status(self) -> int:
        """Exit status: 1 where something failed or nothing ran, 3 where something was left out, else 0."""
        if self.failures or not self.passed:
            return 1
        return 3 if self.left_out else 0

    def summary(self) -> str:
        word = {0: "pass", 1: "FAIL", 3: "incomplete"}[self.status]
        told = f"gpu-check {word}: {self.passed} passed, {len(self.failures)} failed, {len(self.left_out)} left out"
        return f"{told}, {time.monotonic() - self.began:.0f} s"


def listed(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    """Names in the order of `allowed`.

    Raises:
        InputError: one that is not among them, or none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or set(names) - set(allowed):
        raise InputError(f"{option} {text}: it must name some of {', '.join(allowed)}")
    return [name for name in allowed if name in names]


def child(command: list, seconds: float | None, folder: str | Path | None = None) -> subprocess.CompletedProcess:
    """A program that has ended, with what it printed; what it imports is found as here.

    Args:
        seconds: that it may take; None: as long as it needs.
        folder: where it runs; None: here.

    Raises:
        TooLittleTime: it did not end; it and all that it started are killed.
    """
    folders = [ROOT, ROOT / "tests/engines", *filter(None, [os.environ.get("PYTHONPATH")]), ROOT / "benchmarks"]
    path = os.pathsep.join(map(str, folders))
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        endings.STARTER: str(endings.process()),
    }  # it does not outlive this one
    words = [*map(str, command)]
    with subprocess.Popen(words, start_new_session=True, env=environment, cwd=folder, **pipes) as process:
        try:
            told = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TooLittleTime(f"stopped after {seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, *told)


def last_line(done: subprocess.CompletedProcess) -> str:
    """The last that a program said: an error of ours, if it said one."""
    errors = done.stderr.strip().splitlines()
    ours = [line for line in errors if line.startswith("spdnn: ") and "warning" not in line]
    return (ours or errors or done.stdout.strip().splitlines() or ["it said nothing"])[-1]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
