"""For inference: batch normalisations go into the convolutions before them, sparse or dense."""

from collections import Counter

import torch
from torch import Tensor, fx, nn

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.ops.torch.modules import SparseConv2d, SparseWeight

NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, SparseConv2d: nn.BatchNorm2d}


class _Tracer(fx.Tracer):
    """Layers of ours are leaves, as those of torch are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SparseWeight) or super().is_leaf_module(m, module_qualified_name)


def fuse(model: nn.Module) -> list[str]:
    """Fold each batch normalisation into the convolution whose output it alone takes, in place.

    Its place is taken by nn.Identity. What the model computes stays the same, but for rounding; how a BatchNorm learns
    is gone, so this is for a model that is trained. Left as they are: a normalisation without running statistics, and
    layers that are called twice, share parameters, or have hooks (torch's pruning masks: take them away with
    torch.nn.utils.prune.remove, or by sparsify).

    Args:
        model: in mode eval. Its forward must be one that torch.fx can trace: no branch that hangs on values.

    Returns:
        the names of the normalisations that were folded.

    Raises:
        InputError: a model in training, or one that cannot be traced.
    """
    if model.training:
        raise InputError("the model is in training, where a BatchNorm takes the batch's statistics; call eval() first")
    try:
        nodes = _Tracer().trace(model).nodes
    except Exception as error:  # of the model's own code, any
        raise InputError(f"the model cannot be traced by torch.fx ({safe_open.brief(error)})") from error
    modules = dict(model.named_modules())
    calls = Counter(id(modules[node.target]) for node in nodes if node.op == "call_module")
    owners = Counter(id(parameter) for module in modules.values() for parameter in module.parameters(recurse=False))
    folded = []
    for node in nodes:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        norm, layer = modules[node.target], modules[before.target]
        if type(norm) is NORMS.get(type(layer)) and all(_alone(layer, calls, owners) for layer in (norm, layer)):
            if norm.running_mean is None or norm.training:
                continue
            _fold(layer, norm)
            model.set_submodule(node.target, nn.Identity())
            folded.append(node.target)
    return folded


def _alone(module: nn.Module, calls: Counter, owners: Counter) -> bool:
    """Whether a change of the module is one of this place alone, and its weights are what it computes with."""
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    plain = not hooks and not hasattr(module, "parametrizations")
    return (
        plain
        and calls[id(module)] == 1
        and all(owners[id(parameter)] == 1 for parameter in module.parameters(recurse=False))
    )


@torch.no_grad()
def _fold(layer: nn.Module, norm: nn.Module) -> None:
    weights = layer.values if isinstance(layer, SparseWeight) else layer.weight
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    scale = scale if norm.weight is None else scale * norm.weight
    shift = -norm.running_mean * scale
    shift = shift if norm.bias is None else shift + norm.bias
    if layer.bias is not None:
        shift += layer.bias * scale
        layer.bias.copy_(shift)
    else:
        layer.bias = nn.Parameter(shift.to(weights.dtype), weights.requires_grad)
    weights.copy_(weights * _each(layer, scale))


def _each(layer: nn.Module, scale: Tensor) -> Tensor:
    """The scale of each weight, of that of each output."""
    if isinstance(layer, SparseWeight):
        return scale.repeat_interleave(layer.offsets.diff())
    return scale.view(-1, *[1] * (layer.weight.dim() - 1))
