"""A compiled model: what it answers, from whatever array, thread and process, as often as it is called."""

import multiprocessing
import sys
import threading
import types

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import SHAPES, Exported, random_network
from ladders import each_level
from refusals import refuses

import spdnn
from spdnn.core.errors import SpdnnError
from spdnn.engines import oracle
from spdnn.engines.memory import resident_bytes
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_network

COUNTS = (1, 2, 15, 16, 17, 33, 70, 130)


def images(count, neurons, seed=0):
    """Half of the values are 0."""
    values = np.random.default_rng(seed).normal(size=(count, neurons)).astype(np.float32)
    return np.where(values > 0, values, 0)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * max(1.0, float(abs(expected).max(initial=0))))


@pytest.fixture(scope="module")
def digits():
    return random_network([30, 70, 50, 10], bias="vector", last="none")


@pytest.mark.parametrize("level", each_level)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_batch_gives_what_the_layers_say(shape, level, monkeypatch):
    monkeypatch.setenv("SPDNN_ISA", level)
    _, widths, options = SHAPES[shape]
    network = random_network(widths, **options)
    x = images(COUNTS[-1], widths[0])
    expected = oracle.forward(network, x)[0]
    for threads in (1, 2, 5):
        with spdnn.compile(network, threads=threads) as model:
            whole = model(x)
            assert whole.dtype == np.float32
            close(whole, expected)
            for count in COUNTS:
                assert (model(x[:count]) == whole[:count]).all(), (threads, count)  # a row depends on no other
            assert model(x[:0]).shape == (0, widths[-1])


def test_more_threads_than_tiles_go_from_layer_to_layer_together():
    """And wide layers, of indices in 32 bits, whose sums are numbered in 32 bits too."""
    rng = np.random.default_rng(1)
    matrices = [sp.random_array(shape, density=d, rng=rng, dtype=np.float32)
                for shape, d in [((50, 70_000), 0.05), ((70_000, 40), 0.05), ((40, 6000), 0.5)]]  # fmt: skip
    network = spdnn.from_matrices(matrices, 0.1, last="none")
    x = images(20, 50)
    expected = oracle.forward(network, x)[0]
    with spdnn.compile(network, threads=4) as model, spdnn.compile(network, threads=1) as alone:
        for count in (1, 3, 20):
            close(model(x[:count]), expected[:count])
            assert (model(x[:count]) == alone(x[:count])).all()


@pytest.mark.parametrize("engine", ["cpu", "tiled", "spgemm", "taskgraph", "reference", "scipy"])
def test_every_engine_is_a_model_and_infers(engine, digits):
    x = images(9, 30)
    expected = oracle.forward(digits, x)[0]
    truth = oracle.infer(digits, spdnn.Inputs.from_array(x))
    with spdnn.compile(digits, engine=engine, batch=4) as model:
        assert model(x[:0]).shape == (0, 10)
        for _ in range(2):
            close(model(x), expected)
            result = model.infer(x, values=True)
            assert (result.categories == truth.categories).all()
            assert (result.survivors == truth.survivors).all()
            close(result.all_values(), expected)
        assert model.infer(spdnn.Inputs.from_array(x[:3])).values is None


def test_identical_neurons_are_computed_once_and_come_back():
    matrix = np.kron(np.eye(4), np.ones((1, 3)))
    network = spdnn.from_matrices([matrix, matrix.T @ matrix], last="none")
    x = images(40, 4)
    with spdnn.compile(network, reductions="neurons") as model:
        for count in (1, 40):
            close(model(x[:count]), oracle.forward(network, x[:count])[0])


def test_deep_networks_lose_rows_on_the_way():
    network, x = RadixNet(1024, 24), (images(1100, 1024) > 0.9).astype(np.float32)
    with spdnn.compile(network) as model:
        whole = model(x)
        assert (whole == spdnn.infer(network, x, values=True).all_values()).all()
        for few in (1, 30):
            assert (model(x[:few]) == whole[:few]).all()


def test_the_network_is_read_once(digits, tmp_path):
    """A bias for each output is read for what the header tells; weights are not read again."""
    write_network(tmp_path / "digits.safetensors", digits)
    network, x = spdnn.open_network(tmp_path / "digits.safetensors"), images(5, 30)
    expected, read = oracle.forward(digits, x)[0], []
    layer = network.layer
    network.layer = lambda k: read.append(k) or layer(k)
    with spdnn.compile(network, reductions="none") as model:
        before = len(read)
        for _ in range(3):
            close(model(x), expected)
            model.infer(x)
    assert len(read) == before <= 2 * digits.depth


