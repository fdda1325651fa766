"""Models in .onnx, as Steps: what the file's nodes do, with BatchNorm, activations and constants where they belong.

Whatever a model holds that no Step says is named, all of it in one sentence. Weights may be in the file or, as large
ones are, in one beside it.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.common import door
from spdnn.common.errors import InputError, Unavailable
from spdnn.common.validation import WHOLE, quoted, shortened
from spdnn.formats.state_dicts import normalised
from spdnn.formats.steps import Step, Unfit, channels, needed, network_of, together, vector
from spdnn.problem.network import RELU, Activation, MemoryNetwork

MOST = (1 << 31) - 1  # bytes of a message of Protocol Buffers
MOST_PADS = 64  # rows or columns of zeros on one side: a file may not say how much memory a call takes
SAME = ("Identity", "Dropout")  # in inference
SIZES = (
    "Shape",
    "Gather",
    "Unsqueeze",
    "Squeeze",
    "Concat",
    "Slice",
    "Cast",
)  # what a flattening computes its shape with


@np.errstate(all="ignore")  # what is not finite is refused in the layer that has it
def read_steps(path) -> list[Step]:
    """The steps of a model, in the order in which they run, those alone that its output needs.

    Kinds besides those of Step: 'pool' (settings: mean or max, kernel, strides, pads, count_pads; no kernel: over all
    places, and rows: the values of an input become a row), 'add' of two values, 'softmax' (settings: log).

    Raises:
        InputError: no sound ONNX model, weights beside it that are not there, more inputs or outputs than one, or nodes
            that no Step says, all of them named.
        Unavailable: the package onnx is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise Unavailable(f"{path}: the package onnx is missing; pip install 'spdnn[onnx]' brings it") from error
    path = door.checked(path)
    with door.sound(f"{path}: this is no sound ONNX model"):
        model = onnx.load_model_from_string(door.whole(path, MOST))
        return _Reader(path, model.graph).steps()


def network(path, steps: Sequence[Step], last: str | None, layers: int | None = None) -> MemoryNetwork:
    """The network of a model's steps, without a softmax at their end where `last` = 'none' says so.

    Raises:
        InputError: a softmax, and nothing said; something said that a model says itself; or see network_of.
    """
    ends = bool(steps) and steps[-1].kind == "softmax"
    if last not in (None, "none") or (last and not ends):
        raise InputError(f"{path}: an ONNX model has its own last activation; it cannot be {last!r}")
    if ends and last is None:
        raise InputError(
            f"{path}: it ends with {steps[-1].name[:40]!r} (softmax), which no network has: take the logits before it "
            "with --last none (in Python last='none')"
        )
    return network_of(Path(path), steps[: len(steps) - ends], "onnx", layers)


