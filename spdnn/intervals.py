"""The median of some samples and how sure it is: percentile bootstrap intervals, the same for the same samples.

Source: Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spdnn.errors import InputError

RESAMPLES = 10_000
RESAMPLED_AT_ONCE = 1_000_000  # numbers in memory while resampling
CONFIDENCE = 0.95  # of the interval in a record


class Interval(NamedTuple):
    """The median of some samples and a bootstrap interval of it, in the samples' unit."""

    median: float
    low: float
    high: float
    resamples: int


def interval(samples_seconds: Sequence[float], confidence: float = CONFIDENCE, seed: int = 0) -> Interval:
    """The median of the samples and its percentile bootstrap interval.

    The same samples and seed give the same interval. One sample is its own interval, with 0 resamples.

    Args:
        samples_seconds: positive seconds, at least one.
        confidence: of the interval, between 0 and 1.
        seed: of the resampling.

    Raises:
        InputError: no sample, a sample that is not a positive number, or a confidence out of range.
    """
    samples = np.asarray(samples_seconds, dtype=np.float64)
    if samples.ndim != 1 or not samples.size:
        raise InputError("an interval needs at least one sample, in a list")
    if not (np.isfinite(samples) & (samples > 0)).all():
        raise InputError("every sample must be a positive number of seconds")
    if not 0 < confidence < 1:
        raise InputError(f"confidence {confidence} must lie between 0 and 1")
    median = float(np.median(samples))
    if samples.size == 1:
        return Interval(median, median, median, 0)
    random, tail, medians = np.random.default_rng(seed), (1 - confidence) / 2, np.empty(RESAMPLES)
    step = max(1, RESAMPLED_AT_ONCE // samples.size)  # the numbers drawn do not depend on it
    for start in range(0, RESAMPLES, step):
        part = medians[start : start + step]
        part[:] = np.median(samples[random.integers(samples.size, size=(part.size, samples.size))], axis=1)
    low, high = np.quantile(medians, [tail, 1 - tail])
    return Interval(median, min(float(low), median), max(float(high), median), RESAMPLES)


def ratios(samples_ours: Sequence[float], samples_theirs: Sequence[float]) -> Interval:
    """How many times as long theirs took as ours: the median of the ratios of pairs, and its interval.

    Args:
        samples_ours, samples_theirs: seconds; those at the same place were measured one after the other, so that what
            else the machine did slowed both.

    Raises:
        InputError: another number of samples on each side, or see `interval`.
    """
    ours, theirs = (np.asarray(samples, dtype=np.float64) for samples in (samples_ours, samples_theirs))
    if ours.shape != theirs.shape:
        raise InputError(f"{ours.size} of our samples and {theirs.size} of theirs are no pairs")
    if not (ours > 0).all():
        raise InputError("every sample must be a positive number of seconds")
    return interval(theirs / ours)
