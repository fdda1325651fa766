"""Inputs that once failed, and the seeds of every format, go through the readers as `make fuzz` judges them."""

from pathlib import Path

import pytest
import targets

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("name", targets.TARGETS)
def test_seeds_are_taken_and_what_failed_once_fails_no_more(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNN_FUZZ_FOLDER", str(tmp_path))
    (tmp_path / "in").mkdir()
    target = targets.TARGETS[name]
    for seed in target.seeds(tmp_path):
        data = seed.read_bytes()
        if name != "SciPy arrays":
            assert targets.judge(name, data, tmp_path / "in"), seed
        if target.seal:
            assert targets.judge(name, target.seal(data), tmp_path / "in"), seed
    for case in sorted((CASES / name.replace(" ", "-")).glob("*")):
        targets.judge(name, case.read_bytes(), tmp_path / "in")
