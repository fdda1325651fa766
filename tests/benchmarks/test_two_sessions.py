"""Two models in one process, alone and in turns: small ones take the place of those that are measured."""

import importlib.util
import sys
from functools import partial

import pytest

from spdnn.bench.contest import ComparisonSettings, Pace
from spdnn.core.errors import SpdnnError


@pytest.fixture
def two_sessions(root, monkeypatch, set_all, untimed):
    def load(name):
        """A module of benchmarks/: tests/formats has an onnx_models too."""
        spec = importlib.util.spec_from_file_location(name, root / "benchmarks" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    mlp, module = load("onnx_models").mlp, load("two_sessions")
    set_all(module, MODELS={"small": partial(mlp, (64, 64, 10), 0.1)}, OTHER=partial(mlp, (64, 64, 10), 1.0))
    set_all(module, PACE=Pace(2, 2))
    return module


def test_each_way_has_a_verified_record(tmp_path, two_sessions):
    records = two_sessions.compare("small", tmp_path, ComparisonSettings(1, [], 0.0, "again"))
    assert [record.program.name for record in records] == [
        "ours",
        "onnxruntime",
        two_sessions.TURNS,
        two_sessions.STOPS,
    ]
    assert [record.verification.checked for record in records] == [10, 10, 20, 20]
    assert all(len(record.seconds) == 2 for record in records)
    assert len({record.comparison for record in records}) == 1


def test_a_wrong_output_has_no_record(tmp_path, two_sessions, set_all):
    class Wrong(two_sessions.Program):
        def arrays(self, out):
            return [out[0], *(1.01 * each for each in out[1:])]

    set_all(two_sessions, Program=Wrong)
    with pytest.raises(SpdnnError, match="outputs are off by"):
        two_sessions.compare("small", tmp_path, ComparisonSettings(1, [], 0.0, "again"))
