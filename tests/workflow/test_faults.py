"""A kill before an inference and one in it, and a full disk; faults.py has them in every rule, and more."""

import pytest
from faults import main

pytestmark = [pytest.mark.full("workflow"), pytest.mark.xdist_group("faults")]


def test_the_next_run_ends_as_if_nothing_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where Snakemake leaves a folder when it is killed
    given = ["--kills", "2", "--seed", "7", "--ends", "60", "--rules", "prepare", "infer_ranks", "--mounts", "verify"]
    assert main([*given, "--alone", "--folder", str(tmp_path / "run")]) == 0, capsys.readouterr().out
