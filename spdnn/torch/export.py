"""PyTorch modules as ONNX models, which torch.onnx writes."""

import contextlib
import copy
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from spdnn.common.errors import InputError, Unavailable, install
from spdnn.common.validation import shortened
from spdnn.torch.modules import SparseConv2d, SparseLinear


@contextlib.contextmanager
def exported(module: nn.Module, example: Any = None) -> Iterator[Path]:
    """The path of an ONNX model of a module in inference, for any number of inputs; it is removed at the end.

    Args:
        module: stays as it is. Sparse layers of spdnn.torch are exported with their weights.
        example: a tensor that the module takes, or a tuple of several, of two inputs or more; not needed where a Linear
            layer comes first.

    Raises:
        InputError: torch cannot trace or export the module.
        Unavailable: the package onnxscript is missing.
    """
    name = type(module).__name__
    given = _example(name, module, example)
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"{name}: the package onnxscript is missing; {install('torch')} brings it") from error
    training = [one for one in module.modules() if one.training]
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        path = Path(folder, "model.onnx")
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                sizes = tuple({0: torch.export.Dim.DYNAMIC} for _ in given)
                torch.onnx.export(
                    _dense(module).eval(), given, str(path), dynamo=True, dynamic_shapes=sizes, verbose=False
                )
        except Exception as error:  # of any kind: the module's own code runs
            why = shortened(" ".join(str(error.__cause__ or error).split()), 150)
            raise InputError(f"{name}: torch.onnx cannot export it for any number of inputs ({why})") from error
        finally:
            for one in training:
                one.training = True
        yield path


def _example(name: str, module: nn.Module, example: Any) -> tuple[Tensor, ...]:
    if example is None:
        leaves = (one for one in module.modules() if not list(one.children()))
        first = next((one for one in leaves if not isinstance(one, nn.Identity | nn.Dropout)), None)
        if not isinstance(first, nn.Linear | SparseLinear):
            raise InputError(
                f"{name}: its first layer is no Linear: give an input of it (example=), two of them or more"
            )
        example = next(first.parameters()).detach().new_zeros(2, first.in_features)
    several = tuple(example) if isinstance(example, tuple | list) else (example,)
    if not several or not all(isinstance(one, Tensor) and one.dim() and len(one) > 1 for one in several):
        raise InputError("example: a tensor of two inputs or more, as the module takes them, or a tuple of such")
    return tuple(one.float() if one.dtype in HALF else one for one in several)


HALF = (torch.float16, torch.bfloat16)


def _dense(module: nn.Module) -> nn.Module:
    """The module, or a copy with dense layers where it has sparse ones, in float32 where it has half precision."""
    sparse = [name for name, one in module.named_modules() if isinstance(one, SparseLinear | SparseConv2d)]
    half = any(one.dtype in HALF for one in module.parameters())
    whole = nn.ModuleList([module])
    if sparse or half:
        whole = copy.deepcopy(whole)
        whole = whole.float() if half else whole
        for name in sparse:
            path = f"0.{name}".rstrip(".")
            whole.set_submodule(path, whole.get_submodule(path).to_dense())
    return whole[0]
