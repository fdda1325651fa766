"""docs/how-to/add-an-engine.md, followed: an engine from outside the package is run, verified and shown on a page."""

import re
import tomllib

import numpy as np
import pytest
from engine_cases import SHAPES, assert_same, rows
from how_to import code_blocks

from spdnn.api import infer
from spdnn.cli import main
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.request import RunRequest
from spdnn.engines import registry
from spdnn.runs.records.files import read_record
from spdnn.runs.workflow import estimates


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The engine of the page, in a package that is installed: its entry point is read as pip would have written it."""
    (module,) = code_blocks("add-an-engine.md")
    (tmp_path / "toy.py").write_text(module)
    (tmp_path / "toy-1.dist-info").mkdir()
    (tmp_path / "toy-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    points = tomllib.loads(code_blocks("add-an-engine.md", "toml")[0])["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
             for group, named in points.items()]  # fmt: skip
    (tmp_path / "toy-1.dist-info/entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    registry.find_installed.cache_clear()
    yield
    registry.find_installed.cache_clear()


def test_an_engine_of_your_own_is_run_verified_and_shown(toy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["info", "--seconds", "0.02"]) == 0
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
    network = from_matrices([np.full((4, 4), 1e30, np.float32)] * 2, last="relu")
    with pytest.raises(SpdnnError, match="layer 2 passed the range of float32"):
        infer(network, Inputs.from_array(np.ones((3, 4), np.float32)), "toy")


def test_a_scheduler_is_asked_for_its_time(toy):
    cases = [RunRequest(neurons=1024, layers=1920, inputs="digits", engine=name, threads=2) for name in ("toy", "cpu")]
    slow, fast = (estimates.infer(case, cases, 0).minutes for case in cases)
    assert slow > fast
