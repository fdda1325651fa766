"""Some drawn kills of the workflow, a full disk, a read-only folder and two runs at once; faults.py has them all."""

import pytest
from faults import main

pytestmark = [pytest.mark.full("workflow"), pytest.mark.needs("mnist"), pytest.mark.xdist_group("faults")]
SOME = ["import_network", "prepare", "infer_ranks", "report"]


def test_the_next_run_ends_as_if_nothing_was(tmp_path, mnist_file, monkeypatch, capsys):
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    given = ["--kills", "4", "--seed", "3", "--ends", "60", "--folder", str(tmp_path / "run"), "--rules", *SOME]
    assert main([*given, "--mounts", "prepare"]) == 0, capsys.readouterr().out
