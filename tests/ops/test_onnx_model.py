"""ONNX models of any kind: outputs are those of ONNX Runtime alone, whichever products are ours."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product as combinations
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.case.node import collect_testcases
from onnx_graphs import graph
from onnx_models import Maker, chain, close, convolutional, outputs
from refusals import refuses

import spdnn
from spdnn.core.load import Load
from spdnn.core.turns import Timed
from spdnn.engines.model import Model
from spdnn.formats import onnx_files
from spdnn.ops import onnx_timing, tuning
from spdnn.ops.onnx_model import OnnxModel
from spdnn.ops.onnx_products import products


def opened(path, **options):
    return OnnxModel(onnx_files.OnnxGraph.read(path), **options)


def theirs(path, feed):
    return onnx_files.session(str(path)).run(None, feed)


@pytest.mark.parametrize("seed", range(200))
def test_random_graphs(tmp_path, untimed, seed):
    path, feed, ours = graph(seed, tmp_path / "a.onnx")
    with opened(path, threads=1 + seed % 3) as model:
        found = model(**feed)
        assert sum("spdnn" in line for line in model.explain().splitlines()) >= ours
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, theirs(path, feed), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        largest = np.abs(np.nan_to_num(other)).max(initial=1) if other.dtype.kind == "f" else 0
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5 * largest)


@pytest.mark.parametrize("seed", range(60))
def test_images(tmp_path, seed):
    made, x = convolutional(seed)
    path = made.save(tmp_path / "a.onnx")
    with spdnn.compile(path, threads=1 + seed % 3) as model:
        assert close(model(x), outputs(path, x), 2e-5)


@pytest.mark.parametrize("softmax", ["Softmax", "LogSoftmax", None])
def test_a_chain_with_a_softmax(tmp_path, softmax):
    for seed in range(8):
        made, x = chain(seed)
        if softmax:
            made.add(softmax, axis=-1)
        path = made.save(tmp_path / "a.onnx")
        assert close(spdnn.compile(path)(x), outputs(path, x))


WINDOWS = [
    # channels, outputs, groups, (height, width), kernel, strides, pads, dilations
    (8, 16, 1, (7, 9), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    (8, 16, 1, (7, 9), (1, 1), (2, 3), (0, 0, 0, 0), (1, 1)),
    (8, 16, 1, (7, 9), (1, 1), (1, 1), (1, 0, 2, 3), (1, 1)),
    (8, 16, 1, (14, 14), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (8, 16, 1, (15, 13), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    (8, 16, 2, (15, 13), (3, 2), (2, 1), (0, 2, 1, 0), (1, 1)),
    (8, 32, 4, (11, 17), (3, 5), (3, 2), (4, 1, 0, 3), (2, 1)),
    (8, 16, 1, (20, 21), (4, 3), (2, 5), (0, 0, 0, 0), (3, 2)),
    (16, 8, 1, (5, 5), (5, 5), (1, 1), (0, 0, 0, 0), (1, 1)),
    (16, 8, 1, (1, 1), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (64, 70, 1, (56, 9), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),  # enough for several threads
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (3, 2), (2, 5)])
def test_convolutions(tmp_path, untimed, window, batch, threads):
    channels, out, groups, size, kernel, strides, pads, dilations = window
    made = Maker(channels, *size)
    weight = made.draw(out, channels // groups, *kernel)
    weight[made.random.random(weight.shape) > 0.1] = 0
    weight = np.concatenate([weight] * -(-1024 // weight.size))
    weight = weight.reshape(-1, groups, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)
    made.add("Conv", weight, made.draw(len(weight)), group=groups, kernel_shape=kernel, strides=strides, pads=pads,
             dilations=dilations)  # fmt: skip
    made.add("Clip", np.float32(-0.5), np.float32(2))
    path, x = made.save(tmp_path / "a.onnx"), made.draw(batch, channels, *size)
    model = opened(path, threads=threads)
    assert "1 of 1" in repr(model)
    assert close(model(x), outputs(path, x))
    assert close(model(x[:, :, ::-1].copy()), outputs(path, x[:, :, ::-1].copy()))
    assert model(x[:0]).shape[0] == 0


@pytest.mark.parametrize(("shape", "threads"), [*combinations([(1,), (7,), (2, 9), (3, 1, 5), (130,)], [1, 3])])
def test_products_of_rows(tmp_path, untimed, shape, threads):
    made = Maker(*shape[1:], 300)
    made.add("MatMul", made.draw(300, 201, density=0.1))
    made.add("Add", made.draw(201))
    made.add("Relu")
    path, x = made.save(tmp_path / "a.onnx"), made.draw(*shape, 300)
    model = opened(path, threads=threads)
    assert "1 of 1" in repr(model)
    assert close(model(x), outputs(path, x))


def test_what_follows_a_product_is_its_own_only_where_nothing_else_reads_it(tmp_path, untimed):
    made = Maker(40)
    made.add("MatMul", made.draw(40, 40, density=0.1))
    before = made.last
    made.add("Add", made.draw(40))
    made.add("Relu", name="activation")
    made.add("Add", reads=[made.last, before])
    path, x = made.save(tmp_path / "a.onnx"), made.draw(5, 40)
    (one,) = products(onnx_files.OnnxGraph.read(path).model.graph)
    assert [node.op_type for node in one.nodes] == ["MatMul"]
    assert close(opened(path)(x), outputs(path, x))


def test_of_two_biases_of_a_product_neither_is_its_own(tmp_path, untimed):
    made = Maker(40)
    product = made.add("MatMul", made.draw(40, 40, density=0.1))
    ends = [made.add("Add", made.draw(40), reads=[product]) for _ in range(2)]
    made.add("Add", reads=ends)
    path, x = made.save(tmp_path / "a.onnx"), made.draw(5, 40)
    (one,) = products(onnx_files.OnnxGraph.read(path).model.graph)
    assert [node.op_type for node in one.nodes] == ["MatMul"]
    assert close(opened(path)(x), outputs(path, x))


PARTS = 8


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of ONNX's own cases
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.full("operators")) for n in range(1, PARTS))])
def test_the_nodes_of_onnx_run_as_in_onnx_runtime(tmp_path, untimed, part):
    """ONNX's own suite has a case or more for each operator; those that ONNX Runtime runs on the processor."""

    def same(found, wanted):
        if wanted is None or isinstance(wanted, list):
            assert type(found) is type(wanted)
            for both in zip(found or (), wanted or (), strict=True):
                same(*both)
        elif wanted.dtype in (np.float32, np.float64):
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, wanted)

    ran, path = 0, tmp_path / "model.onnx"
    for case in collect_testcases(None)[part::PARTS]:
        path.write_bytes(case.model.SerializeToString())
        feed = dict(zip((one.name for one in case.model.graph.input), case.data_sets[0][0], strict=False))
        try:
            wanted = theirs(path, feed)
        except Exception:  # of any type: not one that it runs
            continue
        found, ran = opened(path, threads=1)(**feed), ran + 1
        same(list(found) if isinstance(found, tuple) else [found], wanted)
    assert ran > 1480 // PARTS


