"""NumPy's integers and floats, and arrays of no dimensions, are taken wherever Python's are."""

import inspect
import json
import pickle
import re

import numpy as np
import pytest
from onnx_models import convolutional
from refusals import refuses
from test_types import functions

import spdnn
from spdnn import models, ops
from spdnn.core.numbers import check_whole, real, whole
from spdnn.core.request import RunRequest
from spdnn.formats.onnx_files import OnnxGraph
from spdnn.formats.unstructured import Unstructured

X = np.float32([[0, 2, 1, 3], [1, 0, 0, 5], [4, 0, 2, 2]])
NETWORK = spdnn.from_matrices([np.eye(4), np.eye(4, 3)], last="none")
INPUTS = spdnn.Inputs.from_array(X)
RESULT = spdnn.infer(NETWORK, X, values=True, threads=1)
SCORES = spdnn.score(X, [0, 1, 2])
DENSE = ops.SparseMatrix.from_dense(np.triu(np.ones((4, 4), np.float32)))
SQUARE = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
IMAGE, TAPS = np.ones((1, 2, 5, 5), np.float32), np.ones((2, 3, 3), np.float32)
MOBILE = models.MobileNetConfig(width=0.25, size=32, classes=4)
SMALL = models.TransformerConfig(8, 1, 1, 8, 8, 8, 4, 0.5)
TRANSFORMER, NET = models.Transformer(SMALL), models.MobileNet(MOBILE)


def settings(name):
    return lambda number: spdnn.TaskgraphSettings(**{name: number})


def small(name):
    return lambda number: models.TransformerConfig(**vars(SMALL) | {name: number})


def net(name):
    return lambda number: models.MobileNetConfig(**vars(MOBILE) | {name: number})


def values(made):
    return made.values.tobytes() if isinstance(made, ops.SparseMatrix) else made.tobytes()


def threaded(call):
    return lambda number: [values(each) for each in np.atleast_1d(call(threads=number))]


def layer(inputs=4, outputs=1):
    return spdnn.Layer(
        inputs, outputs, np.arange(outputs + 1), np.arange(outputs, dtype=np.uint16), np.float32(1)
    ).sha256()


def described(network):
    return json.dumps(network.description), network.sha256()


def compiled(**options):
    model = spdnn.compile(NETWORK, **{"threads": 1} | options)
    return repr(model), pickle.dumps(model._made[3:5]), model(X).tobytes()


def official(k):
    return spdnn.RadixNet(65536, 12).layer(k).sha256()


