"""Programs on one product: our kernels, and the products of SciPy, NumPy's BLAS and PyTorch (oneMKL: mkl_products)."""

import importlib.metadata
import importlib.util
import os
from typing import Any

import numpy as np
import scipy
import scipy.sparse

from spdnn.common.errors import install
from spdnn.kernels import dispatch
from spdnn.ops.cpu import CpuBackend
from spdnn.peers.mkl_products import MklDense, MklSparse
from spdnn.peers.product_base import OURS, SPARSE, DenseProgram, Product, Program, csr_bytes

GATHERED_BYTES = 1 << 20  # of rows that einsum gets at once: they stay in a cache


class Ours(Program):
    """The kernels of spdnn.ops, into an output that was allocated before."""

    name, kind, swizzle = "ours", OURS, True

    @staticmethod
    def missing() -> str | None:
        return dispatch.missing()

    def __init__(self, product: Product):
        self.version = f"spdnn {importlib.metadata.version('spdnn')}"
        self.product, self.threads_used = product, product.threads
        self.backend = CpuBackend(product.threads, swizzle=self.swizzle)
        self.topology, self.values = product.topology, product.values[None]
        self.matrix_bytes = self.topology.nbytes + self.topology.order.nbytes
        if product.operation == "spmm":
            self.matrix_bytes += product.values.nbytes
        self.out = self.backend.empty((1, *product.shape), np.float32)
        self.out.fill(0)  # the pages are touched here, not on the clock
        spins = os.environ.get("GOMP_SPINCOUNT", "not set")
        self.notes = {"threads_set": f"{product.threads} of each call, GOMP_SPINCOUNT={spins}"}

    def run(self) -> np.ndarray:
        product = self.product
        if product.operation == "spmm":
            self.backend.spmm(self.topology, self.values, product.first[None], None, -np.inf, np.inf, self.out)
        else:
            self.backend.sddmm(self.topology, product.first[None], product.second[None], 1.0, self.out)
        return self.out

    def array(self, out: np.ndarray) -> np.ndarray:
        return out[0]

    def imbalance(self) -> float | None:
        self.notes |= {name: self.backend.notes[name] for name in ("instruction_set", "setting", "swizzle")}
        self.threads_used = len(self.backend.notes["busy_seconds"])  # one where a call is too small to share
        return _spread(self.backend.notes["busy_seconds"])

    def nonzero_imbalance(self) -> float | None:
        from spdnn.kernels import _cpu

        shares = getattr(_cpu, f"{self.product.operation}_shares", None)
        setting = self.backend.notes.get("setting")
        if shares is None or not isinstance(setting, tuple | list):
            return None
        order = self.topology.order if self.swizzle else np.arange(self.topology.rows, dtype=np.int32)
        where = self.backend.level, self.topology.offsets, order
        return _spread(shares(*where, self.product.width, 1, setting[0], self.threads_used))


class OursInOrder(Ours):
    """The same with rows assigned in their own order, for comparison with the swizzle."""

    name, swizzle = "ours-in-order", False


class ScipySparse(Program):
    """csr_array @ dense; one thread, and a new output for every call, for it takes none."""

    name, kind = "scipy", SPARSE

    def __init__(self, product: Product):
        topology = product.topology
        indices = topology.columns.astype(np.int32), topology.offsets.astype(np.int32)
        self.matrix = scipy.sparse.csr_array((product.values, *indices), shape=topology.shape)
        self.dense, self.threads_used, self.matrix_bytes = product.first, 1, csr_bytes(product)
        self.version = f"SciPy {scipy.__version__}"
        self.notes = {"threads_set": "it has one", "layout": "CSR, 32-bit indices; the output is allocated by it"}

    def run(self) -> np.ndarray:
        return self.matrix @ self.dense


class NumpyDense(DenseProgram):
    """numpy.matmul, so the BLAS that NumPy was built with."""

    name = "blas"

    def __init__(self, product: Product):
        super().__init__(product)
        self.version, self.notes = blas_version(product.threads)
        self.right = self.right if product.operation == "spmm" else self.right.T

    def multiply(self) -> None:
        np.matmul(self.left, self.right, out=self.whole)


