"""A compiled ONNX model takes and gives what ONNX Runtime does: random graphs, and members of each kind by name."""

import copy
import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx_calls
import pytest
import scipy.sparse as sp
from onnx import helper, numpy_helper
from onnx_models import Maker, close, outputs
from refusals import refuses

import spdnn
from spdnn.formats import onnx_files
from spdnn.ops import onnx_trial
from spdnn.ops.onnx_model import OnnxModel
from spdnn.ops.onnx_products import GraphProduct

pytestmark = pytest.mark.usefixtures("untimed")


@pytest.mark.parametrize("part", range(5))
def test_random_graphs_and_calls(tmp_path, part):
    """A hundred of the graphs that make fuzz goes on with."""
    became = {onnx_calls.judge(seed, tmp_path) for seed in range(20 * part, 20 * part + 20)}
    assert "OnnxModel" in became


def saved(path, nodes, shape, constants=(), kind=np.float32, ir=8, value="y", **options):
    ends = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "made", [ends], [helper.make_empty_tensor_value_info(value)], held, **options)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir), path)
    return path


def few(*shape, seed=0):
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) * (random.random(shape) < 0.1)).astype(np.float32)


def same(path, x, **options):
    """Whether the compiled model gives what ONNX Runtime gives."""
    return close(spdnn.compile(path, threads=1, **options)(x), outputs(path, x))


def pruned(path, *after):
    """A file of a MatMul with few weights, and of the nodes after it, by kind."""
    made = Maker(40)
    made.add("MatMul", made.draw(40, 40, density=0.1))
    for kind in after:
        made.add(kind)
    return made.save(path)


NODE = helper.make_node


@pytest.mark.parametrize(("weight", "kind"), [(few(48, 40), spdnn.Model), (few(48, 40) + 1, OnnxModel)])
def test_one_signature_whoever_runs_it(tmp_path, weight, kind):
    """Names, types, ranks, fixed sizes, and values that the type holds, of both classes."""
    nodes = [NODE("Cast", ["x"], ["f"], to=1), NODE("Flatten", ["f"], ["a"]), NODE("MatMul", ["a", "w"], ["y"])]
    path = saved(tmp_path / "m.onnx", nodes, [2, 3, 4, 4], {"w": weight}, np.int16)
    model, x = spdnn.compile(path, threads=1), np.arange(96).reshape(2, 3, 4, 4)
    assert type(model) is kind
    wanted = onnx_files.session(str(path)).run(None, {"x": x.astype(np.int16)})[0]
    for found in (model(x), model(x=x.astype(np.uint8)), model(x.astype(np.int16))):
        assert close(found, wanted)
    refuses(r"x has shape \(1, 3, 4, 4\); the model takes \(2, 3, 4, 4\)", model, x[:1])
    refuses(r"x has shape \(2, 48\)", model, x.reshape(2, 48))
    refuses("x holds 32768, and int16, which the model takes, does not", model, x + 32768 - x)
    refuses("x holds -32769, and int16", model, x - 32769 - x)
    refuses("x is of float64; the model takes int16", model, x / 2)
    refuses("1 input; it takes x", model, image=x)
    refuses("2 inputs; it takes x", model, x, x=x)


def branch(name, *weights):
    """x times weights, which lie in the branch or around it."""
    last, nodes, held = "x", [], []
    for number, weight in enumerate(weights):
        inside = not isinstance(weight, str)
        held += [numpy_helper.from_array(weight, f"held{number}")] if inside else []
        nodes.append(NODE("MatMul", [last, f"held{number}" if inside else weight], [f"p{number}"]))
        last = f"p{number}"
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(last)], held)


