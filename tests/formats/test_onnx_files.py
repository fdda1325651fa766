"""ONNX models: as ONNX Runtime runs them; and what is refused, by the names of all that is not read."""

import tracemalloc
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import OPERATORS, Maker, chain, close, operator, outputs
from refusals import refuses

import spdnn
from spdnn.common.errors import InputError
from spdnn.formats import onnx_files
from spdnn.formats.readers import import_network
from spdnn.ops.program import Program
from spdnn.verify import oracle

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
    assert close(Program(onnx_files.read_steps(path))(x), wanted, 1e-6)


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
    with pytest.raises(InputError, match="smaller than float32 can hold"):
        spdnn.open_network(made.save(path))


@pytest.mark.parametrize("seed", range(60))
def test_layers_as_onnx_runtime_runs_them(tmp_path, seed):
    made, x = chain(seed)
    path = made.save(tmp_path / "a.onnx")
    network = spdnn.open_network(path)
    assert close(spdnn.compile(network, threads=1)(x.reshape(len(x), -1)), outputs(path, x))
    assert network.description["source"] == "onnx"


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_operator_of_any_opset_is_refused_or_runs_as_onnx_runtime_runs_it(tmp_path, kind):
    path, read = tmp_path / "a.onnx", Counter()
    for opset in OPSETS:
        for seed in range(12):
            made, x = operator(kind, opset, seed)
            made.save(path, opset)
            for compiled in (spdnn.compile, lambda path: Program(onnx_files.read_steps(path))):
                try:
                    found = compiled(path)(x)
                except InputError:
                    continue
                assert close(found, outputs(path, x)), (opset, seed)
                read[opset] += 1
    assert len(read) > len(OPSETS) / 2


@pytest.mark.parametrize(("mean", "deviation"), [(0.13, 0.3), (2000, 10), (5e6, 1e3), (1e6, 1)])
@pytest.mark.parametrize("order", ["Sub Div", "Add Mul", "Sub", "Sub Div Add", "BatchNormalization", "Mul Sub"])
def test_inputs_that_are_normalised_lose_no_digits(tmp_path, mean, deviation, order):
    """The network, its program and the oracle, against the model in float64."""
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
            weight, bias, center, variance = (one.astype(np.float64) for one in parts)
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
    assert close(Program(onnx_files.read_steps(path))(x), wanted, exact)


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
    refuses(r"a\.onnx: \d+ bytes of weights at \d+ of a\.onnx\.data, which has", spdnn.open_network, path)
    (tmp_path / "a.onnx.data").unlink()
    refuses(r"a\.onnx\.data: there is no such file of its weights", spdnn.open_network, path)
    model = onnx.load(path, load_external_data=False)

    def place(**changes):
        for one in model.graph.initializer:
            for entry in one.external_data:
                entry.value = changes.get(entry.key, entry.value)
        onnx.save(model, path)

    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(content)
    (tmp_path / "w.bin").symlink_to("weights/w.bin")
    (tmp_path / "out.bin").symlink_to("/etc/passwd")
    (tmp_path / "out").symlink_to(tmp_path.parent)
    for name in ("weights/w.bin", "./w.bin", ".//weights/./w.bin", "weights/../w.bin"):
        place(location=name)
        assert spdnn.open_network(path).sha256() == wanted
    outside = ("/etc/passwd", "../whole.onnx", "..", "", "weights/../../w.bin", "out.bin", f"out/{tmp_path.name}/../x")
    for name in outside:
        place(location=name)
        refuses("they must be in the model's own folder, and no link may", spdnn.open_network, path)
    for number in ("x", "-1", "9" * 5000):
        place(location="w.bin", offset=number)
        refuses(f"a.onnx: the offset of its weights is '{number[:9]}.*, no whole number", spdnn.open_network, path)


def test_all_that_is_not_read_is_named(tmp_path):
    made = mlp()
    made.add("Sigmoid", name="gate")
    made.add("Clip", np.float32(-1), np.float32(1), name="hard")
    made.add("Gemm", made.draw(3, 2), name="fc3")
    made.add("LayerNormalization", made.draw(2), name="norm")
    said = refuses(
        "not all of it can be read .activations are Relu, Clip", spdnn.open_network, made.save(tmp_path / "a.onnx")
    )
    for name in ("'gate' (Sigmoid)", "'hard' (Clip: to -1 and 1; 0 and a positive", "'norm' (LayerNormalization)"):
        assert name in said
    assert "fc3" not in said


