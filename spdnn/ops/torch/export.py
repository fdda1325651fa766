"""PyTorch modules as ONNX models, which torch.onnx writes."""

import contextlib
import copy
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export.dynamic_shapes import ShapesCollection

from spdnn.core import arrays
from spdnn.core.errors import InputError, Unavailable, install
from spdnn.core.validation import shorten
from spdnn.ops.onnx_trial import alike
from spdnn.ops.torch.modules import SparseConv2d, SparseLinear

HALF = (torch.float16, torch.bfloat16)  # computed in float32


@contextlib.contextmanager
def export(module: nn.Module, example: Any = None) -> Iterator[Path]:
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
    inputs = _example(name, module, example)
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"{name}: the package onnxscript is missing; {install('torch')} brings it") from error
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        path = Path(folder, "model.onnx")
        try:
            with _silent(), torch.no_grad(), _in_inference(module) as dense:
                sizes = ShapesCollection()
                for argument in inputs:
                    sizes[argument][0] = torch.export.Dim.DYNAMIC
                sizes = sizes.dynamic_shapes(dense, inputs)
                torch.onnx.export(dense, inputs, str(path), dynamo=True, dynamic_shapes=sizes, verbose=False)
        except Exception as error:  # of any kind: the module's own code runs
            why = shorten(" ".join(str(error.__cause__ or error).split()), 150)
            raise InputError(f"{name}: torch.onnx cannot export it for any number of inputs ({why})") from error
        yield path


def compare(module: nn.Module, example: Any, model: Any) -> None:
    """Compare what a compiled model gives with what its module gives, on the example; not where a small difference may
    become a large one in it.

    Raises:
        InputError: they differ by more than rounding.
    """
    name, inputs = type(module).__name__, _example(type(module).__name__, module, example)
    inputs = tuple(torch.randn_like(tensor) if example is None else tensor for tensor in inputs)
    with torch.no_grad(), _in_inference(module) as dense:
        expected = dense(*inputs)
    actual = model(*inputs)
    pairs = [(actual, expected)] if isinstance(expected, Tensor) else list(zip(actual, expected, strict=False))
    # Outputs within outputs are flattened by the export; those of plain tensors are as many.
    plain = not isinstance(expected, Tensor) and all(isinstance(part, Tensor) for part in expected)
    if plain and len(actual) != len(expected):
        raise InputError(f"{name}: compiled, it gives {len(actual)} outputs, and itself {len(expected)}")
    for one, other in pairs if not model.jumps else []:
        if isinstance(other, Tensor) and not alike(arrays.host(one, name), arrays.host(other, name)):
            raise InputError(
                f"{name}: compiled, it gives other numbers than itself; verify=False takes what torch.onnx exports"
            )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what torch logs: packages that are missing, and what failed, which the exception says too."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _example(name: str, module: nn.Module, example: Any) -> tuple[Tensor, ...]:
    if example is None:
        linear = nn.Linear | SparseLinear  # whose parametrizations, such as weight_norm, are modules in it
        leaves = (one for one in module.modules() if isinstance(one, linear) or not list(one.children()))
        first = next((leave for leave in leaves if not isinstance(leave, nn.Identity | nn.Dropout)), None)
        if not isinstance(first, linear):
            raise InputError(
                f"{name}: its first layer is no Linear: give an input of it (example=), two of them or more"
            )
        example = next(first.parameters()).detach().new_zeros(2, first.in_features)
    several = tuple(example) if isinstance(example, tuple | list) else (example,)
    if not several or not all(isinstance(tensor, Tensor) and tensor.dim() and len(tensor) > 1 for tensor in several):
        raise InputError("example: a tensor of two inputs or more, as the module takes them, or a tuple of such")
    return tuple(tensor.float() if tensor.dtype in HALF else tensor for tensor in several)


@contextlib.contextmanager
def _in_inference(module: nn.Module) -> Iterator[nn.Module]:
    """The module in inference, with dense layers in place of sparse ones, and a copy in float32 of one in half
    precision; afterwards it is as it was."""
    whole = nn.ModuleList([module])  # so that the module itself may be a sparse layer
    training = [module for module in module.modules() if module.training]
    named = dict(whole.named_modules(remove_duplicate=False))
    sparse = {name: layer for name, layer in named.items() if isinstance(layer, SparseLinear | SparseConv2d)}
    dense = {layer: layer.to_dense() for layer in sparse.values()}
    try:
        for name, layer in sparse.items():
            whole.set_submodule(name, dense[layer])
        half = any(parameter.dtype in HALF for parameter in module.parameters())
        yield (copy.deepcopy(whole[0]).float() if half else whole[0]).eval()
    finally:
        for name, layer in sparse.items():
            whole.set_submodule(name, layer)
        for layer in training:
            layer.training = True
