"""Sampled products, softmax over the nonzeros of rows, and gathered values, at every level, against float64."""

import itertools

import numpy as np
import pytest
from ladders import LEVELS, covering, every_level
from ops_cases import HALF_ULP, ULP, Pattern, assert_within, every_dtype, masks, numbers, random_mask

from spdnn.kernels import _cpu

MASKS = masks()
all_levels = pytest.mark.parametrize("level", LEVELS)  # by default, too
every_mask = pytest.mark.parametrize("mask", MASKS)


def sddmm(level, pattern, q, k, scale=1.0, tile=0, packed=False, threads=2):
    out = np.full((q.shape[0], pattern.nonzeros), np.nan, q.dtype)
    busy, nan = _cpu.sddmm(level, *pattern.arrays, q, k, scale, out, tile, packed, threads)
    assert busy.shape == (threads,)
    assert (busy >= 0).all()
    return out, nan


def softmax(level, pattern, values, scale=1.0, threads=2):
    out = np.full_like(values, np.nan)
    busy, nan = _cpu.softmax(level, pattern.offsets, values, scale, out, threads)
    assert busy.shape == (threads,)
    return out, nan


def softmax_reference(pattern, values, scale):
    scores = scale * values.astype(np.float64)
    out = np.empty_like(scores)
    for first, last in np.stack([pattern.offsets[:-1], pattern.offsets[1:]], axis=1):
        row = scores[:, first:last]
        if last > first:
            powers = np.exp(row - row.max(axis=1, keepdims=True))
            out[:, first:last] = powers / powers.sum(axis=1, keepdims=True)
    return out


@every_mask
@every_dtype
def test_sums_are_those_of_float64(mask, dtype):
    patterns, scale = [Pattern(MASKS[mask], index) for index in (np.uint16, np.int32)], -0.3
    pattern = patterns[0]
    for depth in (1, 3, 8, 17, 64, 65, 300):
        q, k = numbers(dtype, 2, pattern.shape[0], depth, seed=1), numbers(dtype, 2, pattern.shape[1], depth, seed=2)
        left, right = q[:, pattern.rows].astype(np.float64), k[:, pattern.columns.astype(np.int64)].astype(np.float64)
        # Each of at most `depth` additions, a product and the scaling may round; the scale itself is float32.
        bound = (depth + 3) * ULP * abs(scale) * np.abs(left * right).sum(axis=2)
        expected = scale * (left * right).sum(axis=2)
        for level, (packed, pattern) in itertools.product(LEVELS, enumerate(patterns)):
            got, nan = sddmm(level, pattern, q, k, scale, packed=packed == depth % 2)
            assert_within(got, expected, bound)
            assert not nan


@every_level
@every_dtype
@pytest.mark.parametrize("depth", [16, 100, 520])
def test_bits_do_not_depend_on_how_the_work_is_cut(level, dtype, depth):
    pattern = Pattern(random_mask(60, 200, 2500), np.uint16)
    q, k = numbers(dtype, 3, 60, depth, seed=1), numbers(dtype, 3, 200, depth, seed=2)
    expected, _ = sddmm(level, pattern, q, k, 0.7, threads=1)
    for tile in (0, 1, 7, 64, 500):
        for packed in (False, True):
            for threads in (1, 2, 5):
                got, _ = sddmm(level, pattern, q, k, 0.7, tile, packed, threads)
                np.testing.assert_array_equal(got, expected)
    unsorted = Pattern(random_mask(60, 200, 2500), np.uint16, swizzle=False)
    np.testing.assert_array_equal(sddmm(level, unsorted, q, k, 0.7)[0], expected)
    for b in range(3):
        np.testing.assert_array_equal(sddmm(level, pattern, q[b : b + 1], k[b : b + 1], 0.7)[0][0], expected[b])
    # Fewer nonzeros beside it, in other places of a vector: the sum stays.
    thin = Pattern(random_mask(60, 200, 2500) & random_mask(60, 200, 3000, seed=9), np.uint16)
    kept = np.isin(pattern.rows * 200 + pattern.columns, thin.rows * 200 + thin.columns)
    np.testing.assert_array_equal(sddmm(level, thin, q, k, 0.7)[0], expected[:, kept])


