"""The sparse times dense product of spdnn.ops on CPU: against float64, and bits that depend on nothing but the level.

The tolerance: a sum of n products in float32, in any order and with the bias, is off by at most (n + 1) * 2^-24 of the
sum of |a||b| + |bias| (to first order); twice that is allowed, and for float16 half a step of the result rounded once.
"""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ladders import LEVELS, every_level
from ops_cases import ULP, assert_within, every_dtype, masks, random_mask

from spdnn.kernels import _cpu

TILES = (16, 32, 64, 128)
WIDTHS = (1, 2, 3, 7, 8, 15, 16, 17, 33, 49, 63, 64, 65, 129)
INFINITY = float("inf")
all_levels = pytest.mark.parametrize("level", LEVELS)  # by default, too


class Case:
    """One product: the places of the nonzeros (a CSR array), values (sets, nonzeros), B, bias and activation."""

    def __init__(self, matrix, width, dtype=np.float32, batch=1, sets=1, index=np.int32, low=-INFINITY, high=INFINITY):
        matrix = sp.csr_array(matrix)
        matrix.sort_indices()
        rng = np.random.default_rng(matrix.nnz + width)
        self.shape, self.low, self.high = matrix.shape, low, high
        self.offsets, self.columns = matrix.indptr.astype(np.int64), matrix.indices.astype(index)
        self.order = np.argsort(-np.diff(self.offsets), kind="stable").astype(np.int32)
        self.values = rng.normal(size=(sets, matrix.nnz)).astype(dtype)
        self.b = rng.normal(size=(batch, matrix.shape[1], width)).astype(dtype)
        self.bias = rng.normal(size=matrix.shape[0]).astype(np.float32)

    def run(self, level, tile=64, packed=True, threads=2, order=None):
        """C, and whether there was a NaN; what C held before is NaN, so that nothing is left as it was."""
        batch, _, width = self.b.shape
        c = np.full((batch, self.shape[0], width), np.nan, self.b.dtype)
        order = self.order if order is None else order
        busy, nan = _cpu.spmm(
            level, self.offsets, self.columns, order, self.values, self.b, self.bias, self.low, self.high, c,
            tile, packed, threads,
        )  # fmt: skip
        assert busy.shape == (threads,)
        assert (busy >= 0).all()
        return c, nan

    def expected(self):
        """In float64, and how far float32 may be from it."""
        rows, bounds = [], []
        most = np.diff(self.offsets).max(initial=0) + 1
        for k, dense in enumerate(self.b.astype(np.float64)):
            values = self.values[k % len(self.values)].astype(np.float64)
            a = sp.csr_array((values, self.columns.astype(np.int64), self.offsets), shape=self.shape)
            y = a @ dense + self.bias[:, None]
            y = np.where(y < self.low, self.low, np.where(y > self.high, self.high, y))
            rows.append(y)
            bounds.append(2 * most * ULP * (abs(a) @ abs(dense) + abs(self.bias[:, None])))
        return np.array(rows), np.array(bounds)

    def check(self, level, **settings_):
        c, nan = self.run(level, **settings_)
        assert not nan
        assert_within(c, *self.expected())
        return c


SHAPES = masks() | {"no columns": np.zeros((3, 0), bool)}


@every_level
@every_dtype
@pytest.mark.parametrize("name", SHAPES)
def test_awkward_shapes(level, dtype, name):
    for k, width in enumerate(WIDTHS):
        index = (np.uint16, np.int32)[k % 2]
        batch, sets = ((1, 1), (3, 1), (2, 2))[k % 3]
        low, high = ((-INFINITY, INFINITY), (0.0, INFINITY), (0.0, 1.5))[k % 3]
        case = Case(SHAPES[name], width, dtype, batch, sets, index, low, high)
        case.check(level, tile=TILES[k % 4], packed=bool(k % 2), threads=1 + k % 3)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 40), st.integers(1, 90), st.floats(0, 1), st.integers(0, 150), st.sampled_from(TILES),
    st.booleans(), st.integers(1, 5), st.sampled_from([np.float32, np.float16]), st.sampled_from(LEVELS),
)  # fmt: skip
def test_any_shape(rows, inner, density, width, tile, packed, threads, dtype, level):
    matrix = random_mask(rows, inner, round(density * rows * inner))
    Case(matrix, width, dtype, batch=2).check(level, tile=tile, packed=packed, threads=threads)


@every_level
@every_dtype
def test_bits_depend_neither_on_tile_nor_packing_nor_threads_nor_order(level, dtype):
    for width in WIDTHS:
        case = Case(random_mask(37, 120, 900), width, dtype, batch=2)
        first, _ = case.run(level)
        for chosen in itertools.product(TILES, (True, False), (1, 2, 5)):
            np.testing.assert_array_equal(case.run(level, *chosen)[0], first, err_msg=f"width {width}, {chosen}")
        np.testing.assert_array_equal(case.run(level, order=np.arange(37, dtype=np.int32))[0], first)


