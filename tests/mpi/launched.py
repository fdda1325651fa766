"""Programs under mpiexec, with a time-out that fails loudly and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
TIMEOUT = 240  # seconds; eight ranks on two busy cores


class Launched:
    """A program on some ranks, started; `finish` gives (status, standard output, standard error)."""

    def __init__(self, ranks: int, *command, **environment: str):
        self.process = subprocess.Popen(
            [BIN / "mpiexec", "-n", str(ranks), *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment},
        )

    def finish(self, timeout: float = TIMEOUT) -> tuple[int, str, str]:
        try:
            out, told = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, told = self.process.communicate()
            pytest.fail(f"the ranks did not end within {timeout} s\n{out[-2000:]}\n{told[-2000:]}", pytrace=False)
        return self.process.returncode, out, told
