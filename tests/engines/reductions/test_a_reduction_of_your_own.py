"""docs/how-to/add-a-reduction.md, followed: a fourth reduction is run, verified, recorded and shown on a page."""

import re

import numpy as np
import pytest
from engine_cases import rows
from how_to import code_blocks

from spdnn.api import infer
from spdnn.cli import main
from spdnn.core.network import MemoryNetwork
from spdnn.engines.base import Options
from spdnn.engines.cpu.engine import CpuEngine
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.engines.registry import engine
from spdnn.runs import measure
from spdnn.runs.records.files import read_record, record_of, write_record
from spdnn.runs.verify.judging import judge


@pytest.fixture
def zeros(monkeypatch):
    monkeypatch.setattr(CpuEngine, "offers", CpuEngine.offers)
    monkeypatch.setitem(REDUCTIONS, "zeros", None)
    scope = {}
    for block in code_blocks("add-a-reduction.md"):
        exec(block, scope)


@pytest.fixture
def pruned(random_network):
    """A network in which half of the edges have weight 0."""
    layers = []
    for layer in random_network([60, 70, 40], density=0.3).layers():
        values = np.array(np.broadcast_to(layer.values, layer.edges))
        values[::2] = 0
        layers.append(type(layer)(**{**vars(layer), "values": values}))
    return MemoryNetwork(layers)


def test_a_reduction_of_your_own_is_run_recorded_and_shown(zeros, pruned, tmp_path):
    inputs, runner = rows(40, 60), engine("cpu")
    prepared = runner.prepare(pruned, ("zeros",))
    measured, result = measure.measure(runner, measure.LoadedRun(inputs, prepared, 0.0, 0.0), Options(2), 1)
    verdict = judge(pruned, inputs, result)
    record = record_of("toy", measured, verdict, "spdnn")
    write_record(tmp_path / "toy.json", record)
    assert read_record(tmp_path / "toy.json").reductions.found["zeros"] == {"edges_left_out": (pruned.edges + 1) // 2}
    assert main(["report", str(tmp_path / "toy.json"), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Zero weights: edges whose weight is 0 are left out." in page  # in the glossary
    (table,) = re.findall(r"<caption>Inputs × edges.*?</table>", page, re.DOTALL)
    head, *lines = re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    assert "Zero weights" in head
    assert [line.count("<th") + line.count("<td") for line in lines] == [head.count("<th")]


def test_it_changes_nothing_but_the_work(zeros, pruned):
    inputs = rows(40, 60)
    plain, trimmed = (infer(pruned, inputs, reductions=names, values=True) for names in ("none", "zeros"))
    np.testing.assert_allclose(trimmed.all_values(), plain.all_values(), rtol=1e-4, atol=1e-5)  # sums of fewer terms
    np.testing.assert_array_equal(trimmed.survivors, plain.survivors)
    assert trimmed.edges_computed < 0.51 * plain.edges_computed
    everything = infer(pruned, inputs, reductions="all")
    np.testing.assert_array_equal(everything.categories, plain.categories)
