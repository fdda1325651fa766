"""The other libraries behind the engines' contract: each against the oracle, on awkward shapes."""

import functools
import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import SHAPES, assert_same, opened, rows
from ladders import covering

from spdnn.api import infer
from spdnn.bench.engines.columns import block_inputs
from spdnn.core.errors import InputError, Unavailable, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines.registry import PEERS, engine
from spdnn.formats.radixnet import RadixNet

THREADS = 2  # JAX keeps the number that it starts with


class Tensor:
    """The few calls of PyTorch that the engine makes, on NumPy: they show that it calls rightly, not that PyTorch is
    right."""

    def __init__(self, array):
        self.array = array

    shape = property(lambda self: self.array.shape)

    def numpy(self):
        return self.array

    def __matmul__(self, other):
        return Tensor(self.array @ other.array)

    def __ne__(self, number):
        return Tensor(self.array != number)

    def __gt__(self, number):
        return Tensor(self.array > number)

    def add_(self, other):
        self.array += other.array if isinstance(other, Tensor) else np.float32(other)

    def clamp_(self, low, high):
        self.array[:] = np.clip(self.array, low, high)
        return self

    def any(self, dim):
        return Tensor(self.array.any(axis=dim))

    def amax(self, dim):
        return Tensor(self.array.max(axis=dim))


@pytest.fixture
def library(request, monkeypatch):
    """The name of an engine, with what stands in for PyTorch or CuPy in its place where that is asked for."""
    name = request.param
    if name == "stand-in for cupy":
        request.getfixturevalue("gpu")
        return "cusparse"
    if name == "stand-in for torch":
        module = types.ModuleType("torch")
        module.__spec__ = importlib.machinery.ModuleSpec("torch", None)
        module.__version__, module.set_num_threads, module.from_numpy = "0", lambda threads: None, Tensor
        module.sparse_csr_tensor = lambda offsets, indices, values, size: Tensor(
            sp.csr_array((values.array, indices.array, offsets.array), shape=size)
        )
        monkeypatch.setitem(sys.modules, "torch", module)
        return "torch"
    return name


# PyTorch, which brings several GB of libraries for GPUs, is tested where it happens to be; its stand-in everywhere.
# CuPy needs a GPU, so here only its stand-in is.
every_library = pytest.mark.parametrize(
    "library",
    [
        "scipy",
        *(pytest.param(name, marks=pytest.mark.needs(name)) for name in ("graphblas", "mkl", "jax")),
        *(["torch"] if importlib.util.find_spec("torch") else []),
        "stand-in for torch",
        "stand-in for cupy",
    ],
    indirect=True,
)


def compared(network, inputs, name):
    """The results of a library and of the oracle, which are the same."""
    got, expected = assert_same(name, network, inputs, threads=THREADS)
    assert abs(got.survivors - expected.survivors).max() <= 1  # a value that ties with zero may fall either way
    return got, expected


MORE_SHAPES = SHAPES | {
    "one input, one neuron": (1, [3, 1, 1], {"density": 1.0, "bias": 0.0}),
    "logits without bias": (70, [40, 40, 10], {"last": "none", "bias": 0.0}),
    "full": (80, [40, 40, 40], {"density": 1.0, "single": 0.125, "bias": 0.0}),
    "more than a block": (1100, [33, 20, 20], {}),
}


@every_library
@pytest.mark.parametrize(("shape", "kind"), covering(MORE_SHAPES, ["bits", "dense", "csr"]))
def test_awkward_shapes(random_network, shape, kind, library):
    count, widths, options = MORE_SHAPES[shape]
    network = random_network(widths, **options)
    inputs = rows(count, widths[0], kind=kind, density=1.0 if shape == "full" else 0.3)
    if library == "graphblas" and any(not layer.header.keeps_zero for layer in network.layers()):
        with pytest.raises(Unsuitable, match="engine graphblas keeps features sparse, and a layer of this network"):
            infer(network, inputs, library, threads=THREADS)
        return
    compared(network, inputs, library)


@every_library
def test_empty_layers_and_all_dead(library):
    network = from_matrices([np.zeros((6, 5)), np.ones((5, 4))], -0.5, last="relu")
    got, _ = compared(network, rows(40, 6), library)
    assert got.alive.size == 0
    got, _ = compared(from_matrices([np.eye(6), np.zeros((6, 3))], 0.0, last="relu"), rows(40, 6), library)
    assert got.survivors[0] > 0 == got.survivors[1]


