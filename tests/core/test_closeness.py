"""Comparisons pass only what they have shown to be right: a table of hostile pairs."""

import numpy as np
import pytest

from spdnn.core.closeness import disagreement, excess, relative, worst, wrong

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "said"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, None),
        ([1.0, 2.5], [1.0, 2.0], 0.5, None),
        ([1.0, -0.0], [1.0, 0.0], 0.0, None),
        ([INF, -INF], [INF, -INF], 0.0, None),
        ([True, False], [1, 0], 0, None),
        ([5e-324], [0.0], 5e-324, None),
        ([1.0, 2.6], [1.0, 2.0], [0.1, 0.5], "1 of 2 values are off, by up to 1.2 times the tolerance"),
        ([1.0, 2.0 + 1e-15], [1.0, 2.0], 0.0, "1 of 2 values are wrong"),
        ([NAN, 2.0], [1.0, 2.0], 9.0, "1 of 2 values are wrong, NaN among them"),
        ([1.0, 2.0], [NAN, 2.0], 9.0, "1 of 2 values are wrong"),
        ([NAN, NAN], [NAN, NAN], INF, "2 of 2 values are wrong, NaN among them"),
        ([INF], [1.0], 1e300, "1 of 1 values are wrong"),
        ([INF], [-INF], INF, "1 of 1 values are wrong"),
        ([INF], [1.0], INF, "1 of 1 values are wrong"),
        ([3.0], [1.0], INF, "1 of 1 values are wrong"),
        ([3.0], [1.0], NAN, "1 of 1 values are wrong"),
        ([3.0], [1.0], -5.0, "1 of 1 values are wrong"),
        ([3e38], [-3e38], 1.0, "1 of 1 values are off, by up to 6e+38 times the tolerance"),
        ([1.0], [1.0, 1.0], 1.0, "shape (1,) is not (2,)"),
        ([[1.0, 1.0]], [1.0, 1.0], 1.0, "shape (1, 2) is not (2,)"),
        (1.0, [1.0], 1.0, "shape () is not (1,)"),
        ([], [], 1.0, "there are no values to compare"),
        (np.empty((0, 3)), np.empty((3, 0)), 1.0, "shape (0, 3) is not (3, 0)"),
        ([1.0 + 0j], [1.0], 1.0, "values of type complex128 are no real numbers"),
        (["1"], [1.0], 1.0, "values of type <U1 are no real numbers"),
        ([None], [1.0], 1.0, "values of type object are no real numbers"),
        (np.float32([3e38, -3e38]), np.float32([-3e38, 3e38]), 1e38, "2 of 2 values are off, by up to 6 times the tol"),
        (np.float16([6e4]), np.float64([-6e4]), 1.0, "1 of 1 values are off, by up to 1.2e+05 times the tolerance"),
        (np.int8([100]), np.int8([-100]), 150, "1 of 1 values are off, by up to 1.33 times the tolerance"),
        (np.uint8([0]), np.uint8([1]), 0.5, "1 of 1 values are off, by up to 2 times the tolerance"),
        (np.int64([2**62 + 1]), np.int64([2**62]), 0.5, "1 of 1 values are off, by up to 2 times the tolerance"),
        (np.uint64([2**64 - 1]), np.int64([-1]), 1.0, "1 of 1 values are off, by up to 1.84e+19 times the tolerance"),
    ],
)  # fmt: skip
def test_what_agrees_and_why_the_rest_does_not(found, expected, tolerance, said):
    found, expected = np.array(found), np.array(expected)
    told = disagreement(found, expected, tolerance)
    assert told == said or (said and told.startswith(said))
    assert (worst(found, expected, tolerance) <= 1) == (said is None)
    if said is None or "values are" in said:
        assert wrong(found, expected, tolerance).any() == (said is not None)


@pytest.mark.parametrize("value", [NAN, 1.0])
def test_nan_is_nan_only_where_a_model_may_give_it(value):
    pair = np.array([NAN, 1.0]), np.array([NAN, value])
    assert disagreement(*pair, 0.0) is not None
    assert (disagreement(*pair, 0.0, nan=True) is None) == (value == 1.0)
    assert excess(*pair, 0.0, nan=True)[0] == 0


def test_arrays_without_values_agree_only_where_that_is_allowed():
    none = np.empty((0, 4), np.float32)
    assert worst(none, none, 1.0) == INF
    assert worst(none, none, 1.0, empty=True) == 0
    assert disagreement(none, none, 1.0, empty=True) is None
    assert worst(none, np.empty((0, 5)), 1.0, empty=True) == INF


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([[1.0, 4.5], [2.0]], [[1.0, 4.0], [2.0]], 0.125),
        ([[1.0], [2.0]], [[1.0], [-8.0]], 1.25),
        ([[3e38]], [[-3e38]], 2.0),
        ([[INF, NAN, 1.0]], [[INF, NAN, 2.0]], 0.5),
        ([[0.0]], [[0.0]], 0.0),
        ([[0.25]], [[0.0]], 0.25),
        ([[]], [[]], 0.0),
    ],
)
def test_the_largest_difference_is_relative_to_the_largest_value(found, expected, error):
    assert relative(*([np.float32(part) for part in each] for each in (found, expected))) == pytest.approx(error)
