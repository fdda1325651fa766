"""Snakemake in a Python that has no spdnn says what to do, in one sentence."""

import subprocess
import sys

START = "import sys; sys.modules['spdnn'] = None; from snakemake.cli import main; main(['--dry-run'])"


def test_a_python_without_spdnn_is_told_what_to_do(root):
    run = subprocess.run([sys.executable, "-c", START], cwd=root, capture_output=True, text=True)
    assert run.returncode != 0
    assert "run `make setup` and `. .venv/bin/activate`" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
