"""oneMKL on one product: its inspected sparse product, and its dense one, called through libmkl_rt.

sparse_dot_mkl makes a handle for every call. Here it is made and optimised once, outside the clock, as oneMKL's guide
recommends ("Inspector-executor sparse BLAS routines").
"""

import ctypes
import os
from typing import Any

import numpy as np

from spdnn.bench.engines.mkl import MklEngine
from spdnn.bench.libraries.base import SPARSE, DenseProduct, Product, TimedProgram
from spdnn.core.errors import SpdnnError

CBLAS_ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # of cblas; mkl_sparse has the same name for rows
ZERO_BASED, NO_TRANSPOSE, GENERAL = 0, 10, 20
EXPECTED_CALLS = 10_000  # that the handle is optimised for


class _Description(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("triangle", ctypes.c_int), ("diagonal", ctypes.c_int)]


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


class MklProduct(TimedProgram):
    """mkl_sparse_s_mm on rows (CSR), dense matrices by rows."""

    name, kind, engine = "mkl", SPARSE, MklEngine

    def __init__(self, product: Product, threads: int):
        self.start(threads, "CSR handle, mm hint for this width, optimised outside the clock; dense by rows")
        self.library, self.matrix_bytes = ctypes.CDLL(os.environ["MKL_RT"]), product.csr_bytes
        self.columns, self.offsets = product.csr  # MKL_INT of libmkl_rt's default interface
        self.values = product.values
        self.handle, self.description = ctypes.c_void_p(), _Description(GENERAL, 0, 0)
        self.dense, self.out = product.first, np.zeros(product.shape, np.float32)
        self._call(
            "mkl_sparse_s_create_csr", ctypes.byref(self.handle), ctypes.c_int(ZERO_BASED),
            *map(int, product.topology.shape), _at(self.offsets), _at(self.offsets[1:]), _at(self.columns),
            _at(self.values),
        )  # fmt: skip
        self._call(
            "mkl_sparse_set_mm_hint", self.handle, NO_TRANSPOSE, self.description, CBLAS_ROW_MAJOR, product.width,
            EXPECTED_CALLS,
        )  # fmt: skip
        self._call("mkl_sparse_optimize", self.handle)
        self.arguments = (
            NO_TRANSPOSE, ctypes.c_float(1), self.handle, self.description, CBLAS_ROW_MAJOR, _at(self.dense),
            product.width, product.width, ctypes.c_float(0), _at(self.out), product.width,
        )  # fmt: skip

    def __call__(self, x: Any = None) -> np.ndarray:
        self._call("mkl_sparse_s_mm", *self.arguments)
        return self.out

    def close(self) -> None:
        if self.handle:
            self.library.mkl_sparse_destroy(self.handle)
            self.handle = ctypes.c_void_p()

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.library, function)(*arguments)
        if status:
            raise SpdnnError(f"{function} of oneMKL ended with status {status}")


class MklDenseProduct(DenseProduct):
    """cblas_sgemm."""

    name, engine = "mkl-dense", MklEngine

    def __init__(self, product: Product, threads: int):
        super().__init__(product, threads)
        self.start(threads, "dense, by rows, cblas_sgemm")
        self.library = ctypes.CDLL(os.environ["MKL_RT"])
        (rows, columns), inner = self.whole.shape, self.left.shape[1]
        self.arguments = (
            CBLAS_ROW_MAJOR, PLAIN, PLAIN if product.operation == "spmm" else TRANSPOSED, rows, columns, inner,
            ctypes.c_float(1), _at(self.left), inner, _at(self.right), self.right.shape[1], ctypes.c_float(0),
            _at(self.whole), columns,
        )  # fmt: skip

    def multiply(self) -> None:
        self.library.cblas_sgemm(*self.arguments)
