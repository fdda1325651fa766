"""Inputs and comparisons that the tests of engines share."""

import functools

import numpy as np
import scipy.sparse as sp

from spdnn.engines.base import Options, Session
from spdnn.engines.registry import engine, infer
from spdnn.problem.features import Inputs
from spdnn.problem.network import from_matrices
from spdnn.problem.result import projection_weights
from spdnn.sources.mnist import mnist_inputs
from spdnn.verify import oracle as reference

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
    return from_matrices(matrices, biases, clip, last)


def around_sixteen_bits(width):
    """Matrices of 3 inputs to `width` neurons to 2 outputs, and the neurons that the second one reads."""
    rng = np.random.default_rng(1)
    first = sp.csc_array(
        (np.ones(64, np.float32), (rng.integers(0, 3, 64), np.linspace(0, width - 1, 64).astype(int))), shape=(3, width)
    )
    indices = np.array([0, 1, 65_534, width - 2, width - 1])
    last = sp.csc_array((np.arange(1, 6, dtype=np.float32), (indices, [0, 1, 0, 1, 0])), shape=(width, 2))
    return first, last, indices


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
    return got, expected