@every_level
@every_dtype
def test_bits_depend_neither_on_the_batch_nor_on_the_width(level, dtype):
    case = Case(random_mask(37, 120, 900), 129, dtype, batch=3, sets=3)
    every, _ = case.run(level)
    b, values = case.b, case.values
    for k in range(3):
        case.values = values[k : k + 1]
        for width in WIDTHS:
            case.b = np.ascontiguousarray(b[k : k + 1, :, :width])
            np.testing.assert_array_equal(case.run(level)[0][0], every[k, :, :width])


@all_levels
@every_dtype
@pytest.mark.parametrize("width", [1, 3, 8, 20, 49, 130])
def test_a_nan_is_told_wherever_it_is_and_infinities_pass(level, dtype, width):
    matrix = random_mask(9, 30, 150)
    case = Case(matrix, width, dtype, low=0.0, high=1.0)
    case.b[0, 3, width - 1] = INFINITY
    case.values = abs(case.values) + dtype(0.5)
    c, nan = case.run(level)
    assert not nan
    assert np.isfinite(c).all()  # clipped
    case.low, case.high = -INFINITY, INFINITY
    rows = np.flatnonzero(matrix[:, 3])
    assert (case.run(level)[0][0, rows, width - 1] == INFINITY).all()
    for column in {0, width // 2, width - 1}:
        other = Case(matrix, width, dtype, low=0.0, high=1.0)
        other.b[0, 3, column] = np.nan
        for tile in TILES:
            c, nan = other.run(level, tile)
            assert nan
            assert np.isnan(c[0, rows, column]).all()
            assert np.isnan(c).sum() == rows.size
    case.bias[4] = np.nan
    assert case.run(level)[1]


@every_level
@every_dtype
def test_infinite_values_make_no_nan_beside_the_columns(level, dtype):
    for width, tile in itertools.product(WIDTHS, TILES):
        case = Case(SHAPES["7x96, 333 nonzeros"], width, dtype)
        case.b, case.values[:] = abs(case.b) + dtype(1), INFINITY
        c, nan = case.run(level, tile)
        assert not nan
        assert (c == INFINITY).all()


@all_levels
def test_float16_is_rounded_to_nearest_even_once(level):
    # One nonzero of 1: C is the bias, rounded. All float16, what lies between them, and what lies beyond.
    exact = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = exact[np.isfinite(exact)].astype(np.float32)
    ordered = np.unique(exact)
    middle = (ordered[1:] + ordered[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(sign)) for sign in (-INFINITY, INFINITY)]
    far = np.array([65519.9, 65520, 65536, 1e30, INFINITY, 1e-8, 2.0**-25, 2.0**-25 * 1.0001, 1e-40], np.float32)
    values = np.concatenate([exact, middle, *beside, far, -far])
    for width in (1, 4, 8, 20):
        case = Case(sp.csr_array((values.size, 1)), width, np.float16)
        case.bias = values
        c, nan = case.run(level)
        assert not nan
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(c[0], np.repeat(values.astype(np.float16)[:, None], width, axis=1))


@all_levels
@pytest.mark.parametrize("width", [1, 6, 40])
def test_float16_is_read_exactly(level, width):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    case = Case(sp.eye_array(every.size, format="csr"), width, np.float16)
    case.values[:], case.bias[:] = 1, 0
    case.b[:] = every[None, :, None]
    np.testing.assert_array_equal(case.run(level)[0], case.b)
    case.values[0], case.b[:] = every, 1
    np.testing.assert_array_equal(case.run(level)[0], np.repeat(every[None, :, None], width, axis=2))


def skewed(rows, inner, seed=0):
    """Rows of about 40 nonzeros, but for one of 4000, which is the last."""
    dense = np.random.default_rng(seed).random((rows, inner)) < 40 / inner
    dense[-1, :4000] = True
    return sp.csr_array(dense)


@every_level
@pytest.mark.parametrize(("threads", "width"), [(2, 64), (3, 64), (4, 64), (4, 128), (8, 128), (8, 256), (16, 784)])
def test_skewed_rows_are_shared_out_evenly(level, threads, width):
    matrix = skewed(500, 4000)
    offsets = matrix.indptr.astype(np.int64)
    lengths = np.diff(offsets)
    swizzle = np.argsort(-lengths, kind="stable").astype(np.int32)
    for batch in (1, 3):
        for tile in TILES:
            work = _cpu.spmm_shares(level, offsets, swizzle, width, batch, tile, threads)
            assert sum(work) == matrix.nnz * width * batch
            assert max(work) / np.mean(work) < 1.1


@every_level
def test_one_row_that_is_nearly_all_work_is_cut_by_columns(level):
    lengths = np.array([0, 4000, 1, 0, 2])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    work = _cpu.spmm_shares(level, offsets, np.argsort(-lengths).astype(np.int32), 64, 1, 64, 4)
    assert max(work) / np.mean(work) < 1.1
    dense = np.zeros((5, 4000))
    dense[1], dense[2, 7], dense[4, :2] = 1, 1, 1
    case = Case(sp.csr_array(dense), 64)
    case.check(level, threads=4)


@every_level
@every_dtype
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 4, 64), (1, 9, 130), (2, 0, 3)])
def test_bias_and_activation_in_place(level, dtype, shape):
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=shape).astype(dtype), rng.normal(size=shape[1]).astype(np.float32)
    expected = np.clip(x.astype(np.float32) + bias[:, None], 0, np.float32(1.2)).astype(dtype)
    for threads in (1, 2, 4):
        got = x.copy()
        busy, nan = _cpu.bias_activation(level, got, bias, 0.0, 1.2, threads)
        assert busy.shape == (threads,)
        assert not nan
        np.testing.assert_array_equal(got, expected)
    if x.size:
        x[-1, -1, -1] = np.nan
        assert _cpu.bias_activation(level, x, bias, 0.0, 1.2, 2)[1]
        assert np.isnan(x[-1, -1, -1])
        assert np.isnan(x).sum() == 1


