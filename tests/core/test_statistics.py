"""Intervals: the same for the same samples, the same however they are worked out, and none of what is no sample."""

import math

import numpy as np
import pytest
from refusals import refuses

from spdnn.core.statistics import FEW_SAMPLES, RESAMPLES, interval


def plain(samples):
    """The definition: the medians of resamples, and two of their quantiles."""
    samples, random = np.array(samples), np.random.default_rng(0)
    medians = np.median(samples[random.integers(samples.size, size=(RESAMPLES, samples.size))], axis=1)
    low, high = np.quantile(medians, [(1 - 0.95) / 2, 1 - (1 - 0.95) / 2])
    median = np.median(samples)
    return median, min(low, median), max(high, median), RESAMPLES


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 10, 20, 33, FEW_SAMPLES - 1, FEW_SAMPLES, FEW_SAMPLES + 1, 200])
def test_every_bit_is_that_of_the_definition(size):
    random = np.random.default_rng(size)
    for samples in (
        random.lognormal(size=size),
        random.integers(1, 4, size) / 3,  # many are equal
        np.full(size, 0.1),
        np.sort(random.lognormal(-600, 20, size))[::-1],
    ):
        assert interval(samples.tolist()) == plain(samples)


def test_interval_of_one_sample():
    assert interval([0.25]) == (0.25, 0.25, 0.25, 0)


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [math.inf], [[1.0]]])
def test_interval_refuses(samples):
    refuses("sample", interval, samples)