class _Reader:
    """Goes through the nodes of a graph, each of which gives a Step, a constant, another name for a value, or sizes."""

    def __init__(self, path: Path, graph):
        self._path, self._graph = path, graph
        self._constants: dict[str, Any] = {one.name: one for one in graph.initializer}  # arrays, once they are used
        self._same: dict[str, str] = {}
        self._sizes: set[str] = set()
        self._ranks: dict[str, int | None] = {}
        self._steps: dict[str, Step] = {}  # by what they give

    def steps(self) -> list[Step]:
        graph, problems = self._graph, []
        inputs = [one for one in graph.input if one.name not in self._constants]
        for what, found in (("inputs", inputs), ("outputs", graph.output)):
            if len(found) != 1:
                raise InputError(
                    f"{self._path}: {len(found)} {what} ({_named(one.name for one in found)}); one is read"
                )
        if graph.sparse_initializer:
            problems.append("sparse initializers")
        kind = inputs[0].type.tensor_type
        self._ranks[inputs[0].name] = len(kind.shape.dim) if kind.HasField("shape") else None
        for node in graph.node:
            name = shortened(node.name or next(iter(node.output), ""), 40)
            try:
                self._take(node, name)
            except Unfit as error:
                problems.append(f"{name!r} ({shortened(node.op_type, 30)}{error})")
        together(self._path, problems, "not all of it can be read")
        return needed(self._path, self._steps, self._of(graph.output[0].name), inputs[0].name)

    def _take(self, node, name: str) -> None:
        """Note what a node gives. Raises Unfit."""
        if node.domain not in ("", "ai.onnx"):
            raise Unfit(f" of {shortened(node.domain, 30)}")
        if not node.output:
            return
        gives, reads = node.output[0], [self._of(value) for value in node.input]
        if node.op_type in ("Constant", "Transpose", "Cast", *SAME) and all(
            value in self._constants for value in reads
        ):
            self._constants[gives] = self._computed(node, reads)
        elif node.op_type in SAME or (node.op_type == "Cast" and _attribute(node, "to") in (1, 11)):  # float, double
            self._same[gives] = reads[0]
        elif node.op_type in SIZES and all(
            v in self._sizes or v in self._constants or node.op_type == "Shape" for v in reads
        ):
            self._sizes.add(gives)
        elif node.op_type not in KINDS:
            self._ranks[gives] = None
            raise Unfit("")
        else:
            step = KINDS[node.op_type](self, node, reads)
            if step is None:
                self._same[gives] = reads[0]
                return
            step = step._replace(name=name, gives=gives, reads=step.reads or (reads[0],))
            self._steps[gives] = step
            linear = 2 if node.op_type == "Gemm" else self.rank(reads[0])
            fixed = {"linear": linear, "convolution": 4, "flatten": 2}
            rows = step.kind == "pool" and step.settings.get("rows")
            self._ranks[gives] = 2 if rows else fixed.get(step.kind, self.rank(step.reads[0]))

    def _of(self, value: str) -> str:
        return self._same.get(value, value)

    def rank(self, value: str) -> int | None:
        return self._ranks.get(value)

    def _computed(self, node, reads: list[str]) -> np.ndarray:
        if node.op_type == "Constant":
            value = _attribute(node, "value")
            if value is not None:
                return self._array(value)
            numbers = [_attribute(node, name) for name in ("value_float", "value_floats", "value_int", "value_ints")]
            found = [one for one in numbers if one is not None]
            if not found:
                raise Unfit(": a constant of another type than numbers")
            return np.array(found[0])
        array = self.constant(reads[0])
        if node.op_type == "Transpose":
            return array.transpose(_attribute(node, "perm", range(array.ndim)[::-1]))
        return array

    def constant(self, value: str) -> np.ndarray:
        """A constant, as an array. Raises Unfit: the value is none."""
        if value not in self._constants:
            raise Unfit(": it takes a value where only a constant is read")
        if not isinstance(self._constants[value], np.ndarray):
            self._constants[value] = self._array(self._constants[value])
        return self._constants[value]

    def is_constant(self, value: str) -> bool:
        return value in self._constants

    def is_size(self, value: str) -> bool:
        return value in self._sizes

    def optional(self, reads: list[str], place: int) -> np.ndarray | None:
        return self.constant(reads[place]) if len(reads) > place and reads[place] else None

    def _array(self, tensor) -> np.ndarray:
        """The numbers of a tensor; bfloat16 and float16 become float32."""
        from onnx import TensorProto, numpy_helper

        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = self._beside(tensor)
            tensor.data_location = TensorProto.DEFAULT
        array = numpy_helper.to_array(tensor)
        if array.dtype.name in ("float16", "bfloat16"):
            return array.astype(np.float32)
        if array.dtype.kind not in "fiub":
            raise Unfit(f": a constant of {shortened(str(array.dtype), 20)}")
        return array

    def _beside(self, tensor) -> bytes:
        """The bytes of a tensor in a file beside the model's."""
        entries = {one.key: one.value for one in tensor.external_data}
        name = entries.get("location", "")
        folder = Path(os.path.realpath(self._path.parent))
        file = Path(os.path.realpath(folder / name))
        if not name or Path(name).is_absolute() or not file.is_relative_to(folder):
            raise InputError(
                f"{self._path}: weights in {shortened(name, 40)!r}; they must be in the model's own folder, and no link"
                " may lead out of it"
            )
        size = door.checked(file, "file of its weights").stat().st_size
        for key in {"offset", "length"} & set(entries):
            if not WHOLE.fullmatch(entries[key]):
                raise InputError(f"{self._path}: the {key} of its weights is {quoted(entries[key])}, no whole number")
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size - offset))
        if length < 0 or offset + length > size:
            raise InputError(
                f"{self._path}: {length} bytes of weights at {offset} of {shortened(name, 40)}, which has {size}"
            )
        with open(file, "rb") as stream:
            stream.seek(offset)
            return stream.read(length)