@all_levels
@every_dtype
def test_nan_is_reported_and_infinities_pass(level, dtype):
    pattern = Pattern(random_mask(20, 30, 200))
    q, k = np.abs(numbers(dtype, 1, 20, 40)), np.abs(numbers(dtype, 1, 30, 40)) + dtype(1)
    q[0, 3, 39] = np.inf
    got, nan = sddmm(level, pattern, q, k)
    assert not nan
    np.testing.assert_array_equal(np.isinf(got[0]), pattern.rows == 3)
    k[0, 7, 20] = np.nan
    for packed in (False, True):
        got, nan = sddmm(level, pattern, q, k, packed=packed)
        assert nan
        np.testing.assert_array_equal(np.isnan(got[0]), pattern.columns == 7)
    unread = Pattern(random_mask(20, 30, 200) & (np.arange(30) != 7))
    assert not sddmm(level, unread, q, k)[1]
    # Of a long row, whose later vectors are finite.
    whole = Pattern(np.ones((1, 300), bool))
    q, k = np.ones((1, 1, 8), dtype), np.ones((1, 300, 8), dtype)
    for place in (0, 40, 299):
        k[:] = 1
        k[0, place, 3] = np.nan
        got, nan = sddmm(level, whole, q, k)
        assert nan
        np.testing.assert_array_equal(np.isnan(got[0]), np.arange(300) == place)


@all_levels
def test_a_sum_past_float16_becomes_infinity_at_the_store_alone(level):
    pattern = Pattern(np.ones((1, 2), bool))
    q, k = np.full((1, 1, 2), 256, np.float16), np.array([[[256, 256], [256, -255.75]]], np.float16)
    got, nan = sddmm(level, pattern, q, k)
    np.testing.assert_array_equal(got, np.array([[np.inf, 64]], np.float16))
    assert not nan
    assert sddmm(level, pattern, q, k, 0.25)[0][0, 0] == 32768  # the sum itself was never rounded


@all_levels
def test_float16_is_rounded_to_the_nearest_and_ties_to_even(level):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    pattern = Pattern(np.ones((1, finite.size), bool), np.uint16)
    one, k = np.ones((1, 1, 1), np.float16), finite.reshape(1, -1, 1)
    np.testing.assert_array_equal(sddmm(level, pattern, one, k)[0][0], finite)
    for scale in (1 / 3, 2.0**-13, 1 + 2.0**-11, 3.0):  # subnormals, ties, overflow
        scaled = finite.astype(np.float32) * np.float32(scale)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(sddmm(level, pattern, one, k, scale)[0][0], scaled.astype(np.float16))


@all_levels
@every_dtype
@pytest.mark.parametrize(("mask", "scale"), covering(MASKS, [1.0, -2.5, 0.0, 30.0]))
def test_softmax_is_that_of_float64(level, mask, dtype, scale):
    pattern = Pattern(MASKS[mask])
    values = numbers(dtype, 3, pattern.nonzeros)
    got, nan = softmax(level, pattern, values, scale)
    expected = softmax_reference(pattern, values, scale)
    # A score rounds twice (scaled, maximum subtracted) by at most ULP of its size each; e^x, the sum, the quotient.
    sizes = 1 + 3 * abs(scale) * np.abs(values.astype(np.float64)).max(initial=0)
    longest = np.diff(pattern.offsets).max(initial=0)
    assert_within(got, expected, (4 * sizes + longest + 6) * ULP * expected + 2.0**-148)
    assert not nan


@every_level
@every_dtype
def test_softmax_of_infinities_and_nan(level, dtype):
    pattern = Pattern(np.ones((6, 21), bool))
    values = numbers(dtype, 1, 6 * 21)
    rows = values.reshape(6, 21)
    rows[1, ::2] = -np.inf
    rows[2, 1:] = -np.inf
    rows[3, 4] = -60000 if dtype is np.float16 else -3e38
    got, nan = softmax(level, pattern, values)
    assert not nan
    assert (got.reshape(6, 21)[1, ::2] == 0).all()
    assert (got.reshape(6, 21)[2] == np.eye(21)[0]).all()
    assert got.reshape(6, 21)[3, 4] == 0
    tolerance = 21 * ULP if dtype is np.float32 else HALF_ULP * 1.1
    np.testing.assert_allclose(got, softmax_reference(pattern, values, 1.0), rtol=tolerance, atol=2.0**-25)
    for change in (np.nan, np.inf):
        broken = values.copy()
        broken.reshape(6, 21)[4, 17] = change
        got, nan = softmax(level, pattern, broken)
        assert nan
        assert np.isnan(got.reshape(6, 21)[4]).all()
        assert np.isfinite(got.reshape(6, 21)[[0, 1, 2, 3, 5]]).all()
    values.reshape(6, 21)[5] = -np.inf
    got, nan = softmax(level, pattern, values)
    assert nan
    assert np.isnan(got.reshape(6, 21)[5]).all()


