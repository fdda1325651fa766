"""Programs that tests start: each leads a group of processes, which is killed and waited for however the test ends."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

SECONDS = 300  # that any wait may take, on a machine that is busy with other things


@contextlib.contextmanager
def started(command, **settings) -> Iterator[subprocess.Popen]:
    """A program, started; what is left of its group at the end is killed."""
    with subprocess.Popen([*map(str, command)], start_new_session=True, **settings) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ended(process: subprocess.Popen, seconds: float = SECONDS) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of a program, once it has ended."""
    try:
        out, told = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, told = process.communicate()
        pytest.fail(f"it did not end within {seconds} s\n{(out or '')[-2000:]}\n{(told or '')[-2000:]}", pytrace=False)
    return process.returncode, out, told


def finished(command, **settings) -> tuple[int, str, str]:
    """As `ended`, of a program that is started here, with nothing to read."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, **pipes | settings) as process:
        return ended(process)


def until(happened: Callable[[], object], what: str, process: subprocess.Popen | None = None):
    """What `happened` returns, as soon as that is true; `process` has to live until then."""
    deadline = time.monotonic() + SECONDS
    while not (found := happened()):
        if process is not None and process.poll() is not None:
            pytest.fail(f"the program ended before {what}", pytrace=False)
        if time.monotonic() > deadline:
            pytest.fail(f"waited in vain until {what}", pytrace=False)
        time.sleep(0.05)
    return found


def executable(path, text: str) -> None:
    """Make a shell script at this path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