def _attribute(node, name: str, default: Any = None) -> Any:
    from onnx import helper

    for one in node.attribute:
        if one.name == name:
            return helper.get_attribute_value(one)
    return default


def _named(names) -> str:
    return shortened(", ".join(names), 60)


# What each operator is, as a Step: reader, node, the names of what it reads.


def _gemm(reader: _Reader, node, reads: list[str]) -> Step:
    if _attribute(node, "transA", 0):
        raise Unfit(": transA")
    weight = _matrix(reader, reads[1], turned=not _attribute(node, "transB", 0))
    alpha, beta = _attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0)
    bias = reader.optional(reads, 2)
    weight = weight if alpha == 1 else weight * alpha
    return Step("", "linear", weight, 0.0 if bias is None else vector(bias * beta, len(weight)))


def _matmul(reader: _Reader, node, reads: list[str]) -> Step:
    if reader.rank(reads[0]) not in (2, 3, None):
        raise Unfit(f" of {reader.rank(reads[0])} dimensions")
    return Step("", "linear", _matrix(reader, reads[1], turned=True), 0.0)


def _matrix(reader: _Reader, value: str, turned: bool) -> np.ndarray:
    weight = reader.constant(value)
    if weight.ndim != 2:
        raise Unfit(f": a weight of {weight.ndim} dimensions")
    return weight.T if turned else weight


def _scale(reader: _Reader, node, reads: list[str]) -> Step:
    """Add, Sub, Mul, Div with a constant; or an Add of two values."""
    which = [reader.is_constant(value) for value in reads[:2]]
    if not any(which):
        if node.op_type != "Add":
            raise Unfit(" of two values")
        return Step("", "add", reads=tuple(reads))
    place = which.index(True)
    value = reads[1 - place]
    constant = channels(reader.constant(reads[place]), reader.rank(value))
    factor, shift = 1.0, 0.0
    if node.op_type == "Add":
        shift = constant
    elif node.op_type == "Sub":
        factor, shift = (1.0, -constant) if place else (-1.0, constant)
    elif node.op_type == "Mul":
        factor = constant
    elif place:
        factor = 1 / constant
    else:
        raise Unfit(": a constant divided by a value")
    return Step("", "scale", factor, shift, reads=(value,))


def _norm(reader: _Reader, node, reads: list[str]) -> Step:
    weight, bias, mean, variance = (reader.constant(value).astype(np.float64) for value in reads[1:5])
    if reader.rank(reads[0]) not in (2, 4):
        raise Unfit(f" of {reader.rank(reads[0]) or 'unknown'} dimensions")
    if _attribute(node, "training_mode", 0) or not weight.shape == bias.shape == mean.shape == variance.shape:
        raise Unfit(": in training, or of several shapes")
    return normalised("", weight, bias, mean, variance, _attribute(node, "epsilon", 1e-5))


def _clip(reader: _Reader, node, reads: list[str]) -> Step | None:
    low, high = (
        _attribute(node, name) if reader.optional(reads, place) is None else reader.optional(reads, place).item()
        for place, name in ((1, "min"), (2, "max"))
    )
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if low < -3e38 and high > 3e38:
        return None
    if low != 0 or not high > 0:
        raise Unfit(f": to {low:g} and {high:g}; 0 and a positive number are read")
    return Step("", "activation", activation=RELU if high > 3e38 else Activation("relu", high))


