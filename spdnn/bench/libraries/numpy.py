"""NumPy: numpy.matmul of whole matrices, so the BLAS that it was built with, and sampled products by einsum."""

from typing import Any

import numpy as np

from spdnn.bench.libraries.base import (
    DENSE,
    SPARSE,
    DenseProduct,
    Product,
    TimedProgram,
    after,
    check_memory,
    clip,
    dense,
)
from spdnn.core.errors import Unavailable, install
from spdnn.core.network import Network

GATHERED_BYTES = 1 << 20  # of rows that einsum gets at once: they stay in a cache


class BlasProduct(DenseProduct):
    """numpy.matmul of one product."""

    name = "blas"

    def __init__(self, product: Product, threads: int):
        super().__init__(product, threads)
        self.version, self.notes = _blas(threads)
        self.right = self.right if product.operation == "spmm" else self.right.T

    def multiply(self) -> None:
        np.matmul(self.left, self.right, out=self.whole)


class BlasModel(TimedProgram):
    """numpy.matmul layer by layer, with bias and activation in place."""

    name, kind = "blas", DENSE

    def __init__(self, network: Network, threads: int):
        self.matrix_bytes, self.threads_used = check_memory(network), threads
        self.layers = [(dense(layer), *after(layer)) for layer in network.layers()]
        self.version, self.notes = _blas(threads)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for weights, bias, low, high in self.layers:
            x = x @ weights
            x += bias
            clip(x, low, high)
        return x


class EinsumProduct(TimedProgram):
    """sddmm by einsum of gathered rows, as many at a time as a cache holds; one thread."""

    name, kind = "numpy", SPARSE

    def __init__(self, product: Product, threads: int):
        self.rows, self.columns = product.topology.row_numbers, product.csr[0]
        self.left, self.right, self.out = product.first, product.second, np.zeros(product.shape, np.float32)
        self.step = max(1, GATHERED_BYTES // (8 * product.width))
        self.threads_used, self.matrix_bytes = 1, 8 * product.topology.nnz
        self.version = f"NumPy {np.__version__}"
        self.notes = {"threads_set": "einsum has one", "layout": f"{self.step} nonzeros at a time"}

    def __call__(self, x: Any = None) -> np.ndarray:
        for start in range(0, self.out.size, self.step):
            part = slice(start, start + self.step)
            left, right = self.left[self.rows[part]], self.right[self.columns[part]]
            np.einsum("ed,ed->e", left, right, out=self.out[part])
        return self.out


def _blas(threads: int) -> tuple[str, dict]:
    """(version, notes) of NumPy's BLAS."""
    from threadpoolctl import threadpool_info

    of_numpy = [info for info in threadpool_info() if info["user_api"] == "blas" and "numpy" in info["filepath"]]
    library = of_numpy[0] if of_numpy else {"internal_api": "BLAS", "version": "unknown"}
    version = f"{library['internal_api']} {library['version']}"
    if "architecture" in library:
        version += f" ({library['architecture']})"
    return version, {"threads_set": f"threadpoolctl, {threads}", "layout": "dense, by rows, numpy.matmul"}


def blas_threads(threads: int) -> Any:
    """A context in which every BLAS has so many threads."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise Unavailable(f"equal threads need threadpoolctl: {install('full')}") from error
    return threadpool_limits(threads, user_api="blas")
