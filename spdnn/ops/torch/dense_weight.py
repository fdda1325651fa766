"""The weight of a sparse layer for models that read it: a tensor that is made where its numbers are used."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from spdnn.core.errors import InputError

PROPERTIES = ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_cuda", "is_cpu", "is_sparse")
METHODS = (Tensor.size, Tensor.dim, Tensor.numel, Tensor.is_floating_point)
MEMORY = ("data_ptr", "storage", "untyped_storage", "__dlpack__")  # through which a tensor may be written
DESCRIBING = {*METHODS, *(getattr(Tensor, name).__get__ for name in PROPERTIES)}  # which need no numbers


class DenseWeight(Tensor):
    """A dense tensor that can be read. Shape, dtype and device cost nothing; any other use makes its numbers anew.

    What would write into it raises InputError, also through a view: its numbers are not those of the layer.

    Attributes:
        source: the tensor of which it is made.
    """

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], like: Tensor, make: Callable[[], Tensor]):
        """`make` gives the tensor; `like` has its type and device, and whether it requires gradients."""
        grad = like.requires_grad and torch.is_grad_enabled()
        return Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device, requires_grad=grad)

    def __init__(self, shape: tuple[int, ...], like: Tensor, make: Callable[[], Tensor]):
        self._make, self.source = make, like

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in DESCRIBING:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if any(isinstance(tensor, cls) for tensor in _written(func, args, kwargs)):
            raise InputError("the weight of a sparse layer can only be read; write to its values, or to to_dense()")
        made = []

        def numbers(weight: "DenseWeight") -> Tensor:
            made.append(weight._make())
            return made[-1]

        out = func(*tree_map_only(cls, numbers, args), **tree_map_only(cls, numbers, kwargs))
        if isinstance(out, np.ndarray):
            out.flags.writeable = False
        storages = {tensor.untyped_storage()._cdata for tensor in made}

        def guarded(tensor: Tensor) -> Tensor:
            view = tensor.layout == torch.strided and tensor.untyped_storage()._cdata in storages
            return DenseWeight(tuple(tensor.shape), tensor, lambda: tensor) if view else tensor

        return tree_map_only(Tensor, guarded, out)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise InputError(f"the weight of a sparse layer has no {func}; layer.to_dense().weight has all of a tensor")


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that a function of torch writes, or whose memory it gives away."""
    name = getattr(func, "__name__", "")
    inplace = name.endswith("_") and not name.endswith("__")
    if inplace or kwargs.get("inplace") or name in ("__set__", "__setitem__", *MEMORY) or name.startswith("__i"):
        return list(args[:1])
    return tree_leaves(kwargs.get("out"))
