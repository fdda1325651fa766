"""The checks of the operations' arguments, and the shapes in which a backend takes them."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.numbers import real, whole
from spdnn.ops.arrays import Operand, address, operand
from spdnn.ops.backend import Backend
from spdnn.ops.matrix import SparseMatrix
from spdnn.ops.topology import Topology

FLOAT32 = (np.dtype(np.float32),)
LARGEST = float(np.finfo(np.float32).max)


def bounds(activation: Any) -> tuple[float, float]:
    """(low, high) of an activation: None, "relu" or a pair. Raises InputError for anything else."""
    if activation is None:
        return -math.inf, math.inf
    if isinstance(activation, str) and activation == "relu":
        return 0.0, math.inf
    try:
        low, high = map(float, activation) if not isinstance(activation, str) else ()
    except (TypeError, ValueError, OverflowError):
        raise InputError(f'activation {activation!r}: it must be None, "relu" or a pair (low, high)') from None
    if not low <= high:
        raise InputError(f"activation {activation!r}: low must be at most high")
    return low, high


def sparse(matrix: Any, name: str) -> None:
    if not isinstance(matrix, SparseMatrix):
        raise InputError(f"{name} is a {type(matrix).__name__}; it must be a SparseMatrix")


def topology(mask: Any) -> Topology:
    if not isinstance(mask, (SparseMatrix, Topology)):
        raise InputError(f"mask is a {type(mask).__name__}; it must be a SparseMatrix or a Topology")
    return mask.topology if isinstance(mask, SparseMatrix) else mask


def matches(A: SparseMatrix, dense: Operand, name: str) -> None:
    if dense.array.dtype != A.dtype:
        raise InputError(f"{name} is of {dense.array.dtype}, and the sparse matrix of {A.dtype}; they must be the same")
    if dense.device != A.device:
        raise InputError(f"{name} is on {dense.device}, and the sparse matrix on {A.device}; its to() moves it")


def alike(left: Operand, right: Operand, name: str, second: str) -> None:
    if left.array.dtype != right.array.dtype or left.device != right.device:
        raise InputError(
            f"{name} is of {left.array.dtype} on {left.device}, and {second} of {right.array.dtype} on {right.device}; "
            "they must be the same"
        )


def queries(topology: Topology, q: Operand, k: Operand) -> int | None:
    """The batch of q and k, which fit the topology."""
    alike(q, k, "Q", "K")
    if q.array.shape[-2] != topology.rows or k.array.shape[-2] != topology.shape[1]:
        raise InputError(
            f"Q has shape {q.array.shape} and K {k.array.shape}; a mask of {times(topology)} needs "
            f"{topology.rows} and {topology.shape[1]} rows"
        )
    if q.array.shape[-1] != k.array.shape[-1] or not q.array.shape[-1]:
        raise InputError(f"Q has {q.array.shape[-1]} columns and K {k.array.shape[-1]}; they must be as many, and some")
    return batch({"Q": lead(q, 2), "K": lead(k, 2)})


def times(topology: Topology) -> str:
    return f"{topology.shape[0]} x {topology.shape[1]}"


def lead(operand: Operand, dimensions: int) -> int | None:
    return operand.array.shape[0] if operand.array.ndim > dimensions else None


def batch(sizes: dict[str, int | None]) -> int | None:
    """How many matrices there are; None: no operand has a batch."""
    present = {name: size for name, size in sizes.items() if size is not None}
    if 0 in present.values():
        raise InputError(f"{next(name for name in present if not present[name])} is a batch of no matrices")
    if len(set(present.values())) > 1:
        text = ", ".join(f"{name} has {size}" for name, size in present.items())
        raise InputError(f"batches of different sizes: {text}")
    return next(iter(present.values()), None)


def with_batch(array: Any, dimensions: int) -> Any:
    return array if array.ndim > dimensions else array[None]


def spread(array: Any, dimensions: int, batch: int | None) -> Any:
    """`array` with its batch in front; what is shared is repeated, for kernels step through it."""
    if array.ndim > dimensions or (batch or 1) == 1:
        return with_batch(array, dimensions)
    return array[None].repeat(batch, axis=0)


def own(matrix: SparseMatrix) -> Operand:
    """A matrix's values as an argument."""
    return Operand(matrix.values, matrix.device, lambda array: array)


def output(
    run: Backend,
    shape: tuple[int, ...],
    batch: int | None,
    like: Operand,
    out: Any = None,
    apart: Sequence[Any | None] = (),
    same: Any = None,
) -> tuple[Any, Any]:
    """(the array to write, its batch in front; the same for the caller): `out`, or a new one.

    Args:
        shape: of one matrix; batch: how many there are, or None.
        like: the operand whose dtype, device and library it has.
        apart: operands that it must share no memory with.
        same: an operand that it may be, but not overlap in part.

    Raises:
        InputError: `out` does not fit, is read-only, or shares memory.
    """
    whole = shape if batch is None else (batch, *shape)
    if out is None:
        new = run.empty(whole, like.array.dtype)
        return new if batch is not None else new[None], like.back(new)
    target = operand(out, "out", (like.array.dtype,), (len(whole),))
    if target.array.shape != whole or target.device != like.device:
        raise InputError(f"out is {target.array.shape} on {target.device}; it must be {whole} on {like.device}")
    if isinstance(target.array, np.ndarray) and not target.array.flags.writeable:
        raise InputError("out is read-only; it must be an array that can be written")
    if any(array is not None and _overlap(target.array, array) for array in apart):
        raise InputError("out shares memory with an operand; it must be apart from them")
    if same is not None and address(same) != address(target.array) and _overlap(target.array, same):
        raise InputError("out shares a part of its memory with an operand; it must be that operand or apart from it")
    return target.array if batch is not None else target.array[None], out


def _overlap(left: Any, right: Any) -> bool:
    first, second = address(left), address(right)
    return first < second + right.nbytes and second < first + left.nbytes


def bias(bias: Any, size: int, like: Operand) -> Any | None:
    if bias is None:
        return None
    vector = operand(bias, "bias", FLOAT32, (1,))
    if vector.array.shape != (size,):
        raise InputError(f"bias has shape {vector.array.shape}; it must be ({size},)")
    if vector.device != like.device:
        raise InputError(f"bias is on {vector.device}, and the dense operand on {like.device}")
    return vector.array


def number(value: Any, name: str) -> float:
    """A number that the kernels can multiply with. Raises InputError for what float32 does not hold."""
    number = real(value)
    if number is None or not abs(number) <= LARGEST:
        raise InputError(f"{name} {value!r}: it must be a finite number of float32, at most {LARGEST:.4g} in size")
    return number


def choice(value: Any, name: str, offered: tuple) -> Any:
    """`value`, one of `offered`, of which all have one type."""
    chosen = (value if isinstance(value, str) else None) if isinstance(offered[0], str) else whole(value)
    if chosen not in offered:
        raise InputError(f"{name} {value!r}: it must be {' or '.join(map(str, offered))}")
    return chosen
