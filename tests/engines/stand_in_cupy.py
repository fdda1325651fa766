"""CuPy on NumPy: the calls that the engine `cusparse` makes, and CuPy's refusals of what NumPy would allow.

It shows that the engine calls rightly and computes rightly, not that CuPy and cuSPARSE are right.
"""

import re
import types
import weakref

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.cusparse import CusparseModules

FREE, TOTAL = 1 << 40, 1 << 41
REFUSED = "Implicit conversion to a NumPy array is not allowed"


class Memory:
    """Bytes of all arrays on the device: now, the most at once so far, and the most there may be."""

    live, peak, whole = 0, 0, FREE

    @classmethod
    def take(cls, array):
        if cls.live + array.nbytes > cls.whole:
            raise OutOfMemoryError(f"Out of memory allocating {array.nbytes:,} bytes")
        cls.live += array.nbytes
        cls.peak = max(cls.peak, cls.live)
        weakref.finalize(array, cls.free, array.nbytes)

    @classmethod
    def free(cls, count):
        cls.live -= count


class OnDevice(np.ndarray):
    """An array that mixes with no NumPy array, and that NumPy's functions refuse."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        for one in (*inputs, *out):
            if isinstance(one, np.ndarray) and one.ndim and not isinstance(one, OnDevice):
                raise TypeError(REFUSED)
        if out:
            getattr(ufunc, method)(*map(host, inputs), out=tuple(map(host, out)), **options)
            return out[0]
        return device(getattr(ufunc, method)(*map(host, inputs), **options))

    def __array_function__(self, function, *given):
        raise TypeError(REFUSED)

    def __setitem__(self, place, value):
        if isinstance(value, np.ndarray) and value.ndim and not isinstance(value, OnDevice):
            raise TypeError(REFUSED)
        super().__setitem__(place, value)


def host(array):
    return array.view(np.ndarray) if isinstance(array, OnDevice) else array


def device(array):
    """A new array of the device with these values, which nothing else has."""
    own = np.array(array)
    Memory.take(own)
    return own.view(OnDevice)


class OutOfMemoryError(MemoryError):
    """As CuPy's: no RuntimeError."""


class ElementwiseKernel:
    """Evaluates the operation of the kernel itself."""

    def __init__(self, inputs, outputs, operation, name):
        self.inputs, (self.output,) = ([one.split()[1] for one in text.split(", ")] for text in (inputs, outputs))
        target, self.expression = re.fullmatch(r"(\w+) = (.*)", operation).groups()
        assert target == self.output
        assert name.isidentifier()

    def __call__(self, *given):
        *values, out = given
        assert isinstance(out, OnDevice)
        assert out.dtype == np.float32
        for value in values:
            assert isinstance(value, (OnDevice, float, np.float32)), "a NumPy array does not go to a kernel"
        named = dict(zip(self.inputs, map(host, values), strict=True))
        host(out)[...] = eval(self.expression, {"min": np.minimum, "max": np.maximum}, named)


def product(matrix, features, out, algorithm):
    """As spdnn.bench.engines.cusparse.product; what `out` held must not matter."""
    assert features.flags.c_contiguous
    assert out.flags.c_contiguous
    assert out.shape == (matrix.shape[0], features.shape[1])

    def multiply():
        host(out)[...] = np.nan
        host(out)[...] = matrix @ host(features)

    return multiply


def csr_matrix(arrays, shape):
    assert all(isinstance(array, OnDevice) for array in arrays)
    assert [array.dtype.name for array in arrays] == ["float32", "int32", "int32"]
    return sp.csr_array(tuple(map(host, arrays)), shape=shape)


def modules(devices=1):
    """What spdnn.bench.engines.cusparse.modules returns; its array module lists in `used` the devices taken."""
    xp, used = types.ModuleType("cupy"), []

    class Device:
        def __init__(self, number=None):
            self.id = number if number is not None else used[-1] if used else 0
            assert self.id < devices

        def use(self):
            used.append(self.id)

    xp.used, xp.__version__ = used, "0"
    xp.asarray = lambda array: array if isinstance(array, OnDevice) else device(array)
    xp.asnumpy = lambda array: np.array(host(array))
    xp.empty = lambda shape, dtype: device(np.full(shape, np.nan, dtype))
    xp.take = lambda array, places, axis: device(np.take(host(array), host(places), axis))
    xp.ascontiguousarray = lambda array: device(np.ascontiguousarray(host(array)))
    xp.ElementwiseKernel = ElementwiseKernel
    xp.get_default_memory_pool = lambda: types.SimpleNamespace(free_bytes=lambda: 0)
    xp.cuda = types.SimpleNamespace(
        Device=Device,
        get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=types.SimpleNamespace(
            memGetInfo=lambda: (Memory.whole - Memory.live, TOTAL),
            runtimeGetVersion=lambda: 0,
            driverGetVersion=lambda: 0,
            getDeviceProperties=lambda number: {"name": b"A stand-in"},
        ),
    )
    return CusparseModules(xp, types.SimpleNamespace(csr_matrix=csr_matrix), product)
