"""PyTorch modules as the Steps that other readers of models give: what torch.export finds that they compute."""

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spdnn.common import arrays
from spdnn.common.errors import InputError
from spdnn.common.validation import shortened
from spdnn.formats.state_dicts import normalised
from spdnn.formats.steps import Step, Unfit, channels, needed, together, vector
from spdnn.problem.network import RELU, Activation
from spdnn.torch.modules import SparseConv2d, SparseLinear

SAME = ("dropout", "clone", "alias", "contiguous", "detach", "_to_copy", "to", "native_dropout")
ANY = torch.export.Dim.DYNAMIC  # number of inputs
NOTHING = ("_assert_tensor_metadata", "_assert_scalar", "sym_size", "sym_constrain_range_for_size")


@np.errstate(all="ignore")  # what is not finite is refused in the layer that has it
def read_steps(module: nn.Module, example: Any = None) -> list[Step]:
    """The steps of a module in inference, in the order in which they run; the kinds are those of ONNX models.

    Args:
        module: stays as it is; its weights are copied. Sparse layers of spdnn.torch are read too.
        example: a tensor that the module takes, of two inputs or more; not needed where a Linear layer comes first.

    Raises:
        InputError: torch.export cannot trace the module, or it computes what no Step says: all of it is named.
    """
    name = type(module).__name__
    if example is None:
        kinds, leaves = (nn.Linear, SparseLinear), (one for one in module.modules() if not list(one.children()))
        first = next((one for one in leaves if not isinstance(one, nn.Identity | nn.Dropout)), None)
        if not isinstance(first, kinds):
            raise InputError(
                f"{name}: its first layer is no Linear: give an input of it (example=), two of them or more"
            )
        example = next(first.parameters()).detach().new_zeros(2, first.in_features)
    if not isinstance(example, Tensor) or example.dim() < 2 or len(example) < 2:
        raise InputError("example: a tensor of two inputs or more, as the module takes them")
    module = _dense(module)
    training = [one for one in module.modules() if one.training]
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # on the masks of torch.nn.utils.prune, which are constants here
            program = torch.export.export(module.eval(), (example,), dynamic_shapes=({0: ANY},)).run_decompositions({})
    except Exception as error:  # of any kind: the module's own code runs
        why = shortened(str(error), 150)
        raise InputError(f"{name}: torch.export cannot trace it for any number of inputs ({why})") from error
    finally:
        for one in training:
            one.training = True
    return _Reader(name, program).steps()


def _dense(module: nn.Module) -> nn.Module:
    """The module, or a copy of it with dense layers where it has sparse ones."""
    sparse = [name for name, one in module.named_modules() if isinstance(one, SparseLinear | SparseConv2d)]
    whole = nn.ModuleList([module])
    if sparse:
        whole = copy.deepcopy(whole)
        for name in sparse:
            path = f"0.{name}".rstrip(".")
            whole.set_submodule(path, whole.get_submodule(path).to_dense())
    return whole[0]