# By the name of a function and its argument: (a call with that argument, a number that it takes).
CALLS = {
    "spdnn.Activation.__init__.ymax": (lambda y: spdnn.Activation("relu", y), 32),
    "spdnn.Inputs.__init__.neurons": (lambda n: spdnn.Inputs(X, n).neurons, 4),
    "spdnn.Inputs.__init__.count": (lambda n: repr(spdnn.Inputs(X, count=n)), 200),
    "spdnn.Inputs.check_width.neurons": (INPUTS.check_width, 4),
    "spdnn.Inputs.first.count": (lambda n: json.dumps(INPUTS.first(n).description), 2),
    "spdnn.Inputs.numbers_of.start": (lambda n: INPUTS.numbers_of(n, 3).tolist(), 1),
    "spdnn.Inputs.numbers_of.stop": (lambda n: INPUTS.numbers_of(1, n).tolist(), 3),
    "spdnn.Layer.__init__.inputs": (lambda n: layer(inputs=n), 4),
    "spdnn.Layer.__init__.outputs": (lambda n: layer(outputs=n), 1),
    "spdnn.Network.first.depth": (lambda n: described(NETWORK.first(n)), 1),
    **{
        f"spdnn.Network.{name}.k": (lambda k, name=name: repr(getattr(NETWORK, name)(k)), 1)
        for name in ("header", "layer", "repeated", "neuron_classes", "in_memory", "release", "layer_sha256")
    },
    "spdnn.OnnxModel.__init__.threads": (lambda n: onnx(threads=n), 1),
    "spdnn.OnnxModel.__init__.batch": (lambda n: onnx(batch=n), 2),
    "spdnn.RadixNet.__init__.neurons": (lambda n: described(spdnn.RadixNet(n, 3, -0.1)), 128),
    "spdnn.RadixNet.__init__.layers": (lambda n: described(spdnn.RadixNet(64, n, -0.1)), 3),
    "spdnn.RadixNet.__init__.bias": (lambda b: described(spdnn.RadixNet(64, 3, b)), -0.25),
    "spdnn.RadixNet.__init__.ymax": (lambda y: described(spdnn.RadixNet(64, 3, 0, y)), 2),
    "spdnn.RadixNet.__init__.seed": (lambda n: described(spdnn.RadixNet(64, 3, 0, seed=n)), 9),
    "spdnn.RadixNet.header.k": (lambda k: repr(spdnn.RadixNet(64, 3, 0).header(k)), 1),
    "spdnn.RadixNet.layer.k": (official, 9),
    "spdnn.RadixNet.repeated.k": (lambda k: spdnn.RadixNet(65536, 12).repeated(k)[0].sha256(), 9),
    "spdnn.RadixNet.first.depth": (lambda n: described(spdnn.RadixNet(64, 3, 0).first(n)), 2),
    "spdnn.Result.rows.start": (lambda n: RESULT.rows(n, 3).tobytes(), 1),
    "spdnn.Result.rows.stop": (lambda n: RESULT.rows(0, n).tobytes(), 2),
    "spdnn.Result.top.k": (lambda k: repr(RESULT.top(k)), 2),
    "spdnn.Scores.hits.k": (SCORES.hits, 2),
    **{
        f"spdnn.TaskgraphSettings.__init__.{name}": (settings(name), 3)
        for name in ("devices", "pipeline", "batches", "buffers", "device_memory")
    },
    "spdnn.agreement.tolerance": (lambda part: repr(spdnn.agreement(X, 1.01 * X, part)), 0.25),
    "spdnn.compile.threads": (lambda n: compiled(threads=n), 1),
    "spdnn.compile.batch": (lambda n: compiled(batch=n), 2),
    "spdnn.compile.memory": (lambda n: compiled(memory=n), 2**40),
    "spdnn.infer.threads": (lambda n: repr(spdnn.infer(NETWORK, X, threads=n).notes.keys()), 1),
    "spdnn.infer.memory": (lambda n: spdnn.infer(NETWORK, X, threads=1, memory=n).sha256, 2**40),
    "spdnn.from_matrices.clip": (lambda y: spdnn.from_matrices([X], clip=y, last="relu").sha256(), 2),
    "spdnn.open_inputs.neurons": (lambda n: repr(spdnn.open_inputs("x.npy", neurons=n)), 4),
    "spdnn.open_inputs.count": (lambda n: json.dumps(spdnn.open_inputs("x.npy", count=n).description), 2),
    "spdnn.open_network.bias": (lambda b: opened(bias=b), -0.5),
    "spdnn.open_network.clip": (lambda y: opened(clip=y), 2),
    "spdnn.open_network.layers": (lambda n: opened(layers=n), 1),
    "spdnn.open_network.neurons": (lambda n: opened(neurons=n), 4),
    "spdnn.open_network.epsilon": (
        lambda part: described(spdnn.open_network("norm.npz", last="none", epsilon=part)),
        0.25,
    ),
    **{
        f"spdnn.ops.SparseMatrix.{name}.index_bits": (lambda n, make=make: repr(make(n)), 16)
        for name, make in (
            ("from_scipy", lambda n: ops.SparseMatrix.from_scipy(DENSE.to_scipy(), index_bits=n)),
            ("from_dense", lambda n: ops.SparseMatrix.from_dense(SQUARE, index_bits=n)),
            ("from_smtx", lambda n: ops.SparseMatrix.from_smtx("a.smtx", index_bits=n)),
        )
    },
    "spdnn.ops.SparseMatrix.from_dense.sparsity": (
        lambda part: values(ops.SparseMatrix.from_dense(SQUARE, sparsity=part)),
        0.25,
    ),
    "spdnn.ops.SparseMatrix.from_dense.seed": (
        lambda n: values(ops.SparseMatrix.from_dense(SQUARE, 0.5, "random", seed=n)),
        3,
    ),
    "spdnn.ops.SparseMatrix.from_smtx.seed": (lambda n: values(ops.SparseMatrix.from_smtx("a.smtx", seed=n)), 3),
    "spdnn.ops.Topology.__init__.shape": (lambda n: repr(ops.Topology((n, n), np.zeros(n + 1, int), [])), 200),
    "spdnn.ops.Topology.__init__.index_bits": (lambda n: repr(ops.Topology((1, 9), [0, 1], [3], n)), 32),
    "spdnn.ops.attention.threads": (threaded(lambda **o: ops.attention(DENSE, SQUARE, SQUARE, SQUARE, **o)), 1),
    "spdnn.ops.attention.scale": (lambda s: values(ops.attention(DENSE, SQUARE, SQUARE, SQUARE, s)), 0.5),
    "spdnn.ops.depthwise_conv.stride": (lambda n: values(ops.depthwise_conv(IMAGE, TAPS, stride=n)), 2),
    "spdnn.ops.depthwise_conv.threads": (threaded(lambda **o: ops.depthwise_conv(IMAGE, TAPS, **o)), 1),
    "spdnn.ops.linear.threads": (threaded(lambda **o: ops.linear(SQUARE, DENSE, **o)), 1),
    "spdnn.ops.sddmm.scale": (lambda s: values(ops.sddmm(DENSE, SQUARE, SQUARE, s)), 0.5),
    "spdnn.ops.sddmm.threads": (lambda n: values(ops.sddmm(DENSE, SQUARE, SQUARE, threads=n)), 1),
    "spdnn.ops.sddmm_gradients.scale": (lambda s: repr(ops.sddmm_gradients(DENSE, SQUARE, SQUARE, s)), 0.5),
    "spdnn.ops.sddmm_gradients.threads": (lambda n: repr(ops.sddmm_gradients(DENSE, SQUARE, SQUARE, threads=n)), 1),
    "spdnn.ops.softmax.scale": (lambda s: values(ops.softmax(DENSE, s)), 0.5),
    "spdnn.ops.softmax.threads": (lambda n: values(ops.softmax(DENSE, threads=n)), 1),
    "spdnn.ops.spmm.threads": (threaded(lambda **o: ops.spmm(DENSE, SQUARE, **o)), 1),
    "spdnn.ops.spmm_gradients.threads": (lambda n: repr(ops.spmm_gradients(DENSE, SQUARE, SQUARE, threads=n)[1]), 1),
    "spdnn.ops.transpose.threads": (lambda n: values(ops.transpose(DENSE, threads=n)), 1),
    "spdnn.ops.models.MobileNet.__init__.weights": (lambda n: models.MobileNet(MOBILE, n).weights["stem.bias"][0], 3),
    "spdnn.ops.models.MobileNet.images.threads": (
        lambda n: NET.images(np.ones((1, 3, 32, 32), np.float32), threads=n).tobytes(),
        1,
    ),
    "spdnn.ops.models.MobileNet.dense.block": (lambda k: NET.dense(k).tobytes(), 2),
    **{
        f"spdnn.ops.models.MobileNetConfig.__init__.{name}": (net(name), number)
        for name, number in (("width", 1.5), ("size", 32), ("classes", 5), ("sparsity", 0.5), ("dense_blocks", 2))
    },
    "spdnn.ops.models.Transformer.__init__.weights": (
        lambda n: models.Transformer(SMALL, n).weights["norm.bias"].sum(),
        3,
    ),
    "spdnn.ops.models.Transformer.prefill.threads": (lambda n: TRANSFORMER.prefill([1, 2], threads=n).tobytes(), 1),
    "spdnn.ops.models.Transformer.flops.tokens": (lambda n: TRANSFORMER.flops(tokens=n), 8),
    "spdnn.ops.models.Transformer.attention_bytes.threads": (
        lambda n: TRANSFORMER.attention_bytes("dense", threads=n),
        1,
    ),
    **{
        f"spdnn.ops.models.TransformerConfig.__init__.{name}": (small(name), number)
        for name, number in (
            ("sequence", 200), ("layers", 2), ("heads", 2), ("width", 16), ("between", 200), ("vocabulary", 9),
            ("band", 2), ("sparsity", 0.25), ("seed", 3),
        )
    },
    **{
        f"spdnn.ops.models.band_and_decay.{name}": (
            lambda n, name=name: repr(models.band_and_decay(**{"sequence": 40, "band": 4, "sparsity": 0.5, name: n})),
            number,
        )
        for name, number in (("sequence", 200), ("band", 8), ("sparsity", 0.25), ("seed", 3))
    },
}  # fmt: skip
# What spdnn makes itself, what compile makes of checked arguments, and what needs torch (tests/with_torch).
OTHERS = re.compile(
    r"spdnn\.(Agreement|Scores|Result)\.__init__|spdnn\.Result\.check|spdnn\.Model\.__init__|"
    r"spdnn\.ops\.SparseMatrix\.from_torch"
)


