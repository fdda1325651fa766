"""spmm's kernels, unmodified, on the CPU shim: every tile on awkward shapes, against float64."""

import numpy as np
import pytest
from cuda_ops_cases import FLOAT, HALF, SHAPES, misaligned, random_values, topology
from shim import ShimDevice

from spdnn.core.errors import SpdnnError
from spdnn.kernels.cuda import ops as kernels
from spdnn.ops import Topology, cuda_launches, oracle
from spdnn.ops.cuda import CudaBackend

TILES = [
    (dtype, tile) for dtype, tiles in kernels.SPMM_TILES.items() for tile in (*tiles, *kernels.SPMM_FEW_TILES[dtype])
]
SIZES = [1, 3, 8, 33, 64, 130]  # columns of B


def run(
    where, width, dtype, device=None, setting=None, batch=1, own=False, shift=0, low=-np.inf, high=np.inf, bias=None
):
    """C of random values, and what it must be; `own`: each matrix has values of its own."""
    device = device or ShimDevice()
    values = random_values((batch if own else 1, where.nnz), dtype, 1)
    b = random_values((batch, where.shape[1], width), dtype, 2)
    backend = CudaBackend(device)
    out = backend.empty((batch, where.rows, width), dtype)
    given = None if bias is None else device.upload(bias)
    arguments = where, misaligned(device, values, shift), device.upload(b), given, low, high, out
    backend.bind("spmm", *arguments, setting=setting)()
    return device.read(out), values, b


def check(got, where, values, b, bias=None, low=-np.inf, high=np.inf):
    """To the standard bound of sums in float32, rounded once to the dtype."""
    expected = oracle.spmm(where, values, b, bias, low, high)
    magnitude = oracle.spmm(where, np.abs(values), np.abs(b.astype(np.float64)), None if bias is None else np.abs(bias))
    bound = oracle.tolerance(magnitude, max(1, int(where.lengths.max())) + 1, got.dtype)
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= bound).all()


@pytest.mark.parametrize(("dtype", "tile"), TILES)
def test_every_tile_on_ragged_rows(dtype, tile):
    """Widths of one tile, of a part of it, and of one and a part; every setting gives the bits of the first one."""
    for width in {tile.vector, tile.columns, tile.columns + tile.vector}:
        for name, bits in (("ragged", 16), ("7 x 96, 333 nonzeros", 32)):
            where = SHAPES[name](bits)
            got, values, b = run(where, width, dtype, setting=(*tile, 0))
            check(got, where, values, b)
            other, *_ = run(where, width, dtype)
            np.testing.assert_array_equal(got, other)


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_widths(name, dtype):
    bias = random_values(len(SHAPES[name](16).offsets) - 1, np.float32, 5)
    for place, width in enumerate(SIZES):
        where = SHAPES[name](16 if place % 2 else 32)
        clip = (-0.5, 0.75) if place % 2 else (-np.inf, np.inf)
        got, values, b = run(where, width, dtype, bias=bias, low=clip[0], high=clip[1])
        check(got, where, values, b, bias, *clip)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
@pytest.mark.parametrize("own", [False, True])
def test_a_batch_has_the_bits_of_its_matrices(dtype, own):
    """333 nonzeros: the values of the second matrix begin at an odd place."""
    where = SHAPES["7 x 96, 333 nonzeros"](16)
    for width in (5, 64):
        got, values, b = run(where, width, dtype, batch=3, own=own)
        check(got, where, values, b)
        device = ShimDevice()
        backend = CudaBackend(device)
        for i in range(3):
            out = backend.empty((1, *got.shape[1:]), dtype)
            one = device.upload(values[i : i + 1] if own else values)
            backend.spmm(where, one, device.upload(b[i : i + 1]), None, -np.inf, np.inf, out)
            np.testing.assert_array_equal(device.read(out)[0], got[i])


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_values_at_any_address(dtype):
    where = SHAPES["ragged"](16)
    expected, *_ = run(where, 32, dtype)
    for shift in range(1, 8):
        got, *_ = run(where, 32, dtype, shift=shift)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_orders_of_threads_change_no_bit(order):
    where = SHAPES["ragged"](16)
    for dtype, width in ((FLOAT, 36), (HALF, 48)):
        expected, *_ = run(where, width, dtype)
        got, *_ = run(where, width, dtype, ShimDevice(order))
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("multiprocessors", [1, 3, 132])
def test_tiles_are_dealt_out_over_any_number_of_multiprocessors(multiprocessors):
    """Each tile of each row group is computed: what is left out stays NaN."""
    where = topology(np.random.default_rng(0).integers(0, 9, 150), 30)
    device = ShimDevice(multiprocessors=multiprocessors)
    for width, batch in ((8, 1), (40, 2), (136, 1)):
        got, values, b = run(where, width, FLOAT, device, (8, 4, 1, 4, 1), batch=batch)
        check(got, where, values, b)