@every_level
@every_dtype
def test_softmax_bits_do_not_depend_on_threads_and_batch_and_it_may_be_in_place(level, dtype):
    pattern = Pattern(masks()["band"])
    values = numbers(dtype, 3, pattern.nonzeros)
    expected, _ = softmax(level, pattern, values, 0.5, threads=1)
    for threads in range(2, 6):
        np.testing.assert_array_equal(softmax(level, pattern, values, 0.5, threads)[0], expected)
    np.testing.assert_array_equal(softmax(level, pattern, values[1:2], 0.5)[0], expected[1:2])
    _cpu.softmax(level, pattern.offsets, values, 0.5, values, 2)
    np.testing.assert_array_equal(values, expected)


@all_levels
def test_the_exponential_over_its_range(level):
    scores = np.concatenate([-np.linspace(0, 87, 20001), -np.geomspace(1e-8, 80, 20001)]).astype(np.float32)
    pattern = Pattern(np.ones((scores.size, 2), bool))
    got, _ = softmax(level, pattern, np.stack([np.zeros_like(scores), scores], axis=1).reshape(1, -1))
    ratios = got[0, 1::2].astype(np.float64) / got[0, ::2]  # of e^score and 1: two quotients, each rounded
    assert (np.abs(ratios / np.exp(scores.astype(np.float64)) - 1) < 2 * ULP * (1.1 + 1)).all()
    deep = np.append(np.float32(0), -np.linspace(88, 120, 5001).astype(np.float32))
    got, _ = softmax(level, Pattern(np.ones((1, deep.size), bool)), deep[None])
    np.testing.assert_allclose(got[0], np.exp(deep.astype(np.float64)), rtol=4 * ULP, atol=2.0**-148)
    assert (got[0, deep < -104] == 0).all()


@every_level
@every_dtype
@pytest.mark.parametrize("threads", [1, 3])
def test_values_are_gathered(level, dtype, threads):
    values, permutation = numbers(dtype, 3, 101), np.random.default_rng(0).permutation(101)
    out = np.empty_like(values)
    _cpu.gather_values(level, values, permutation, out, threads)
    np.testing.assert_array_equal(out, values[:, permutation])


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("group", [1, 8])
def test_skewed_rows_are_dealt_out_evenly(threads, group):
    lengths = np.sort((2000 / np.arange(1, 4001) ** 0.6).astype(np.int64) + 1)[::-1]
    np.random.default_rng(0).shuffle(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    swizzle = np.argsort(-lengths, kind="stable").astype(np.int32)
    dealt = np.array(_cpu.dealt_nonzeros(offsets, swizzle, group, threads))
    assert dealt.sum() == lengths.sum()
    assert dealt.max() < 1.1 * dealt.mean()


def test_without_the_swizzle_a_long_row_may_come_last():
    lengths = np.append(np.full(1000, 50), 50000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    given = np.array(_cpu.dealt_nonzeros(offsets, np.arange(1001, dtype=np.int32), 1, 2))
    swizzled = np.array(_cpu.dealt_nonzeros(offsets, np.argsort(-lengths, kind="stable").astype(np.int32), 1, 2))
    assert swizzled.max() < 1.1 * swizzled.mean() < 1.4 * swizzled.mean() < given.max()


def test_what_could_crash_is_refused():
    pattern = Pattern(random_mask(4, 5, 9))
    q, k, out = numbers(np.float32, 1, 4, 3), numbers(np.float32, 1, 5, 3), np.empty((1, 9), np.float32)
    level = LEVELS[0]
    for arguments, what in (
        ((level, pattern.offsets[:-1], *pattern.arrays[1:], q, k, 1.0, out, 0, False, 1), "offsets"),
        ((level, pattern.offsets, pattern.columns[1:], pattern.order, q, k, 1.0, out, 0, False, 1), "offsets"),
        ((level, *pattern.arrays, q[:, :3].copy(), k, 1.0, out, 0, False, 1), "row of the topology"),
        ((level, *pattern.arrays, q, k[..., :2].copy(), 1.0, out, 0, False, 1), "depth"),
        ((level, *pattern.arrays, q, k, 1.0, out[:, :8].copy(), 0, False, 1), "out"),
        ((level, *pattern.arrays, q, k.astype(np.float16), 1.0, out, 0, False, 1), "all be float32"),
        ((level, *pattern.arrays, q, k, 1.0, out, -1, False, 1), "tile"),
        ((level, *pattern.arrays, q, k, 1.0, out, 0, False, 0), "threads"),
        (("none", *pattern.arrays, q, k, 1.0, out, 0, False, 1), "level"),
        (
            (level, pattern.offsets, pattern.columns.astype(np.int64), pattern.order, q, k, 1.0, out, 0, False, 1),
            "columns",
        ),
    ):
        with pytest.raises(ValueError, match=what):
            _cpu.sddmm(*arguments)