@pytest.fixture
def pruned(tmp_path):
    """The path of a model with one pruned product among others."""
    made = Maker(3, 12, 12)
    made.add("Conv", made.draw(64, 3, 3, 3), pads=[1, 1, 1, 1], name="stem")
    made.add("Relu")
    made.add("Conv", made.draw(32, 64, 1, 1, density=0.1), name="pointwise")
    made.add("GlobalAveragePool")
    made.add("Flatten")
    made.add("Gemm", made.draw(32, 4), name="head")
    return made.save(tmp_path / "a.onnx")


@pytest.fixture
def calm(set_all):
    """A function that says what part of the machine other work takes; none at first."""

    def say(others=0.0):
        set_all(onnx_timing, LoadMonitor=lambda: SimpleNamespace(load=lambda: Load(others, 0.0)))

    say()
    return say


@pytest.fixture
def turns_take(set_all):
    """A function that says what the model takes with ours, where it takes 1 s without."""

    def say(ours):
        def take_turns(calls, least, most, enough):
            return Timed({name: [1.0 if name == onnx_timing.ONNX_RUNTIME else ours] * least for name in calls}, True)

        set_all(onnx_timing, take_turns=take_turns)

    return say


def test_choices_are_timed_kept_and_explained(pruned, calm, turns_take, tuned_file):
    turns_take(0.5)
    timed = spdnn.compile(pruned, threads=1).explain()
    product, whole = timed.splitlines()
    assert re.match(r"pointwise +32x64 +10 % nonzero  (spdnn, tiles of \d+: .* in ONNX Runtime|onnxruntime: )", product)
    assert re.search(r"the whole model: .* ms, in ONNX Runtime .* interval .* timed on 20..-..-..$", whole)
    kept = json.loads(tuned_file.read_text())
    assert spdnn.compile(pruned, threads=1).explain() == timed  # of the choice that is kept
    assert json.loads(tuned_file.read_text()) == kept


