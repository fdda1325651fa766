"""Arrays of callers (NumPy, CuPy, torch, JAX, anything with DLPack) as NumPy's on the host, and back."""

import sys
from typing import Any

import numpy as np

from spdnn.common.errors import InputError


def host(value: Any, what: str) -> np.ndarray:
    """`value` as a NumPy array, on the same memory where that is possible.

    bfloat16, which NumPy has no name for, becomes float32; numbers of another byte order become this machine's.

    Raises:
        InputError: it is no array; the sentence starts with `what`.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{what} is a masked array; its filled() is an array without a mask")
    library = _library(value)
    if library == "cupy":
        return value.get()
    try:
        value = _of_torch(value) if library == "torch" else value
        dlpack_alone = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        array = np.from_dlpack(value) if dlpack_alone else np.asarray(value)
    except Exception as error:  # of any type: what is asked is another library's
        raise InputError(f"{what} is no array ({' '.join(str(error).split())[:200]})") from error
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else native(array)


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


def _of_torch(value: Any) -> Any:
    """A torch tensor on the host, without gradient, in a dtype that NumPy has; what is no tensor stays."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu().resolve_neg()
    return value.float() if value.dtype == torch.bfloat16 else value
