"""Fused attention at every level, against float64."""

import numpy as np
import pytest
from ladders import LEVELS, covering, every_level
from ops_cases import ULP, Pattern, assert_within, banded_mask, every_dtype, masks, numbers, random_mask

from spdnn.kernels import _cpu
from spdnn.ops.cpu import SETTINGS

MASKS = {
    **masks(),
    "wide": random_mask(20, 2600, 9000),  # several panels of columns
    "far band": banded_mask(1500, 60, 0.02)[1400:],
}


def attention(level, pattern, q, k, v, scale=1.0, tile=0, threads=2):
    out = np.full((*q.shape[:2], v.shape[2]), np.nan, q.dtype)
    busy, nan = _cpu.attention(level, *pattern.arrays, q, k, v, scale, out, tile, threads)
    assert busy.shape == (threads,)
    assert (busy >= 0).all()
    return out, nan


def reference(mask, q, k, v, scale):
    """The result, and how far float32 may be from it."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = np.where(mask, scale * (q @ k.transpose(0, 2, 1)), -np.inf)
    sizes = np.where(mask, abs(scale) * (np.abs(q) @ np.abs(k).transpose(0, 2, 1)), 0)
    top = np.where(mask.any(axis=1)[:, None], scores.max(axis=2, keepdims=True, initial=-np.inf), 0)
    powers = np.exp(scores - top)
    weights = powers / np.where(mask.any(axis=1)[:, None], powers.sum(axis=2, keepdims=True), 1)
    # A score is off by its sum's roundings, and its row's largest likewise; so is each weight, relatively; then the
    # exponential, the sums over the row, and the rescaling from panel to panel.
    scores_off = (q.shape[2] + 4) * 2 * sizes.max(axis=2, keepdims=True, initial=0)
    bound = (weights * (scores_off + mask.sum(axis=1)[:, None] + 30) * 2 * ULP) @ np.abs(v)
    return weights @ v, bound + 2.0**-140


@pytest.mark.parametrize(("mask", "dtype"), covering(MASKS, [np.float32, np.float16]))
def test_rows_are_those_of_float64(mask, dtype):
    patterns = [Pattern(MASKS[mask], index) for index in (np.uint16, np.int32)]
    rows, width = MASKS[mask].shape
    for case, (depth, value_depth) in enumerate(((64, 64), (1, 3), (17, 65), (300, 16))):
        q, k = numbers(dtype, 2, rows, depth, seed=1), numbers(dtype, 2, width, depth, seed=2)
        v, scale = numbers(dtype, 2, width, value_depth, seed=3), 1 / np.sqrt(depth)
        expected = reference(MASKS[mask], q, k, v, scale)
        for turn, level in enumerate(LEVELS):
            got, nan = attention(level, patterns[(case + turn) % 2], q, k, v, scale)
            assert_within(got, *expected)
            assert not nan
            assert (got[:, ~MASKS[mask].any(axis=1)] == 0).all()


@every_level
@every_dtype
@pytest.mark.parametrize("scale", [-1.5, 0.0, 40.0])
def test_scales(level, dtype, scale):
    pattern = Pattern(MASKS["far band"], np.uint16)
    q, k, v = numbers(dtype, 1, 100, 5), numbers(dtype, 1, 1500, 5, seed=2), numbers(dtype, 1, 1500, 20, seed=3)
    got, nan = attention(level, pattern, q, k, v, scale)
    assert_within(got, *reference(MASKS["far band"], q, k, v, scale))
    assert not nan


@every_level
@every_dtype
@pytest.mark.parametrize("mask", ["far band", "wide"])
def test_bits_do_not_depend_on_how_the_work_is_cut(level, dtype, mask):
    pattern = Pattern(MASKS[mask], np.uint16)
    rows, width = pattern.shape
    q, k, v = (numbers(dtype, 3, count, 64, seed=s) for s, count in enumerate((rows, width, width)))
    expected, _ = attention(level, pattern, q, k, v, 0.2, threads=1)
    for tile in (0, 1, 16, 40, *SETTINGS["attention"]):
        for threads in (1, 2, 5):
            np.testing.assert_array_equal(attention(level, pattern, q, k, v, 0.2, tile, threads)[0], expected)
    unsorted = Pattern(MASKS[mask], np.int32, swizzle=False)
    np.testing.assert_array_equal(attention(level, unsorted, q, k, v, 0.2)[0], expected)
    one = [array[1:2].copy() for array in (q, k, v)]
    np.testing.assert_array_equal(attention(level, pattern, *one, 0.2)[0][0], expected[1])


@every_level
@every_dtype
def test_nan_and_infinities(level, dtype):
    mask = MASKS["far band"]
    pattern = Pattern(mask, np.uint16)
    q, k, v = numbers(dtype, 1, 100, 32), numbers(dtype, 1, 1500, 32, seed=2), numbers(dtype, 1, 1500, 48, seed=3)
    clean, nan = attention(level, pattern, q, k, v)
    assert not nan
    for array, column in ((k, 1420), (v, 1420), (k, 3), (v, 3)):
        kept = array[0, column].copy()
        array[0, column] = np.nan
        got, nan = attention(level, pattern, q, k, v)
        assert nan == mask[:, column].any()
        np.testing.assert_array_equal(np.isnan(got[0]).all(axis=1), mask[:, column])
        np.testing.assert_array_equal(got[0, ~mask[:, column]], clean[0, ~mask[:, column]])
        array[0, column] = kept
    v[0, 1410, 5] = np.inf  # a weight that is not zero passes it on
    got, nan = attention(level, pattern, q, k, v, 0.01)
    assert not nan
    np.testing.assert_array_equal(np.isinf(got[0, :, 5]), mask[:, 1410])
    assert np.isfinite(np.delete(got, 5, axis=2)).all()


@every_level
def test_scores_of_minus_infinity_weigh_nothing(level):
    mask = np.ones((9, 2100), bool)
    pattern = Pattern(mask)
    q, k, v = np.ones((1, 9, 4), np.float32), np.ones((1, 2100, 4), np.float32), numbers(np.float32, 1, 2100, 8)
    k[0, :1500] = -np.inf  # whole panels, and a part of one
    got, nan = attention(level, pattern, q, k, v)
    assert not nan
    np.testing.assert_allclose(got[0], np.tile(v[0, 1500:].mean(axis=0), (9, 1)), rtol=1e-4, atol=1e-5)
    k[0] = np.roll(k[0], 600, axis=0)  # and with the finite ones first
    got, nan = attention(level, pattern, q, k, v)
    assert not nan
    np.testing.assert_allclose(got[0], np.tile(v[0, :600].mean(axis=0), (9, 1)), rtol=1e-4, atol=1e-5)
    k[0] = -np.inf
    got, nan = attention(level, pattern, q, k, v)
    assert nan
    assert np.isnan(got).all()


def test_what_could_crash_is_refused():
    pattern = Pattern(random_mask(4, 5, 9))
    q, k, v, out = (numbers(np.float32, 1, count, 3) for count in (4, 5, 5, 4))
    arrays, level = pattern.arrays, LEVELS[0]
    for arguments, what in (
        ((level, pattern.offsets[:-1], *arrays[1:], q, k, v, 1.0, out, 0, 1), "offsets"),
        ((level, *arrays, q[:, :3].copy(), k, v, 1.0, out, 0, 1), "row of the topology"),
        ((level, *arrays, q, k, v[:, :4].copy(), 1.0, out, 0, 1), "V must have"),
        ((level, *arrays, q, k, v, 1.0, out[..., :2].copy(), 0, 1), "out"),
        ((level, *arrays, q, k, v.astype(np.float16), 1.0, out, 0, 1), "all be float32"),
        ((level, *arrays, q, k, v, 1.0, out, 0, 0), "threads"),
        ((level, *arrays, q, k, v, 1.0, out, -1, 1), "tile"),
    ):
        with pytest.raises(ValueError, match=what):
            _cpu.attention(*arguments)