@pytest.mark.parametrize(("seconds", "ours"), [(2.0, 0), (0.5, 1)])
def test_the_faster_way_is_taken_and_timed_again_where_that_is_asked(
    pruned, calm, turns_take, tuned_file, seconds, ours
):
    """By a clock of the whole model."""
    turns_take(seconds)
    model, x = spdnn.compile(pruned), np.ones((2, 3, 12, 12), np.float32)
    assert f"{ours} of 1" in repr(model)
    assert close(model(x), outputs(pruned, x))
    turns_take(1 / seconds)
    assert f"{ours} of 1" in repr(spdnn.compile(pruned))
    model = spdnn.compile(pruned, tune="again")
    assert f"{1 - ours} of 1" in repr(model)
    said = "1 of 1 product runs elsewhere than in the choice kept on .*; the new choice is kept"
    assert re.search(said, model.explain())
    assert "as in the choice kept on" in spdnn.compile(pruned, tune="again").explain()
    tuning._known.clear()
    assert f"{1 - ours} of 1" in repr(spdnn.compile(pruned))  # as another process has it
    refuses("tune='now': it must be None or 'again'", spdnn.compile, pruned, tune="now")
    network = spdnn.from_matrices([np.eye(3)], last="none")
    refuses("tune: it is for a torch.nn.Module or an ONNX model alone", spdnn.compile, network, tune="again")


def test_a_profile_says_what_each_operator_takes(pruned, calm, turns_take, tuned_file):
    turns_take(0.5)
    x = np.ones((2, 3, 12, 12), np.float32)
    with spdnn.compile(pruned) as model:
        profile = model.profile(x)
        assert {"Product", "Conv", "GlobalAveragePool"} <= {*profile}
        assert all(seconds > 0 for seconds in profile.values())
        assert model.profile(x=x).keys() == profile.keys()
        refuses("Got invalid dimensions for input: x", model.profile, x[:, :2])
    refuses("this model is closed", model.profile, x)


def test_a_choice_made_beside_other_work_is_not_kept(pruned, calm, turns_take, tuned_file):
    turns_take(0.5)
    calm(0.4)
    model = spdnn.compile(pruned)
    said = "provisional, not kept: other work took 40 % of the machine while it was timed"
    assert said in model.explain()
    assert not tuned_file.exists()
    turns_take(2.0)
    assert spdnn.compile(pruned).explain() == model.explain()  # one process, one choice
    calm(0.0)
    model = spdnn.compile(pruned, tune="again")
    assert "0 of 1" in repr(model)
    assert "provisional" not in model.explain()
    assert tuned_file.exists()
    # What is kept stays where the machine was busy.
    kept, _ = tuned_file.read_text(), (turns_take(0.5), calm(0.4))
    assert "that choice stays" in spdnn.compile(pruned, tune="again").explain()
    assert tuned_file.read_text() == kept