class _Reader:
    """Goes through the nodes of an exported program, each of which gives a Step, a constant or another name."""

    def __init__(self, name: str, program):
        self._name, self._program = name, program
        self._constants: dict[str, Tensor] = {}
        self._same: dict[str, str] = {}
        self._steps: dict[str, Step] = {}

    def steps(self) -> list[Step]:
        signature, problems = self._program.graph_signature, {}
        stored = {**self._program.state_dict, **self._program.constants}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        held |= signature.inputs_to_lifted_tensor_constants
        starts, output = [], None
        for node in self._program.graph.nodes:
            if node.op == "placeholder":
                if node.name in held:
                    self._constants[node.name] = stored[held[node.name]].detach()
                else:
                    starts.append(node.name)
            elif node.op == "output":
                (outputs,) = node.args
                output = outputs[0].name if len(outputs) == 1 and isinstance(outputs[0], torch.fx.Node) else None
            else:
                try:
                    self._take(node)
                except Unfit as error:
                    layer = self._layer(node)  # whose first operator says enough
                    problems.setdefault(layer, f"{layer!r} ({_operator(node)}{error})")
        together(self._name, list(problems.values()), "not all of it can be read")
        if len(starts) != 1 or output is None:
            raise InputError(f"{self._name}: one tensor goes in and one comes out of what is read")
        return needed(self._name, self._steps, self._same.get(output, output), starts[0])

    def _layer(self, node) -> str:
        """The module that a node comes from, for messages."""
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        return (modules[-1][0] if modules else "") or node.name

    def _take(self, node) -> None:
        kind, reads = _operator(node), node.args
        if kind in NOTHING:
            return
        if not isinstance(node.target, torch._ops.OpOverload) and kind != "getitem":
            raise Unfit("")
        constant = all(one.name in self._constants for one in node.all_input_nodes)
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random and (constant or (kind in SAME and reads[-1] is not False)):  # a dropout that drops even now
            raise Unfit(": of random numbers")
        if constant:
            arguments = torch.fx.map_arg((reads, node.kwargs), lambda one: self._constants[one.name])
            self._constants[node.name] = node.target(*arguments[0], **arguments[1])
            return
        if kind in SAME or kind == "getitem":
            if (kind == "getitem" and reads[1] != 0) or (kind in ("_to_copy", "to") and not _float(node)):
                raise Unfit(": of another output or type")
            self._same[node.name] = self.value(reads[0])
            return
        if kind not in KINDS:
            raise Unfit("")
        names = list(node.target._schema.arguments)
        given = {one.name: one.default_value for one in names if one.has_default_value()}
        given |= dict(zip((one.name for one in names), reads, strict=False)) | node.kwargs
        gives = node.meta["val"]
        if not (gives if isinstance(gives, Tensor) else gives[0]).is_floating_point():
            raise Unfit(": of whole numbers")
        step = KINDS[kind](self, given, node)
        if step is None:
            self._same[node.name] = self.value(reads[0])
            return
        read = step.reads or (self.value(reads[0]),)
        self._steps[node.name] = step._replace(name=self._layer(node), gives=node.name, reads=read)

    def value(self, node) -> str:
        if not isinstance(node, torch.fx.Node) or node.name in self._constants:
            raise Unfit(": it takes a constant where a value is read")
        return self._same.get(node.name, node.name)

    def is_constant(self, node) -> bool:
        return not isinstance(node, torch.fx.Node) or node.name in self._constants

    def constant(self, node) -> np.ndarray:
        """A constant of numbers, as an array. Raises Unfit: a value."""
        if isinstance(node, torch.fx.Node) and node.name not in self._constants:
            raise Unfit(": it takes a value where only a constant is read")
        array = self._constants[node.name] if isinstance(node, torch.fx.Node) else np.asarray(node)
        array = arrays.host(array, "a constant")
        return array.astype(np.float32 if array.dtype == np.float16 else array.dtype)  # a copy

    def optional(self, node) -> np.ndarray | None:
        return None if node is None else self.constant(node)


