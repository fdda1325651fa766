"""ONNX models: as ONNX Runtime runs them; which are chains of layers, and why others are not."""

import tracemalloc
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import OPERATORS, Maker, chain, close, operator, outputs
from refusals import refuses

import spdnn
from spdnn.core.errors import InputError
from spdnn.engines import oracle
from spdnn.formats.readers import import_network

OPSETS = (7, 9, 10, 11, 12, 13, 14, 18, 22)  # in which some operator changes


def test_a_shift_between_layers_loses_no_digits(tmp_path):
    """Sums that are exact and far from 0 beside what the shift leaves of them."""
    made, path = Maker(6), tmp_path / "a.onnx"
    shift = np.array([1e6, 2e6, 3e6, 1e6, 5, 4e5], np.float32)
    x, weight = shift + made.draw(20, 6), made.draw(6, 3)
    for kind, constant in (("Gemm", np.eye(6, dtype=np.float32)), ("Relu", None), ("Sub", shift), ("Gemm", weight)):
        made.add(kind, *([] if constant is None else [constant]))
    wanted = (x.astype(np.float64) - shift) @ weight
    network = spdnn.open_network(made.save(path))
    assert close(spdnn.compile(network)(x), wanted, 1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        [("Gemm", 1e-30), ("Mul", 1e-20)],
        [("Mul", 1e-30), ("Gemm", 1e-20)],
        [("Gemm", 1.0), ("Relu", None), ("Mul", 1e-25), ("Gemm", 1e-25)],
    ],
)
def test_weights_that_scales_make_too_small_are_refused(tmp_path, graph):
    made, path = Maker(4), tmp_path / "a.onnx"
    for kind, size in graph:
        if kind == "Gemm":
            made.add(kind, np.float32(size) * np.eye(4, dtype=np.float32))
        else:
            made.add(kind, *([] if size is None else [np.full(4, size, np.float32)]))
    refuses("smaller than float32 can hold", spdnn.open_network, made.save(path))


@pytest.mark.parametrize("seed", range(60))
def test_layers_as_onnx_runtime_runs_them(tmp_path, seed):
    made, x = chain(seed)
    path = made.save(tmp_path / "a.onnx")
    network = spdnn.open_network(path)
    assert close(spdnn.compile(network, threads=1)(x.reshape(len(x), -1)), outputs(path, x))
    assert network.description["source"] == "onnx"


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.full("operators")] * (k % 4 > 0)) for k, kind in enumerate(OPERATORS)],
)
def test_an_operator_of_any_opset_is_refused_or_runs_as_onnx_runtime_runs_it(tmp_path, kind):
    path, read = tmp_path / "a.onnx", Counter()
    for opset in OPSETS:
        for seed in range(12):
            made, x = operator(kind, opset, seed)
            made.save(path, opset)
            try:
                wanted = outputs(path, x)
            except Exception:  # of any type: ONNX Runtime does not run it
                refuses("ONNX Runtime cannot run it|Non-zero status", lambda path=path, x=x: spdnn.compile(path)(x))
                continue
            if not close(outputs(path, x), wanted):
                continue  # a Dropout in training
            assert close(spdnn.compile(path)(x), wanted), (opset, seed)
            read[opset] += 1
            try:
                network = spdnn.open_network(path)
            except InputError:
                continue
            found = spdnn.compile(network)(x.reshape(len(x), -1))
            assert close(found, wanted.reshape(len(wanted), -1)), (opset, seed)
    assert len(read) > len(OPSETS) / 2


@pytest.mark.parametrize(("mean", "deviation"), [(0.13, 0.3), (2000, 10), (5e6, 1e3), (1e6, 1)])
@pytest.mark.parametrize("order", ["Sub Div", "Add Mul", "Sub", "Sub Div Add", "BatchNormalization", "Mul Sub"])
def test_inputs_that_are_normalised_lose_no_digits(tmp_path, mean, deviation, order):
    """The network and the oracle, against the model in float64."""
    made, path = Maker(8), tmp_path / "a.onnx"
    center, divisor = (mean + deviation * made.draw(8)).astype(np.float32), deviation * (1 + abs(made.draw(8)))
    constants = {"Sub": center, "Div": divisor, "Mul": 1 / divisor, "Add": -center}
    if order == "Mul Sub":
        constants["Sub"] = center / divisor
    x = (mean + deviation * made.draw(30, 8)).astype(np.float32)
    wanted = x.astype(np.float64)
    for k, kind in enumerate(order.split()):
        if kind == "BatchNormalization":
            parts = made.draw(8), made.draw(8), center, (divisor**2).astype(np.float32)
            weight, bias, center, variance = (part.astype(np.float64) for part in parts)
            made.add(kind, *parts)
            wanted = (wanted - center) / np.sqrt(variance + np.float32(1e-5)) * weight + bias
        else:
            constant = made.draw(8) if k == 2 else constants[kind].astype(np.float32)
            made.add(kind, constant)
            wanted = {"Sub": np.subtract, "Div": np.divide, "Mul": np.multiply, "Add": np.add}[kind](wanted, constant)
    weights = made.draw(8, 5), made.draw(5, 3)
    made.add("Gemm", weights[0])
    made.add("Relu")
    made.add("Gemm", weights[1])
    wanted = np.maximum(wanted @ weights[0], 0) @ weights[1]
    network = spdnn.open_network(made.save(path))
    assert close(oracle.forward(network, x)[0], wanted, 5e-7)
    exact = 5e-7 if order != "Mul Sub" else 5e-7 + 2e-7 * mean / deviation  # which loses them in any float32
    assert close(spdnn.compile(network)(x), wanted, exact)


