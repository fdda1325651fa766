"""Networks in state dicts: named tensors in .safetensors, .npz or .pt, as torch.nn.Linear names them.

A layer is `<prefix>.weight` (outputs, inputs) with `<prefix>.bias`, or both pruned by torch's masks (`weight_orig`,
`weight_mask`); a BatchNorm whose number is next to that of its layer, as in torch.nn.Sequential, goes into its weights.
Only one dense layer is in memory at a time, where the file allows it.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.network import MemoryNetwork
from spdnn.core.validation import quote
from spdnn.formats import steps
from spdnn.formats.archive import natural
from spdnn.formats.checks import check_widths
from spdnn.formats.detection import INDEX
from spdnn.formats.options import INPUTS, ReadOptions
from spdnn.formats.steps import Step
from spdnn.formats.tensors import NUMBERED, Shards

EPSILON = 1e-5  # of torch's BatchNorm by default
MEAN, VARIANCE, COUNT = "running_mean", "running_var", "num_batches_tracked"
GROUPS = 6  # kinds of names whose order widths may tell
# Names of tensors that are no layer of their own: what they are of, and what to do.
OTHERS = (
    (
        r"^base_model\.model\.|(?:^|[._])(?:lora[A-Z]|(?:(?:rand|vb|ada|de|[gx])?lora|dora|loha|lokr|hada|hra|ia3|b?oft|vera"
        r"|shira|fourierft|adapter_(?:down|up))(?:[._]|$))",
        "an adapter, whose layers are in another file",
        "merge it into them (merge_and_unload in PEFT) and save these",
    ),
    (
        r"(?:^|\.)q(?:weight|zeros)$|\.(?:g_idx|scales|biases|(?:nested_)?(?:absmax|quant_map)|quant_state|SCB|\w+_blocks"
        r"|weight_(?:scales?|scale_\w+|packed|shape|zero_point|format)|(?:in|out)put_scale|weight\._(?:data|scale))(?:\.|$)",
        "quantized weights",
        "save the model with weights of float16 or float32",
    ),
    (
        r"(?:^|\.)(?:weight_[guv]|parametrizations)(?:\.|$)",
        "a parametrization, such as weight_norm",
        "remove it (remove_weight_norm, or parametrize.remove_parametrizations) and save the weight",
    ),
    (
        r"\.columns$",
        "a sparse layer of spdnn.torch, whose number of inputs is not in the file",
        "load it into the model by spdnn.torch.restore, and compile that",
    ),
)


def open_network(path: Path, options: ReadOptions) -> MemoryNetwork:
    """The network in the tensors that an index (.safetensors.index.json) names. Raises InputError as read_network."""
    return read_network(Shards(path), "safetensors", options)


def is_state_dict(names) -> bool:
    """Whether these are names of a state dict."""
    return any(_split(name)[1] in ("weight", "weight_orig") or _other(name) for name in names)


def read_network(tensors: Any, source: str, options: ReadOptions) -> MemoryNetwork:
    """The network in a state dict, whose layers are in the order of the numbers in their names (fc2 before fc10).

    Args:
        tensors: by name, of the file `tensors.path`; `tensors.shape(name)` reads none of them.
        source: of the description.

    Raises:
        InputError: a tensor that is none of a layer, all of them named; shapes that do not fit; an order that neither
            numbers nor widths tell; a last activation that is not stated; a bias or a last activation though the file
            has its own.
    """
    path, own = tensors.path, getattr(tensors, "metadata", {}).get("last")
    if (part := NUMBERED.fullmatch(path.name)) and part[3] != "00001":
        raise InputError(f"{path}: this is one file of several; name their index, model{INDEX}")
    if own is not None and options.last not in (None, own):
        raise InputError(f"{path}: its metadata say that its last activation is {own[:20]!r}, not {options.last!r}")
    options = options._replace(last=options.last or own)
    return steps.network_of(path, _read_steps(path, tensors, options), source, options.layers)


def _read_steps(path, tensors: Mapping[str, np.ndarray], options: ReadOptions) -> Iterator[Step]:
    parts: dict[str, set[str]] = {}
    for name in tensors:
        if other := _other(name):
            raise InputError(f"{path}: {other}")
        prefix, part = _split(name)
        parts.setdefault(prefix, set()).add(part)
    layers = {prefix: own for prefix, own in parts.items() if own & {"weight", "weight_orig"} and MEAN not in own}
    norms = {prefix for prefix, own in parts.items() if MEAN in own and VARIANCE in own}
    if problems := list(_problems(tensors, parts, layers, norms)):
        raise InputError(f"{path}: it cannot be read as a network: {steps.joined(problems)}")
    if not layers:
        raise InputError(f"{path}: no tensor in it is named '<prefix>.weight'; each layer needs one")
    if options.bias is not None and (own := [prefix for prefix in layers if layers[prefix] & {"bias", "bias_orig"}]):
        raise InputError(f"{path}: bias {options.bias} given, but the file has biases of its own ({own[0]}bias)")
    by_inputs = options.rows == INPUTS
    widths = {p: tensors.shape(_weight(p, own))[:: 1 if by_inputs else -1] for p, own in layers.items()}
    order = _order(path, widths)
    following = _places(path, order, norms)
    if not norms:
        options.refuse_epsilon(path)
    epsilon = EPSILON if options.epsilon is None else options.epsilon
    if not 0 <= epsilon <= 1:
        raise InputError(f"{path}: epsilon {epsilon!r} of a BatchNorm; it is a number from 0 to 1")
    activations, biases = options.activations(path, len(order)), options.biases(path, len(order))
    for prefix, activation, bias in zip(order, activations, biases, strict=True):
        weight = _tensor(tensors, prefix, "weight", layers[prefix])
        if {"bias", "bias_orig"} & layers[prefix]:
            bias = _tensor(tensors, prefix, "bias", layers[prefix])
            if bias.shape != (expected := (widths[prefix][1],)):
                hint = "; or are rows of weights inputs (--rows inputs)?" if bias.shape == widths[prefix][:1] else ""
                raise InputError(f"{path}: {prefix}bias is {bias.shape}; it must be {expected}, as the outputs{hint}")
        norm = following.get(prefix)
        plain = steps.IDENTITY if norm else activation
        bias = 0.0 if bias is None else bias
        yield Step(f"{prefix}weight", "linear", weight.T if by_inputs else weight, bias, plain)
        if norm:
            yield _scale(path, tensors, norm, parts[norm], widths[prefix][1], epsilon)._replace(activation=activation)


def _split(name: str) -> tuple[str, str]:
    """('fc1.', 'weight') of 'fc1.weight'."""
    prefix, dot, part = name.rpartition(".")
    return prefix + dot, part


def _other(name: str) -> str | None:
    """Why a tensor of this name is none of a layer; None where its name does not tell."""
    kinds = ((what, instead) for pattern, what, instead in OTHERS if re.search(pattern, name))
    return next((f"tensor {quote(name)} is of {what}: {instead}" for what, instead in kinds), None)


def _problems(tensors: Mapping, parts: dict, layers: dict, norms: set) -> Iterator[str]:
    for prefix, own in sorted(parts.items(), key=lambda item: natural(item[0])):
        allowed = {"weight", "bias", MEAN, VARIANCE, COUNT} if prefix in norms else set()
        if prefix in layers:
            masked = {"weight_orig", "weight_mask"} if "weight_orig" in own else {"weight"}
            allowed = masked | ({"bias_orig", "bias_mask"} if "bias_orig" in own else {"bias"})
            if missing := allowed - {"bias"} - own:
                yield f"tensor {prefix + min(missing)!r} is missing"
                continue
            name = _weight(prefix, own)
            if (rank := len(tensors.shape(name))) != 2:
                yield f"{name} has {rank} dimensions; a layer's weight is a matrix"
                continue
        for part in sorted(own - allowed):
            yield f"tensor {prefix + part!r} is no weight of a layer, nor the bias of one"


def _weight(prefix: str, own: set[str]) -> str:
    return prefix + ("weight" if "weight" in own else "weight_orig")


def _tensor(tensors: Mapping, prefix: str, part: str, own: set[str]) -> np.ndarray:
    """A weight or bias, times its mask where it has one."""
    if part in own:
        array = tensors[prefix + part]
        check_widths(f"{tensors.path}: {prefix}{part}", *array.shape, entries=array.size)
        return array
    names = [f"{prefix}{part}_{which}" for which in ("orig", "mask")]
    shapes = [tensors.shape(name) for name in names]
    if shapes[0] != shapes[1]:
        raise InputError(f"{tensors.path}: {names[1]} is {shapes[1]}; it must be {shapes[0]}, as what it masks")
    check_widths(f"{tensors.path}: {names[0]}", *shapes[0], entries=int(np.prod(shapes[0])))
    values, mask = tensors[names[0]], tensors[names[1]]
    return np.where(mask != 0, values * mask, 0)


def _order(path, widths: dict[str, tuple[int, int]]) -> list[str]:
    """The layers in order: by the numbers in names that are alike otherwise, and by widths among others.

    Raises:
        InputError: neither tells.
    """
    alike = sorted(widths, key=lambda prefix: (re.sub(r"\d+", "#", prefix), natural(prefix)))
    groups = [list(group) for _, group in groupby(alike, key=lambda prefix: re.sub(r"\d+", "#", prefix))]
    if len(groups) == 1:
        return groups[0]
    if len(groups) > GROUPS:
        raise InputError(f"{path}: names of {len(groups)} kinds, whose order is not known; number them or export ONNX")
    orders = [[prefix for group in order for prefix in group] for order in permutations(groups)]
    chains = [order for order in orders if all(widths[a][1] == widths[b][0] for a, b in pairwise(order))]
    if len(chains) == 1:
        return chains[0]
    first = ", ".join(group[0] + "weight" for group in groups)
    why = "several orders fit their widths" if chains else "their widths fit in no order"
    raise InputError(f"{path}: the order of its layers is not known ({first[:100]}): {why}; number them or export ONNX")


def _places(path, order: list[str], norms: set[str]) -> dict[str, str]:
    """The BatchNorm after each layer that has one; InputError: a name does not say that it follows a layer at once."""
    after = {}
    for norm in norms:
        number = re.fullmatch(r"(.*?)(\d+)\.", norm, re.DOTALL)
        layer = f"{number[1]}{int(number[2]) - 1}." if number and len(number[2]) < 10 else None
        if layer not in order or not (number[1] == "" or number[1].endswith(".")):
            raise InputError(
                f"{path}: {norm[:60]!r} is a BatchNorm, and its name does not say that it follows a layer at once; "
                "export the model as ONNX"
            )
        after[layer] = norm
    return after


def _scale(path, tensors: Mapping, norm: str, own: set[str], outputs: int, epsilon: float) -> Step:
    """A BatchNorm as the scale that it is."""
    values = []
    for part in ("weight", "bias", MEAN, VARIANCE):
        if part in own and (shape := tensors.shape(norm + part)) != (outputs,):
            raise InputError(f"{path}: {norm}{part} is {shape}; it must be {(outputs,)}, as the outputs")
        values.append(tensors[norm + part].astype(np.float64) if part in own else None)
    return norm_scale(norm, *values, epsilon)


def norm_scale(name: str, weight, bias, mean, variance, epsilon: float) -> Step:
    """BatchNorm as a scale: (x - mean) / sqrt(variance + epsilon) * weight + bias; weight and bias may be None."""
    factor = (1.0 if weight is None else weight) / np.sqrt(variance.astype(np.float64) + epsilon)
    return Step(name, "scale", factor, 0.0 if bias is None else bias, center=mean)
