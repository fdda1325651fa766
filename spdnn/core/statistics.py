"""The median of some samples and how sure it is: percentile bootstrap intervals, the same for the same samples.

Source: Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7(1), 1979.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from spdnn.core.errors import InputError

RESAMPLES = 10_000
RESAMPLED_AT_ONCE = 1_000_000  # numbers in memory while resampling
CONFIDENCE = 0.95  # of the interval in a record
FEW_SAMPLES = 64  # samples: up to so many, what was drawn is kept, at most RESAMPLES bytes for each sample
KEPT = 64  # sizes for which it is kept


class Interval(NamedTuple):
    """A median, of samples in their unit or of what follows from them, and its bootstrap interval."""

    median: float
    low: float
    high: float
    resamples: int


def interval(samples_seconds: Sequence[float]) -> Interval:
    """The median of the samples and its percentile bootstrap interval.

    The same samples give the same interval. One sample is its own interval, with 0 resamples.

    Args:
        samples_seconds: positive seconds, at least one.

    Raises:
        InputError: no sample, or a sample that is not a positive number.
    """
    samples = as_samples(samples_seconds)
    median = float(np.median(samples))
    if samples.size == 1:
        return Interval(median, median, median, 0)
    return _percentiles(median, _medians(samples, 0))


def ratios(samples_ours: Sequence[float], samples_theirs: Sequence[float]) -> Interval:
    """How many times as long theirs took as ours: the median of the ratios of pairs, and its interval.

    Args:
        samples_ours, samples_theirs: seconds; those of the same index were measured one after the other, so that other
            load on the machine slowed both.

    Raises:
        InputError: another number of samples on each side, or see `interval`.
    """
    ours, theirs = (np.asarray(samples, dtype=np.float64) for samples in (samples_ours, samples_theirs))
    if ours.shape != theirs.shape:
        raise InputError(f"{ours.size} of our samples and {theirs.size} of theirs are no pairs")
    if not (ours > 0).all():
        raise InputError("every sample must be a positive number of seconds")
    return interval(theirs / ours)


def ratio_of_medians(samples_a: Sequence[float], samples_b: Sequence[float]) -> Interval:
    """The median of some samples over that of others that are no pairs with them, and its interval.

    Each side is resampled by itself. The order of samples does not count, and swapped sides give the inverse: the same
    resamples are drawn. One sample on each side is its own interval, with 0 resamples.

    Args:
        samples_a, samples_b: positive seconds, at least one on each side.

    Raises:
        InputError: as of `interval`; or seconds so far apart that their ratio is no float64.
    """
    a, b = (np.sort(as_samples(samples)) for samples in (samples_a, samples_b))
    swapped = a.tolist() > b.tolist()
    first, second = (b, a) if swapped else (a, b)
    with np.errstate(over="ignore", under="ignore"):
        ratio = float(np.median(first) / np.median(second))
        over = Interval(ratio, ratio, ratio, 0)
        if a.size > 1 or b.size > 1:
            drawn = [_medians(side, (0, i)) for i, side in enumerate((first, second))]
            over = _percentiles(ratio, drawn[0] / drawn[1])
    if not 0 < over.low <= over.high < math.inf or not math.isfinite(1 / over.low):
        raise InputError(f"medians of {np.median(a):g} and {np.median(b):g} seconds have no ratio that is a number")
    return Interval(1 / over.median, 1 / over.high, 1 / over.low, over.resamples) if swapped else over


def as_samples(samples_seconds: Sequence[float]) -> np.ndarray:
    """The samples as float64 (samples,). Raises InputError as of `interval`."""
    samples = np.asarray(samples_seconds, dtype=np.float64)
    if samples.ndim != 1 or not samples.size:
        raise InputError("an interval needs at least one sample, in a list")
    if not (np.isfinite(samples) & (samples > 0)).all():
        raise InputError("every sample must be a positive number of seconds")
    return samples


def _medians(samples: np.ndarray, seed: int | tuple[int, int]) -> np.ndarray:
    """float64 (RESAMPLES,): the medians of resamples of these samples (float64)."""
    if samples.size <= FEW_SAMPLES:
        return _medians_of_few(samples, seed)
    random, medians = np.random.default_rng(seed), np.empty(RESAMPLES)
    step = max(1, RESAMPLED_AT_ONCE // samples.size)  # the numbers drawn do not depend on it
    for start in range(0, RESAMPLES, step):
        part = medians[start : start + step]
        part[:] = np.median(samples[random.integers(samples.size, size=(part.size, samples.size))], axis=1)
    return medians


def _medians_of_few(samples: np.ndarray, seed: int | tuple[int, int]) -> np.ndarray:
    """The same to the last bit in a tenth of the time: the middle of a resample, from how often each was drawn.

    In ascending order, the k-th value of a resample is the first sample up to which more than k were drawn.
    """
    order, counts = np.argsort(samples), _draw_resamples(samples.size, seed)
    ascending, middles = samples[order], {(samples.size - 1) // 2, samples.size // 2}  # one, or two
    drawn, indices = np.zeros(RESAMPLES, dtype=np.uint8), {middle: np.zeros(RESAMPLES, np.uint8) for middle in middles}
    for sample in order[:-1]:
        drawn += counts[sample]
        for middle, index in indices.items():
            index += drawn <= middle
    return np.mean([ascending[index] for index in indices.values()], axis=0)


@lru_cache(KEPT)
def _draw_resamples(size: int, seed: int | tuple[int, int]) -> np.ndarray:
    """How often each of `size` samples is in each resample, whatever their values: uint8 (size, RESAMPLES)."""
    drawn = np.random.default_rng(seed).integers(size, size=(RESAMPLES, size))
    indices = drawn + size * np.arange(RESAMPLES)[:, None]
    counts = np.bincount(indices.ravel(), minlength=RESAMPLES * size).reshape(RESAMPLES, size)
    return np.ascontiguousarray(counts.T, dtype=np.uint8)


def _percentiles(value: float, resampled: np.ndarray) -> Interval:
    """The value, with the percentile interval of what resamples gave."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(value, min(float(low), value), max(float(high), value), resampled.size)