def test_what_does_not_fit_is_refused():
    def refused(match, **changes):
        case = Case(random_mask(11, 55, 60), 8)
        arguments = {
            "level": LEVELS[0], "offsets": case.offsets, "columns": case.columns, "order": case.order,
            "values": case.values, "b": case.b, "bias": case.bias, "low": 0.0, "high": 1.0,
            "c": np.zeros((1, 11, 8), np.float32), "tile": 64, "packed": True, "threads": 1,
        }  # fmt: skip
        with pytest.raises(ValueError, match=match):
            _cpu.spmm(**(arguments | changes))

    refused("cannot run that level", level="v9")
    refused("tile must be 16, 32, 64 or 128", tile=24)
    refused("no threads", threads=0)
    refused("offsets must go from 0", offsets=np.arange(12))
    refused("offsets must be one more", offsets=np.arange(5))
    refused("must not descend", offsets=np.array([0, 50, 5, 60, 60, 60, 60, 60, 60, 60, 60, 60]))
    refused("columns must be uint16 or int32", columns=np.zeros(60, np.int64))
    refused("row of order is out of range", order=np.arange(1, 12, dtype=np.int32))
    refused("values must be", values=np.zeros((2, 60), np.float32))
    refused("must have one dtype", values=np.zeros((1, 60), np.float16))
    refused("float32 or float16", b=np.zeros((1, 55, 8)))
    refused("c must be", c=np.zeros((1, 11, 9), np.float32))
    refused("bias must be one a row", bias=np.zeros(10, np.float32))
    with pytest.raises(ValueError, match="bias one a row"):
        _cpu.bias_activation(LEVELS[0], np.zeros((1, 2, 3), np.float32), np.zeros(3, np.float32), 0.0, 1.0, 1)


@every_level
@every_dtype
@pytest.mark.parametrize("name", SHAPES)
def test_by_rows_gives_the_bits_of_the_product_turned_over(level, dtype, name):
    for k, width in enumerate(WIDTHS):
        low, high = ((-INFINITY, INFINITY), (0.0, INFINITY), (0.0, 1.5))[k % 3]
        case = Case(SHAPES[name], width, dtype, index=(np.uint16, np.int32)[k % 2], low=low, high=high)
        expected = case.check(level)[0]
        b, c = np.ascontiguousarray(case.b[0].T), np.full(expected.T.shape, np.nan, dtype)
        arguments = case.offsets, case.columns, case.values[0], b, case.bias, low, high, c, TILES[k % 4], 1 + k % 3
        assert not _cpu.spmm_by_rows(level, *arguments)[1]
        np.testing.assert_array_equal(c.T, expected)


@every_level
@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 200), st.integers(1, 90), st.floats(0, 1), st.integers(1, 150), st.sampled_from(TILES),
    st.integers(1, 5), st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
def test_by_rows_any_shape(level, rows, inner, density, width, tile, threads, dtype):
    case = Case(random_mask(rows, inner, round(density * rows * inner)), width, dtype)
    b, c = np.ascontiguousarray(case.b[0].T), np.full((width, rows), np.nan, dtype)
    b[width // 2, inner // 2] = np.nan
    arguments = case.offsets, case.columns, case.values[0], b, case.bias, -INFINITY, INFINITY, c, tile, threads
    told = _cpu.spmm_by_rows(level, *arguments)[1]
    case.b[0, inner // 2, width // 2] = np.nan
    expected, nan = case.run(level)
    np.testing.assert_array_equal(c.T, expected[0])
    assert told == nan


def test_by_rows_refuses_what_does_not_fit():
    case = Case(random_mask(5, 6, 9), 4)
    b, c = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    for values, bias, out, tile, sentence in (
        (case.values[0, :8], case.bias, c, 64, r"values must be \(nonzeros,\)"),
        (case.values[0], case.bias[:4], c, 64, "bias must be one a row"),
        (case.values[0], case.bias, c[:3], 64, r"c must be \(rows of b, rows\)"),
        (case.values[0], case.bias, c, 48, "tile must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            _cpu.spmm_by_rows(LEVELS[0], case.offsets, case.columns, values, b, bias, 0.0, 1.0, out, tile, 1)
