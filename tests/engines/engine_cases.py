"""Inputs and comparisons that the tests of engines share."""

import contextlib
import functools
import itertools

import numpy as np
import scipy.sparse as sp

from spdnn.api import infer
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.result import projection_weights
from spdnn.engines import oracle as reference
from spdnn.engines.base import Options, Session
from spdnn.engines.registry import engine
from spdnn.formats.mnist import mnist_inputs

official_inputs = functools.cache(mnist_inputs)  # seconds each; tests that use them are of the xdist_group "mnist"

# Name: inputs, widths, and what random_network takes.
SHAPES = {
    "one input": (1, [50, 40, 30], {}),
    "96 inputs, 7 layers": (96, [96] * 8, {"density": 0.2}),
    "7 x 96 layers": (40, [7, 96, 7, 96], {"density": 0.5}),
    "rectangular": (33, [17, 200, 5, 64], {}),
    "one neuron wide": (5, [3, 1, 4], {"density": 1.0, "bias": 0.0}),
    "vector bias": (70, [40, 40, 40], {"bias": "vector"}),
    "clip": (70, [40, 40, 40], {"clip": 0.5}),
    "logits": (70, [40, 40, 10], {"last": "none"}),
    "positive bias": (70, [40, 40, 40], {"bias": 0.2}),
    "one value": (64, [60, 60, 60], {"single": 0.125}),
    "odd width of bits": (40, [1001, 13, 7], {}),
    "nearly empty": (40, [50, 50, 50], {"density": 0.005, "bias": 0.1}),
}


def random_network(widths, density=0.3, seed=0, bias=-0.1, clip=None, last="relu", single=None):
    """A network of random layers."""
    rng = np.random.default_rng(seed)
    matrices, biases = [], []
    for rows, columns in zip(widths[:-1], widths[1:], strict=True):
        matrix = sp.random_array((rows, columns), density=density, rng=rng, dtype=np.float32)
        if matrix.nnz:
            matrix.data[:] = single if single is not None else rng.normal(size=matrix.nnz).astype(np.float32)
        matrices.append(matrix.tocsc())
        biases.append(rng.normal(-0.1, 0.1, columns).astype(np.float32) if bias == "vector" else bias)
    return from_matrices(matrices, biases, clip, last=last)


def around_sixteen_bits(width):
    """Matrices of 3 inputs to `width` neurons to 2 outputs, and the neurons that the second one reads."""
    rng = np.random.default_rng(1)
    first = sp.csc_array(
        (np.ones(64, np.float32), (rng.integers(0, 3, 64), np.linspace(0, width - 1, 64).astype(int))), shape=(3, width)
    )
    indices = np.array([0, 1, 65_534, width - 2, width - 1])
    last = sp.csc_array((np.arange(1, 6, dtype=np.float32), (indices, [0, 1, 0, 1, 0])), shape=(width, 2))
    return first, last, indices


LARGEST = float(np.finfo(np.float32).max)
HALF_STEP = 2.0**103  # to what would be the next float32: added to LARGEST it rounds to an infinity


def at_the_edge(past: bool, position: int, clip: float | None, last: str):
    """By name, networks of four layers with a sum that is the largest, or least, of float32; or is not finite.

    The last of `edge_inputs` gets there in the layer at `position` (0-based), in whatever order terms are added. The
    layer after, where there is one, brings what it has become back among small numbers, but for neuron 0: nobody
    reads that, and "a bias" is of it alone.
    """
    half = HALF_STEP if past else float(np.nextafter(np.float32(HALF_STEP), np.float32(0)))
    one = 2.0**127 if past else LARGEST / 2
    edges = {
        "two terms": ([[LARGEST], [half]], 0.0),
        "negative": ([[-LARGEST], [-half]], 0.0),
        "a bias": ([[LARGEST / 2], [LARGEST / 2]], half),
        "one value": ([[one], [one]], 0.0),
        "equal neurons": ([[one], [one]], 0.0),
    }
    for name, (column, bias) in edges.items():
        first, before = np.zeros((40, 70)), [np.eye(40)] * position
        first[:2, [0, 1, 64, 69]] = column
        if name != "one value":
            first[range(2, 40), range(2, 40)] = 1
        if name == "equal neurons" and position:
            before[-1] = np.eye(40)
            before[-1][:2, :2] = [[1, 1], [0, 0]]
        matrices = [*before, first, np.diag([0] + [2.0**-100] * 69), np.eye(70), np.eye(70)][:4]
        biases = [np.zeros(matrix.shape[1], np.float32) for matrix in matrices]
        biases[position][0] = bias
        yield name, from_matrices(matrices, biases, clip, last=last)


