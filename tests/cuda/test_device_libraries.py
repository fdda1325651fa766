"""How the vendor's libraries are called for products, against bindings that NumPy plays: the numbers in each call."""

import ctypes
import importlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from spdnn.engines.libraries import cusparse
from spdnn.ops import Topology
from spdnn.peers.libraries.base import Product

KINDS = {0: ctypes.c_float, 2: ctypes.c_uint16}  # cudaDataType_t


class Array(np.ndarray):
    """As CuPy's: its data have an address."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def placed(array, dtype=None):
    return np.array(array, dtype, order="C").view(Array)


def column_major(address, kind, rows, columns, leading):
    """The matrix that cuBLAS sees at an address."""
    held = np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(KINDS[kind])), (leading * columns,))
    held = held.view(np.float16) if kind == 2 else held
    return held.reshape(columns, leading).T[:rows]


def gemm_ex(handle, first, second, m, n, k, alpha, a, a_kind, lda, b, b_kind, ldb, beta, c, c_kind, ldc, compute, algo):
    """cublasGemmEx, by its manual."""
    assert (handle, algo, ctypes.c_float.from_address(alpha).value, ctypes.c_float.from_address(beta).value) == (
        5, -1, 1, 0,
    )  # fmt: skip
    assert compute == {"cublas": 68, "cublas-tf32": 77, "cublas-half": 68}[gemm_ex.name]
    assert a_kind == b_kind == c_kind == (2 if gemm_ex.name == "cublas-half" else 0)
    left = column_major(a, a_kind, k, m, lda).T if first else column_major(a, a_kind, m, k, lda)
    right = column_major(b, b_kind, n, k, ldb).T if second else column_major(b, b_kind, k, n, ldb)
    column_major(c, c_kind, m, n, ldc)[...] = left.astype(np.float64) @ right.astype(np.float64)


class Bindings:
    """cuSPARSE's, as CuPy has them: descriptors are numbers of what was described."""

    CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE = 0, 1
    dnMatGet = destroyDnMat = None

    def __init__(self):
        self.described, self.stream, self.prepared, self.status = {}, None, set(), 0

    def describe(self, what):
        self.described[len(self.described) + 1] = what
        return len(self.described)

    def createDnMat(self, rows, columns, leading, address, kind, order):
        assert (kind, order, leading) == (0, 2, columns)
        return self.describe(column_major(address, kind, columns, rows, leading).T)

    def getVersion(self, handle):
        return 12500

    def setStream(self, handle, stream):
        self.stream = stream


class Sampler:
    """libcusparse itself."""

    def __init__(self, bindings):
        self.bindings = bindings

    def __getattr__(self, name):
        def call(handle, first, second, alpha, left, right, beta, target, kind, algorithm, last):
            sampled = name.startswith("cusparseSDDMM")
            assert (handle.value, first, second, kind) == (6, 0, int(sampled), 0)
            assert algorithm in ((0,) if sampled else (4, 6, 12))
            assert [ctypes.c_float.from_address(one.value).value for one in (alpha, beta)] == [1, 0]
            called, _, step = name.partition("_")
            self.bindings.prepared |= {(called, algorithm, step)}
            assert step or {(called, algorithm, one) for one in ("bufferSize", "preprocess")} <= self.bindings.prepared
            assert self.bindings.stream == 77
            left, right, target = (self.bindings.described[one.value] for one in (left, right, target))
            if name.endswith("_bufferSize"):
                last._obj.value = 7
            if name == "cusparseSDDMM":
                target.data[...] = (left.astype(np.float64) @ right.T)[target.row_numbers, target.columns]
            if name == "cusparseSpMM":
                dense = np.zeros(left.shape)
                dense[left.row_numbers, left.columns] = left.data
                target[...] = dense @ right
            return self.bindings.status if name in ("cusparseSDDMM", "cusparseSpMM") and algorithm != 6 else 0

        return call


class Matrix(SimpleNamespace):
    """cupyx's CSR, as far as it is looked at."""


def csr_matrix(arrays, shape):
    data, columns, offsets = arrays
    assert (data.dtype, columns.dtype, offsets.dtype) == (np.float32, np.int32, np.int32)
    rows = np.repeat(np.arange(shape[0]), np.diff(offsets))
    return Matrix(data=data, columns=np.asarray(columns), row_numbers=rows, shape=shape)


