"""Arrays of callers (NumPy, CuPy, torch, JAX, anything with DLPack, frames) as NumPy's on the host, and back."""

import sys
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.graphs import refuse_recorded
from spdnn.core.validation import quote

LINE = 64  # bytes: one cache line, one widest vector


def host(value: Any, what: str) -> np.ndarray:
    """`value` as a NumPy array, on the same memory where that is possible.

    bfloat16, which NumPy has no name for, becomes float32; numbers of another byte order become this machine's.
    A frame (pandas, polars, Arrow) becomes a matrix of its columns.

    Raises:
        InputError: it is no array, or a frame with a column that holds a gap or what is no number; the sentence starts
            with `what`.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array; its filled() is an array without a mask")
    library = _library(value)
    if library != "torch" and (names := column_names(value)):  # which takes a while to find that a tensor has none
        return _of_frame(value, names, what)
    if library == "cupy":
        return value.get()
    if library == "torch":
        refuse_recorded(what)
    try:
        value = _of_torch(value) if library == "torch" else value
        dlpack_alone = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if dlpack_alone else np.asarray(value)
    except Exception as error:  # of any type: what is asked is another library's
        raise InputError(f"{what} is no array ({' '.join(str(error).split())[:200]})") from error
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else native(array)


def aligned(nbytes: int) -> np.ndarray:
    """uint8 (nbytes,), uninitialised, from the beginning of a cache line on: NumPy promises 16 bytes."""
    raw = np.empty(nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + nbytes]


def copied(value: Any, what: str) -> Any:
    """A read-only copy of an array, whatever its flags: who made it may have other views of its memory. A number of
    NumPy's is itself. Raises InputError as `host`, of whose types an array may be."""
    if isinstance(value, np.generic):
        return value
    return freeze(np.array(host(value, what), order="C")[()])


def settled(array: Any) -> Any:
    """As pickle and deepcopy leave an array: read-only, and a copy where its memory may be another's (of a buffer that
    was sent out of band, of a file that joblib maps)."""
    another = isinstance(array, np.ndarray) and (array.base is not None or type(array) is not np.ndarray)
    return freeze(np.array(array) if another else array)


def freeze(array: Any) -> Any:
    """`array`, which nobody else holds, read-only from now on, as all arrays that it is a view of; or a number."""
    part = array
    while isinstance(part, np.ndarray):
        part.flags.writeable = False
        part = part.base
    return array


def column_names(value: Any) -> list | None:
    """Those of a frame of pandas or polars, or of an Arrow table; None: it is none of these."""
    if (hasattr(value, "iloc") or hasattr(value, "iter_columns")) and hasattr(value, "columns"):
        return list(value.columns)
    return list(value.column_names) if hasattr(value, "column_names") else None


def columns(frame: Any) -> list | None:
    """Those of a frame in the order of `column_names`, as its library has them; None: it is no frame."""
    names = column_names(frame)
    if names is None:
        return None
    if hasattr(frame, "iloc"):
        return [frame.iloc[:, k] for k in range(len(names))]
    return [frame.to_series(k) if hasattr(frame, "to_series") else frame.column(k) for k in range(len(names))]


def texts(column: Any, what: str) -> np.ndarray:
    """A column of a frame as an array of Python's strings. Raises InputError, which begins with `what`: a gap in it, or
    what is no text."""
    array = np.asarray(column, object)
    if not all(isinstance(value, str) for value in array):
        kind = getattr(column, "dtype", None) or getattr(column, "type", "object")
        raise InputError(f"{what} ({kind}) holds a gap or what is no text")
    return array


def native(array: np.ndarray) -> np.ndarray:
    """An array in this machine's byte order: itself where it is."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def like(array: np.ndarray, value: Any) -> Any:
    """`array`, which nobody else holds, as one of the library of `value`, on its device."""
    library = _library(value)
    if library == "cupy":
        return sys.modules["cupy"].asarray(array)
    if library == "torch":
        return sys.modules["torch"].from_numpy(array).to(value.device)
    if isinstance(value, np.ndarray) or not hasattr(value, "__array_namespace__"):
        return array
    return value.__array_namespace__().from_dlpack(array)


def refuse_gradient(x: Any) -> None:
    """Raise InputError for a tensor that asks for a gradient, which would be lost without a word."""
    torch = sys.modules.get("torch")
    if getattr(x, "requires_grad", False) and torch is not None and torch.is_grad_enabled():
        raise InputError("x asks for a gradient, and a compiled model gives none: call x.detach() first")


def _library(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def _complete(array: np.ndarray) -> bool:
    """Whether it holds real numbers alone: a gap in a column of a frame becomes NaN or an object."""
    return array.dtype.kind in "iub" or (array.dtype.kind == "f" and not np.isnan(array).any())


def _of_frame(frame: Any, names: list, what: str) -> np.ndarray:
    """The columns one by one, for polars makes numbers of dates; of pandas the whole, where that is numbers.

    Raises InputError, as host.
    """
    if hasattr(frame, "iloc") and _complete(array := np.asarray(frame)):
        return array
    parts = []
    for name, column in zip(names, columns(frame) or (), strict=True):
        parts.append(host(column, f"{what}: the column {quote(name)}"))
        if not _complete(parts[-1]):
            kind = getattr(column, "dtype", None) or getattr(column, "type", "object")
            raise InputError(f"{what} has a column {quote(name)} ({kind}) that holds a gap or what is no number")
    return np.stack(parts, axis=1)


def _of_torch(value: Any) -> Any:
    """A torch tensor as an array, without gradient, bfloat16 as float32; what is no tensor stays."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu().resolve_neg()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # np.asarray would take 3 us more
