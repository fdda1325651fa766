"""Libraries on the products of the operations: cuSPARSE and Sputnik on the nonzeros, cuBLAS on the whole matrix.

cuSPARSE's sampled product and its preprocessing of products are not among CuPy's bindings, so the library that CuPy
loaded is called directly for them. With cuBLAS, float32 is IEEE arithmetic; TF32 and half, which tensor cores multiply,
are programs of their own. Everything is row-major: to cuBLAS, which is column-major, C is the transpose, so operands
change places.

Sputnik (google-research/sputnik) is C++ without a C interface: the shared library that its own build makes, named in
SPDNN_SPUTNIK, is called by the names that every compiler of Linux gives its functions.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tally import NotHere

from spdnn.bench.engines import cusparse
from spdnn.bench.libraries.base import DENSE, SPARSE, Product

REAL_32, REAL_16 = 0, 2  # cudaDataType_t
COMPUTE_32, COMPUTE_TF32 = 68, 77  # cublasComputeType_t: CUBLAS_COMPUTE_32F, .._32F_FAST_TF32
SAMPLED_DEFAULT = 0  # cusparseSDDMMAlg_t
GEMM_DEFAULT = -1
HALF = 2.0**-11  # what half and TF32 round operands by
SPUTNIK = "SPDNN_SPUTNIK"
# cudaError_t f(int m, k, n, nonzeros; pointers; cudaStream_t), of the softmax without k: by the Itanium C++ ABI.
SPUTNIK_NAMES = {
    "spmm": "_ZN7sputnik8CudaSpmmEiiiiPKiPKfS1_S1_S3_PfP11CUstream_st",
    "sddmm": "_ZN7sputnik9CudaSddmmEiiiiPKiS1_S1_PKfS3_PfP11CUstream_st",
    "softmax": "_ZN7sputnik13SparseSoftmaxEiiiPKfPKiS3_S3_PfP11CUstream_st",
}


@dataclass
class Timed:
    """A program on one product, its operands in place.

    Attributes:
        launches: by name: ways to compute the same, of which the fastest is kept; none of them waits.
        out: what they write, on the device; `read` makes the product's output of it, on the host.
        unit: what operands are rounded by; 0: it computes in float32, as the records' tolerance has it.
        threads_used: of the host, which issues the launch.
    """

    name: str
    kind: str
    version: str
    launches: dict[str, Callable[[], Any]]
    out: Any
    read: Callable[[Any], np.ndarray]
    matrix_bytes: int
    unit: float = 0.0
    dtype: Any = np.float32
    threads_used: int = 1
    attention_bytes: int | None = None
    notes: dict = field(default_factory=dict)


def programs(device: Any, product: Product) -> Iterator[Callable[[], Timed]]:
    """What makes each of them; to be called on the device's stream."""
    yield lambda: sputnik(device, product)
    if product.operation == "softmax":  # no product, and nothing of the vendor's
        return
    if product.topology.nnz:
        yield lambda: sparse_spmm(device, product) if product.operation == "spmm" else sparse_sddmm(device, product)
    for name, compute, dtype, unit in (
        ("cublas", COMPUTE_32, np.float32, 0.0),
        ("cublas-tf32", COMPUTE_TF32, np.float32, 2 * HALF),  # which may be cut off, not rounded
        ("cublas-half", COMPUTE_32, np.float16, HALF),
    ):
        yield lambda name=name, compute=compute, dtype=dtype, unit=unit: dense(
            device, product, name, compute, dtype, unit
        )


