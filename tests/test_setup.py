"""`make setup` where something is missing: one sentence names the package, before anything is downloaded."""

import os
import pty
import shutil
from pathlib import Path

import pytest
from children import finished

ROOT = Path(__file__).resolve().parents[1]
# A Python that makes an environment as Debian's does without python3-venv: bin/python is there, pip is not.
PYTHON = """#!/bin/sh
case "$*" in
*version_info*) ;;
*Python.h*) exit {headers} ;;
*"-m venv"*)
    mkdir -p .venv/bin
    printf '#!/bin/sh\\n' > .venv/bin/python
    chmod +x .venv/bin/python
    exit {venv} ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def locked(tmp_path):
    """A function that makes .venv/.locked with such a Python: (exit status, standard error)."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/run.txt").write_text("")
    shutil.copy(ROOT / "Makefile", tmp_path)

    def make(headers=0, venv=0):
        python = tmp_path / "python"
        python.write_text(PYTHON.format(headers=headers, venv=venv))
        python.chmod(0o755)
        status, _, told = finished(["make", "-s", f"PYTHON={python}", ".venv/.locked"], cwd=tmp_path)
        return status, told

    return make


def test_the_headers_of_python_are_asked_for_first(locked, tmp_path):
    status, told = locked(headers=1)
    assert status == 2
    assert "Python.h is missing (install python3-dev on Debian and Ubuntu, python3-devel on Fedora)" in told
    assert not (tmp_path / ".venv").exists()


def test_an_environment_that_was_not_finished_is_not_left_behind(locked, tmp_path):
    status, told = locked(venv=1)
    assert status == 2
    assert "makes no virtual environment with pip (install python3-venv on Debian and Ubuntu)" in told
    assert not (tmp_path / ".venv").exists()


def test_an_environment_without_pip_is_made_anew(locked, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    broken = tmp_path / ".venv/bin/python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert locked() == (0, "")
    assert (tmp_path / ".venv/.locked").exists()


@pytest.mark.parametrize(("terminal", "there"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize(("cuda", "size"), [(12, "1.2 GB"), (13, "0.9 GB")])
def test_a_long_download_is_announced_and_shown_on_a_terminal(tmp_path, terminal, there, cuda, size):
    """Where CuPy is there, little is missing, and pip would list all that is not."""
    log, python, smi = tmp_path / "log", tmp_path / "python", tmp_path / "nvidia-smi"
    shown = f"*show*cupy-cuda{cuda}x) exit {int(not there)} ;; *show*) exit 1 ;;"
    python.write_text(f'#!/bin/sh\ncase "$*" in {shown} esac\necho "$@" >> {log}\n')
    smi.write_text("#!/bin/sh\nexit 9\n")
    for program in (python, smi):
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", ROOT / "envs/cuda.sh", tmp_path, cuda]
    reader, writer = pty.openpty() if terminal else os.pipe()
    assert finished(command, env=environment, stdout=writer)[0] == 0
    os.close(writer)
    said = os.read(reader, 4096).decode()
    os.close(reader)
    (installed,) = [line for line in log.read_text().splitlines() if "pip install" in line]
    assert ("--quiet" in installed) == (there or not terminal)
    assert (f"about {size}" in said.splitlines()[0]) != there