def mlp(seed=0):
    made = Maker(6, seed=seed)
    made.add("Gemm", made.draw(5, 6), made.draw(5), transB=1, name="fc1")
    made.add("Relu")
    made.add("MatMul", made.draw(5, 3), name="fc2")
    return made


def test_a_softmax_at_the_end_is_left_out_where_the_user_says_so(tmp_path):
    made = mlp()
    made.add("Softmax", axis=-1, name="probabilities")
    path, x = made.save(tmp_path / "a.onnx"), np.eye(6, dtype=np.float32)
    refuses(
        "ends in a softmax .'probabilities'., which is not run here; --last none .in Python spdnn.open_network",
        spdnn.open_network,
        path,
    )
    logits = spdnn.compile(spdnn.open_network(path, last="none"))(x).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert close(shares, outputs(path, x))
    refuses("an ONNX model has its own last activation", spdnn.open_network, path, last="relu")
    for stated in ({"bias": 1}, {"clip": 3}, {"rows": "inputs"}):
        refuses("an ONNX model states them", spdnn.open_network, path, **stated)
    refuses("own last activation", spdnn.open_network, mlp().save(tmp_path / "b.onnx"), last="none")


def test_a_flattening_that_computes_its_shape(tmp_path):
    """As torch's view(x.size(0), -1) is written."""
    made = Maker(2, 3)
    axis = made.constant(np.array([0]))
    made.nodes += [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array(0))),
        helper.make_node("Gather", ["shape", "zero"], ["count"], axis=0),
        helper.make_node("Unsqueeze", ["count", axis], ["counts"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["counts", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["rows"]),
    ]
    made.last = "rows"
    made.add("Gemm", made.draw(6, 4))
    path, x = made.save(tmp_path / "a.onnx"), made.draw(5, 2, 3)
    assert close(spdnn.compile(path)(x), outputs(path, x))


def test_weights_beside_a_model(tmp_path):
    whole, path = mlp().save(tmp_path / "whole.onnx"), tmp_path / "a.onnx"
    wanted = spdnn.open_network(whole).sha256()
    mlp().save(path, save_as_external_data=True, location="a.onnx.data", size_threshold=0)
    assert spdnn.open_network(path).sha256() == wanted
    assert import_network(path, tmp_path / "net.safetensors").sha256() == wanted
    content = (tmp_path / "a.onnx.data").read_bytes()
    (tmp_path / "a.onnx.data").write_bytes(content[:-60])
    refuses(r"a\.onnx: ONNX Runtime cannot run it: .* out of bounds", spdnn.open_network, path)
    (tmp_path / "a.onnx.data").unlink()
    refuses(r"External data path does not exist", spdnn.open_network, path)
    model = onnx.load(path, load_external_data=False)

    def place(**changes):
        for one in model.graph.initializer:
            for entry in one.external_data:
                entry.value = changes.get(entry.key, entry.value)
        onnx.save(model, path)

    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(content)
    (tmp_path / "w.bin").symlink_to("weights/w.bin")
    (tmp_path.parent / "outside.bin").write_bytes(content)
    (tmp_path / "link.bin").symlink_to(tmp_path.parent / "outside.bin")
    (tmp_path / "out").symlink_to(tmp_path.parent)
    for name in ("weights/w.bin", "./w.bin", ".//weights/./w.bin", "weights/../w.bin"):
        place(location=name)
        assert spdnn.open_network(path).sha256() == wanted
    outside = ("../outside.bin", "weights/../../outside.bin", "link.bin", "out/outside.bin")
    for name in (*outside, str(tmp_path.parent / "outside.bin"), "/etc/passwd", ".."):
        place(location=name)
        refuses("External data path escapes model directory|Absolute path not allowed", spdnn.open_network, path)
    for number in ("x", "-1", "9" * 50):
        place(location="w.bin", offset=number)
        refuses("a.onnx: ONNX Runtime cannot run it", spdnn.open_network, path)


def test_the_first_node_of_no_network_is_named(tmp_path):
    made = mlp()
    made.add("Clip", np.float32(-1), np.float32(1), name="hard")
    made.add("Sigmoid", name="gate")
    path = made.save(tmp_path / "a.onnx")
    said = refuses("it is no chain of layers: 'hard' .Clip: to -1 and 1; 0 and a positive", spdnn.open_network, path)
    assert said.endswith("; spdnn.compile runs any ONNX model")
    x = made.draw(5, 6)
    assert close(spdnn.compile(path)(x), outputs(path, x))


def convolutional():
    made = Maker(3, 8, 8)
    made.add("Conv", made.draw(4, 3, 3, 3), made.draw(4), name="stem", pads=[1, 1, 1, 1])
    return made


def forked():
    made = mlp()
    made.add("Add", reads=[made.last, made.add("Relu")], name="skip")
    return made


def twice():
    made = mlp()
    made.add("BatchNormalization", *(np.ones(3, np.float32) for _ in range(4)))
    made.add("Relu")
    made.add("Mul", np.ones(3, np.float32), name="after")
    return made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (convolutional, r"it is no chain of layers: 'stem' \(Conv\)"),
        (forked, r"it is no chain of layers: '\w+' \(Relu: it does not follow the one before it alone\)"),
        (twice, r"'after' \(no layer follows it\)"),
    ],
)
def test_what_no_network_has(tmp_path, make, said):
    refuses(said, spdnn.open_network, make().save(tmp_path / "a.onnx"))