def _operator(node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def _shape(node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def _float(node) -> bool:
    return node.meta["val"].dtype in (torch.float32, torch.float64)


# What each operator is, as a Step: reader, arguments by name, the node.


def _linear(reader: _Reader, given: dict, node) -> Step:
    if len(_shape(given["input"])) > 3:
        raise Unfit(f" of {len(_shape(given['input']))} dimensions")
    bias = reader.optional(given["bias"])
    return Step("", _product(given["input"]), reader.constant(given["weight"]), 0.0 if bias is None else bias)


def _product(value) -> str:
    return "product" if len(_shape(value)) == 3 else "linear"


def _matmul(reader: _Reader, given: dict, node) -> Step:
    """mm, matmul and addmm: the weight is (inputs, outputs)."""
    value, weight = (given["mat1"], given["mat2"]) if "mat1" in given else (given["self"], None)
    weight = reader.constant(weight if weight is not None else given.get("mat2", given.get("other")))
    if weight.ndim != 2 or len(_shape(value)) > 3:
        raise Unfit(": of more dimensions")
    if "mat1" not in given:
        return Step("", _product(value), weight.T, 0.0, reads=(reader.value(value),))
    if given["alpha"] != 1 or given["beta"] != 1:
        raise Unfit(": alpha or beta")
    bias = vector(reader.constant(given["self"]), weight.shape[1])
    return Step("", "linear", weight.T, bias, reads=(reader.value(value),))


def _convolution(reader: _Reader, given: dict, node) -> Step:
    bias, weight = reader.optional(given["bias"]), reader.constant(given["weight"])
    padding, kernel = given["padding"], weight.shape[2:]
    if max(_pair(given["dilation"])) != 1:
        raise Unfit(": dilations")
    before = after = (0, 0) if padding == "valid" else padding
    if padding == "same":
        before, after = ([(size - 1 + more) // 2 for size in kernel] for more in (0, 1))
    pads = (*_pair(before), *_pair(after))
    settings = {"groups": given["groups"], "strides": _pair(given["stride"]), "pads": pads}
    return Step("", "convolution", weight, 0.0 if bias is None else bias, settings=settings)


def _norm(reader: _Reader, given: dict, node) -> Step:
    if len(_shape(given["input"])) not in (2, 4) or given.get("training"):
        raise Unfit(": in training, or of other dimensions than 2 and 4")
    mean, variance = (reader.constant(given[name]).astype(np.float64) for name in ("running_mean", "running_var"))
    return normalised("", *(reader.optional(given[name]) for name in ("weight", "bias")), mean, variance, given["eps"])


def _clip(reader: _Reader, given: dict, node) -> Step | None:
    low, high = given.get("min", given.get("min_val")), given.get("max", given.get("max_val"))
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if isinstance(low, torch.fx.Node) or isinstance(high, torch.fx.Node):
        raise Unfit(": to a tensor")
    if low == -math.inf and high == math.inf:
        return None
    if low != 0 or not high > 0:
        raise Unfit(f": to {low:g} and {high:g}; 0 and a positive number are read")
    return Step("", "activation", activation=RELU if high == math.inf else Activation("relu", high))


def _flatten(reader: _Reader, given: dict, node) -> Step:
    before, after = _shape(given["self"]), _shape(node)
    if len(after) != 2 or after[0] != before[0]:
        raise Unfit(f": to {after}")
    return Step("", "flatten")


def _scale(reader: _Reader, given: dict, node) -> Step:
    """add, sub, mul, div with a constant; or an add of two values."""
    kind, pair = _operator(node), [given["self"], given["other"]]
    if kind == "rsub":
        kind, pair = "sub", pair[::-1]
    if given.get("alpha", 1) != 1 or given.get("rounding_mode"):
        raise Unfit(": alpha or rounding")
    which = [reader.is_constant(one) for one in pair]
    if not any(which):
        if kind != "add" or _shape(pair[0]) != _shape(pair[1]):
            raise Unfit(" of two values")
        return Step("", "add", reads=tuple(map(reader.value, pair)))
    place = which.index(True)
    value = pair[1 - place]
    constant = channels(reader.constant(pair[place]), _shape(value)[1:])
    scales = {
        ("add", 0): (1.0, constant), ("add", 1): (1.0, constant), ("sub", 1): (1.0, -constant),
        ("sub", 0): (-1.0, constant), ("mul", 0): (constant, 0.0), ("mul", 1): (constant, 0.0),
    }  # fmt: skip
    if (kind, place) not in scales and place == 0:
        raise Unfit(": a constant divided by a value")
    factor, shift = scales.get((kind, place)) or (1 / constant, 0.0)
    return Step("", "scale", factor, shift, reads=(reader.value(value),))


def _pool(reader: _Reader, given: dict, node) -> Step:
    mean = _operator(node) in ("avg_pool2d", "adaptive_avg_pool2d", "mean")
    if "kernel_size" not in given:
        places = _pair(given["output_size"]) == (1, 1) if "output_size" in given else _last_two(given.get("dim"))
        if len(_shape(given["self"])) != 4 or not places:
            raise Unfit(": not over all places")
        return Step("", "pool", settings={"mean": mean, "rows": given.get("keepdim") is False})
    kernel = _pair(given["kernel_size"])
    pads, sides = _pair(given["padding"]), _pair(given["stride"] or kernel)
    if given["ceil_mode"] or max(_pair(given.get("dilation", 1))) != 1 or given.get("divisor_override"):
        raise Unfit(": ceil_mode, dilations or a divisor")
    settings = {"mean": mean, "kernel": kernel, "strides": sides, "pads": (*pads, *pads)}
    return Step("", "pool", settings=settings | {"count_pads": bool(given.get("count_include_pad"))})


def _last_two(dims: Sequence[int] | None) -> bool:
    return sorted(one % 4 for one in dims or ()) == [2, 3]


def _pair(sizes: int | Sequence[int]) -> tuple[int, int]:
    several = [sizes] if isinstance(sizes, int) else list(sizes)
    return (several[0], several[-1]) if several else (0, 0)


def _softmax(reader: _Reader, given: dict, node) -> Step:
    axis = given["dim"] % len(_shape(node))
    if not axis:
        raise Unfit(f": over dimension {given['dim']}")
    return Step("", "softmax", settings={"log": "log" in _operator(node), "axes": (axis,)})


KINDS: dict[str, Callable[[_Reader, dict, Any], Step | None]] = {
    "linear": _linear, "conv2d": _convolution, "relu": lambda *_: Step("", "activation", activation=RELU),
    "relu6": lambda *_: Step("", "activation", activation=Activation("relu", 6.0)),
    **dict.fromkeys(("mm", "matmul", "addmm"), _matmul), **dict.fromkeys(("hardtanh", "clamp", "clamp_min"), _clip),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _norm),
    **dict.fromkeys(("flatten", "view", "reshape", "_unsafe_view", "squeeze"), _flatten),
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div"), _scale),
    **dict.fromkeys(("softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("avg_pool2d", "max_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "mean"), _pool),
}  # fmt: skip
