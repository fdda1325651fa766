"""Whether values agree within tolerances: every comparison that decides whether an output is right asks here.

A value passes only where it was shown to be within its tolerance. What cannot be compared (a NaN, an infinity on one
side, another shape, no value at all, a tolerance that is none) does not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

NUMBERS = "biuf"  # kinds of NumPy types
# Of the largest value: what sums of float32 in another order may differ by, after some layers.
LAYERS_TOLERANCE = 1e-5


def excess(found: Any, expected: Any, tolerance: Any, nan: bool = False) -> np.ndarray:
    """How far each value is off, in parts of its tolerance: 0 where equal, at most 1 where right, infinite where it
    cannot be compared.

    Args:
        found, expected: of one shape; float64 decides.
        tolerance: of each value, from 0; it broadcasts.
        nan: NaN equals NaN, where a model may give it.

    Returns:
        float64, of that shape.
    """
    with np.errstate(all="ignore"):
        found, expected = np.asarray(found), np.asarray(expected)
        allowed = np.broadcast_to(np.asarray(tolerance, np.float64), found.shape)
        error = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        if found.dtype.kind in "biu" and expected.dtype.kind in "biu":
            error = np.maximum(error, found != expected)  # float64 cannot tell all of them apart
        off = error / allowed
        # Right is what is shown to be: a NaN compares as false, and an infinite tolerance shows nothing.
        right = (error <= allowed) & np.isfinite(allowed)
        off = np.where(right, np.where(error == 0, 0.0, off), np.where(off > 1, off, np.inf))
        same = found == expected
        if nan:
            same |= np.isnan(found.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    return np.where(same, 0.0, off)


def wrong(found: Any, expected: Any, tolerance: Any) -> np.ndarray:
    """bool, of the shape of both: where a value is not within its tolerance, as `excess` has it."""
    return ~(excess(found, expected, tolerance) <= 1)


def worst(found: Any, expected: Any, tolerance: Any, nan: bool = False, empty: bool = False) -> float:
    """The largest `excess`; infinite where they are `incomparable`."""
    found, expected = np.asarray(found), np.asarray(expected)
    if incomparable(found, expected, empty):
        return np.inf
    return float(excess(found, expected, tolerance, nan).max(initial=0.0))


def largest(array: np.ndarray) -> float:
    """The largest finite magnitude; 0 where there is none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def relative(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference of finite values / the largest finite value of `expected`, over several arrays.

    Args:
        found, expected: arrays of real numbers, those of each pair of one shape.

    Returns:
        the ratio; the difference itself where all that is expected is 0.
    """
    most = error = 0.0
    for pair in zip(found, expected, strict=True):
        ours, right = (array.astype(np.float64) for array in pair)
        finite = np.isfinite(ours) & np.isfinite(right)
        most = max(most, np.abs(right[finite]).max(initial=0.0))
        error = max(error, np.abs(ours[finite] - right[finite]).max(initial=0.0))
    return float(error / (most or 1.0))


def disagreement(found: Any, expected: Any, tolerance: Any, nan: bool = False, empty: bool = False) -> str | None:
    """None where all values agree; else a sentence without its subject: "2 of 8 values are off, by up to 3 times ...".

    Args:
        found, expected: arrays.
        tolerance, nan: as of `excess`.
        empty: arrays without values agree, if their shapes do.
    """
    found, expected = np.asarray(found), np.asarray(expected)
    if why := incomparable(found, expected, empty):
        return why
    off = excess(found, expected, tolerance, nan)
    bad = ~(off <= 1)
    if not bad.any():
        return None
    count = f"{np.count_nonzero(bad):,} of {bad.size:,} values"
    if np.isnan(found.astype(np.float64))[bad].any():
        return f"{count} are wrong, NaN among them"
    most = off.max()
    return f"{count} are off, by up to {most:.3g} times the tolerance" if np.isfinite(most) else f"{count} are wrong"


def incomparable(found: np.ndarray, expected: np.ndarray, empty: bool = False) -> str | None:
    """Why two arrays cannot be compared value by value, as `disagreement` says it; None where they can."""
    if found.shape != expected.shape:
        return f"shape {found.shape} is not {expected.shape}"
    for array in (found, expected):
        if array.dtype.kind not in NUMBERS:
            return f"values of type {array.dtype} are no real numbers"
    if not found.size and not empty:
        return "there are no values to compare"
    return None
