"""sddmm, softmax, gather and attention, unmodified, on the CPU shim, on awkward shapes, against float64."""

import numpy as np
import pytest
from cuda_ops_cases import FLOAT, HALF, SHAPES, misaligned, random_values, topology
from shim import ShimDevice

from spdnn.ops import cuda_launches, oracle
from spdnn.ops.cuda import CudaBackend

DTYPES = [FLOAT, HALF]
DEPTHS = [1, 8, 33, 64]  # K = 1, one vector of halves, no vector and one more than a round, vectors


def called(operation, where, arrays, shape, scale, device=None, shift=0):
    """The result of an operation, each of whose arrays is so many elements past a multiple of 16 bytes."""
    backend = CudaBackend(device or ShimDevice())
    out = backend.empty(shape, arrays[0].dtype)
    getattr(backend, operation)(where, *(misaligned(backend.device, one, shift) for one in arrays), scale, out)
    return backend.device.read(out)


def sddmm(where, depth, dtype, device=None, batch=1, shift=0):
    """(result, q, k)."""
    q = random_values((batch, where.rows, depth), dtype, 1)
    k = random_values((batch, where.shape[1], depth), dtype, 2)
    return called("sddmm", where, (q, k), (batch, where.nnz), 0.37, device, shift), q, k


def check_sddmm(got, where, q, k):
    expected = oracle.sddmm(where, q, k, 0.37)
    magnitude = oracle.sddmm(where, np.abs(q), np.abs(k), 0.37)
    assert (np.abs(got - expected) <= oracle.tolerance(magnitude, q.shape[-1] + 1, got.dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_sddmm(name, dtype):
    for place, depth in enumerate(DEPTHS):
        where = SHAPES[name](16 if place % 2 else 32)
        got, q, k = sddmm(where, depth, dtype)
        check_sddmm(got, where, q, k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_of_sddmm_depend_on_no_vector_batch_or_span(dtype, monkeypatch):
    """At an odd address numbers are loaded one by one."""
    where = SHAPES["ragged"](16)
    expected, q, k = sddmm(where, 40, dtype, batch=3)
    check_sddmm(expected, where, q, k)
    np.testing.assert_array_equal(sddmm(where, 40, dtype, batch=3, shift=1)[0], expected)
    np.testing.assert_array_equal(
        sddmm(where, 40, dtype, batch=1)[0][0], sddmm(where, 40, dtype, batch=1, shift=3)[0][0]
    )
    monkeypatch.setattr(cuda_launches, "sddmm_spans", lambda longest, mean, fair: (32,))
    np.testing.assert_array_equal(sddmm(where, 40, dtype, batch=3)[0], expected)
    for i in range(3):
        one = called("sddmm", where, (q[i : i + 1], k[i : i + 1]), (1, where.nnz), 0.37)
        np.testing.assert_array_equal(one[0], expected[i])


@pytest.mark.parametrize("order", [1, 2, 3])
def test_orders_of_threads_change_no_bit_of_sddmm(order):
    where = SHAPES["7 x 96, 333 nonzeros"](16)
    for dtype in DTYPES:
        np.testing.assert_array_equal(sddmm(where, 32, dtype, ShimDevice(order))[0], sddmm(where, 32, dtype)[0])


def test_a_long_row_is_on_several_warps():
    lengths = [3, 900, 1, 0, 2]
    where = topology(lengths, 1000)
    assert max(cuda_launches.sddmm_spans(900, 906 / 5, 1e6)) < 900
    got, q, k = sddmm(where, 4, FLOAT)
    check_sddmm(got, where, q, k)


def test_spans_are_of_whole_warps_and_few():
    for longest, mean in ((1, 0.1), (300, 100), (100_000, 10), (5000, 4000)):
        (span,) = cuda_launches.sddmm_spans(longest, mean, 1e6)
        assert span % 32 == 0
        assert span >= max(mean, cuda_launches.LEAST_SPAN)
        assert -(-longest // span) <= cuda_launches.WARPS_OF_ROW
        few, other = cuda_launches.sddmm_spans(longest, mean, 10)
        assert other == span
        assert few % 32 == 0
        assert -(-longest // few) <= cuda_launches.FEW_PARTS


def softmax(where, values, scale, device=None, in_place=False):
    device = device or ShimDevice()
    backend = CudaBackend(device)
    given = device.upload(values)
    out = given if in_place else backend.empty(values.shape, values.dtype)
    backend.softmax(where, given, scale, out)
    return device.read(out)


def check_softmax(got, where, values, scale):
    """A sum of n exponentials, each of 2 ulp and of an exponent rounded before; relative, to the dtype's step."""
    expected = oracle.softmax(where, values, scale)
    terms = int(where.lengths.max()) + np.abs(scale * values.astype(np.float64)).max(initial=0) * 4 + 8
    bound = expected * terms * np.finfo(np.float32).eps + expected * np.finfo(got.dtype).eps
    bound = bound + float(np.finfo(got.dtype).smallest_subnormal)
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_softmax(name, dtype):
    where = SHAPES[name](16)
    values = random_values((2, where.nnz), dtype, 3)
    for scale in (1.0, -3.0):
        check_softmax(softmax(where, values, scale), where, values, scale)
    np.testing.assert_array_equal(softmax(where, values, 1.0, in_place=True), softmax(where, values, 1.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_rows_that_do_not_fit_registers(dtype):
    where = topology([256, 5, 257, 0, 600, 1], 700)
    values = random_values((1, where.nnz), dtype, 3) * dtype.type(4)
    for scale in (1.0, -30.0):  # the largest is that of the scaled values, or the sum overflows
        check_softmax(softmax(where, values, scale), where, values, scale)
    np.testing.assert_array_equal(softmax(where, values, 1.0, ShimDevice(2)), softmax(where, values, 1.0))


def test_softmax_of_extremes():
    """Large values do not overflow, -inf is 0, and a row of it, or with NaN or inf in it, is NaN."""
    where = topology([3, 3, 2, 2, 2], 5)
    infinite, nan = np.inf, np.nan
    values = np.array(
        [[1000, 999, -infinite, -1000, -1001, -1002, -infinite, -infinite, nan, 1, infinite, 0]], np.float32
    )
    got = softmax(where, values, 1.0)[0]
    np.testing.assert_allclose(got[:3], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0], rtol=1e-6)
    np.testing.assert_allclose(got[3:6], np.exp([0, -1, -2]) / np.exp([0, -1, -2]).sum(), rtol=1e-6)
    assert np.isnan(got[6:10]).all()
    assert np.isnan(got[10])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_transposes(dtype):
    """More nonzeros than a block has threads; the permutation is placed once."""
    where = SHAPES["ragged"](16)
    permutation = where.transposed[1]
    values = random_values((3, where.nnz), dtype)
    device = ShimDevice(multiprocessors=1)
    backend = CudaBackend(device)
    taken = []
    for _ in range(2):
        out = backend.empty(values.shape, dtype)
        backend.gather(device.upload(values), permutation, out)
        np.testing.assert_array_equal(device.read(out), values[:, permutation])
        taken.append(backend._placed[id(permutation)])
    assert taken[0] is taken[1]


def attention(where, depth, width, dtype, device=None, batch=1, shift=0):
    """(result, q, k, v)."""
    q, k = (random_values((batch, n, depth), dtype, seed) for seed, n in enumerate(where.shape))
    v = random_values((batch, where.shape[1], width), dtype, 2)
    return called("attention", where, (q, k, v), (batch, where.rows, width), 0.5, device, shift), q, k, v


def check_attention(got, where, q, k, v, scale=0.5):
    """Scores may be off by their bound, which moves weights by as much; then sums of weights times V."""
    expected = oracle.attention(where, q, k, v, scale)
    magnitude = oracle.attention(where, q, k, np.abs(v), scale)
    scores = oracle.sddmm(where, np.abs(q), np.abs(k), scale).max(initial=1)
    terms = q.shape[-1] * scores + int(where.lengths.max()) + 16
    bound = magnitude * (2 * terms * np.finfo(np.float32).eps + np.finfo(got.dtype).eps)
    assert (np.abs(got - expected) <= bound + 2 * float(np.finfo(got.dtype).smallest_subnormal)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_attention(name, dtype):
    """A part of the columns, all that a warp has, more; empty rows give zeros."""
    for depth, width in ((8, 6), (33, 1), (64, 64), (16, 130)):
        where = SHAPES[name](32 if depth == 16 else 16)
        got, q, k, v = attention(where, depth, width, dtype, batch=1 + (depth == 8))
        check_attention(got, where, q, k, v)
        assert (got[:, where.lengths == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_of_attention_depend_on_no_vector_batch_or_order(dtype):
    where = SHAPES["ragged"](16)
    expected, q, k, v = attention(where, 24, 40, dtype, batch=2)
    np.testing.assert_array_equal(attention(where, 24, 40, dtype, batch=2, shift=1)[0], expected)
    np.testing.assert_array_equal(attention(where, 24, 40, dtype, ShimDevice(3), batch=2)[0], expected)
    for i in range(2):
        one = called("attention", where, [array[i : i + 1] for array in (q, k, v)], (1, where.rows, 40), 0.5)
        np.testing.assert_array_equal(one[0], expected[i])


def test_attention_of_extremes():
    """Scores that only relative exponentials bear, larger ones in later chunks, -inf, and a neighbour's NaN."""
    where = topology([80, 1, 2], 80, 1)
    q = np.ones((1, 3, 1), np.float32)
    k = np.linspace(-500, 500, 80, dtype=np.float32)[None, :, None]
    v = random_values((1, 80, 4), FLOAT)

    def run(k, v=v):
        return called("attention", where, (q, k, v), (1, 3, 4), 1.0)

    got = run(k)
    check_attention(got, where, q, k, v, 1.0)
    lost = k.copy()
    lost[0, :40] = -np.inf
    np.testing.assert_allclose(run(lost)[0, 0], got[0, 0], rtol=1e-5)
    lost[0, where.columns[where.offsets[1]]] = np.nan
    found = run(lost)[0]
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2]).all() == (where.columns[where.offsets[1]] not in where.columns[where.offsets[2] :])
    spoilt = v.copy()
    spoilt[0, where.columns[where.offsets[1]]] = np.nan  # which the third row's chunk begins with, and does not name
    found = run(k, spoilt)[0]
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[2], got[0, 2])
