"""Sparse matrices from and to other forms: SciPy, dense arrays, torch, .smtx files.

Each `of_...` gives (topology, values), the arguments of SparseMatrix, and each `to_...` takes them.
"""

import sys
from typing import Any

import numpy as np

from spdnn.core import safe_open
from spdnn.core.arrays import host
from spdnn.core.errors import InputError, Unavailable, install
from spdnn.core.network import check_sparse
from spdnn.formats import smtx
from spdnn.ops.arrays import DTYPES, operand
from spdnn.ops.topology import Topology

METHODS = ("magnitude", "random")


def round_to(values: Any, dtype) -> Any:
    """Values of `dtype`, float32 or float16, not copied where they are of it.

    Raises:
        InputError: no such dtype, values that are no real numbers, or one that becomes infinite.
    """
    target = _dtype(dtype)
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


def of_scipy(matrix, dtype, index_bits: int | None) -> tuple[Topology, np.ndarray]:
    import scipy.sparse

    if not scipy.sparse.issparse(matrix) or matrix.ndim != 2:
        raise InputError(f"{type(matrix).__name__} is no SciPy sparse matrix of two dimensions")
    matrix = check_sparse(matrix, "this SciPy matrix is damaged")
    if matrix.format in ("csr", "csc", "bsr") and len(matrix.indices) > matrix.indptr[-1]:
        matrix = matrix.copy()
        matrix.prune()  # of what lies behind its last entry, for which tocoo() has no row
    if matrix.format != "csr":
        entries = matrix.tocoo()
        rows, columns = entries.row, entries.col
        return _of_entries(matrix.shape, rows, columns, entries.data, dtype, index_bits)
    # Copied: SciPy changes them in place (eliminate_zeros and others), and a topology must not change.
    return Topology(matrix.shape, matrix.indptr.copy(), matrix.indices.copy(), index_bits), round_to(matrix.data, dtype)


