"""docs/how-to/add-an-engine.md, followed: an engine from outside the package is run, verified and shown on a page."""

import re
import sys

import numpy as np
import pytest
from engine_cases import SHAPES, assert_same, opened, rows
from how_to import code_blocks, write_engine

from spdnn.api import infer
from spdnn.cli import main
from spdnn.core.errors import MemoryTooSmall, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.request import RunRequest
from spdnn.engines import registry
from spdnn.engines.base import STREAMED
from spdnn.engines.execute import advance
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.records.files import read_record
from spdnn.runs.workflow import estimates


@pytest.fixture
def toy(tmp_path, monkeypatch):
    write_engine(tmp_path)
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
    assert record.reductions.found["inputs"]["looks"] > 0
    assert main(["report", "toy.json", "-o", "page.html"]) == 0
    assert re.search(r"<td>toy, \d+ threads?</td>", (tmp_path / "page.html").read_text())


@pytest.mark.parametrize("reductions", ["none", "all"])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_keeps_the_contract_on_awkward_shapes(toy, random_network, shape, reductions):
    count, widths, options = SHAPES[shape]
    assert_same("toy", random_network(widths, **options), rows(count, widths[0]), reductions=reductions)


def test_it_is_one_file_of_at_most_120_lines(toy):
    (module,) = code_blocks("add-an-engine.md")
    assert module.count("\n") <= 120


def test_it_streams_weights_that_do_not_fit(toy, monkeypatch):
    network, inputs = RadixNet(1024, 8), rows(40, 1024)
    resident = opened("toy", network, inputs).run()
    monkeypatch.setattr(sys.modules["toy"], "plan_batches", lambda *_: (10, False))
    session = opened("toy", network, inputs)
    assert (session.span, session.batches) == (STREAMED, 4)
    assert session.run().digest == resident.digest


def test_what_does_not_fit_is_refused(toy, random_network):
    with pytest.raises(MemoryTooSmall, match="memory of 1 bytes is too small; this network, these inputs and one thr"):
        opened("toy", random_network([50, 40]), rows(5, 50), memory=1)


def test_its_rows_go_through_stages_as_tasks_of_a_graph_take_them(toy):
    network, inputs = RadixNet(1024, 9), rows(40, 1024)
    session = opened("toy", network, inputs)
    counters = session.counters()
    batch = session.begin(np.arange(40), counters)
    for first, last in [(0, 1), (1, 5), (5, 9)]:
        advance(batch, last, iter(session.layers[first:last]))
        assert batch.layer == last
        if last < 9:
            batch.compact(meeting=False)
    assert session.result([batch.finish()], counters, 40).sha256 == session.run().sha256


def test_a_value_past_float32_is_an_error(toy):
    network = from_matrices([np.full((4, 4), 1e30, np.float32)] * 2, last="relu")
    with pytest.raises(SpdnnError, match="layer 2 passed the range of float32"):
        infer(network, Inputs.from_array(np.ones((3, 4), np.float32)), "toy")


def test_a_scheduler_is_asked_for_its_time(toy):
    cases = [RunRequest(neurons=1024, layers=1920, inputs="digits", engine=name, threads=2) for name in ("toy", "cpu")]
    slow, fast = (estimates.infer(case, cases, 0).minutes for case in cases)
    assert slow > fast
