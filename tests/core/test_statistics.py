"""Intervals: the same for the same samples, the same however they are worked out, and none of what is no sample."""

import math

import numpy as np
import pytest

from spdnn.core.errors import InputError
from spdnn.core.statistics import FEW, RESAMPLES, interval


def plain(samples, seed=0):
    """The definition: the medians of resamples, and two of their quantiles."""
    samples, random = np.array(samples), np.random.default_rng(seed)
    medians = np.median(samples[random.integers(samples.size, size=(RESAMPLES, samples.size))], axis=1)
    low, high = np.quantile(medians, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2])
    median = np.median(samples)
    return median, min(low, median), max(high, median), RESAMPLES


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 10, 20, 33, FEW - 1, FEW, FEW + 1, 200])
def test_every_bit_is_that_of_the_definition(size):
    random = np.random.default_rng(size)
    for samples in (
        random.lognormal(size=size),
        random.integers(1, 4, size) / 3,  # many are equal
        np.full(size, 0.1),
        np.sort(random.lognormal(-600, 20, size))[::-1],
    ):
        assert interval(samples.tolist()) == plain(samples)
        assert interval(samples.tolist(), seed=7) == plain(samples, seed=7)


def test_interval_of_one_sample():
    assert interval([0.25]) == (0.25, 0.25, 0.25, 0)


def test_interval_is_deterministic_and_holds_the_median():
    samples = [1.0, 1.2, 1.1, 5.0, 1.05]
    found = interval(samples)
    assert found == interval(samples)
    assert found.low <= found.median == 1.1 <= found.high
    assert found.resamples > 0
    assert {found.low, found.high} <= set(samples)
    narrow = interval(samples, confidence=0.5)
    assert found.low <= narrow.low <= narrow.high <= found.high
    assert interval([2.0, 2.0, 2.0])[:3] == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [math.inf], [[1.0]]])
def test_interval_refuses(samples):
    with pytest.raises(InputError):
        interval(samples)


@pytest.mark.parametrize("confidence", [0, 1, math.nan])
def test_interval_refuses_confidence(confidence):
    with pytest.raises(InputError, match="confidence"):
        interval([1.0, 2.0], confidence)
