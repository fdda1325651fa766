"""The oracle against a literal transcription of the specification."""

import numpy as np
import pytest

from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.engines import oracle as reference


def literal(network, y):
    """Loops over every product, in Python's own float64."""
    y = [[float(v) for v in row] for row in y]
    for layer in network.layers():
        weights = layer.matrix().toarray().astype(float)
        bias = np.broadcast_to(layer.bias, layer.outputs)
        rows = []
        for row in y:
            sums = [
                sum(row[i] * weights[i][j] for i in range(layer.inputs)) + float(bias[j]) for j in range(layer.outputs)
            ]
            rows.append([min(max(v, layer.activation.low), layer.activation.high) for v in sums])
        y = rows
    return np.array(y)


@pytest.mark.parametrize(
    "options", [{}, {"bias": "vector", "clip": 1.5}, {"bias": 0.3}, {"last": "none", "bias": "vector"}]
)
def test_specification(random_network, options):
    network = random_network([7, 9, 5, 6], density=0.5, **options)
    values = np.random.default_rng(3).normal(size=(12, 7)).astype(np.float32)
    values[4] = 0
    y, survivors, *_ = reference.forward(network, values)
    np.testing.assert_allclose(y, literal(network, values), rtol=1e-12, atol=1e-12)
    assert survivors[-1] == np.count_nonzero(y.any(axis=1))


def test_some_rows_alone(random_network):
    network = random_network([7, 9, 5], density=0.5)
    inputs = Inputs.from_array(np.random.default_rng(3).normal(size=(12, 7)))
    whole = reference.infer(network, inputs)
    part, _ = reference.judge(network, inputs, np.array([1, 4, 7]), np.array([4]))
    assert part.inputs == 3
    np.testing.assert_array_equal(part.alive, np.intersect1d(whole.alive, [1, 4, 7]))


def test_another_width(random_network):
    with pytest.raises(InputError, match=r"is \(\d+, 3\); the network takes \(inputs, 7\)"):
        reference.infer(random_network([7, 2]), Inputs.from_array(np.ones((2, 3))))


@pytest.mark.parametrize("count", [1, 70])
def test_every_number_of_workers_gives_the_same_bits(random_network, monkeypatch, count):
    network = random_network([30, 400, 300], density=0.3, bias="vector", last="none")
    values = np.random.default_rng(3).normal(size=(count, 30))
    values[::3] = 0
    monkeypatch.setattr(reference, "REFERENCE_BYTES", 40 * 8 * 400 * 2)  # of two chunks, the first of two blocks
    found = []
    for workers in (1, 2, 5):
        monkeypatch.setattr(reference, "threads", lambda _, workers=workers: workers)
        result, off = reference.judge(network, Inputs.from_array(values), None, np.arange(count))
        found.append([result.digest, result.sha256, result.survivors, *off])
    for one in found[1:]:
        for mine, first in zip(one, found[0], strict=True):
            np.testing.assert_array_equal(mine, first)


def test_blocks_change_no_bit(random_network, monkeypatch):
    network = random_network([30, 40, 20], density=0.3, bias="vector", last="none")
    values = np.random.default_rng(3).normal(size=(70, 30))
    whole = reference.forward(network, values)
    monkeypatch.setattr(reference, "BLOCK_INPUTS", 7)
    for mine, expected in zip(reference.forward(network, values), whole, strict=True):
        np.testing.assert_array_equal(mine, expected)