@pytest.fixture
def libraries(root, monkeypatch):
    """device_libraries over these bindings; its `bindings` are cuSPARSE's."""
    for folder in ("tests/gpu", "benchmarks"):
        monkeypatch.syspath_prepend(root / folder)
    bindings = Bindings()
    cupy, backends, cupyx = (ModuleType(name) for name in ("cupy", "cupy_backends", "cupyx"))
    device = SimpleNamespace(get_cublas_handle=lambda: 5, get_cusparse_handle=lambda: 6)
    cupy.asarray, cupy.__version__ = placed, "14"
    cupy.empty = lambda shape, dtype: np.full(shape, 99, dtype).view(Array)
    cupy.take = lambda array, places, out: np.take(np.asarray(array), places, out=np.asarray(out))
    cupy.cuda = ModuleType("cupy.cuda")
    cupy.cuda.device, cupy.cuda.get_current_stream = device, lambda: SimpleNamespace(ptr=77)
    cupy.cuda.runtime = SimpleNamespace(runtimeGetVersion=lambda: 12090)
    libs = ModuleType("cupy_backends.cuda.libs")
    libs.cublas = SimpleNamespace(gemmEx=gemm_ex, CUBLAS_OP_T=1, CUBLAS_OP_N=0, getVersion=lambda handle: 120900)
    libs.cusparse = bindings
    create = lambda matrix: SimpleNamespace(desc=bindings.describe(matrix))  # noqa: E731
    cupyx.cusparse = SimpleNamespace(
        SpMatDescriptor=SimpleNamespace(create=create),
        BaseDescriptor=lambda made, get, destroy: SimpleNamespace(desc=made),
    )
    modules = {"cupy": cupy, "cupy.cuda": cupy.cuda, "cupy_backends": backends, "cupyx": cupyx}
    modules |= {"cupy_backends.cuda": ModuleType("cupy_backends.cuda"), "cupy_backends.cuda.libs": libs}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    made = importlib.import_module("device_libraries")
    monkeypatch.setattr(made.ctypes, "CDLL", lambda name: Sampler(bindings) if name == "libcusparse.so.12" else None)
    found = cusparse.CusparseModules(cupy, SimpleNamespace(csr_matrix=csr_matrix), None)
    monkeypatch.setattr(cusparse, "modules", lambda: found)
    made.bindings = bindings
    return made


@pytest.mark.parametrize("operation", ["spmm", "sddmm"])
def test_every_library_computes_the_product(libraries, operation):
    random = np.random.default_rng(0)
    topology = Topology((4, 6), [0, 2, 2, 5, 6], [1, 3, 0, 2, 5, 4])
    values, b, q, k = (
        random.integers(-4, 5, shape).astype(np.float32) for shape in ((6,), (6, 5), (4, 3), (6, 3))
    )  # whole numbers, which half holds
    first, second = (b, None) if operation == "spmm" else (q, k)
    product = Product(operation, topology, values, first, second)
    dense = np.zeros((4, 6))
    dense[topology.row_numbers, topology.columns] = values
    expected = dense @ b if operation == "spmm" else (q @ k.T)[topology.row_numbers, topology.columns]
    names = []
    for make in libraries.programs(SimpleNamespace(read=np.array), product):
        one = make()
        names.append(one.name)
        gemm_ex.name = one.name
        for launch in one.launches.values():
            one.out[...] = 99
            launch()
            np.testing.assert_array_equal(one.read(one.out), expected)
        assert one.read(one.out).dtype == one.dtype
        assert one.exact == (one.name in ("cusparse", "cublas"))
        assert one.matrix_bytes > 0
    assert names == ["cusparse", "cublas", "cublas-tf32", "cublas-half"]


def test_an_algorithm_that_is_refused_is_left_out(libraries):
    libraries.bindings.status = 10
    one = Product("spmm", Topology((1, 1), [0, 1], [0]), *(np.ones(shape, np.float32) for shape in (1, (1, 1))), None)
    assert list(libraries.sparse_spmm(SimpleNamespace(read=np.array), one).launches) == ["CSR_ALG2"]


def test_an_error_of_the_sampled_product_is_told(libraries):
    product = Product("sddmm", Topology((1, 1), [0, 1], [0]), *(np.ones((1, 1), np.float32),) * 3)
    one = libraries.sparse_sddmm(
        SimpleNamespace(read=np.array), Product(**{**vars(product), "values": np.ones(1, np.float32)})
    )
    libraries.bindings.status = 3
    with pytest.raises(RuntimeError, match="cusparseSDDMM: cuSPARSE's error 3"):
        one.launches["default"]()


def test_a_matrix_of_no_nonzeros_is_for_dense_programs_alone(libraries):
    none, dense = Topology((2, 3), [0, 0, 0], np.zeros(0, int)), np.ones((3, 2), np.float32)
    assert len(list(libraries.programs(None, Product("spmm", none, np.ones(0, np.float32), dense, None)))) == 3
