"""Dense layers of torch: the weight and the bias that a call in evaluation computes with."""

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from spdnn.core.errors import InputError
from spdnn.core.safe_open import brief
from spdnn.ops.matrix import SparseMatrix, of_mask
from spdnn.ops.matrix import prune as keep_largest
from spdnn.ops.torch.copies import copy_module
from spdnn.ops.torch.library import DTYPES

NORMS = (WeightNorm, SpectralNorm)
BASES = (nn.Linear, nn.Conv2d)


class Computed(NamedTuple):
    """What a layer computes with, without gradients; mask: of torch.nn.utils.prune, by which the weight is not
    multiplied yet."""

    weight: Tensor
    bias: Tensor | None
    mask: Tensor | None


def compute(layer: nn.Module) -> Computed:
    """The weight and the bias of a Linear or Conv2d layer as a call in evaluation has them; the layer stays as it is.

    Raises:
        InputError: a layer that has none yet, or of which they do not tell what it computes.
    """
    if is_lazy(layer):  # which has a hook, too
        raise InputError(f"a {type(layer).__name__} has no weights before its first call; call it once")
    if why := unknown(layer):
        raise InputError(why)
    hooks = layer._forward_pre_hooks.values()
    masks = [hook for hook in hooks if isinstance(hook, prune.BasePruningMethod) and hook._tensor_name == "weight"]
    twin = layer
    if parametrize.is_parametrized(layer):  # parametrizations may change their own state when they are read
        twin = copy_module(layer, "its weight is computed on a copy").eval()
    elif hooks:
        twin = copy.copy(layer)  # on which the hooks set attributes; of the same tensors
        twin.training = False
    try:
        with torch.no_grad():
            for hook in twin._forward_pre_hooks.values():
                if hook not in masks:
                    hook(twin, ())
            weight, bias = layer.weight_orig if masks else twin.weight, twin.bias
    except Exception as error:  # of a parametrization's own code, any
        raise InputError(f"its weight cannot be computed ({brief(error)})") from error
    return Computed(weight, bias, layer.weight_mask if masks else None)


def unknown(layer: nn.Module) -> str | None:
    """None, or why weight and bias do not tell what a layer computes, as a sentence."""
    torchs = (prune.BasePruningMethod, *NORMS)  # which compute the weight anew at each call
    hooks = [hook for hook in layer._forward_pre_hooks.values() if not isinstance(hook, torchs)]
    hooks += [*layer._forward_hooks.values(), *layer._backward_hooks.values(), *layer._backward_pre_hooks.values()]
    if hooks:
        return "it has hooks, which would be lost"
    base = next(base for base in BASES if isinstance(layer, base))
    methods = [name for name in ("forward", "_conv_forward") if hasattr(base, name)]
    if any(getattr(getattr(layer, name), "__func__", None) is not getattr(base, name) for name in methods):
        return f"its forward is not that of {base.__name__}"
    return None


def is_normalised(layer: nn.Module) -> bool:
    """Whether training goes on changing its weight in a way that parameters alone do not have."""
    return parametrize.is_parametrized(layer) or any(isinstance(h, NORMS) for h in layer._forward_pre_hooks.values())


def is_lazy(layer: nn.Module) -> bool:
    return any(nn.parameter.is_lazy(parameter) for parameter in layer.parameters())


def is_sparse(layer: nn.Module) -> bool:
    """Whether its weight is a sparse tensor of torch."""
    return not parametrize.is_parametrized(layer, "weight") and layer.weight.layout != torch.strided


def fill_sparse(model: nn.Module) -> nn.Module:
    """The model, in which dense weights take the place of sparse ones, of whose layouts torch calls and exports few."""
    for layer in model.modules():
        if isinstance(layer, BASES) and not is_lazy(layer) and is_sparse(layer):
            layer.weight = nn.Parameter(layer.weight.detach().to_dense(), layer.weight.requires_grad)
    return model


def size(layer: nn.Module) -> tuple[int, int]:
    """(out, in) of its weight, which is not computed for it; (0, 0) of a layer that has none yet."""
    if is_lazy(layer):
        return 0, 0
    if not parametrize.is_parametrized(layer, "weight"):
        return layer.weight.shape[0], math.prod(layer.weight.shape[1:])
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.in_features
    return layer.out_channels, layer.in_channels // layer.groups * math.prod(layer.kernel_size)


def is_trained(layer: nn.Module, part: str) -> bool:
    """Whether a parameter of which its weight (or bias) is made requires gradients."""
    named = ((name.removeprefix("parametrizations."), parameter) for name, parameter in layer.named_parameters())
    return any(parameter.requires_grad for name, parameter in named if name.startswith(part))


def prune_weight(computed: Computed, sparsity: float | None) -> SparseMatrix:
    """A copy of a layer's weight (out, in) at what its mask keeps, or of that sparsity.

    Raises:
        InputError: a weight whose numbers cannot be read, or a sparsity out of range.
    """
    dense = _numbers(computed.weight)
    factors = None if computed.mask is None else computed.mask.detach().cpu().flatten(1).numpy()
    kept = (dense if factors is None else factors) != 0
    if not np.isfinite(dense).all():
        raise InputError("its weights hold NaN or an infinity")
    if sparsity is not None:
        numbers = dense if factors is None else dense * factors
        kept = kept & keep_largest(np.where(kept, numbers, 0), sparsity)
    values = dense[kept] if factors is None else dense[kept] * factors[kept]
    return SparseMatrix(of_mask(kept), values)


def _numbers(weight: Tensor) -> np.ndarray:
    """(out, in), float32 or float16."""
    if type(weight) not in (Tensor, nn.Parameter):
        raise InputError(f"its weights are a {type(weight).__name__}; they must be a plain torch tensor")
    if weight.dtype not in DTYPES:
        raise InputError(f"its weights are of {weight.dtype}; they must be float32 or float16")
    if weight.is_meta:
        raise InputError("its weights are on the device meta, without data")
    dense = weight.detach()
    if dense.layout != torch.strided:
        dense = dense.to_dense()
    return dense.cpu().flatten(1).numpy()