def onnx(**options):
    graph = OnnxGraph.read(convolutional(3)[0].save("model.onnx"))
    return repr(spdnn.OnnxModel(graph, **{"threads": 1} | options))


def opened(**options):
    return described(spdnn.open_network("weights.npz", **{"last": "relu", "clip": None} | options))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPDNN_TUNING", "off")
    np.save("x.npy", X)
    np.savez("weights.npz", **{"fc1.weight": np.eye(3, 4), "fc2.weight": np.ones((2, 3))})
    norm = {"weight": np.ones(3), "bias": np.ones(3), "running_mean": np.zeros(3), "running_var": np.ones(3)}
    named = {f"1.{name}": array for name, array in norm.items()}
    np.savez("norm.npz", **{"0.weight": np.eye(3, 4), "0.bias": np.zeros(3)} | named)
    DENSE.to_smtx("a.smtx")


def forms(number):
    """A number in NumPy's types that hold it."""
    if isinstance(number, float):
        return [np.float32(number), np.float64(number), np.array(number, np.float16)]
    kinds = [np.int64, np.int32, np.uint8] if number < 256 else [np.int64, np.uint64]
    return [*(kind(number) for kind in kinds), np.array(number)]


def test_the_table_has_every_number_of_a_public_function():
    asked = set()
    for name, function in functions():
        kinds = {k: str(v) for k, v in inspect.get_annotations(function).items() if k != "return"}
        asked |= {f"{name}.{each}" for each, kind in kinds.items() if re.search(r"\b(int|float)\b", kind)}
    assert {name for name in asked if not OTHERS.match(name)} == CALLS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_numpy(folder, name):
    call, number = CALLS[name]
    expected = call(number)
    for form in forms(number):
        with np.errstate(over="raise"):
            found = call(form)
        assert (repr(found), type(found)) == (repr(expected), type(expected)), type(form)


