"""The types of the public names: complete, true of what a user writes, and sound in the code that makes them."""

import importlib
import inspect
import json
import shutil
import subprocess
import sys

import pytest

import spdnn
from spdnn.core.provenance import PACKAGE

MODULES = (spdnn, spdnn.ops, spdnn.models)
# What a user writes. A line that ends with `# no` must be an error; no other may be one.
USE = """
from typing import Any, assert_type

import numpy as np
import scipy.sparse as sp

from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline

import spdnn
from spdnn import ops

network = spdnn.from_matrices([sp.random(4, 3, 0.5), np.eye(3)], bias=-0.3, clip=32, last="none")
opened: spdnn.Network = spdnn.open_network("net.safetensors", last="none")
inputs = spdnn.open_inputs("x.npy")
assert_type(network.layer(0), spdnn.Layer)
assert_type(opened.depth, int)
with spdnn.compile(network, threads=2, batch=8) as model:
    assert_type(model, spdnn.Model)
    y = model(np.zeros((2, 4)))
    result = model.infer(inputs, values=True)
assert_type(result, spdnn.Result)
assert_type(spdnn.infer(network, [[0, 1, 1, 0]]), spdnn.Result)
first: np.ndarray = result.categories[:10]
neurons, values = result.top(1)
assert_type(spdnn.score(y, [0, 2]).top1, float)
assert_type(spdnn.agreement(result, y, 1e-4).passed, bool)
matrix = ops.SparseMatrix.from_dense(np.eye(5))
assert_type(matrix, ops.SparseMatrix)
served = spdnn.compile("model.onnx", threads=2)
assert_type(served, spdnn.Model | spdnn.OnnxModel)
assert_type(spdnn.compile(MLPRegressor()), spdnn.EstimatorModel)
assert_type(spdnn.compile(make_pipeline(MLPRegressor()), threads=1), spdnn.EstimatorModel)
product: Any = ops.spmm(matrix, np.zeros((5, 2), np.float32))
formula: spdnn.Network = spdnn.RadixNet(1024, 120)
frame = spdnn.load_records("results")
print(frame.columns)
try:
    spdnn.Inputs.from_array([[1.0]]).first(5)
except spdnn.SpdnnError as error:
    print(error)
spdnn.compile(network, threads="two")  # no
spdnn.infer(network)  # no
result.categorys  # no
spdnn.from_matrix([])  # no
wrong: int = spdnn.score(y, [0])  # no
"""


def functions():
    """(name, function) of everything that a user calls."""
    for module in MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            members = vars(thing).items() if inspect.isclass(thing) else ()
            if inspect.isfunction(thing):
                yield f"{module.__name__}.{name}", thing
            for member, value in members:
                value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if inspect.isfunction(value) and (member in ("__init__", "__call__") or not member.startswith("_")):
                    yield f"{module.__name__}.{name}.{member}", value


def test_every_argument_and_answer_has_a_type():
    lacking = []
    for name, function in functions():
        asked = {*inspect.signature(function).parameters} | (set() if name.endswith("__init__") else {"return"})
        lacking += [f"{name}: {each}" for each in asked - {"self", "cls", *inspect.get_annotations(function)}]
    assert lacking == []


@pytest.mark.full("types")
def test_pyright_takes_them_in_basic_mode(tmp_path):
    checker = shutil.which("basedpyright")
    if checker is None:
        pytest.fail("basedpyright is not here: make setup, and envs/test.txt")
    (tmp_path / "use.py").write_text(USE)
    made = {getattr(getattr(one, name), "__module__", "") for one in MODULES for name in one.__all__}
    sources = [importlib.import_module(name).__file__ for name in sorted(made) if name.startswith("spdnn")]
    settings = {"typeCheckingMode": "basic", "include": ["use.py", *sources], "extraPaths": [str(PACKAGE.parent)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [checker, "-p", tmp_path, "--pythonpath", sys.executable, "--outputjson"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    errors = [one for one in told["generalDiagnostics"] if one["severity"] == "error"]
    lines = USE.splitlines()
    wrong = {number for number, line in enumerate(lines) if line.endswith("# no")}
    assert {error["range"]["start"]["line"] for error in errors if error["file"].endswith("use.py")} == wrong
    assert [error["message"] for error in errors if not error["file"].endswith("use.py")] == []
    assert told["summary"]["filesAnalyzed"] == 1 + len(sources)
