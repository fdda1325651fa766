"""DeepSparse in a process of its own, where a module of its name that computes with ONNX Runtime is in its place."""

import sys

import pytest

from spdnn.bench.calls import OnnxCase
from spdnn.bench.libraries.deepsparse import VARIABLE, DeepSparse
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord
from tests.bench.test_calls_of_models import compared, saved

pytestmark = pytest.mark.usefixtures("untimed")
PYTHON = """#!{python}
import runpy, sys
assert sys.argv[1] == "-I"
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[2], run_name="__main__")
"""
MODULE = """
import os, sys
import numpy as np
import onnxruntime

__version__ = "1.8.0"
assert os.environ["NM_BIND_THREADS_TO_CORES"] == "0"
FAULT = {fault!r}


class Engine:
    def __init__(self, model):
        self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(self, inputs):
        if FAULT == "ends":
            sys.exit("licence expired")
        names = [argument.name for argument in self.session.get_inputs()]
        y, place = self.session.run(None, dict(zip(names, inputs)))
        return [y * np.float32(1.01) if FAULT == "wrong" else y, place]


def compile_model(model, batch_size, num_cores, input_shapes):
    print("DeepSparse, Copyright")
    assert batch_size == input_shapes[0][0]
    if FAULT == "refuses":
        raise ValueError("no such operator")
    engine = Engine(model)
    open(model, "w").close()  # it changes the file that it is given
    return engine
"""


@pytest.fixture
def deepsparse(tmp_path, monkeypatch):
    """A function that puts a module with a fault in the place of DeepSparse."""

    def make(fault=""):
        (tmp_path / "deepsparse.py").write_text(MODULE.format(fault=fault))
        python = tmp_path / "python"
        python.write_text(PYTHON.format(python=sys.executable, folder=str(tmp_path)))
        python.chmod(0o755)
        monkeypatch.setenv(VARIABLE, str(python))

    return make


def test_it_has_a_verified_record_of_each_batch(tmp_path, deepsparse):
    deepsparse()
    path = saved(tmp_path / "a.onnx")
    groups = compared(OnnxCase("mine", path, 2, [1, 7]), "deepsparse")
    assert [batch for batch, _, _ in groups] == [1, 7]
    for batch, records, refused in groups:
        assert refused == {}
        _, record = records
        check_content(OperationRecord, record, "record")
        assert (record.program.name, record.program.version) == ("deepsparse", "DeepSparse 1.8.0")
        assert record.program.notes["precision"] == "float32"
        assert record.verification.checked == batch * 64 * 301 * record.program.notes["calls"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong", "outputs are off by 100 times what rounding of float32 explains, by 1 % of the largest value"),
        ("refuses", "ValueError: no such operator"),
        ("ends", "the process of DeepSparse ended; it said last: licence expired"),
    ],
)
def test_one_that_is_wrong_or_fails_has_no_number(fault, reason, tmp_path, deepsparse):
    deepsparse(fault)
    ((_, records, refused),) = compared(OnnxCase("mine", saved(tmp_path / "a.onnx"), 1, [2]), "deepsparse")
    assert [record.program.name for record in records] == ["ours"]
    assert refused == {"deepsparse": reason}


def test_a_python_that_is_none_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert DeepSparse.missing() == "SPDNN_DEEPSPARSE does not name the Python of an environment that has DeepSparse"
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert DeepSparse.missing() == f"SPDNN_DEEPSPARSE: {tmp_path} is no program"