def test_models_that_lie(tmp_path):
    path = tmp_path / "a.onnx"
    good = mlp().save(path).read_bytes()
    for other in (b"", b"hello", good[: len(good) // 2], bytes(range(256)) * 4):
        path.write_bytes(other)
        refuses(r"a\.onnx: ", spdnn.open_network, path)
    model = onnx.load_from_string(good)
    model.graph.initializer[0].dims[0] = 1 << 40
    path.write_bytes(model.SerializeToString())
    tracemalloc.start()
    try:
        refuses("ONNX Runtime cannot run it", spdnn.open_network, path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    model = onnx.load_from_string(good)
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    path.write_bytes(model.SerializeToString())
    refuses(r"2 inputs and 1 outputs; a network has one of each", spdnn.open_network, path)


def retyped(model, kind):
    model.graph.input[0].type.tensor_type.elem_type = kind


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: setattr(model.opset_import[0], "version", 6), r"Could not find an implementation for Gemm\(6\)"),
        (lambda model: setattr(model.opset_import[0], "version", 99), "it: ONNX Runtime only .guarantees. support"),
        (lambda model: model.ClearField("opset_import"), "it: Missing opset in the model"),
        (
            lambda model: retyped(model, TensorProto.DOUBLE),
            "different types .tensor.double. and tensor.float. in .*fc1",
        ),
        (lambda model: retyped(model, TensorProto.UINT8), "'tensor.uint8.' of input parameter .x."),
        (lambda model: model.graph.node.append(model.graph.node[1]), "two nodes with same node name .v1."),
        (
            lambda model: setattr(model.graph.node[1], "domain", "com.microsoft"),
            "com.microsoft:Relu.* is not a registered",
        ),
        (lambda model: model.graph.node[1].input.__setitem__(0, "away"), "Node input 'away' is not"),
        (
            lambda model: setattr(model.graph.initializer[0], "data_type", TensorProto.INT32),
            "tensor.int32. in node .fc1.",
        ),
        (lambda model: setattr(model.graph.node[0].attribute[0], "name", "broadcast"), "attribute: broadcast for"),
    ],
)
def test_what_onnx_runtime_does_not_run(tmp_path, change, said):
    path = mlp().save(tmp_path / "a.onnx")
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    for opened in (spdnn.compile, spdnn.open_network):
        assert "onnxruntime_src" not in refuses(said, opened, path)


@pytest.mark.parametrize("kind", [TensorProto.UINT8, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_inputs_of_another_type_that_are_cast_first(tmp_path, kind):
    made = Maker(2, 2)
    made.add("Flatten")
    made.add("Cast", to=1)
    made.add("Gemm", made.draw(4, 3))
    model = onnx.load(made.save(tmp_path / "a.onnx"))
    retyped(model, kind)
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    x = np.arange(12).reshape(3, 2, 2).astype(helper.tensor_dtype_to_np_dtype(kind))
    assert close(spdnn.compile(tmp_path / "a.onnx")(x), outputs(tmp_path / "a.onnx", x))
    network = spdnn.open_network(tmp_path / "a.onnx")
    assert close(spdnn.compile(network)(x.reshape(3, 4).astype(np.float32)), outputs(tmp_path / "a.onnx", x))


def test_a_reshape_of_a_stated_number_of_inputs(tmp_path):
    for target in ([3, -1], [1, -1], [-1, 4]):
        made = Maker(2, 2)
        made.add("Reshape", np.array(target))
        made.add("Gemm", made.draw(4, 3)) if target != [1, -1] else made.add("Relu")
        model = onnx.load(made.save(path := tmp_path / "a.onnx"))
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
        path.write_bytes(model.SerializeToString())
        x = made.draw(3, 2, 2)
        assert close(spdnn.compile(path)(x), outputs(path, x))
        if target == [1, -1]:
            refuses(r"Reshape: to \[1, -1\]", spdnn.open_network, path)
        else:
            assert close(spdnn.compile(spdnn.open_network(path))(x.reshape(3, 4)), outputs(path, x))


def test_without_the_package_onnx(tmp_path, monkeypatch):
    path = mlp().save(tmp_path / "a.onnx")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(spdnn.SpdnnError, match=r"package onnx is missing; pip install -e '.\[onnx\]' in a clone"):
        spdnn.open_network(path)
