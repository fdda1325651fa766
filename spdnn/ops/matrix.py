"""A sparse matrix of the operations: a topology that others may share, and values."""

from os import PathLike
from typing import Any

import numpy as np

from spdnn.core.errors import InputError, Unavailable
from spdnn.core.shown import WithRepr
from spdnn.formats import smtx
from spdnn.ops import convert
from spdnn.ops.arrays import CPU, CUDA, cupy, operand
from spdnn.ops.topology import Topology


class SparseMatrix(WithRepr):
    """A sparse matrix by rows, or a batch of them that share their topology.

    Attributes:
        topology: where the nonzeros are, on the host.
        values: float32 or float16, (nnz,) or (batch, nnz), NumPy's, or CuPy's on a GPU.

    Made by `from_scipy`, `from_dense`, `from_torch`, `from_smtx`, or of arrays of your own.

    Example:
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> A.nnz, A.values
        (3, array([1., 2., 3.], dtype=float32))
    """

    def __init__(self, topology: Topology, values: Any):
        """Keep `values` without a copy (anything that speaks DLPack).

        Raises:
            InputError: values of another shape or dtype, or NaN among them.
        """
        stored = operand(values, "values", dimensions=(1, 2))
        if stored.array.shape[-1] != topology.nnz or (not stored.array.shape[0] and stored.array.ndim == 2):
            raise InputError(
                f"values have shape {stored.array.shape}; a matrix of {topology.nnz} nonzeros needs ({topology.nnz},), "
                f"a batch of them (batch, {topology.nnz})"
            )
        self.topology, self.values, self._device = topology, stored.array, stored.device
        if self.values.size and bool((self.values != self.values).any()):
            raise InputError("values hold NaN; a sparse matrix must have none")

    @classmethod
    def of(cls, topology: Topology, values: Any, device: str) -> "SparseMatrix":
        """As the constructor, of values from a kernel: nothing is checked."""
        matrix = cls.__new__(cls)
        matrix.topology, matrix.values, matrix._device = topology, values, device
        return matrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.topology.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def nnz(self) -> int:
        return self.topology.nnz

    @property
    def batch(self) -> int | None:
        """How many matrices there are, or None: one, not a batch."""
        return self.values.shape[0] if self.values.ndim == 2 else None

    @property
    def device(self) -> str:
        """Where the values are: "cpu" or "cuda"."""
        return self._device

    @property
    def nbytes(self) -> int:
        """Bytes of values, offsets and columns."""
        return self.values.nbytes + self.topology.nbytes

    def with_values(self, values: Any) -> "SparseMatrix":
        """A matrix of the same topology. Raises as the constructor does."""
        return SparseMatrix(self.topology, values)

    def astype(self, dtype: Any) -> "SparseMatrix":
        """The same with values of float32 or float16, rounded to nearest.

        Raises:
            InputError: another dtype, or a value that becomes infinite.
        """
        return SparseMatrix.of(self.topology, convert.round_to(self.values, dtype), self._device)

    def to(self, device: str) -> "SparseMatrix":
        """The same with values on "cpu" or "cuda" (CuPy's current device); itself when they are there.

        Raises:
            InputError: another word.
            Unavailable: CuPy or a GPU are missing.
        """
        if device not in (CPU, CUDA):
            raise InputError(f'device {device!r}: it must be "cpu" or "cuda"')
        if device == self._device:
            return self
        try:
            values = cupy().asarray(self.values) if device == CUDA else cupy().asnumpy(self.values)
        except RuntimeError as error:  # CuPy's own are of this class
            raise Unavailable(f"CuPy cannot use a GPU: {' '.join(str(error).split())}") from error
        return SparseMatrix.of(self.topology, values, device)

    @classmethod
    def from_scipy(cls, matrix: Any, dtype: Any = np.float32, index_bits: int | None = None) -> "SparseMatrix":
        """Of a SciPy sparse matrix or array (CSR, COO and the others); stored zeros stay nonzeros of the topology.

        Values of CSR that are of `dtype` are not copied, so what changes them in place (SciPy's eliminate_zeros too)
        changes both; of another dtype they are rounded to it. DIA cannot hold stored zeros. CSR with columns that
        are unsorted, and entries given twice, are refused: matrix.sort_indices() and matrix.sum_duplicates() mend them.

        Raises:
            InputError: see there, Topology and SparseMatrix.
        """
        return cls(*convert.of_scipy(matrix, dtype, index_bits))

    @classmethod
    def from_dense(
        cls,
        array: Any,
        sparsity: float | None = None,
        method: str = "magnitude",
        seed: int = 0,
        dtype: Any = np.float32,
        index_bits: int | None = None,
    ) -> "SparseMatrix":
        """Of a dense matrix (rows, columns), pruned to `sparsity`.

        Args:
            array: anything that NumPy or DLPack reads.
            sparsity: the part of all entries that becomes zero, 0 to below 1; None: what is not zero stays.
            method: "magnitude": the largest absolute values stay, of equal ones the first; "random": any, drawn
                with `seed`.

        Raises:
            InputError: not a matrix, an option out of range, NaN, or see Topology and SparseMatrix.
        """
        return cls(*convert.of_dense(array, sparsity, method, seed, dtype, index_bits))

    @classmethod
    def from_torch(cls, tensor: Any, dtype: Any = None, index_bits: int | None = None) -> "SparseMatrix":
        """Of a torch tensor of two dimensions: sparse CSR or COO (coalesced), or dense, whose nonzeros are taken.

        Values of a CSR tensor are not copied while `dtype` is theirs (None: float16 stays, all others become float32).

        Raises:
            InputError: another layout, or see Topology and SparseMatrix.
            Unavailable: torch is missing.
        """
        return cls(*convert.of_torch(tensor, dtype, index_bits))

    @classmethod
    def from_smtx(
        cls,
        path: str | PathLike,
        values: Any = None,
        seed: int = 0,
        dtype: Any = np.float32,
        index_bits: int | None = None,
    ) -> "SparseMatrix":
        """Of a .smtx file of the Deep Learning Matrix Collection, which has positions alone.

        Args:
            values: (nnz,), or None: normal random numbers drawn with `seed`.

        Raises:
            InputError: no sound .smtx file (see sources.formats.smtx), or values that do not fit.
        """
        return cls(*convert.of_smtx(path, values, seed, dtype, index_bits))

    def to_scipy(self) -> Any:
        """scipy.sparse.csr_array of the same shape, values without a copy while float32 (float16 becomes float32).

        What changes its data in place (eliminate_zeros too) changes these values.

        Raises:
            InputError: a batch, or on a GPU (`to("cpu")` first).
        """
        return convert.to_scipy(self.topology, self.values)

    def to_dense(self) -> np.ndarray:
        """(rows, columns), or (batch, rows, columns), of the same dtype. Raises InputError on a GPU."""
        return convert.to_dense(self.topology, self.values)

    def to_torch(self) -> Any:
        """torch.sparse_csr_tensor on the same device, values without a copy. Raises InputError for a batch."""
        return convert.to_torch(self.topology, self.values)

    def to_smtx(self, path: str | PathLike) -> None:
        """Write the topology as a .smtx file, whole or not at all."""
        smtx.write(path, self.shape, self.topology.offsets, self.topology.columns)

    def _facts(self) -> dict[str, str]:
        many = "" if self.batch is None else f"{self.batch} x "
        return {"shape": f"{many}{self.shape[0]} x {self.shape[1]}", "nonzeros": f"{self.nnz} nonzeros",
                "dtype": str(self.dtype), "indices": f"{self.topology.index_bits}-bit indices",
                "device": self.device}  # fmt: skip