def test_little_memory_streams():
    network, x = RadixNet(4096, 60), images(3, 4096)
    expected = spdnn.infer(network, x, values=True).all_values()
    held = resident_bytes()
    with spdnn.compile(network, memory=held + (24 << 20), reductions="none") as model:
        assert model._forward is None
        assert (model(x) == expected).all()


@pytest.mark.parametrize("engine", ["cpu", "spgemm", "taskgraph"])
@pytest.mark.parametrize("held", [True, False])
def test_a_file_that_is_changed_while_its_model_serves(tmp_path, engine, held):
    """What was compiled is in memory; what is streamed is refused, and never another network's numbers."""
    path, x = tmp_path / "live.safetensors", images(3, 4096)
    write_network(path, RadixNet(4096, 60))
    memory = None if held else resident_bytes() + (24 << 20)
    with spdnn.compile(path, engine=engine, memory=memory, reductions="none", threads=1) as model:
        expected = model(x)
        with open(path, "r+b") as file:  # as cp does
            file.truncate(path.stat().st_size // 2)
        if held:
            assert (model(x) == expected).all()
            assert (model.infer(x, values=True).all_values() == expected).all()
        else:
            with pytest.raises(SpdnnError, match="live.safetensors: this file was changed since it was opened"):
                model(x)


BFLOAT = ml_dtypes.bfloat16
ARRAYS = {
    "float64": lambda x: x.astype(np.float64),
    "float16": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: x.astype(BFLOAT),
    "integers": lambda x: x.astype(np.int8),
    "columns": lambda x: np.asfortranarray(x),
    "every other": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read-only": lambda x: np.frombuffer(x.tobytes(), np.float32).reshape(x.shape),
    "list": lambda x: x.tolist(),
    "sparse": sp.csr_array,
    "JAX": jnp.asarray,
    "JAX, bfloat16": lambda x: jnp.asarray(x, jnp.bfloat16),
    "DLPack": Exported,
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_any_library(kind, digits):
    x = np.round(images(6, 30) * 4)  # in all of these types
    given = ARRAYS[kind](x)
    with spdnn.compile(digits) as model:
        expected, got = model(x), model(given)
        assert type(got) is (type(given) if kind.startswith("JAX") else np.ndarray)
        assert got.dtype == np.float32
        assert (np.asarray(got) == expected).all()
        for result in (model.infer(given, values=True), spdnn.infer(digits, given, values=True)):
            assert (result.all_values() == expected).all()


@pytest.mark.parametrize("kind", [sp.csr_array, sp.coo_array, sp.csc_matrix, sp.lil_array])
@pytest.mark.parametrize("engine", ["cpu", "spgemm", "reference"])
def test_no_inputs_give_no_outputs(kind, engine, digits):
    with spdnn.compile(digits, engine=engine) as model:
        for x in (np.zeros((0, 30), np.float32), kind((0, 30), dtype=np.float64), kind((0, 30), dtype=bool)):
            assert model(x).shape == (0, 10)
            assert model(x).dtype == np.float32
        refuses(r"x has shape \(0, 29\); it must be \(inputs, 30\)", model, kind((0, 29)))
    refuses("this model is closed", model, kind((0, 30)))


def test_a_network_of_any_library():
    matrix = np.round(images(3, 4) * 4)
    expected = spdnn.from_matrices([matrix], last="relu").sha256()
    network = spdnn.from_matrices([jnp.asarray(matrix, jnp.bfloat16)], [jnp.zeros(4)], last="relu")
    assert (network.layer(0).matrix().toarray() == matrix).all()
    assert spdnn.from_matrices([Exported(matrix)], last="relu").sha256() == expected


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (np.zeros(30, np.float32), r"x has shape \(30,\); it must be \(inputs, 30\); one input is x\[None\]$"),
        (np.zeros((2, 29), np.float32), r"x has shape \(2, 29\); it must be \(inputs, 30\)$"),
        (np.zeros((30, 4), np.float32), r"it must be \(inputs, 30\); transpose it\?$"),
        (np.zeros((4, 5, 6), np.float32), r"it must be \(inputs, 30\); x\.reshape\(4, 30\) is one$"),
        (np.full((1, 30), np.nan, np.float32), "x holds a NaN or an infinity"),
        (np.append(np.zeros(29), np.nan)[None], "x holds a NaN or an infinity"),  # past the last whole vector
        (np.full((80, 30), 1e300), "x holds a NaN or an infinity"),
        (np.zeros((2, 30), np.complex64), "x is of complex64; it must be real numbers"),
        ([[1, 2], [3]], "x is no array"),
        ("digits", "x has shape"),
        (np.ma.masked_array(np.zeros((2, 30))), "x is a masked array"),
        (types.SimpleNamespace(requires_grad=True), "x is of object|x has shape"),
    ],
)
def test_what_is_no_input_is_one_sentence(digits, x, sentence):
    with spdnn.compile(digits) as model:
        refuses(sentence, model, x)


