"""Topologies and float64 references for the kernels of spdnn.ops, and how far float32 and float16 may be from them."""

import numpy as np
import pytest

every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float16])
ULP = 2.0**-24  # half a unit in the last place of float32, relative
HALF_ULP, HALF_LEAST = 2.0**-11, 2.0**-25  # of float16: relative, and absolute among subnormals


class Pattern:
    """A topology's arrays: offsets, columns (ascending in each row), order (longest rows first), and row numbers."""

    def __init__(self, mask: np.ndarray, index=np.int32, swizzle: bool = True):
        self.shape = mask.shape
        rows, columns = np.nonzero(mask)
        lengths = mask.sum(axis=1)
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.rows, self.columns = rows, columns.astype(index)
        order = np.argsort(-lengths, kind="stable") if swizzle else np.arange(mask.shape[0])
        self.order = order.astype(np.int32)

    @property
    def arrays(self) -> tuple:
        return self.offsets, self.columns, self.order

    @property
    def nonzeros(self) -> int:
        return self.columns.size


def random_mask(rows: int, columns: int, nonzeros: int, seed: int = 0) -> np.ndarray:
    mask = np.zeros(rows * columns, bool)
    mask[np.random.default_rng(seed).choice(rows * columns, nonzeros, replace=False)] = True
    return mask.reshape(rows, columns)


def banded_mask(size: int, band: int, far: float, seed: int = 0) -> np.ndarray:
    """A causal band of `band` positions, and positions before it with probability `far`."""
    i, j = np.indices((size, size))
    return (j <= i) & ((i - j < band) | (np.random.default_rng(seed).random((size, size)) < far))


def masks() -> dict[str, np.ndarray]:
    """Awkward shapes: few nonzeros, empty rows, no nonzeros, one row, one column, runs of neighbours, full rows."""
    gaps = random_mask(40, 50, 300)
    gaps[::3] = False
    return {
        "11x55": random_mask(11, 55, 150),
        "7x96, 333 nonzeros": random_mask(7, 96, 333),
        "empty rows": gaps,
        "all empty": np.zeros((5, 9), bool),
        "one row": random_mask(1, 130, 77),
        "one column": np.ones((13, 1), bool),
        "no rows": np.zeros((0, 7), bool),
        "band": banded_mask(150, 40, 0.1),
        "full": np.ones((19, 70), bool),
    }


def numbers(dtype, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def assert_within(got: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> None:
    """Each number is within `bound` of the reference, and one rounding to float16 more where it is one."""
    if got.dtype == np.float16:
        bound = bound * (1 + HALF_ULP) + np.abs(expected) * HALF_ULP + HALF_LEAST
    error = np.abs(got.astype(np.float64) - expected)
    worst = np.unravel_index(np.argmax(error - bound), error.shape) if error.size else ()
    assert (error <= bound).all(), f"at {worst}: {got[worst]} is not {expected[worst]} within {bound[worst]}"