@every_library
def test_rows_leave_only_while_no_later_bias_is_positive(random_network, library):
    layers = [layer.matrix() for layer in random_network([30, 30, 30, 30]).layers()]
    network, inputs = from_matrices(layers, [-500.0, 0.5, -0.1], last="relu"), rows(100, 30)
    if library == "graphblas":
        return
    got, expected = compared(network, inputs, library)
    assert expected.survivors[0] == 0 < expected.survivors[1]
    np.testing.assert_array_equal(got.survivors, expected.survivors)


@functools.cache
def official():
    """Layers of an official network, inputs of which some survive, and their result."""
    network, inputs = RadixNet(1024, 30), rows(300, 1024, kind="bits", density=np.linspace(0, 0.35, 300)[:, None])
    return network, inputs, infer(network, inputs)


@every_library
def test_an_official_network_repeats_itself_to_the_bit(library):
    network, inputs, expected = official()
    session = opened(library, network, inputs, engine(library).offers, threads=THREADS)
    first, second = session.run(), session.run()
    assert first.digest == second.digest
    assert 0 < first.alive.size < 300
    np.testing.assert_array_equal(first.categories, expected.categories)
    np.testing.assert_array_equal(first.survivors, expected.survivors)
    most = inputs.count * network.edges
    assert first.edges_computed == most if library == "jax" else 0 < first.edges_computed < most
    assert first.notes["library"]


@pytest.mark.parametrize("name", ["scipy", pytest.param("mkl", marks=pytest.mark.needs("mkl"))])
def test_without_reductions_every_row_stays(name):
    network, inputs = RadixNet(1024, 10), rows(600, 1024, kind="bits", density=0.05)
    got = infer(network, inputs, name, reductions="none", threads=THREADS)
    assert got.survivors[-1] < 600
    assert got.edges_computed == 600 * network.edges


@pytest.mark.needs("graphblas")
def test_graphblas_needs_dead():
    with pytest.raises(Unsuitable, match="leaves rows of zeros out by itself; it needs --reductions dead"):
        infer(RadixNet(1024, 2), rows(3, 1024), "graphblas", reductions="none")


@pytest.mark.needs("jax")
def test_jax_keeps_its_threads():
    infer(RadixNet(32, 1, -0.1), rows(1, 32), "jax", threads=THREADS)
    with pytest.raises(InputError, match="JAX runs with 2 threads since it started in this process; 1 need another"):
        infer(RadixNet(32, 1, -0.1), rows(1, 32), "jax", threads=1)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "scipy"])
def test_a_library_that_is_absent_is_one_sentence(name, nothing_installed):
    brings = {"torch": r"-e '.\[torch\]'", "cusparse": "cupy-cuda12x or cupy-cuda13x"}.get(name, r"-e '.\[peers\]'")
    with pytest.raises(Unavailable, match=f"engine {name} cannot run here: the package .* pip install {brings}"):
        engine(name)


@pytest.mark.needs("mkl")
def test_mkl_without_its_library(monkeypatch):
    from spdnn.bench.engines import mkl

    monkeypatch.delenv("MKL_RT", raising=False)
    monkeypatch.setattr(mkl.importlib.metadata, "files", lambda package: [])
    assert "libmkl_rt is not found" in mkl.MklEngine().missing()


def test_values_past_float32_are_refused_before_they_appear():
    network = from_matrices([np.full((2, 2), 3e38), np.ones((2, 1))], last="relu")
    with pytest.raises(Unsuitable, match="engine scipy does not look for values past float32, and layer 1 could"):
        infer(network, Inputs.from_array(np.ones((1, 2), np.float32)), "scipy")
    assert infer(network, Inputs.from_array(np.full((1, 2), 1e-3, np.float32)), "scipy").alive.size == 1
    deep = from_matrices([np.full((2, 2), 8.0)] * 40, last="relu")
    with pytest.raises(Unsuitable, match="layer 32 could give one"):  # 16^32 is past 2^128, and the inputs are 1
        infer(deep, Inputs.from_array(np.ones((1, 2), np.float32)), "scipy")


def test_what_does_not_fit_is_one_sentence():
    with pytest.raises(InputError, match="engine scipy holds all weights and features, about .* 1,000 are allowed"):
        infer(RadixNet(1024, 2), rows(3, 1024), "scipy", memory=1000)
    with pytest.raises(InputError, match=r"is \(\d+, 64\); the network takes \(inputs, 1024\)"):
        infer(RadixNet(1024, 2), rows(3, 64), "scipy")


def test_blocks_of_columns():
    assert [block_inputs(neurons) for neurons in (1, 1024, 4096, 16384, 65536)] == [512, 512, 128, 64, 64]