@pytest.mark.parametrize("inside", [0, 1, 2])
def test_products_of_one_name_in_two_branches(tmp_path, inside):
    """Each with the weights of its own branch, in it or around it, and the features of the graph around it."""
    around = {"first": few(40, 40, seed=1), "second": few(40, 40, seed=2)}
    weights = [[few(40, 40, seed=3 + k) for k in range(inside)] + [name] for name in around]
    branches = {"then_branch": branch("a", *weights[0]), "else_branch": branch("b", *weights[1])}
    nodes = [NODE("ReduceSum", ["x"], ["sum"], keepdims=0), NODE("Greater", ["sum", "zero"], ["c"])]
    nodes.append(NODE("If", ["c"], ["y"], **branches))
    path = saved(tmp_path / "m.onnx", nodes, ["n", 40], around | {"zero": np.float32(0)})
    model = spdnn.compile(path, threads=1)
    assert f"{2 + 2 * inside} of {2 + 2 * inside}" in repr(model)
    for sign in (1, -1):
        x = sign * np.abs(few(3, 40)) + np.float32(sign)
        assert close(model(x), outputs(path, x))


@pytest.mark.parametrize("shape", [(40, 1), (1, 1), (1, 40), (40, 40)])
def test_biases_of_gemm_that_are_broadcast_otherwise(tmp_path, shape):
    path = saved(tmp_path / "m.onnx", [NODE("Gemm", ["x", "w", "c"], ["a"]), NODE("Tanh", ["a"], ["y"])], [40, 64],
                 {"w": few(64, 40), "c": few(*shape) + 1})  # fmt: skip
    assert same(path, few(40, 64) + 1)


def test_a_product_that_differs_stays_in_onnx_runtime_with_a_warning(tmp_path, monkeypatch):
    made = Maker(40)
    for name in ("right", "wrong"):
        made.add("MatMul", made.draw(40, 40, density=0.1), name=name)
        made.add("Sigmoid")
    path, x = made.save(tmp_path / "m.onnx"), made.draw(3, 40)
    real = onnx_trial.products

    def spoiled(graph):
        for product in real(graph):
            product.bias[:] += product.name == "wrong"
            yield product

    monkeypatch.setattr(onnx_trial, "products", spoiled)
    with pytest.warns(RuntimeWarning, match="m.onnx: wrong stays in ONNX Runtime, since our kernel differs"):
        model = spdnn.compile(path, threads=1)
    assert [product.name for product in model.ours] == ["right"]
    assert "onnxruntime: ours gave other numbers" in model.explain()
    assert close(model(x), outputs(path, x))
    with warnings.catch_warnings(action="error"):
        assert not same(path, x, verify=False)


def test_a_whole_model_or_a_chain_that_differs_stays_in_onnx_runtime(tmp_path, monkeypatch):
    path, other, x = pruned(tmp_path / "m.onnx"), pruned(tmp_path / "other.onnx", "Neg"), few(3, 40) + 1
    real = onnx_files.network_of
    monkeypatch.setattr(
        onnx_files, "network_of", lambda *given: real(given[0], [given[1][0]._replace(bias=1.0)], *given[2:])
    )
    with pytest.warns(RuntimeWarning, match="m.onnx: it stays in ONNX Runtime, since its outputs differ"):
        model = spdnn.compile(path, threads=1)
    assert type(model) is OnnxModel
    assert close(model(x), outputs(path, x))
    monkeypatch.setattr(GraphProduct, "place", property(lambda product: (product.path, "another")))
    monkeypatch.setattr(onnx_trial.Trial, "_with", lambda self, *given: onnx_files.session(str(other)))
    with pytest.warns(RuntimeWarning, match="m.onnx: it stays in ONNX Runtime, since its outputs differ"):
        assert same(path, x)


