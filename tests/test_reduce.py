"""Reductions: names, and when dead inputs may leave."""

from __future__ import annotations

import numpy as np
import pytest

from spdnn import reduce
from spdnn.errors import InputError
from spdnn.network import from_matrices


@pytest.mark.parametrize(
    ("text", "names"),
    [("none", ()), ("all", ("dead", "inputs")), ("inputs,dead", ("dead", "inputs")), ("dead", ("dead",)), ([], ())],
)
def test_names(text, names):
    assert reduce.parse(text, ("dead", "inputs")) == names


@pytest.mark.parametrize("text", ["", "dead,none", "Dead", "neurons"])
def test_unknown_names(text):
    with pytest.raises(InputError, match="is not offered here: use one or more of dead, inputs, all, none"):
        reduce.parse(text, ("dead", "inputs"))


@pytest.mark.parametrize(
    ("biases", "first"), [([-1, -1, 0], 0), ([1, -1, 0], 1), ([-1, 0.1, -1], 2), ([-1, -1, [-1, 0, 0.1]], 3)]
)
def test_dead_rows_may_leave_after_the_last_positive_bias(biases, first):
    layers = reduce.reviving(from_matrices([np.eye(3)] * 3, biases))
    assert reduce.dead_from(layers, 3) == first
    assert reduce.dead_from(layers, 1) == (0 in layers)
