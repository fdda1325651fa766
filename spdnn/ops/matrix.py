"""A sparse matrix of the operations: a topology that others may share, and values; from and to other forms."""

import importlib
import sys
from os import PathLike
from typing import Any

import numpy as np

from spdnn.core import safe_open
from spdnn.core.arrays import host
from spdnn.core.errors import InputError, Unavailable, install
from spdnn.core.graphs import outside_graphs, refuse_recorded
from spdnn.core.network import check_sparse
from spdnn.core.numbers import real, whole
from spdnn.core.shown import WithRepr
from spdnn.formats import smtx
from spdnn.ops.arrays import CPU, CUDA, DTYPES, cupy, operand
from spdnn.ops.topology import Topology

METHODS = ("magnitude", "random")


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

    @outside_graphs
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
        self.topology, self.values = topology, stored.array
        if self.values.size and bool((self.values != self.values).any()):
            raise InputError("values hold NaN; a sparse matrix must have none")

    @classmethod
    def of(cls, topology: Topology, values: Any) -> "SparseMatrix":
        """As the constructor, of values from a kernel: nothing is checked."""
        matrix = cls.__new__(cls)
        matrix.topology, matrix.values = topology, values
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
        return CPU if isinstance(self.values, np.ndarray) else CUDA

    @property
    def nbytes(self) -> int:
        """Bytes of values, offsets and columns."""
        return self.values.nbytes + self.topology.nbytes

    def with_values(self, values: Any) -> "SparseMatrix":
        """A matrix of the same topology. Raises as the constructor does."""
        return SparseMatrix(self.topology, values)

    @outside_graphs
    def astype(self, dtype: Any) -> "SparseMatrix":
        """The same with values of float32 or float16, rounded to nearest.

        Raises:
            InputError: another dtype, or a value that becomes infinite.
        """
        return SparseMatrix.of(self.topology, _round_to(self.values, dtype))

    @outside_graphs
    def to(self, device: str) -> "SparseMatrix":
        """The same with values on "cpu" or "cuda" (CuPy's current device); itself when they are there.

        Raises:
            InputError: another word.
            Unavailable: CuPy or a GPU are missing.
        """
        if device not in (CPU, CUDA):
            raise InputError(f'device {device!r}: it must be "cpu" or "cuda"')
        if device == self.device:
            return self
        try:
            values = cupy().asarray(self.values) if device == CUDA else cupy().asnumpy(self.values)
        except RuntimeError as error:  # CuPy's own are of this class
            raise Unavailable(f"CuPy cannot use a GPU: {' '.join(str(error).split())}") from error
        return SparseMatrix.of(self.topology, values)

    @classmethod
    @outside_graphs
    def from_scipy(cls, matrix: Any, dtype: Any = np.float32, index_bits: int | None = None) -> "SparseMatrix":
        """Of a SciPy sparse matrix or array (CSR, COO and the others); stored zeros stay nonzeros of the topology.

        Values of CSR that are of `dtype` are not copied, so what changes them in place (SciPy's eliminate_zeros too)
        changes both; of another dtype they are rounded to it. DIA cannot hold stored zeros. CSR with columns that
        are unsorted, and entries given twice, are refused: matrix.sort_indices() and matrix.sum_duplicates() mend them.

        Raises:
            InputError: see there, Topology and SparseMatrix.
        """
        import scipy.sparse

        if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
            raise InputError(f"{type(matrix).__name__} is no SciPy sparse matrix of two dimensions")
        matrix = check_sparse(matrix, "this SciPy matrix is damaged")
        if matrix.format in ("csr", "csc", "bsr") and len(matrix.indices) > matrix.indptr[-1]:
            matrix = matrix.copy()
            matrix.prune()  # of what lies behind its last entry, for which tocoo() has no row
        if matrix.format != "csr":
            entries = matrix.tocoo()
            return cls(*_of_entries(matrix.shape, entries.row, entries.col, entries.data, dtype, index_bits))
        return cls(Topology(matrix.shape, matrix.indptr, matrix.indices, index_bits), _round_to(matrix.data, dtype))

    @classmethod
    @outside_graphs
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
        dense = host(array, "the dense matrix")
        if dense.ndim != 2 or dense.dtype.kind not in "fiub":
            raise InputError(f"a dense matrix has two dimensions of real numbers, not {dense.ndim} of {dense.dtype}")
        if not np.isfinite(dense).all():
            raise InputError("the dense matrix holds NaN or an infinity; pruning needs finite numbers")
        mask = dense != 0 if sparsity is None else prune(dense, sparsity, method, seed)
        return cls(of_mask(mask, index_bits), _round_to(dense[mask], dtype))

    @classmethod
    @outside_graphs
    def from_torch(cls, tensor: Any, dtype: Any = None, index_bits: int | None = None) -> "SparseMatrix":
        """Of a torch tensor of two dimensions: sparse CSR or COO (coalesced), or dense, whose nonzeros are taken.

        Values of a CSR tensor are not copied while `dtype` is theirs (None: float16 stays, all others become float32).

        Raises:
            InputError: another layout, or see Topology and SparseMatrix.
            Unavailable: torch is missing.
        """
        torch = _torch()
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 2:
            raise InputError(f"{type(tensor).__name__} is no torch tensor of two dimensions")
        refuse_recorded("the torch tensor")
        dtype = dtype or (np.float16 if tensor.dtype == torch.float16 else np.float32)
        try:
            topology, values = _of_tensor(tensor.detach(), dtype, index_bits)
        except (TypeError, RuntimeError) as error:  # torch's, of tensors without numbers, or none that NumPy knows
            raise InputError(f"the torch tensor cannot be read ({' '.join(str(error).split())[:200]})") from error
        return cls(topology, values)

    @classmethod
    @outside_graphs
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
            InputError: no sound .smtx file (see spdnn.formats.smtx), or values that do not fit.
        """
        shape, offsets, columns = smtx.read(path)
        with safe_open.name_errors(path):
            topology = Topology(shape, offsets, columns, index_bits)
        if values is None:
            values = _round_to(_random(seed).standard_normal(topology.nnz, dtype=np.float32), dtype)
        return cls(topology, values)

    @outside_graphs
    def to_scipy(self) -> Any:
        """scipy.sparse.csr_array of the same shape, values without a copy while float32 (float16 becomes float32).

        What changes its data in place (eliminate_zeros too) changes these values.

        Raises:
            InputError: a batch, or on a GPU (`to("cpu")` first).
        """
        import scipy.sparse

        self._check_on_host()
        self._check_one("SciPy")
        # Copied: SciPy changes them in place (eliminate_zeros and others), and a topology must not change.
        columns, offsets = self.topology.columns.astype(np.int32), self.topology.offsets.copy()
        values = self.values.astype(np.float32, copy=False)
        result = scipy.sparse.csr_array((values, columns, offsets), shape=self.shape)
        result.has_canonical_format = True
        return result

    @outside_graphs
    def to_dense(self) -> np.ndarray:
        """(rows, columns), or (batch, rows, columns), of the same dtype. Raises InputError on a GPU."""
        self._check_on_host()
        dense = np.zeros((*self.values.shape[:-1], *self.shape), self.dtype)
        dense[..., self.topology.row_numbers, self.topology.columns] = self.values
        return dense

    @outside_graphs
    def to_torch(self) -> Any:
        """torch.sparse_csr_tensor on the same device, values without a copy. Raises InputError for a batch."""
        torch = _torch()
        self._check_one("torch")
        values = torch.from_dlpack(self.values)
        arrays = self.topology.offsets, self.topology.columns
        offsets, columns = (torch.from_numpy(array.astype(np.int64)).to(values.device) for array in arrays)
        options = {"size": self.shape, "device": values.device, "check_invariants": False}
        return torch.sparse_csr_tensor(offsets, columns, values, **options)

    def to_smtx(self, path: str | PathLike) -> None:
        """Write the topology as a .smtx file, whole or not at all."""
        smtx.write(path, self.shape, self.topology.offsets, self.topology.columns)

    def _check_one(self, library: str) -> None:
        if self.batch is not None:
            raise InputError(
                f"a batch of {self.batch} matrices is no {library} matrix; take one with with_values(values[i])"
            )

    def _check_on_host(self) -> None:
        if self.device != CPU:
            raise InputError('the values are on a GPU; matrix.to("cpu") brings them')

    def _facts(self) -> dict[str, str]:
        many = "" if self.batch is None else f"{self.batch} x "
        return {"shape": f"{many}{self.shape[0]} x {self.shape[1]}", "nonzeros": f"{self.nnz} nonzeros",
                "dtype": str(self.dtype), "indices": f"{self.topology.index_bits}-bit indices",
                "device": self.device}  # fmt: skip


def prune(dense: np.ndarray, sparsity: float, method: str = "magnitude", seed: int = 0) -> np.ndarray:
    """bool, as `dense`: the round((1 - sparsity) size) entries that stay. Raises InputError: see from_dense."""
    part = real(sparsity)
    if part is None or not 0 <= part < 1:
        raise InputError(f"sparsity {sparsity!r}: it must be a number from 0 to below 1")
    if method not in METHODS:
        raise InputError(f"method {method!r}: it must be one of {', '.join(METHODS)}")
    keep, mask = round((1 - part) * dense.size), np.zeros(dense.size, bool)
    if method == "random":
        mask[_random(seed).choice(dense.size, keep, replace=False)] = True
    else:
        mask[np.argsort(-np.abs(dense, dtype=np.float64), axis=None, kind="stable")[:keep]] = True
    return mask.reshape(dense.shape)


def _round_to(values: Any, dtype) -> Any:
    """Values of `dtype`, float32 or float16, not copied where they are of it.

    Raises:
        InputError: no such dtype, values that are no real numbers, or one that becomes infinite.
    """
    try:
        target = np.dtype(dtype)
    except TypeError:
        target = None
    if target not in DTYPES:
        raise InputError(f"dtype {dtype!r}: it must be {' or '.join(map(str, DTYPES))}")
    if values.dtype == target:
        return values
    if values.dtype.kind not in "fiub":
        raise InputError(f"values are of {values.dtype}; they must be real numbers")
    with np.errstate(over="ignore"):
        result = values.astype(target)
    beyond = (abs(result) == np.inf) & (abs(values) != np.inf)
    if bool(beyond.any()):
        raise InputError(f"a value of {float(values[beyond][0]):g} does not fit into {target}")
    return result


def _of_tensor(tensor, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    torch = sys.modules["torch"]
    shape = tuple(tensor.shape)
    if tensor.layout == torch.sparse_csr:
        offsets, columns = (part.cpu().numpy() for part in (tensor.crow_indices(), tensor.col_indices()))
        return Topology(shape, offsets, columns, index_bits), _round_to(_values(tensor.values(), dtype), dtype)
    if tensor.layout == torch.sparse_coo:
        if not tensor.is_coalesced():
            raise InputError("the sparse COO tensor is not coalesced; call its coalesce() first")
        rows, columns = tensor.indices().cpu().numpy()
        return _of_entries(shape, rows, columns, _values(tensor.values().cpu(), dtype), dtype, index_bits)
    if tensor.layout != torch.strided:
        raise InputError(f"a torch tensor of layout {tensor.layout}: it must be dense, sparse CSR or sparse COO")
    mask = (tensor != 0).cpu().numpy()
    return of_mask(mask, index_bits), _round_to(_values(tensor.cpu(), dtype)[mask], dtype)


def _values(tensor, dtype) -> Any:
    """The values of a dense torch tensor, where it is; what NumPy has no name for becomes float32 first."""
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    target = torch.float16 if np.dtype(dtype) == np.float16 else torch.float32
    return operand(tensor.to(target), "values").array


def _of_entries(shape, rows, columns, values, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    """Of entries in any order; Topology refuses what is there twice."""
    order = np.lexsort((columns, rows))
    return _of_rows(shape, rows, columns[order], index_bits), _round_to(values[order], dtype)


def of_mask(mask: np.ndarray, index_bits: int | None = None) -> Topology:
    """Of nonzeros where a mask (rows, columns) is set."""
    rows, columns = np.nonzero(mask)
    return _of_rows(mask.shape, rows, columns, index_bits)


def _of_rows(shape: tuple[int, int], rows: np.ndarray, columns: np.ndarray, index_bits: int | None) -> Topology:
    """Of nonzeros whose columns are in order of rows."""
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=shape[0]))))
    return Topology(shape, offsets, columns, index_bits)


def _random(seed) -> np.random.Generator:
    number = whole(seed)
    if number is None or number < 0:
        raise InputError(f"seed {seed!r}: it must be a whole number from 0")
    return np.random.default_rng(number)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise Unavailable(f"torch is missing: {install('torch')}") from error
