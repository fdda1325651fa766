"""Every sparse operation on the device against the float64 oracle: dtypes, settings, indices, layouts, addresses.

Rows are skewed, and arrays begin where vectors of numbers do, and where they do not.
"""

import math
from typing import Any

import numpy as np
from correctness import Poisoned
from gpu_products import near, size
from tally import Tally

from spdnn.kernels.cuda.device import Device
from spdnn.ops import Topology, oracle
from spdnn.ops.cuda import CudaBackend

DTYPES = (np.dtype(np.float32), np.dtype(np.float16))
ROWS, KEYS, LONGEST = 300, 500, 400  # of the topology: skewed rows, some empty
WIDTHS, DEPTHS = (1, 3, 8, 33, 64, 130, 256), (1, 8, 33, 64)


def check(tally: Tally, device: Device, seed: int) -> None:
    """Every operation, dtype and setting on skewed rows, against the oracle, on memory that holds NaNs."""
    backend, random = CudaBackend(Poisoned(device)), np.random.default_rng(seed)
    lengths = np.minimum(LONGEST, (LONGEST / np.arange(1, ROWS + 1)).astype(int) * random.integers(0, 3, ROWS))
    for bits in (16, 32):
        columns = [np.sort(random.choice(KEYS, length, replace=False)) for length in lengths]
        where = Topology((ROWS, KEYS), np.concatenate(([0], np.cumsum(lengths))), np.concatenate(columns), bits)
        for dtype in DTYPES:
            for name, case in CASES.items():
                told = f"{name}, {dtype}, {bits}-bit indices"
                tally.case(told, lambda case=case, where=where, dtype=dtype: case(backend, where, dtype, random))


def _check_spmm(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    """All settings, of one matrix and of a batch of two with values of their own; every setting gives the same bits."""
    for width, shift in (*((width, 0) for width in WIDTHS), (WIDTHS[-1], 1)):
        values, b = _drawn(random, dtype, (2, where.nnz)), _drawn(random, dtype, (2, KEYS, width))
        bias = random.standard_normal(ROWS).astype(np.float32)
        out, found = _room(backend, (2, ROWS, width), dtype, shift), []
        given = where, *_placed(backend, shift, values, b, bias), -1.0, 2.0, out
        for setting in backend.candidates("spmm", *given):
            backend.device.fill(out, 0xFF)
            backend.bind("spmm", *given, setting=setting)()
            found.append(backend.device.read(out))
        near(found[0], oracle.spmm(where, values, b, bias, -1, 2),
              oracle.spmm(where, *map(size, (values, b, bias))), LONGEST + 1)  # fmt: skip
        assert all(np.array_equal(found[0], other) for other in found), f"{width} columns: settings differ"


def _check_sddmm(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    for depth, shift in (*((depth, 0) for depth in DEPTHS), (DEPTHS[-1], 1)):
        q, k = _drawn(random, dtype, (2, ROWS, depth)), _drawn(random, dtype, (2, KEYS, depth))
        out = _room(backend, (2, where.nnz), dtype, shift)
        backend.sddmm(where, *_placed(backend, shift, q, k), 0.5, out)
        magnitude = oracle.sddmm(where, size(q), size(k), 0.5)
        near(backend.device.read(out), oracle.sddmm(where, q, k, 0.5), magnitude, depth + 1)


def _check_softmax(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    values = _drawn(random, dtype, (2, where.nnz))
    out = backend.empty(values.shape, dtype)
    backend.softmax(where, backend.device.upload(values), 2.0, out)
    expected = oracle.softmax(where, values, 2.0)
    near(backend.device.read(out), expected, expected, LONGEST + 64)


def _check_gather(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    values, permutation = _drawn(random, dtype, (2, where.nnz)), where.transposed[1]
    out = backend.empty(values.shape, dtype)
    backend.gather(backend.device.upload(values), permutation, out)
    assert np.array_equal(backend.device.read(out), values[:, permutation]), "gather: not the values in that order"


def _check_attention(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    for depth, width, shift in ((64, 64, 0), (33, 130, 0), (8, 1, 0), (64, 64, 1)):
        q, k, v = (_drawn(random, dtype, (2, n, d)) for n, d in ((ROWS, depth), (KEYS, depth), (KEYS, width)))
        out = _room(backend, (2, ROWS, width), dtype, shift)
        backend.attention(where, *_placed(backend, shift, q, k, v), 0.25, out)
        scores = oracle.sddmm(where, size(q), size(k), 0.25).max()
        magnitude = oracle.attention(where, q, k, size(v), 0.25)
        near(backend.device.read(out), oracle.attention(where, q, k, v, 0.25), magnitude, 4 * depth * scores + LONGEST)


def _check_depthwise(backend: CudaBackend, where: Topology, dtype: np.dtype, random: np.random.Generator) -> None:
    for channels, side in ((6, 13), (132, 7), (32, 30)):
        x, weights = _drawn(random, dtype, (2, channels, side, side + 2)), _drawn(random, dtype, (channels, 3, 3))
        bias = random.standard_normal(channels).astype(np.float32)
        for stride in (1, 2):
            expected = oracle.depthwise_conv(x, weights, bias, -1, 2, stride)
            magnitude = oracle.depthwise_conv(size(x), size(weights), size(bias), stride=stride)
            for nhwc in (False, True):
                placed = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if nhwc else x
                out = backend.empty(np.moveaxis(expected, 1, -1).shape if nhwc else expected.shape, dtype)
                given = (*map(backend.device.upload, (placed, weights, bias)), -1.0, 2.0, stride, nhwc, out)
                backend.depthwise(*given)
                got = backend.device.read(out)
                near(np.moveaxis(got, -1, 1) if nhwc else got, expected, magnitude, 10)


CASES = {
    "spmm": _check_spmm, "sddmm": _check_sddmm, "softmax": _check_softmax, "gather": _check_gather,
    "attention": _check_attention, "depthwise": _check_depthwise,
}  # fmt: skip


def _room(backend: CudaBackend, shape: tuple[int, ...], dtype: np.dtype, shift: int) -> Any:
    """An array that begins so many elements after an allocation does."""
    return backend.empty((math.prod(shape) + shift,), dtype)[shift:].reshape(shape)


def _placed(backend: CudaBackend, shift: int, *arrays: np.ndarray) -> list:
    """Copies on the device, each of them so many elements after an allocation begins: one is for no vector load."""
    put = backend.device.upload
    return [
        put(np.concatenate((np.full(shift, np.nan, array.dtype), array.ravel())))[shift:].reshape(array.shape)
        for array in arrays
    ]


def _drawn(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return random.standard_normal(shape).astype(dtype)