@pytest.mark.parametrize(
    ("nodes", "shape", "constants", "x"),
    [
        ([NODE("Conv", ["x", "w"], ["a"])], ["n", "c", "h", "w"], {"w": few(16, 8, 3, 3)}, (1, 8, 5, 5)),
        ([NODE("Conv", ["x", "w"], ["a"])], [None, None, None, None], {"w": few(16, 8, 3, 3)}, (2, 8, 4, 4)),
        ([NODE("MatMul", ["x", "w"], ["a"])], ["n", "k"], {"w": few(32, 40)}, (2, 32)),
        ([NODE("MatMul", ["x", "w"], ["a"])], None, {"w": few(32, 40)}, (2, 3, 32)),
    ],
    ids=["channels", "nothing stated", "width", "no shape"],
)
def test_trials_that_fail_are_no_errors(tmp_path, monkeypatch, nodes, shape, constants, x):
    monkeypatch.setenv("SPDNN_TUNING", "on")
    path = saved(tmp_path / "m.onnx", [*nodes, NODE("Sigmoid", ["a"], ["y"])], shape, constants)
    model, x = spdnn.compile(path, threads=1), np.ones(x, np.float32)
    assert "nothing was timed (" in model.explain()
    assert close(model(x), outputs(path, x))
    assert "ms, in ONNX Runtime" in spdnn.compile(path, threads=1, example=x).explain()
    refuses("m.onnx: example: ", spdnn.compile, path, example=np.ones((1,) * x.ndim, np.float32))


