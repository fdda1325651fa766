"""Depthwise convolutions at every level, in both layouts, against float64."""

import itertools

import numpy as np
import pytest
from ladders import LEVELS, every_level
from ops_cases import ULP, assert_within, every_dtype, numbers

from spdnn.kernels import _cpu

every_stride = pytest.mark.parametrize("stride", [1, 2])
every_layout = pytest.mark.parametrize("nhwc", [False, True])
SIZES = [(1, 1), (7, 7), (5, 3), (2, 40), (33, 16), (14, 31), (1, 17), (3, 112)]
ALL = (-np.inf, np.inf)


def placed(array, nhwc):
    """(images, channels, height, width) in the layout asked for, contiguous."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1) if nhwc else array)


def depthwise(level, x, weights, bias, activation=ALL, stride=1, nhwc=False, threads=2):
    """x and the result are (images, channels, height, width), whatever the layout inside."""
    x = placed(x, nhwc)
    images, channels, height, width = x.shape if not nhwc else (x.shape[0], x.shape[3], *x.shape[1:3])
    shape = ((height - 1) // stride + 1, (width - 1) // stride + 1)
    out = np.full((images, *shape, channels) if nhwc else (images, channels, *shape), np.nan, x.dtype)
    busy, nan = _cpu.depthwise(level, x, weights, bias, *activation, stride, nhwc, out, threads)
    assert busy.shape == (threads,)
    return (out.transpose(0, 3, 1, 2) if nhwc else out), nan


def reference(x, weights, bias, stride):
    """The sums before the activation, and the sums of the sizes of what is added."""
    height, width = x.shape[2:]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.zeros((*x.shape[:2], (height - 1) // stride + 1, (width - 1) // stride + 1)) + bias[:, None, None]
    sizes = np.abs(sums)
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + height : stride, j : j + width : stride]
            product = weights[:, i, j].astype(np.float64)[:, None, None] * part
            sums, sizes = sums + product, sizes + np.abs(product)
    return sums, sizes


@every_dtype
@every_stride
@pytest.mark.parametrize("channels", [1, 3, 24, 32])
def test_sums_are_those_of_float64(dtype, stride, channels):
    weights, bias = numbers(dtype, channels, 3, 3, seed=1), numbers(np.float32, channels, seed=2)
    for height, width in SIZES:
        x = numbers(dtype, 2, channels, height, width)
        sums, sizes = reference(x, weights, bias, stride)
        for low, high in (ALL, (0.0, np.inf), (-0.5, 0.25)):
            for level, nhwc in itertools.product(LEVELS, (False, True)):
                got, nan = depthwise(level, x, weights, bias, (low, high), stride, nhwc)
                assert_within(got, np.clip(sums, low, high), 10 * ULP * sizes)
                assert not nan


@every_level
@every_dtype
@every_stride
@pytest.mark.parametrize("channels", [3, 40])
def test_bits_do_not_depend_on_threads_images_and_layout(level, dtype, stride, channels):
    weights, bias = numbers(dtype, channels, 3, 3, seed=1), numbers(np.float32, channels, seed=2)
    x = numbers(dtype, 3, channels, 13, 21)
    expected, _ = depthwise(level, x, weights, bias, (0.0, 6.0), stride, threads=1)
    for nhwc in (False, True):
        for threads in (1, 2, 5):
            got, _ = depthwise(level, x, weights, bias, (0.0, 6.0), stride, nhwc, threads)
            np.testing.assert_array_equal(got, expected)
        got, _ = depthwise(level, x[1:2], weights, bias, (0.0, 6.0), stride, nhwc)
        np.testing.assert_array_equal(got, expected[1:2])


@every_level
@every_dtype
@every_stride
@every_layout
def test_nan_is_reported_and_infinities_pass(level, dtype, stride, nhwc):
    weights, bias = np.abs(numbers(dtype, 5, 3, 3)) + dtype(0.1), numbers(np.float32, 5)
    x = numbers(dtype, 1, 5, 9, 19)
    x[0, 2, 4, 6] = np.inf
    near = np.isinf(reference(x, weights, bias, stride)[0])
    got, nan = depthwise(level, x, weights, bias, ALL, stride, nhwc)
    assert not nan
    np.testing.assert_array_equal(np.isinf(got), near)
    got, nan = depthwise(level, x, weights, bias, (-1.0, 6.0), stride, nhwc)
    assert not nan
    assert (got[near] == 6).all()
    x[0, 2, 4, 6] = np.nan
    got, nan = depthwise(level, x, weights, bias, (0.0, 6.0), stride, nhwc)
    assert nan
    np.testing.assert_array_equal(np.isnan(got), near)


def test_what_could_crash_is_refused():
    x, weights, bias = numbers(np.float32, 1, 4, 6, 5), numbers(np.float32, 4, 3, 3), np.zeros(4, np.float32)
    level, out = LEVELS[0], np.empty_like(x)
    for arguments, what in (
        ((level, x, weights[:3].copy(), bias, *ALL, 1, False, out, 1), "weights"),
        ((level, x, weights, bias[:3], *ALL, 1, False, out, 1), "bias"),
        ((level, x, weights, bias, *ALL, 2, False, out, 1), "out"),
        ((level, x, weights, bias, *ALL, 3, False, out, 1), "stride"),
        ((level, x, weights, bias, *ALL, 1, True, out, 1), "weights"),
        ((level, x, weights.astype(np.float16), bias, *ALL, 1, False, out, 1), "all be float32"),
        ((level, x, weights, bias, *ALL, 1, False, out, 0), "threads"),
    ):
        with pytest.raises(ValueError, match=what):
            _cpu.depthwise(*arguments)


@every_level
@pytest.mark.parametrize("width", [5, 19, 35])
def test_what_lies_past_the_end_of_a_line_is_not_reported(level, width):
    """Infinities that meet only there, where the line after begins."""
    x = np.zeros((1, 1, 8, width), np.float32)
    x[0, 0, 3:5, 0] = np.inf
    weights = np.ones((1, 3, 3), np.float32)
    weights[0, 1, 2] = -1
    got, nan = depthwise(level, x, weights, np.zeros(1, np.float32))
    assert not nan
    assert np.isinf(got[0, 0, 2:6, :2]).all()