def sputnik(device: Any, product: Product) -> Timed:
    """Sputnik's kernel, with rows in the order that it is made for: the longest first.

    Raises:
        NotHere: SPDNN_SPUTNIK names no library, or one without this function.
    """
    path = os.environ.get(SPUTNIK)
    if not path:
        raise NotHere(f"Sputnik: {SPUTNIK} names no libsputnik.so")
    try:
        function = getattr(ctypes.CDLL(os.path.expanduser(path)), SPUTNIK_NAMES[product.operation])
    except (OSError, AttributeError) as error:
        raise NotHere(f"Sputnik: {error}") from error
    topology, place = product.topology, device.upload
    columns, offsets = map(place, product.csr)
    order, out = place(topology.order.astype(np.int32)), device.empty(int(np.prod(product.shape)), np.float32)
    sizes = [*topology.shape, topology.nnz]
    if product.operation == "spmm":
        arrays = order, place(product.values), offsets, columns, place(product.first), out
        sizes = [*topology.shape, product.width, topology.nnz]
    elif product.operation == "sddmm":
        arrays = order, offsets, columns, place(product.first), place(product.second), out
        sizes = [topology.rows, product.width, topology.shape[1], topology.nnz]
    else:
        arrays = place(product.values), order, offsets, columns, out
    given = (*map(ctypes.c_int, sizes), *(ctypes.c_void_p(device.address(array)) for array in arrays))

    def launch(alive: tuple = arrays) -> None:
        if status := function(*given, ctypes.c_void_p(current_stream())):
            raise RuntimeError(f"Sputnik's {product.operation}: CUDA's error {status}")

    read = lambda array: device.read(array).reshape(product.shape)  # noqa: E731
    return Timed("sputnik", SPARSE, os.path.basename(path), {"default": launch}, out, read, product.csr_bytes)


def current_stream() -> int:
    """The address of CuPy's current stream, which is the device's when a launch is called."""
    import cupy

    return cupy.cuda.get_current_stream().ptr


def sparse_spmm(device: Any, product: Product) -> Timed:
    """cuSPARSE's SpMM, preprocessed, with each of its algorithms for rows that this version has."""
    modules = cusparse.modules()
    matrix, b = _matrix(modules, product), modules.array.asarray(product.first)
    out, launches, refused = modules.array.empty(product.shape, np.float32), {}, ""
    for name, number in cusparse.ALGORITHMS.items():
        try:
            launch = prepared("cusparseSpMM", (matrix, b, out), matrix, False, number)
            launch()
        except RuntimeError as error:  # what this version cannot do
            refused = f"{name}: {error}"
        else:
            launches[name] = launch
    if not launches:
        raise RuntimeError(refused)
    return Timed("cusparse", SPARSE, _version(modules), launches, out, device.read, product.csr_bytes)


def sparse_sddmm(device: Any, product: Product) -> Timed:
    """cuSPARSE's SDDMM, preprocessed."""
    modules = cusparse.modules()
    matrix, (q, k) = _matrix(modules, product), map(modules.array.asarray, (product.first, product.second))
    launch = prepared("cusparseSDDMM", (q, k, matrix), matrix, True, SAMPLED_DEFAULT)
    return Timed(
        "cusparse", SPARSE, _version(modules), {"default": launch}, matrix.data, device.read, product.csr_bytes
    )


def prepared(name: str, operands: tuple, matrix: Any, turned: bool, algorithm: int) -> Callable[[], None]:
    """The last operand = the first times the second (or its transpose): a launch of cuSPARSE's function `name`.

    Args:
        operands: `matrix`, which is sparse, and two dense ones, row-major.

    Raises:
        RuntimeError: with cuSPARSE's status.
    """
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse as bindings
    from cupyx import cusparse as descriptors

    handle = device.get_cusparse_handle()
    library = ctypes.CDLL(f"libcusparse.so.{bindings.getVersion(handle) // 1000}")

    def described(array: Any) -> Any:
        if array is matrix:
            return descriptors.SpMatDescriptor.create(matrix)
        (rows, columns), place = array.shape, array.data.ptr
        made = bindings.createDnMat(rows, columns, columns, place, REAL_32, cusparse.CUSPARSE_ROW_MAJOR)
        return descriptors.BaseDescriptor(made, bindings.dnMatGet, bindings.destroyDnMat)

    keep, address, size = tuple(map(described, operands)), ctypes.c_void_p, ctypes.c_size_t()
    first, second, target = (address(one.desc) for one in keep)
    plain, other = bindings.CUSPARSE_OPERATION_NON_TRANSPOSE, bindings.CUSPARSE_OPERATION_TRANSPOSE
    given = (
        address(handle), plain, other if turned else plain, address(cusparse.ONE.ctypes.data), first, second,
        address(cusparse.ZERO.ctypes.data), target, REAL_32, algorithm,
    )  # fmt: skip

    def call(function: str, last: Any) -> None:
        bindings.setStream(handle, current_stream())
        status = getattr(library, function)(*given, last)
        if status:
            raise RuntimeError(f"{function}: cuSPARSE's error {status}")

    call(f"{name}_bufferSize", ctypes.byref(size))
    workspace = cupy.empty(max(1, size.value), np.int8)
    call(f"{name}_preprocess", address(workspace.data.ptr))

    def launch(alive: tuple = (keep, operands)) -> None:
        call(name, address(workspace.data.ptr))

    return launch