def test_what_a_row_does_not_name_cannot_reach_it():
    """Infinities and NaNs of B, in rows that only neighbours in memory name."""
    where = Topology((3, 4), [0, 1, 2, 4], [0, 1, 2, 3])
    b = np.zeros((1, 4, 8), np.float32)
    b[0, 0], b[0, 2], b[0, 1] = np.nan, np.inf, 2
    device = ShimDevice()
    backend = CudaBackend(device)
    for setting in ((8, 4, 1, 4, 0), (8, 1, 1, 8, 0)):
        out = backend.empty((1, 3, 8), FLOAT)
        values = device.upload(np.ones((1, 4), np.float32))
        backend.bind("spmm", where, values, device.upload(b), None, -1.0, 1.5, out, setting=setting)()
        got = device.read(out)[0]
        assert np.isnan(got[0]).all()
        assert (got[1:] == 1.5).all()


def test_indices_that_cannot_be_scaled_in_32_bits(monkeypatch):
    where = SHAPES["ragged"](32)
    expected, *_ = run(where, 12, FLOAT)
    monkeypatch.setattr(cuda_launches, "MOST_VECTORS", 10)
    got, *_ = run(where, 12, FLOAT)
    np.testing.assert_array_equal(got, expected)


def test_settings_are_for_the_width_and_the_alignment():
    device = ShimDevice()
    backend = CudaBackend(device)
    where = SHAPES["11 x 55"](16)
    values = device.upload(random_values((1, where.nnz), FLOAT))

    def vectors(width, shift):
        b = misaligned(device, random_values((1, 55, width), FLOAT), shift)
        out = backend.empty((1, 11, width), FLOAT)
        return {setting[1] for setting in backend.candidates("spmm", where, values, b, None, 0, 1, out)}

    assert vectors(64, 0) == {4, 2, 1}  # there are few threads
    assert vectors(64, 2) == {2, 1}
    assert vectors(64, 1) == {1}
    assert vectors(130, 0) == {2, 1}
    assert vectors(33, 0) == {1}
    assert cuda_launches.spmm_settings(FLOAT, 20, 4)[0] == (8, 4, 1, 4, 1)
    assert cuda_launches.spmm_settings(FLOAT, 512, 4)[0] == (16, 4, 1, 4, 1)
    assert {setting[1] for setting in cuda_launches.spmm_settings(FLOAT, 512, 4)} == {4}
    assert {setting[0] for setting in cuda_launches.spmm_settings(FLOAT, 512, 4)} == {8, 16, 32}


def test_a_setting_that_does_not_suit_is_refused_by_the_device():
    device = ShimDevice()
    backend = CudaBackend(device)
    out = backend.empty((1, 11, 8), FLOAT)[:, :5]
    where = SHAPES["11 x 55"](16)
    values, b = device.upload(random_values((1, where.nnz), FLOAT)), device.upload(random_values((1, 55, 8), FLOAT))
    with pytest.raises(SpdnnError, match="c has 40 elements, and 88 are needed"):
        backend.spmm(where, values, b, None, 0.0, 1.0, out)