@pytest.mark.parametrize("change", [{"tiles": [7]}, {"tiles": []}, {"costs": []}, {"ratio": 1}, {"more": 1}, None])
def test_choices_in_a_file_that_somebody_changed_are_made_anew(pruned, calm, turns_take, tuned_file, change):
    turns_take(0.5)
    wanted = repr(spdnn.compile(pruned))
    content = json.loads(tuned_file.read_text())
    ((key, choice),) = content["choices"].items()
    content["choices"][key] = [64] if change is None else choice | change
    tuned_file.write_text(json.dumps(content))
    tuning._known.clear()
    assert repr(spdnn.compile(pruned)) == wanted
    assert json.loads(tuned_file.read_text())["choices"][key].keys() == choice.keys()


def test_calls_of_any_size_from_several_threads(pruned, untimed):
    x = np.random.default_rng(1).standard_normal((9, 3, 12, 12)).astype(np.float32)
    wanted, model = outputs(pruned, x), spdnn.compile(pruned, threads=2)
    with ThreadPoolExecutor(4) as pool:
        for one in pool.map(lambda n: close(model(x[:n]), wanted[:n]), (1, 2, 3, 9)):
            assert one
    assert close(model(np.asfortranarray(x.astype(np.float64))), wanted)
    assert close(model(x=x), wanted)


def test_what_is_refused(tmp_path, pruned, untimed):
    model, x = spdnn.compile(pruned), np.ones((2, 3, 12, 12), np.float32)
    refuses(r"x has shape \(2, 4, 12, 12\); the model takes \(n, 3, 12, 12\)", model, np.ones((2, 4, 12, 12)))
    refuses(r"a\.onnx: Got invalid dimensions for input: x", model, np.ones((2, 4, 12, 12), np.float32))
    refuses("2 inputs; it takes x", model, x, x)
    refuses("x is of <U4; the model takes float32", model, "text")
    refuses("it is no chain of layers: 'stem'", spdnn.compile, pruned, engine="spgemm")
    refuses("it is no chain of layers: 'stem' .Conv.; spdnn.compile runs any ONNX model", spdnn.open_network, pruned)
    model.close()
    refuses("this model is closed", model, x)
    made = Maker(4)
    made.nodes.append(helper.make_node("Magic", ["x"], ["y"], domain="com.example"))
    made.last = "y"
    model = onnx.load(made.save(tmp_path / "b.onnx"))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(model, tmp_path / "b.onnx")
    refuses("com.example:Magic.* is not a registered function/op", spdnn.compile, tmp_path / "b.onnx")


def test_a_chain_that_is_not_pruned_runs_in_onnx_runtime(tmp_path):
    for density, kind in ((0.9, OnnxModel), (0.1, spdnn.Model)):
        made = Maker(40)
        made.add("Gemm", made.draw(40, 30, density=density))
        made.add("Softmax", axis=-1)
        path, x = made.save(tmp_path / "a.onnx"), made.draw(5, 40)
        model = spdnn.compile(path)
        assert isinstance(model, kind)
        assert close(model(x), outputs(path, x))
    assert repr(model).startswith("Model(40 -> 30, 1 layer, ")
    assert "Softmax" in repr(model)


def test_the_softmax_of_a_row_does_not_depend_on_others(tmp_path):
    made, x = chain(2)
    made.add("Softmax", axis=-1)
    model = spdnn.compile(made.save(tmp_path / "a.onnx"))
    assert isinstance(model, Model)
    x = np.concatenate([x[:1], 10_000 * x[:1], x[:1]])
    whole = model(x)
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-5)
    for row in range(3):
        np.testing.assert_array_equal(whole[row : row + 1], model(x[row : row + 1]))