class NumpyGathered(Program):
    """sddmm by einsum of gathered rows, as many at a time as a cache holds; one thread."""

    name, kind = "numpy", SPARSE

    def __init__(self, product: Product):
        self.rows, self.columns = product.topology.row_numbers, product.topology.columns.astype(np.int32)
        self.left, self.right, self.out = product.first, product.second, np.zeros(product.shape, np.float32)
        self.step = max(1, GATHERED_BYTES // (8 * product.width))
        self.threads_used, self.matrix_bytes = 1, 8 * product.topology.nnz
        self.version = f"NumPy {np.__version__}"
        self.notes = {"threads_set": "einsum has one", "layout": f"{self.step} nonzeros at a time"}

    def run(self) -> np.ndarray:
        for start in range(0, self.out.size, self.step):
            part = slice(start, start + self.step)
            left, right = self.left[self.rows[part]], self.right[self.columns[part]]
            np.einsum("ed,ed->e", left, right, out=self.out[part])
        return self.out


class Torch(Program):
    """PyTorch's sparse CSR tensors: torch.mm into an output, or torch.sparse.sampled_addmm."""

    name, kind = "torch", SPARSE

    @staticmethod
    def missing() -> str | None:
        if importlib.util.find_spec("torch") is None:
            return f"the package torch is not installed; {install('torch')} brings it"
        return None

    def __init__(self, product: Product):
        import torch

        torch.set_num_threads(product.threads)
        topology, self.torch = product.topology, torch
        indices = (torch.from_numpy(part.astype(np.int32)) for part in (topology.offsets, topology.columns))
        values = product.values if product.operation == "spmm" else np.zeros(topology.nnz, np.float32)
        self.matrix = torch.sparse_csr_tensor(
            *indices, torch.from_numpy(values), size=topology.shape, check_invariants=False
        )
        self.first, self.second = torch.from_numpy(product.first), None
        if product.operation == "spmm":
            self.out = torch.zeros(product.shape)
        else:
            self.second = torch.from_numpy(product.second).T
        self.threads_used, self.matrix_bytes = product.threads, csr_bytes(product)
        self.version = f"PyTorch {torch.__version__}"
        self.notes = {"threads_set": f"torch.set_num_threads({product.threads})", "layout": "CSR, 32-bit indices"}

    def run(self) -> Any:
        if self.second is None:
            return self.torch.mm(self.matrix, self.first, out=self.out)
        return self.torch.sparse.sampled_addmm(self.matrix, self.first, self.second, beta=0.0)

    def array(self, out: Any) -> np.ndarray:
        return out.numpy() if self.second is None else out.values().numpy()


PROGRAMS: dict[str, dict[str, type[Program]]] = {
    "spmm": {one.name: one for one in (Ours, OursInOrder, MklSparse, Torch, ScipySparse, NumpyDense, MklDense)},
    "sddmm": {one.name: one for one in (Ours, OursInOrder, Torch, NumpyGathered, NumpyDense, MklDense)},
}
LIBRARIES = {name: one for programs in PROGRAMS.values() for name, one in programs.items() if one.kind != OURS}


def _spread(parts: Any) -> float | None:
    """Maximum over mean; None where nothing was done."""
    mean = float(np.mean(parts))
    return max(1.0, float(np.max(parts)) / mean) if mean > 0 else None


def blas_version(threads: int) -> tuple[str, dict]:
    """(version, notes) of NumPy's BLAS; products.py limits its threads while programs run."""
    from threadpoolctl import threadpool_info

    of_numpy = [one for one in threadpool_info() if one["user_api"] == "blas" and "numpy" in one["filepath"]]
    library = of_numpy[0] if of_numpy else {"internal_api": "BLAS", "version": "unknown"}
    version = f"{library['internal_api']} {library['version']}"
    if "architecture" in library:
        version += f" ({library['architecture']})"
    return version, {"threads_set": f"threadpoolctl, {threads}", "layout": "dense, by rows, numpy.matmul"}
