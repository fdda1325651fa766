"""Engines that are wrong have no record, each for its own reason; the right one has."""

from dataclasses import replace

import numpy as np
import pytest
from hostile import HOSTILE, OPTIONS, dead_rows_leave_too_early, problem
from refusals import spdnn

from spdnn.core.network import MemoryNetwork
from spdnn.formats.store import write_network
from spdnn.runs.records.files import read_record


@pytest.fixture
def files(tmp_path):
    network, x = problem()
    write_network(tmp_path / "net.safetensors", network)
    np.save(tmp_path / "x.npy", x)
    return tmp_path


def run(folder, options=()):
    """The exit status of a run with a record."""
    given = ["--network", folder / "net.safetensors", "--inputs", folder / "x.npy", "--threads", 2]
    return spdnn("infer", *given, "--record", folder / "run.json", *options)


OTHERS = [["--engine", "spgemm"], ["--reductions", "none"], ["--engine", "csr"], ["--engine", "scipy"]]


@pytest.mark.parametrize("options", [[], *OPTIONS.values(), *OTHERS], ids=" ".join)
def test_right_engines_have_records(files, options):
    assert run(files, options) == 0
    record = read_record(files / "run.json")
    assert record.result.counted
    assert record.verdict.survivors.inputs == 200
    assert 0 < record.verdict.categories < 200


@pytest.mark.parametrize("spoil", HOSTILE, ids=lambda spoil: spoil.__name__)
def test_wrong_engines_have_none(files, monkeypatch, capsys, spoil):
    if spoil is dead_rows_leave_too_early:
        network, _ = problem()
        layers = [network.layer(k) for k in range(network.depth)]
        layers[1] = replace(layers[1], bias=np.where(np.arange(layers[1].outputs) % 7, layers[1].bias, np.float32(0.5)))
        write_network(files / "net.safetensors", MemoryNetwork(layers))
        assert run(files) == 0
        (files / "run.json").unlink()
    spoil(monkeypatch)
    assert run(files, OPTIONS.get(spoil, ())) == 1
    assert not (files / "run.json").exists()
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("spdnn: ")
