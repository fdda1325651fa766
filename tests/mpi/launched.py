"""Programs under mpiexec; whatever happens, none of their processes is left."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from children import ended, started

BIN = Path(sys.executable).parent
SPDNN = (sys.executable, "-m", "spdnn")


# Runs commands one after the other, each given as a JSON list; the first that fails is the last.
COMMANDS = """
import json, sys
from spdnn.cli import main
sys.exit(next(filter(None, (main(json.loads(words)) for words in sys.argv[1:])), 0))
"""


@contextlib.contextmanager
def launched(ranks: int, *command, stderr=subprocess.PIPE, **environment: str) -> Iterator[subprocess.Popen]:
    """A program on some ranks, started."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr, "text": True}
    settings["env"] = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment}
    with started([BIN / "mpiexec", "-n", ranks, *command], **settings) as process:
        yield process


def mpiexec(ranks: int, *command, **environment: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of a program on some ranks."""
    with launched(ranks, *command, **environment) as process:
        return ended(process)