def of_dense(array, sparsity, method: str, seed: int, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    dense = host(array, "the dense matrix")
    if dense.ndim != 2 or dense.dtype.kind not in "fiub":
        raise InputError(f"a dense matrix has two dimensions of real numbers, not {dense.ndim} of {dense.dtype}")
    if not np.isfinite(dense).all():
        raise InputError("the dense matrix holds NaN or an infinity; pruning needs finite numbers")
    kept = dense != 0 if sparsity is None else prune(dense, sparsity, method, seed)
    return _of_mask(kept, round_to(dense[kept], dtype), index_bits)


def prune(dense: np.ndarray, sparsity: float, method: str = "magnitude", seed: int = 0) -> np.ndarray:
    """bool, as `dense`: the round((1 - sparsity) size) entries that stay. Raises InputError: see from_dense."""
    if not (isinstance(sparsity, (int, float, np.floating)) and 0 <= sparsity < 1):
        raise InputError(f"sparsity {sparsity!r}: it must be a number from 0 to below 1")
    if method not in METHODS:
        raise InputError(f"method {method!r}: it must be one of {', '.join(METHODS)}")
    keep, flat = round((1 - sparsity) * dense.size), np.zeros(dense.size, bool)
    if method == "random":
        flat[_random(seed).choice(dense.size, keep, replace=False)] = True
        return flat.reshape(dense.shape)
    sizes = np.abs(dense, dtype=np.float64).ravel() if dense.dtype.kind != "b" else dense.ravel()
    flat[np.argsort(-sizes, kind="stable")[:keep]] = True
    return flat.reshape(dense.shape)


def of_torch(tensor, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    torch = _torch()
    if not isinstance(tensor, torch.Tensor) or tensor.ndim != 2:
        raise InputError(f"{type(tensor).__name__} is no torch tensor of two dimensions")
    dtype = dtype or (np.float16 if tensor.dtype == torch.float16 else np.float32)
    try:
        return _of_tensor(tensor.detach(), dtype, index_bits)
    except (TypeError, RuntimeError) as error:  # torch's, of tensors that have no numbers, or none that NumPy knows
        raise InputError(f"the torch tensor cannot be read ({' '.join(str(error).split())[:200]})") from error


def _of_tensor(tensor, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    torch = sys.modules["torch"]
    shape = tuple(tensor.shape)
    if tensor.layout == torch.sparse_csr:
        offsets, columns = (part.cpu().numpy().copy() for part in (tensor.crow_indices(), tensor.col_indices()))
        return Topology(shape, offsets, columns, index_bits), round_to(_values(tensor.values(), dtype), dtype)
    if tensor.layout == torch.sparse_coo:
        if not tensor.is_coalesced():
            raise InputError("the sparse COO tensor is not coalesced; call its coalesce() first")
        rows, columns = tensor.indices().cpu().numpy()
        return _of_entries(shape, rows, columns, _values(tensor.values().cpu(), dtype), dtype, index_bits)
    if tensor.layout != torch.strided:
        raise InputError(f"a torch tensor of layout {tensor.layout}: it must be dense, sparse CSR or sparse COO")
    mask = (tensor != 0).cpu().numpy()
    return _of_mask(mask, round_to(_values(tensor.cpu(), dtype)[mask], dtype), index_bits)


def of_smtx(path, values, seed: int, dtype, index_bits) -> tuple[Topology, Any]:
    shape, offsets, columns = smtx.read(path)
    with safe_open.name_errors(path):
        topology = Topology(shape, offsets, columns, index_bits)
    if values is None:
        values = _random(seed).standard_normal(topology.nnz, dtype=np.float32)
        values = round_to(values, dtype)
    return topology, values


def to_scipy(topology: Topology, values: Any):
    import scipy.sparse

    _on_host(values)
    _one(values, "SciPy")
    columns, offsets = topology.columns.astype(np.int32), topology.offsets.copy()  # see of_scipy
    result = scipy.sparse.csr_array((values.astype(np.float32, copy=False), columns, offsets), shape=topology.shape)
    result.has_canonical_format = True
    return result


def to_dense(topology: Topology, values: Any) -> np.ndarray:
    _on_host(values)
    dense = np.zeros((*values.shape[:-1], *topology.shape), values.dtype)
    dense[..., topology.row_numbers, topology.columns] = values
    return dense


def to_torch(topology: Topology, values: Any):
    torch = _torch()
    _one(values, "torch")
    values = torch.from_dlpack(values)
    arrays = topology.offsets, topology.columns
    offsets, columns = (torch.from_numpy(array.astype(np.int64)).to(values.device) for array in arrays)
    return torch.sparse_csr_tensor(offsets, columns, values, size=topology.shape, check_invariants=False)


def _dtype(dtype) -> np.dtype:
    try:
        result = np.dtype(dtype)
    except TypeError:
        result = None
    if result not in DTYPES:
        raise InputError(f"dtype {dtype!r}: it must be {' or '.join(map(str, DTYPES))}")
    return result


def _of_entries(shape, rows, columns, values, dtype, index_bits) -> tuple[Topology, np.ndarray]:
    """Of entries in any order; Topology refuses what is there twice."""
    order = np.lexsort((columns, rows))
    counts = np.bincount(rows, minlength=shape[0]) if len(rows) else np.zeros(shape[0], np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return Topology(shape, offsets, columns[order], index_bits), round_to(values[order], dtype)


def _of_mask(mask: np.ndarray, values: np.ndarray, index_bits) -> tuple[Topology, np.ndarray]:
    rows, columns = np.nonzero(mask)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(mask)))))
    return Topology(mask.shape, offsets, columns, index_bits), values


def _random(seed) -> np.random.Generator:
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InputError(f"seed {seed!r}: it must be a whole number from 0")
    return np.random.default_rng(seed)


def _values(tensor, dtype) -> Any:
    """The values of a dense torch tensor, where it is; what NumPy has no name for becomes float32 first."""
    torch = sys.modules["torch"]
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    if tensor.device.type == "cpu":
        return tensor.numpy()
    target = torch.float16 if np.dtype(dtype) == np.float16 else torch.float32
    return operand(tensor.to(target), "values").array


def _one(values: Any, library: str) -> None:
    if values.ndim > 1:
        count = len(values)
        raise InputError(f"a batch of {count} matrices is no {library} matrix; take one with with_values(values[i])")


def _on_host(values: Any) -> None:
    if not isinstance(values, np.ndarray):
        raise InputError('the values are on a GPU; matrix.to("cpu") brings them')


def _torch():
    try:
        import torch
    except ImportError as error:
        raise Unavailable(f"torch is missing: {install('torch')}") from error
    return torch