def edge_inputs(kind: str) -> Inputs:
    """70 inputs of zeros and ones, of which the last gets to the edge."""
    ones = np.random.default_rng(3).random((70, 40)) < 0.3
    ones[:, 0], ones[-1, :2] = False, True
    values = ones.astype(np.float32)
    return Inputs.from_array({"bits": ones, "dense": values, "csr": sp.csr_array(values)}[kind])


def assert_one_rule_for_overflow(name, reductions="all", positions=range(4), **options):
    """The largest finite sum passes, as the oracle has it, and the first that is not finite is an error."""
    kinds = itertools.cycle(["bits", "dense", "csr"])
    for position, (clip, last) in itertools.product(positions, [(32, "relu"), (None, "none")]):
        inputs = edge_inputs(next(kinds))
        options |= {"engine": name, "reductions": reductions}
        for case, network in at_the_edge(True, position, clip, last):
            with refused(f"a value of layer {position + 1} passed the range of float32", case, inputs.kind):
                infer(network, inputs, **options)
        for case, network in at_the_edge(False, position, clip, last):
            got, expected = (
                infer(network, inputs, values=True, **options),
                reference.infer(network, inputs, values=True),
            )
            np.testing.assert_allclose(got.all_values(), expected.all_values(), rtol=1e-6, err_msg=case)


@contextlib.contextmanager
def refused(sentence, *what):
    """Without pytest, which is not where the GPU is."""
    error = None
    try:
        yield
    except SpdnnError as raised:
        error = str(raised)
    assert error is not None, what
    assert sentence in error, (error, *what)


def assert_exact_or_refused(name):
    """Partial sums pass float32, in one order or another, and the sum is 0: nothing but that is a result."""
    for signs in ([1, 1, -1, -1], [1, -1, 1, -1], [1, 1, 1, -1, -1, -1, 1, -1]):
        weights = 3e38 * np.array(signs, float)[:, None]
        for clip, last in ((None, "none"), (32, "relu")):
            network = from_matrices([weights, np.ones((1, 1))], clip=clip, last=last)
            with contextlib.suppress(SpdnnError):
                assert infer(network, Inputs.from_array(np.ones((3, len(signs)))), name).alive.size == 0, signs


def rows(count, neurons, seed=0, kind="dense", density=0.3):
    rng = np.random.default_rng(seed)
    ones = rng.random((count, neurons)) < density
    if kind == "bits":
        return Inputs.from_array(ones)
    values = np.where(ones, rng.normal(1, 1, (count, neurons)), 0).astype(np.float32)
    return Inputs.from_array(sp.csr_array(values) if kind == "csr" else values)


def opened(name, network, inputs, reductions=(), **options) -> Session:
    """A session of the engine of that name."""
    chosen = engine(name)
    return chosen.open(chosen.prepare(network, reductions), inputs, Options(**options))


def assert_same(name, network, inputs, **options):
    """Compare an engine's result with the oracle's; both results."""
    got = infer(network, inputs, name, values=True, **options)
    expected = reference.infer(network, inputs, values=True)
    whole = expected.all_values()
    np.testing.assert_allclose(got.all_values(), whole, rtol=1e-4, atol=1e-5 * max(1.0, abs(whole).max()))
    mine = got.all_values()[got.alive]
    np.testing.assert_array_equal(got.row_min, mine.min(axis=1))
    np.testing.assert_array_equal(got.row_max, mine.max(axis=1))
    projections = mine @ projection_weights(network.outputs).astype(np.float64)
    np.testing.assert_allclose(got.row_projection, projections, rtol=1e-9, atol=1e-9 * max(1.0, abs(whole).sum()))
    np.testing.assert_allclose(got.row_sum, mine.sum(axis=1, dtype=np.float64), rtol=1e-9, atol=1e-9)
    assert_keeps_some(infer(network, inputs, name, values=np.arange(0, inputs.count, 3), **options), got)
    return got, expected


def assert_equal(got, expected, to_the_bit=True):
    """Two results are the same; but for sums and hashes of rows where one is the oracle's, whose rows are float64."""
    sums = ("row_hash", "row_sum", "row_projection") if to_the_bit else ()
    for name in ("alive", "survivors", "categories", *sums):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name), name)
    if expected.values is not None:
        np.testing.assert_array_equal(got.all_values(), expected.all_values())


def assert_keeps_some(some, every):
    """A result with the values of every third input alone, beside one with those of all."""
    mine = every.alive % 3 == 0
    assert some.digest == every.digest
    np.testing.assert_array_equal(some.valued, every.alive[mine])
    np.testing.assert_array_equal(some.values, every.values[mine])


class Exported:
    """An array that has DLPack, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