def dense(device: Any, product: Product, name: str, compute: int, dtype: Any, unit: float) -> Timed:
    """cuBLAS on all of the matrix; a sampled product then takes its nonzeros out."""
    import cupy

    topology, kind = product.topology, REAL_16 if dtype == np.float16 else REAL_32
    first = cupy.asarray(product.first.astype(dtype))
    if product.operation == "spmm":
        matrix = np.zeros(topology.shape, dtype)
        matrix[topology.row_numbers, topology.columns] = product.values
        left, right, turned = cupy.asarray(matrix), first, False
    else:
        left, right, turned = first, cupy.asarray(product.second.astype(dtype)), True
    whole = cupy.empty((left.shape[0], right.shape[0 if turned else 1]), dtype)
    multiply = _gemm(left, right, whole, turned, compute, kind)
    if product.operation == "spmm":
        return _dense(name, {"gemmEx": multiply}, whole, device, left.nbytes, dtype, unit)
    places = cupy.asarray(topology.row_numbers * np.int64(topology.shape[1]) + topology.columns)
    out = cupy.empty(topology.nnz, dtype)

    def launch() -> None:
        multiply()
        cupy.take(whole.ravel(), places, out=out)

    return _dense(name, {"gemmEx, take": launch}, out, device, whole.nbytes, dtype, unit)


def _dense(name: str, launches: dict, out: Any, device: Any, size: int, dtype: Any, unit: float) -> Timed:
    import cupy
    from cupy.cuda import device as cupy_device
    from cupy_backends.cuda.libs import cublas

    version = f"cuBLAS {cublas.getVersion(cupy_device.get_cublas_handle())}, CuPy {cupy.__version__}"
    return Timed(name, DENSE, version, launches, out, device.read, size, unit, dtype)


def _gemm(left: Any, right: Any, out: Any, turned: bool, compute: int, kind: int) -> Callable[[], None]:
    """out = left right, or left right^T, row-major."""
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas

    (rows, inner), columns = left.shape, out.shape[1]
    given = (
        cublas.CUBLAS_OP_T if turned else cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, columns, rows, inner,
        cusparse.ONE.ctypes.data, right.data.ptr, kind, right.shape[1], left.data.ptr, kind, inner,
        cusparse.ZERO.ctypes.data, out.data.ptr, kind, columns, compute, GEMM_DEFAULT,
    )  # fmt: skip

    def launch(alive: tuple = (left, right, out)) -> None:
        cublas.gemmEx(device.get_cublas_handle(), *given)

    return launch


def _matrix(modules: cusparse.CusparseModules, product: Product) -> Any:
    topology, xp = product.topology, modules.array
    arrays = product.values, topology.columns.astype(np.int32), topology.offsets.astype(np.int32)
    return modules.sparse.csr_matrix(tuple(xp.asarray(array) for array in arrays), shape=topology.shape)


def _version(modules: cusparse.CusparseModules) -> str:
    return f"cuSPARSE, CUDA runtime {modules.array.cuda.runtime.runtimeGetVersion()}, CuPy {modules.array.__version__}"