def test_what_no_public_name_has():
    assert described(Unstructured(np.uint8(128), np.int32(2), np.array(3))) == described(Unstructured(128, 2, 3))
    given = {"neurons": 1024, "layers": 120, "threads": 2, "seed": 3, "memory": 10**9, "count": 200}
    of_numpy = {name: np.int64(number) for name, number in given.items()}
    request = RunRequest(**given)
    assert RunRequest(**of_numpy) == RunRequest.of(of_numpy) == request
    assert RunRequest(**of_numpy).name == request.name
    biases = RunRequest.of({"network": "a", "bias": [np.float32(0.5), 1], "settings": {"devices": np.uint8(2)}})
    assert biases == RunRequest(network="a", bias=[0.5, 1.0], settings={"devices": 2})
    assert json.dumps(biases.values)


class Seven:
    def __index__(self):
        return 7


@pytest.mark.parametrize("value", [True, np.True_, np.array(True), 1.0, np.float32(2), "3", None, [4], np.array([5])])
def test_what_is_no_integer(value):
    assert whole(value) is None
    refuses(
        "^threads .*an integer from 1 to 1024$",
        spdnn.ops.spmm,
        DENSE,
        SQUARE,
        threads=value if value is not None else "",
    )
    if value is not None:
        refuses("^threads .*an integer from 1 to 1024$", spdnn.compile, NETWORK, threads=value)
        refuses("^batch .*a number of inputs from 1", spdnn.compile, NETWORK, batch=value)
        refuses("^memory .*a number of bytes from 1", spdnn.compile, NETWORK, memory=value)
    refuses("^layers .*: it must be a whole number$", spdnn.RadixNet, 1024, value)
    refuses("^k .*: it must be a whole number$", RESULT.top, value)
    refuses("^count .*: it must be a whole number$", INPUTS.first, value)


def test_what_is_a_number():
    assert whole(Seven()) == check_whole(Seven(), "k") == 7
    assert [real(value) for value in (1, 0.5, np.float32(0.5), np.array(2), np.uint8(3))] == [1, 0.5, 0.5, 2, 3]
    assert [real(value) for value in (True, np.True_, "1", None, 1j, np.complex64(1), 10**400)] == [None] * 7