def test_a_tensor_that_asks_for_a_gradient_is_refused(digits, monkeypatch):
    """Not answered without one. torch stands in: its wheel takes gigabytes."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(is_grad_enabled=lambda: True))
    with spdnn.compile(digits) as model:
        refuses("x asks for a gradient", model, types.SimpleNamespace(requires_grad=True))


@pytest.mark.parametrize("count", [1, 40])
def test_a_sum_past_float32_is_an_error(count):
    network = spdnn.from_matrices([[[1e30]], [[1e30]]], last="relu")
    with spdnn.compile(network) as model:
        x = np.ones((count, 1), np.float32)
        x[-1] = 0
        if count > 1:
            with pytest.raises(SpdnnError, match="a value of layer 2 passed the range of float32"):
                model(x)
        assert (model(x[-1:]) == 0).all()


@pytest.mark.parametrize("count", [1, 3, 15, 16, 17, 31, 33, 70])
@pytest.mark.parametrize("threads", [1, 16])  # tile by tile, and from layer to layer in step
def test_a_sum_past_float32_is_told_wherever_its_row_is(threads, count):
    network = spdnn.from_matrices([np.full((300, 300), 1e36), np.eye(300) * 1e-36], last="none")
    with spdnn.compile(network, threads=threads, reductions="none") as model:
        x = np.full((count, 300), 0.5, np.float32)
        assert np.isfinite(model(x)).all()
        for place in {0, 14, 15, 16, 30, 31, 32, count - 2, count - 1} & set(range(count)):
            x[place] = 5
            with pytest.raises(SpdnnError, match="a value of layer 1 passed the range of float32"):
                model(x)
            x[place] = 0.5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "gpu"}, "engine 'gpu' is not known"),
        ({"batch": 0}, "batch 0: a number of inputs from 1 to 16,777,216, or None"),
        *(({"threads": count}, f"threads {count}: an integer from 1") for count in (0, 1.5, 10**12)),
        ({"reductions": "layers"}, "reduction 'layers' is not offered here"),
        ({"memory": 0}, "memory 0: a number of bytes"),
        ({"settings": spdnn.TaskgraphSettings()}, "the engine cpu has no settings"),
    ],
)
def test_options_that_do_not_fit(digits, options, sentence):
    refuses(sentence, spdnn.compile, digits, **options)


def test_what_is_no_network_is_one_sentence():
    refuses("a list is no Network; spdnn.from_matrices", spdnn.compile, [np.eye(2)])


def test_a_file_of_weights_is_opened_with_its_last_activation(tmp_path):
    np.savez(path := tmp_path / "weights.npz", **{"fc.weight": np.eye(2)})
    opened = r"spdnn\.compile\(spdnn\.open_network\('.*weights\.npz', last='none'\)\), or last='relu'$"
    refuses(f"does not say what follows its last layer .*: {opened}", spdnn.compile, path)


def test_a_closed_model_answers_no_more(digits):
    with spdnn.compile(digits) as model:
        assert repr(model) == f"Model(30 -> 10, 3 layers, {digits.edges:,} edges, engine cpu, {model.threads} threads)"
    for call in (model, model.infer):
        refuses("this model is closed", call, images(1, 30))
    assert repr(model).endswith(", closed)")
    model.close()


def test_several_threads_at_once(digits):
    x = images(64, 30)
    with spdnn.compile(digits, threads=3) as model:
        expected, wrong = model(x), []

        def calls(number):
            for turn in range(40):
                count = 1 + (7 * turn + number) % 64
                if not (model(x[:count]) == expected[:count]).all():
                    wrong.append(count)
            if (model.infer(x).categories != model.infer(x).categories).any():
                wrong.append("infer")

        threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def _answer(model, x, connection):
    connection.send(model(x))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_process_answers_too():
    """The threads of its parent are not in it."""
    network, x = RadixNet(1024, 6), images(40, 1024)
    with spdnn.compile(network, threads=2) as model:
        for count in (1, 40):
            expected = model(x[:count])
            ours, theirs = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=_answer, args=(model, x[:count], theirs))
            child.start()
            assert ours.poll(60)
            assert (ours.recv() == expected).all()
            child.join(60)
            assert child.exitcode == 0
