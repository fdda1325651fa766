"""Inputs in their three kinds, and results."""

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from spdnn.core.features import Inputs
from spdnn.core.result import Result, projection_weights


@pytest.mark.parametrize("width", [1, 7, 8, 9, 100])
@pytest.mark.parametrize("sparse", [True, False])
def test_binary_inputs_become_bits(width, sparse):
    bits = np.random.default_rng(width).random((5, width)) < 0.5
    bits[0, 0] = True
    inputs = Inputs.from_array(sp.csr_array(bits.astype(float)) if sparse else bits)
    assert inputs.kind == "bits"
    np.testing.assert_array_equal(inputs.data, np.packbits(bits, axis=1))
    np.testing.assert_array_equal(inputs.dense(np.arange(5)), bits)
    assert inputs.nonzeros == bits.sum()


def test_other_inputs_stay_values():
    values = np.array([[0, 0.5], [2, 0]])
    assert Inputs.from_array(values).kind == "dense"
    assert Inputs.from_array(sp.csr_array(values)).kind == "csr"
    assert Inputs.from_array(values).sha256 != Inputs.from_array(2 * values).sha256
    np.testing.assert_array_equal(Inputs.from_array(sp.csr_array(values)).dense(np.array([1])), [[2, 0]])


def test_count_cuts_and_repeats():
    inputs = Inputs.from_array(np.eye(3))
    assert inputs.first(2).base == 2
    np.testing.assert_array_equal(inputs.first(5).dense(np.arange(5)), np.eye(3)[[0, 1, 2, 0, 1]])
    refuses("0 inputs asked for", inputs.first, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Inputs.from_array([[1.0, np.nan]]), "NaN"),
        (lambda: Inputs.from_array([[1e39, 2.0]]), "finite"),
        (lambda: Inputs.from_array([["a"]]), "real numbers"),
        (lambda: Inputs.from_array([[1j]]), "real numbers"),
        (lambda: Inputs.from_array(np.ones(3)), r"not \(3,\); one input is x\[None\]"),
        (lambda: Inputs.from_array(np.ones((0, 3))), "at least one of each"),
        (lambda: Inputs(np.zeros((2, 2), np.uint8), 17), "bits of 17 neurons take 3 bytes a row, not 2"),
        (lambda: Inputs(np.zeros((2, 2))), "packed bits"),
        (lambda: Inputs(sp.csr_array((np.ones(1, np.float32), [99], [0, 1]), shape=(1, 2))), "not a sound CSR array"),
        (lambda: Inputs(np.zeros((2, 2), np.float32), 3), "inputs have 2 neurons, not 3"),
    ],
)
def test_unsound_inputs_are_refused(make, message):
    refuses(message, make)


@pytest.fixture
def result():
    values = np.array([[3, 0, 5], [-1, 1, 0]], np.float32)
    sums, projections = values.sum(axis=1, dtype=np.float64), values @ projection_weights(3)
    least, largest, alive = values.min(axis=1), values.max(axis=1), np.array([0, 2])
    return Result(4, 3, alive, sums, projections, least, largest, np.zeros(2, np.uint64), np.array([2]), 0, values)


def test_categories_have_a_nonzero_sum(result):
    assert result.categories.tolist() == [1]


def test_values_and_the_largest(result):
    np.testing.assert_array_equal(result.all_values(), [[3, 0, 5], [0, 0, 0], [-1, 1, 0], [0, 0, 0]])
    neurons, values = result.top(2)
    assert neurons.tolist() == [[2, 0], [0, 1], [1, 2], [0, 1]]
    assert values[0].tolist() == [5, 3]
    # Of equal values the lower neuron comes first, in long rows too.
    result.outputs, result.values = 1000, np.random.default_rng(0).integers(0, 4, (2, 1000)).astype(np.float32)
    neurons, _ = result.top(300)
    np.testing.assert_array_equal(neurons[0], np.lexsort((np.arange(1000), -result.values[0]))[:300])
    result.outputs, result.values = 3, np.array([[3, 0, 5], [-1, 1, 0]], np.float32)
    refuses("the 4 largest asked for; the last layer has 3", result.top, 4)
    result.values = None
    refuses("values were not kept", result.all_values)