@pytest.mark.parametrize("indices", ["flat", "pairs"])
def test_sparse_initializers_are_weights(tmp_path, indices):
    weight = few(40, 32)
    at = np.flatnonzero(weight) if indices == "flat" else np.argwhere(weight)
    values = numpy_helper.from_array(weight[weight != 0], "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(at, "at"), weight.shape)
    path = saved(tmp_path / "m.onnx", [NODE("MatMul", ["x", "w"], ["y"])], ["n", 40], sparse_initializer=[sparse])
    model, x = spdnn.compile(path, threads=1), few(3, 40) + 1
    assert model.edges == np.count_nonzero(weight)
    assert close(model(x), outputs(path, x))


def test_initializers_among_the_inputs_of_an_old_file_are_constants(tmp_path):
    path = saved(tmp_path / "m.onnx", [NODE("MatMul", ["x", "w"], ["a"]), NODE("Tanh", ["a"], ["y"])], ["n", 40],
                 {"w": few(40, 40)}, ir=3)  # fmt: skip
    old = onnx.load(path)
    old.graph.input.append(helper.make_tensor_value_info("w", 1, [40, 40]))
    onnx.save(old, path)
    model = spdnn.compile(path, threads=1)
    assert "1 of 1" in repr(model)
    assert model.inputs == ["x"]


NOT_FINITE = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("bounds", [(), (-1, 2)])
def test_what_is_not_finite_meets_zeros_as_in_onnx_runtime(tmp_path, value, bounds):
    made = Maker(40)
    made.add("MatMul", made.draw(40, 64, density=0.1))
    made.add("Clip", *map(np.float32, bounds)) if bounds else made.add("Relu")
    made.add("Identity")
    path, x = made.save(tmp_path / "m.onnx"), made.draw(5, 40)
    x[1, 3] = x[3, 7] = value
    model = OnnxModel(onnx_files.OnnxGraph.read(path))
    assert "1 of 1" in repr(model)
    np.testing.assert_allclose(model(x), outputs(path, x), rtol=1e-5, atol=1e-5)
    if not bounds:
        refuses("finite", spdnn.compile(path, threads=1), x)


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize(("groups", "size", "stride"), [(1, 1, 1), (2, 1, 1), (1, 3, 1), (2, 3, 2), (1, 3, 3)])
def test_what_is_not_finite_in_images(tmp_path, value, groups, size, stride):
    made = Maker(16, 7, 9)
    made.add("Conv", made.draw(128, 16 // groups, size, size, density=0.1), made.draw(128), group=groups,
             pads=[size // 2] * 4, strides=[stride] * 2, dilations=[1 + (stride == 1)] * 2)  # fmt: skip
    made.add("Relu")
    path, x = made.save(tmp_path / "m.onnx"), made.draw(3, 16, 7, 9)
    x[1, 2, 3, 4] = x[1, 12, 0, 8] = value
    model = OnnxModel(onnx_files.OnnxGraph.read(path))
    assert "1 of 1" in repr(model)
    np.testing.assert_allclose(model(x), outputs(path, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("again", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy])
@pytest.mark.parametrize("last", ["Softmax", "Sigmoid"])
def test_models_are_pickled_and_copied(tmp_path, again, last):
    path, x = pruned(tmp_path / "m.onnx", last), few(3, 40) + 1
    model = spdnn.compile(path, threads=1)
    other = again(model)
    assert repr(other) == repr(model)
    assert (other(x=x) == model(x)).all()
    refuses("x has shape|input: x", other, x[:, :9])
    if last == "Sigmoid":
        pruned(path, "Tanh")
        refuses("m.onnx: it changed since it was compiled, so this model cannot be pickled", again, model)
    model.close()
    if last == "Softmax":
        refuses("closed", again, model)


def test_sparse_inputs_have_the_type_that_the_model_states(tmp_path):
    path = saved(tmp_path / "m.onnx", [NODE("Cast", ["x"], ["a"], to=1), NODE("MatMul", ["a", "w"], ["y"])], ["n", 40],
                 {"w": few(40, 40)}, np.uint8)  # fmt: skip
    model, x = spdnn.compile(path, threads=1), np.zeros((3, 40), int)
    x[1, 2] = 200
    for given in (sp.csr_array(x), sp.coo_array(x)):
        assert (model(x=given) == model(x)).all()
        refuses("x holds -200, and uint8", model, -given)
    refuses("x is of float64; the model takes uint8", model, sp.csr_array(x / 2))


@pytest.mark.parametrize("bound", ["least", "most"])
def test_a_clip_without_a_bound_is_bounded_by_the_type(tmp_path, bound):
    made = Maker(40)
    weight = made.draw(40, 64, density=0.1)
    weight[3] = 1
    made.add("MatMul", weight)
    made.add("Clip", np.float32(0)) if bound == "least" else made.add("Clip", first=[], reads=[made.last, "", "most"])
    made.constants.append(numpy_helper.from_array(np.float32(5), "most"))
    made.add("Neg")
    path, x = made.save(tmp_path / "m.onnx"), np.ones((2, 40), np.float32)
    x[0, 3], x[1, 3] = np.inf, -np.inf
    np.testing.assert_array_equal(spdnn.compile(path, threads=1)(x)[:, 0], outputs(path, x)[:, 0])


def test_defaults_that_nothing_reads_and_bodies_that_need_shapes(tmp_path):
    """A model with our products in it must be one that ONNX Runtime still takes."""
    unread = saved(tmp_path / "a.onnx", [NODE("MatMul", ["x", "w"], ["a"]), NODE("Sigmoid", ["a"], ["y"])], ["n", 40],
                   {"w": few(40, 40), "u": np.zeros(2, np.float32)})  # fmt: skip
    model = onnx.load(unread)
    model.graph.input.append(helper.make_tensor_value_info("u", 1, [2]))
    onnx.save(model, unread)
    nodes = [NODE("MatMul", ["h", "w"], ["m"]), NODE("Sigmoid", ["m"], ["h2"]), NODE("Identity", ["i"], ["o"])]
    ends = [[helper.make_empty_tensor_value_info(name) for name in names] for names in (("h", "i"), ("h2", "o"))]
    body = helper.make_graph(nodes, "body", *ends)
    scan = NODE("Scan", ["x", "s"], ["y", "z"], body=body, num_scan_inputs=1)
    held = {"w": few(40, 40), "s": np.ones((3, 1), np.float32)}
    for path in (unread, saved(tmp_path / "b.onnx", [scan], ["n", 40], held)):
        assert same(path, few(2, 40) + 1)


@pytest.mark.parametrize("tuning", ["off", "forget"])
def test_a_name_of_a_loop_that_is_also_one_outside(tmp_path, monkeypatch, tuning):
    monkeypatch.setenv("SPDNN_TUNING", tuning)
    ends = [helper.make_tensor_value_info(*end) for end in (("i", 7, []), ("c", 9, []), ("x", 1, ["n", 40]))]
    nodes = [NODE("MatMul", ["x", "w"], ["m"]), NODE("Relu", ["m"], ["h"]), NODE("Identity", ["c"], ["d"])]
    gives = [helper.make_tensor_value_info("d", 9, []), helper.make_empty_tensor_value_info("h")]
    loop = NODE("Loop", ["t", "", "f"], ["y"], body=helper.make_graph(nodes, "body", ends, gives))
    path = saved(tmp_path / "m.onnx", [NODE("Cast", ["x"], ["f"], to=1), loop], ["n", 40],
                 {"w": few(40, 40), "t": np.int64(2)}, np.int64)  # fmt: skip
    assert same(path, np.arange(80).reshape(2, 40))


@pytest.mark.parametrize("shape", [(0, 40), (0,), (1, 1, 1), (1, 1, 40)])
@pytest.mark.parametrize("last", ["Relu", "Sigmoid"])
def test_what_onnx_runtime_refuses_at_a_call_is_refused_there(tmp_path, shape, last):
    path = saved(tmp_path / "m.onnx", [NODE("Gemm", ["x", "w", "c"], ["a"]), NODE(last, ["a"], ["y"])], ["n", 40],
                 {"w": few(40, 40), "c": np.zeros(shape, np.float32)})  # fmt: skip
    refuses("bias shape", spdnn.compile(path, threads=1), few(2, 40))


def test_arguments_that_do_not_fit_a_model_in_part_ours(tmp_path):
    path = pruned(tmp_path / "m.onnx", "Sigmoid")
    for batch in (0, -1, "a", 2.5, True, 10**9):
        refuses("a number of inputs from 1 to 16,777,216, or None", spdnn.compile, path, batch=batch)
    refuses("reduction 'layers' is not offered", spdnn.compile, path, reductions="layers")
    wide = [NODE("Flatten", ["x"], ["a"]), NODE("MatMul", ["a", "w"], ["y"])]
    free = saved(tmp_path / "wide.onnx", wide, ["n", "c", "h", "k"], {"w": few(3072, 40)})
    assert spdnn.compile(free, threads=1)(np.ones((1, 3, 32, 32), np.float32)).shape == (1, 40)


def test_a_model_whose_weights_in_other_files_changed_is_not_pickled(tmp_path, monkeypatch):
    path = pruned(tmp_path / "m.onnx", "Sigmoid")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights", size_threshold=0)
    monkeypatch.chdir(tmp_path)
    model = spdnn.compile("m.onnx", threads=1)
    monkeypatch.chdir("/")
    assert (pickle.loads(pickle.dumps(model))(few(2, 40)) == model(few(2, 40))).all()
    (3 * few(40, 40)).tofile(tmp_path / "weights")
    refuses("m.onnx: it changed since it was compiled", pickle.dumps, model)


@pytest.mark.parametrize("part", [0.05, 1.0], ids=["in part ours", "theirs"])
def test_weights_in_another_file_that_is_overwritten(tmp_path, part):
    """ONNX Runtime maps such a file: cut short, it ended the process by a bus error."""
    random = np.random.default_rng(0)
    weights = {"w": (random.random((512, 64)) < part).astype(np.float32), "c": few(1, 64)}
    nodes = [NODE("MatMul", ["x", "w"], ["a"]), NODE("Add", ["a", "c"], ["b"]), NODE("Sigmoid", ["b"], ["y"])]
    path, other, x = saved(tmp_path / "m.onnx", nodes, ["n", 512], weights), tmp_path / "weights", few(3, 512)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location=other.name, size_threshold=0)
    model = spdnn.compile(path, threads=1)
    expected = model(x)
    assert str(other) not in Path("/proc/self/maps").read_text()
    os.truncate(other, 0)
    assert (model(x) == expected).all()
