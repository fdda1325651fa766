"""depthwise convolutions, unmodified, on the CPU shim: awkward sizes, both layouts and strides, against float64."""

import numpy as np
import pytest
from cuda_ops_cases import FLOAT, HALF, misaligned, random_values
from shim import ShimDevice

from spdnn.ops import oracle
from spdnn.ops.cuda import CudaBackend

# images, channels, height, width: one pixel, one row, one column, a run and one more, channels of no vector, of several
# tiles of channels and a part of one.
SHAPES = [(1, 1, 1, 1), (2, 3, 1, 9), (1, 4, 7, 1), (2, 8, 5, 6), (1, 130, 3, 5), (1, 140, 4, 9)]


def run(shape, dtype, stride, nhwc, device=None, bias=True, low=-np.inf, high=np.inf, shift=0):
    """(result, in NCHW; x; weights; bias)."""
    device = device or ShimDevice()
    images, channels, height, width = shape
    x, weights = random_values(shape, dtype, 1), random_values((channels, 3, 3), dtype, 2)
    added = random_values(channels, np.float32, 3) if bias else None
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if nhwc else x
    size = [(n - 1) // stride + 1 for n in (height, width)]
    backend = CudaBackend(device)
    out = backend.empty((images, *size, channels) if nhwc else (images, channels, *size), dtype)
    placed = None if added is None else device.upload(added)
    arguments = misaligned(device, given, shift), device.upload(weights), placed, low, high, stride, nhwc, out
    backend.depthwise(*arguments)
    got = device.read(out)
    return np.moveaxis(got, -1, 1) if nhwc else got, x, weights, added


def check(got, x, weights, bias, stride, low=-np.inf, high=np.inf):
    expected = oracle.depthwise_conv(x, weights, bias, low, high, stride)
    magnitude = oracle.depthwise_conv(np.abs(x), np.abs(weights), None if bias is None else np.abs(bias), stride=stride)
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= oracle.tolerance(magnitude, 10, got.dtype)).all()


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_layouts_are_right_and_have_the_same_bits(shape, stride, dtype):
    clip = (-0.5, 1.0) if stride == 2 else (-np.inf, np.inf)
    by_channel, *given = run(shape, dtype, stride, False, low=clip[0], high=clip[1])
    check(by_channel, *given, stride, *clip)
    for shift in (0, 1):  # vectors of channels, and one by one
        last, *_ = run(shape, dtype, stride, True, low=clip[0], high=clip[1], shift=shift)
        np.testing.assert_array_equal(last, by_channel)


@pytest.mark.parametrize("nhwc", [False, True])
def test_blocks_stride_over_their_work_in_any_order(nhwc):
    shape = (3, 70, 9, 11)
    expected, *given = run(shape, FLOAT, 1, nhwc)
    check(expected, *given, 1)
    for order in (1, 2):
        found, *_ = run(shape, FLOAT, 1, nhwc, ShimDevice(order, multiprocessors=1))
        np.testing.assert_array_equal(found, expected)


def test_no_bias_is_zero():
    got, *given = run((1, 4, 3, 3), FLOAT, 1, False, bias=False)
    check(got, *given, 1)
