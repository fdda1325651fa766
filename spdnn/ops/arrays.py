"""Arrays of callers (NumPy, CuPy, torch, anything with DLPack) as the kernels take them, without a copy, and back."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spdnn.core.errors import InputError, Unavailable
from spdnn.core.graphs import refuse_recorded

DTYPES = (np.dtype(np.float32), np.dtype(np.float16))
CPU, CUDA = "cpu", "cuda"
CPU_KINDS, CUDA_KINDS = (1, 3), (2, 13)  # of DLPack: pinned host memory is the host's, managed memory a GPU's


class Operand(NamedTuple):
    """An array as the kernels take it.

    Attributes:
        array: NumPy's or CuPy's, on the caller's memory.
        device: "cpu" or "cuda".
        back: makes of such an array one of the caller's library.
    """

    array: Any
    device: str
    back: Callable[[Any], Any]


def operand(value: Any, name: str, dtypes: tuple = DTYPES, dimensions: tuple[int, ...] | None = None) -> Operand:
    """`value` as the kernels take it.

    Args:
        name: in the error's sentence.
        dtypes: that are offered; dimensions: how many it may have.

    Raises:
        InputError: not an array, of another dtype or number of dimensions, not C-contiguous, or at an address that is
            no multiple of its element's size.
        Unavailable: on a GPU, and CuPy is missing.
    """
    if type(value).__module__.split(".")[0] == "torch":
        refuse_recorded(name)
    result = native(value, name)
    array = result.array
    if array.dtype not in dtypes:
        offered = " or ".join(str(np.dtype(dtype)) for dtype in dtypes)
        order = "" if array.dtype.isnative else " in this machine's byte order"
        raise InputError(f"{name} is of {array.dtype}; it must be of {offered}{order}")
    if dimensions is not None and array.ndim not in dimensions:
        allowed = " or ".join(str(number) for number in dimensions)
        raise InputError(f"{name} has {array.ndim} dimensions; it must have {allowed}")
    if address(array) % array.dtype.itemsize:
        raise InputError(f"{name} starts at an address that is no multiple of {array.dtype.itemsize} bytes; copy it")
    if not array.flags.c_contiguous:
        raise InputError(f"{name} is not C-contiguous (strides {array.strides} of shape {array.shape}); copy it first")
    return result


def address(array: Any) -> int:
    """Where the first element is."""
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr


def native(value: Any, name: str) -> Operand:
    """`value` as NumPy's or CuPy's array on the same memory, of whatever shape and dtype. Raises as `operand` does."""
    library = type(value).__module__.split(".")[0]
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array; its filled() is an array without a mask")
    if isinstance(value, np.ndarray):
        return Operand(np.asarray(value), CPU, lambda array: array)  # a np.matrix has two dimensions, whatever is done
    if not hasattr(value, "__dlpack__") or isinstance(value, type):
        raise InputError(f"{name} is a {type(value).__name__}; it must be an array (NumPy, CuPy, torch, DLPack)")
    if getattr(value, "is_neg", bool)():  # torch's, which DLPack does not have
        raise InputError(f"{name} is a torch tensor with a lazy negation; its resolve_neg() applies it")
    if str(getattr(value, "dtype", "")).endswith("bfloat16"):
        raise InputError(f"{name} is of bfloat16; it must be of float32 or float16")
    if library == "torch":
        _refuse_gradients(value, name)
    source = value.detach() if library == "torch" else value
    try:
        kind = value.__dlpack_device__()[0]
        array = np.from_dlpack(source) if kind in CPU_KINDS else None
    except Exception as error:  # of any type: what is asked is another library's
        raise InputError(f"{name}: its DLPack cannot be read ({' '.join(str(error).split())[:200]})") from error
    if kind not in CPU_KINDS + CUDA_KINDS:
        raise InputError(f"{name} is on a device that is neither the processor nor an NVIDIA GPU (DLPack type {kind})")
    back = sys.modules["torch"].from_dlpack if library == "torch" else lambda array: array
    if kind in CUDA_KINDS:
        return Operand(source if library == "cupy" else cupy().from_dlpack(source), CUDA, back)
    return Operand(array, CPU, back)


def _refuse_gradients(tensor: Any, name: str) -> None:
    torch = sys.modules["torch"]
    required = getattr(tensor, "requires_grad", False) and torch.is_grad_enabled()
    if required or (hasattr(torch, "autograd") and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None):
        raise InputError(
            f"{name} is a torch tensor that requires grad, and spdnn.ops has no gradients: spdnn.torch has them; "
            "detach() or torch.no_grad() says that none is required"
        )


def cupy():
    """The module CuPy. Raises Unavailable when it is missing."""
    try:
        import cupy as module
    except ImportError as error:
        from spdnn.kernels.cuda.driver import BRINGS

        raise Unavailable(f"arrays on a GPU need CuPy: {BRINGS}") from error
    return module