def convolutional():
    made = Maker(3, 8, 8)
    made.add("Conv", made.draw(4, 3, 3, 3), made.draw(4), name="stem", pads=[1, 1, 1, 1])
    made.add("GlobalAveragePool", name="mean")
    made.add("Flatten")
    made.add("Gemm", made.draw(4, 2), name="head")
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
        (convolutional, r"not all of it is layers of a network: 'stem' \(convolution\); 'mean' \(pool\)"),
        (forked, r"'skip' \(add\)"),
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
        refuses("this is no sound ONNX model", spdnn.open_network, path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    model = onnx.load_from_string(good)
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]))
    path.write_bytes(model.SerializeToString())
    refuses(r"2 inputs \(x, z\); one is read", spdnn.open_network, path)


def retyped(model, kind):
    model.graph.input[0].type.tensor_type.elem_type = kind


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: setattr(model.opset_import[0], "version", 6), "opset 6; 7 to 26 are read"),
        (lambda model: setattr(model.opset_import[0], "version", 99), "opset 99; 7 to 26 are read"),
        (lambda model: model.ClearField("opset_import"), "opset not stated; 7 to 26"),
        (lambda model: model.opset_import.append(helper.make_opsetid("ai.onnx", 11)), "opset 11, 17; 7 to 26"),
        (
            lambda model: model.functions.append(
                helper.make_function("", "Relu", ["a"], ["a"], [], [helper.make_opsetid("", 17)])
            ),
            "functions in place of operators",
        ),
        (lambda model: retyped(model, TensorProto.DOUBLE), "'fc1' .Gemm: of other numbers than float"),
        (lambda model: retyped(model, TensorProto.UINT8), "'fc1' .Gemm: of other numbers than float"),
        (lambda model: model.graph.input[0].type.tensor_type.ClearField("shape"), "'x' has 0 dimensions stated"),
        (lambda model: model.graph.node.append(model.graph.node[1]), "Relu: it gives 'v1' again"),
        (lambda model: setattr(model.graph.node[1], "domain", "com.microsoft"), "Relu of com.microsoft"),
        (lambda model: model.graph.node[1].input.__setitem__(0, "away"), "reads 'away', which nothing before it gives"),
        (lambda model: setattr(model.graph.initializer[0], "data_type", TensorProto.INT32), "a constant of int32"),
        (lambda model: setattr(model.graph.node[0].attribute[0], "name", "broadcast"), "attribute broadcast in opset"),
    ],
)
def test_what_is_not_proven_to_be_the_same(tmp_path, change, said):
    path = mlp().save(tmp_path / "a.onnx")
    model = onnx.load(path)
    change(model)
    path.write_bytes(model.SerializeToString())
    refuses(said, spdnn.compile, path)


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
    assert close(spdnn.compile(tmp_path / "a.onnx")(x.astype(np.float32)), outputs(tmp_path / "a.onnx", x))


def test_a_reshape_of_a_stated_number_of_inputs(tmp_path):
    for target in ([3, -1], [1, -1], [-1, 4]):
        made = Maker(2, 2)
        made.add("Reshape", np.array(target))
        made.add("Gemm", made.draw(4, 3)) if target != [1, -1] else made.add("Relu")
        model = onnx.load(made.save(tmp_path / "a.onnx"))
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
        (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
        if target == [1, -1]:
            refuses(r"Reshape: to \[1, -1\]", spdnn.compile, tmp_path / "a.onnx")
        else:
            x = made.draw(3, 2, 2)
            assert close(spdnn.compile(tmp_path / "a.onnx")(x), outputs(tmp_path / "a.onnx", x))


def test_without_the_package_onnx(tmp_path, monkeypatch):
    path = mlp().save(tmp_path / "a.onnx")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(spdnn.SpdnnError, match=r"package onnx is missing; pip install -e '.\[onnx\]' in a clone"):
        spdnn.open_network(path)