def _flatten(reader: _Reader, node, reads: list[str]) -> Step:
    """Flatten, and a Reshape that keeps the inputs and joins all else."""
    if node.op_type == "Flatten":
        if _attribute(node, "axis", 1) != 1:
            raise Unfit(f": from axis {_attribute(node, 'axis')}")
    elif not reader.is_size(reads[1]):
        shape = reader.constant(reads[1]).ravel().tolist()
        if len(shape) != 2 or (shape[0] not in (0, -1, 1) and shape[1] != -1):
            raise Unfit(f": to {str(shape)[:40]}")
    return Step("", "flatten")


def _convolution(reader: _Reader, node, reads: list[str]) -> Step:
    weight, bias = reader.constant(reads[1]), reader.optional(reads, 2)
    if weight.ndim != 4:
        raise Unfit(f": a weight of {weight.ndim} dimensions")
    if max(_attribute(node, "dilations", [1])) != 1:
        raise Unfit(": dilations")
    settings = {"groups": _attribute(node, "group", 1)} | _window(node, weight.shape[2:])
    bias = 0.0 if bias is None else vector(bias, len(weight))
    return Step("", "convolution", weight, bias, settings=settings)


def _pool(reader: _Reader, node, reads: list[str]) -> Step:
    if node.op_type == "ReduceMean":
        axes = reader.optional(reads, 1)
        axes = _attribute(node, "axes", []) if axes is None else axes.ravel().tolist()
        if sorted(axis % 4 for axis in axes) != [2, 3] or reader.rank(reads[0]) not in (4, None):
            raise Unfit(f": over axes {str(list(axes))[:40]}")
    if node.op_type in ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean"):
        rows = node.op_type == "ReduceMean" and not _attribute(node, "keepdims", 1)
        return Step("", "pool", settings={"mean": node.op_type != "GlobalMaxPool", "rows": rows})
    if _attribute(node, "ceil_mode", 0) or max(_attribute(node, "dilations", [1])) != 1 or len(node.output) > 1:
        raise Unfit(": ceil_mode, dilations or indices")
    kernel = tuple(_attribute(node, "kernel_shape", ()))
    settings = {"mean": node.op_type == "AveragePool", "count_pads": bool(_attribute(node, "count_include_pad", 0))}
    return Step("", "pool", settings=settings | {"kernel": kernel} | _window(node, kernel))


def _window(node, kernel: Sequence[int]) -> dict:
    """Strides and pads (top, left, bottom, right) of a convolution or pooling over height and width."""
    padding = _attribute(node, "auto_pad", b"NOTSET").decode("utf-8", "replace")
    strides, pads = tuple(_attribute(node, "strides", (1, 1))), tuple(_attribute(node, "pads", (0, 0, 0, 0)))
    if padding not in ("NOTSET", "VALID") or not len(kernel) == len(strides) == len(pads) / 2 == 2:
        raise Unfit(f": padding {shortened(padding, 20)}, or not over height and width")
    wrong = min(*kernel, *strides) < 1 or min(pads) < 0 or max(pads[0], pads[2]) >= kernel[0] + (kernel[0] == 1)
    if wrong or max(pads) > MOST_PADS:
        raise Unfit(f": kernel {kernel}, strides {strides}, pads {pads}"[:80])
    return {"strides": strides, "pads": pads}


def _softmax(reader: _Reader, node, reads: list[str]) -> Step:
    axis, rank = _attribute(node, "axis", -1), reader.rank(reads[0])
    if axis != -1 and axis + 1 != rank:
        raise Unfit(f": over axis {axis}")
    return Step("", "softmax", settings={"log": node.op_type == "LogSoftmax"})


KINDS: dict[str, Callable[[_Reader, Any, list[str]], Step | None]] = {
    "Gemm": _gemm, "MatMul": _matmul, "Conv": _convolution, "BatchNormalization": _norm, "Clip": _clip,
    "Relu": lambda *_: Step("", "activation", activation=RELU), "Flatten": _flatten, "Reshape": _flatten,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _scale), "Softmax": _softmax, "LogSoftmax": _softmax,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean"), _pool),
}  # fmt: skip
