"""docs/how-to/add-an-engine.md, followed: an engine from outside the package is run, verified and shown on a page."""

import re

import numpy as np
import pytest
from engine_cases import SHAPES, assert_same, rows
from how_to import python_blocks

from spdnn.cli import main
from spdnn.common.errors import SpdnnError
from spdnn.engines.registry import ENGINES, infer
from spdnn.pipeline import estimates
from spdnn.pipeline.config import Case
from spdnn.problem.features import Inputs
from spdnn.problem.network import from_matrices
from spdnn.records.files import read_record


@pytest.fixture
def toy(tmp_path, monkeypatch):
    module, line = python_blocks("add-an-engine.md")
    (tmp_path / "toy.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(ENGINES, "toy", "")
    exec(line)


def test_an_engine_of_your_own_is_run_verified_and_shown(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["engines"]) == 0
    assert "SciPy's sparse product, one layer after the other" in capsys.readouterr().out
    problem = ["--neurons", "1024", "--layers", "6", "--inputs", "digits", "--count", "300"]
    assert main(["challenge", *problem, "--engine", "toy", "--record", "toy.json"]) == 0
    record = read_record(tmp_path / "toy.json")
    assert record.engine.name == "toy"
    assert record.verdict.passed
    assert record.reductions.found["neurons"]["neurons_left"] < 6 * 1024
    assert main(["report", "toy.json", "-o", "page.html"]) == 0
    assert re.search(r"<td>toy, \d+ threads?</td>", (tmp_path / "page.html").read_text())


@pytest.mark.parametrize("reductions", ["none", "all"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_keeps_the_contract_on_awkward_shapes(toy, random_network, shape, reductions):
    count, widths, options = SHAPES[shape]
    assert_same("toy", random_network(widths, **options), rows(count, widths[0]), reductions=reductions)


def test_a_value_past_float32_is_an_error(toy):
    network = from_matrices([np.full((4, 4), 1e30, np.float32)] * 2)
    with pytest.raises(SpdnnError, match="layer 2 passed the range of float32"):
        infer(network, Inputs.from_array(np.ones((3, 4), np.float32)), "toy")


def test_a_scheduler_is_asked_for_its_time(toy):
    case = Case("radixnet-1024", 1920, "digits-1024", None, "toy", "all", 2)
    config = {"memory": None, "repeats": 1}
    slow, fast = (estimates.infer(case, config, 0).minutes for case in (case, Case(**{**vars(case), "engine": "cpu"})))
    assert slow > fast
