"""The operators of ONNX, as Steps, constants or sizes; `Reader` in spdnn/formats/onnx_files.py goes through a graph."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spdnn.common.validation import shortened
from spdnn.formats.state_dicts import normalised
from spdnn.formats.steps import Step, Unfit, channels, vector
from spdnn.problem.network import RELU, Activation

Reader = Any  # that of spdnn/formats/onnx_files.py, which imports this module
MOST_PADS = 64  # rows or columns of zeros on one side: a file may not say how much memory a call takes
COUNT = "inputs"  # how many there are, among sizes
MOST_SIZES = 64
SIZES = ("Shape", "Gather", "Unsqueeze", "Squeeze", "Concat", "Slice")  # what computes the shape of a Reshape


class Node(NamedTuple):
    """A node of a graph.

    Attributes:
        kind: its operator; given: its attributes by name, ONNX's defaults of the model's opset among them.
        reads: names of values, '' for an optional one that is left out; outputs: how many it has.
    """

    kind: str
    given: dict[str, Any]
    reads: list[str]
    outputs: int


def as_type(array: np.ndarray, to: int) -> np.ndarray:
    """A constant of another type, as ONNX Runtime casts it; float16 is rounded to, and stays float32. Raises Unfit."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(to).lower()
    names = {"float": "float32", "double": "float64", "float16": "float16", "bool": "bool"}
    names |= {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    if name not in names:
        raise Unfit(f": to {name}")
    target = np.dtype(names[name])
    if target.kind in "iu" and array.size:
        limits, ends = np.iinfo(target), (np.trunc(array.min()).item(), np.trunc(array.max()).item())
        if not limits.min <= ends[0] <= ends[1] < limits.max + 1:
            raise Unfit(f": numbers from {array.min():g} to {array.max():g} to {name}")
    if name == "float16":
        return array.astype(np.float32).astype(np.float16).astype(np.float32)
    return array.astype(target)


def computed_sizes(reader: Reader, node: Node) -> np.ndarray:
    """What an operator of SIZES makes of sizes. Raises Unfit."""
    if node.kind == "Shape":
        value, given = node.reads[0], node.given
        dimensions = reader.constant(value).shape if reader.is_constant(value) else (COUNT, *reader.shape(value))
        return np.array(dimensions, object)[given.get("start", 0) : given.get("end")]
    sizes, reads = reader.sizes(node.reads[0]), node.reads
    try:
        if node.kind == "Gather":
            places = np.array(reader.whole(reads[1]), int).reshape(reader.sizes(reads[1]).shape)
            found = np.asarray(np.take(sizes, places, node.given["axis"]), object)
        elif node.kind == "Concat":
            found = np.concatenate([reader.sizes(value) for value in reads], node.given["axis"])
        elif node.kind == "Slice":
            found = _slice(reader, node, sizes)
        else:
            axes = tuple(reader.whole(reads[1])) if len(reads) > 1 else node.given.get("axes")
            found = np.expand_dims(sizes, axes) if node.kind == "Unsqueeze" else np.squeeze(sizes, axes)
    except (ValueError, IndexError, TypeError) as error:
        raise Unfit(f": of sizes ({shortened(str(error), 60)})") from error
    if found.size > MOST_SIZES:
        raise Unfit(f": {found.size} sizes")
    return found


def _slice(reader: Reader, node: Node, sizes: np.ndarray) -> np.ndarray:
    names = ("starts", "ends", "axes", "steps")
    parts = {name: node.given[name] for name in names if name in node.given}  # before opset 10
    parts |= {name: reader.whole(value) for name, value in zip(names, node.reads[1:], strict=False) if value}
    (start,), (end,) = parts["starts"], parts["ends"]
    if sizes.ndim != 1 or list(parts.get("axes", [0])) not in ([0], [-1]) or parts.get("steps", [1]) != [1]:
        raise Unfit(": by axes or steps")
    return sizes[start:end]


def shape_after(step: Step, before: tuple | None) -> tuple | None:
    """What a step gives of one input, of what it reads; see Reader.shape."""
    if before is None:
        return None
    if step.kind in ("linear", "product"):
        return (*before[:-1], len(step.weight))
    if step.kind == "flatten":
        return (None if None in before else math.prod(before),)
    settings = step.settings or {}
    if step.kind == "pool" and "kernel" not in settings:
        return (before[0],) if settings["rows"] else (before[0], 1, 1)
    if step.kind not in ("pool", "convolution"):
        return before
    kernel = settings["kernel"] if step.kind == "pool" else step.weight.shape[2:]
    pads, strides = settings["pads"], settings["strides"]
    places = [
        None if size is None else (size + pads[k] + pads[k + 2] - kernel[k]) // strides[k] + 1
        for k, size in enumerate(before[1:])
    ]
    return (before[0] if step.kind == "pool" else len(step.weight), *places)


# What each operator is, as a Step: reader, node. None: the value that it reads.


def _gemm(reader: Reader, node: Node) -> Step:
    given, reads = node.given, node.reads
    _rank(reader, reads[0], 2)
    if given["transA"]:
        raise Unfit(": transA")
    weight, bias = _matrix(reader, reads[1], turned=not given["transB"]), reader.optional(reads, 2)
    if given["alpha"] != 1:
        scaled = np.asarray(weight, np.float64) * given["alpha"]
        if np.any((np.abs(scaled) < np.finfo(np.float32).tiny) & (weight != 0)):
            raise Unfit(f": alpha {given['alpha']:g} makes a weight smaller than float32 can hold")
        weight = scaled
    return Step("", "linear", weight, 0.0 if bias is None else vector(bias * given["beta"], len(weight)))


def _matmul(reader: Reader, node: Node) -> Step:
    rank = _rank(reader, node.reads[0], 2, 3)
    return Step("", "product" if rank == 3 else "linear", _matrix(reader, node.reads[1], turned=True), 0.0)


def _rank(reader: Reader, value: str, *allowed: int) -> int | None:
    """The dimensions of a value. Raises Unfit: others than are allowed."""
    shape = reader.shape(value)
    if shape is not None and len(shape) + 1 not in allowed:
        raise Unfit(f" of {len(shape) + 1} dimensions")
    return None if shape is None else len(shape) + 1


def _matrix(reader: Reader, value: str, turned: bool) -> np.ndarray:
    weight = reader.numbers(value)
    if weight.ndim != 2:
        raise Unfit(f": a weight of {weight.ndim} dimensions")
    return weight.T if turned else weight


def _scale(reader: Reader, node: Node) -> Step:
    """Add, Sub, Mul, Div with a constant; or an Add of two values."""
    kind, reads = node.kind, node.reads
    which = [reader.is_constant(value) for value in reads]
    if not any(which):
        one, two = map(reader.shape, reads)
        if kind != "Add" or (None not in (one, two) and not _may_agree(one, two)):
            raise Unfit(" of two values" if kind != "Add" else f" of {one} and {two}")
        return Step("", "add", reads=tuple(reads))
    place = which.index(True)
    value = reads[1 - place]
    constant = channels(reader.numbers(reads[place]), reader.shape(value))
    factor, shift = 1.0, 0.0
    if kind == "Add":
        shift = constant
    elif kind == "Sub":
        factor, shift = (1.0, -constant) if place else (-1.0, constant)
    elif kind == "Mul":
        factor = constant
    elif place:
        factor = 1 / constant
    else:
        raise Unfit(": a constant divided by a value")
    return Step("", "scale", factor, shift, reads=(value,))


def _may_agree(one: tuple, two: tuple) -> bool:
    """Whether two shapes may be one, for all that is known of them."""
    return len(one) == len(two) and all(None in pair or pair[0] == pair[1] for pair in zip(one, two, strict=True))


def _norm(reader: Reader, node: Node) -> Step:
    parts, shape = [reader.numbers(value).astype(np.float64) for value in node.reads[1:5]], reader.shape(node.reads[0])
    _rank(reader, node.reads[0], 2, 4)
    if node.given.get("training_mode") or node.outputs > 1 or node.given.get("spatial", 1) != 1:
        raise Unfit(": in training, or not of channels")
    sizes = {(shape or (None,))[0] or parts[0].size, *(one.size for one in parts)}
    if len(sizes) > 1 or any(one.ndim != 1 for one in parts):
        raise Unfit(f": {' and '.join(map(str, sorted(sizes)))} channels")
    return normalised("", *parts, node.given["epsilon"])


def _clip(reader: Reader, node: Node) -> Step | None:
    reader.shape(node.reads[0])
    low, high = (
        node.given.get(name)
        if reader.optional(node.reads, place) is None
        else reader.optional(node.reads, place).item()
        for place, name in ((1, "min"), (2, "max"))
    )
    most = float(np.finfo(np.float32).max)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    if low <= -most and high >= most:
        return None
    if low != 0 or not high > 0:
        raise Unfit(f": to {low:g} and {high:g}; 0 and a positive number are read")
    return Step("", "activation", activation=RELU if high >= most else Activation("relu", high))


def _relu(reader: Reader, node: Node) -> Step:
    reader.shape(node.reads[0])
    return Step("", "activation", activation=RELU)


def _dropout(reader: Reader, node: Node) -> None:
    """What it reads: a dropout drops in training alone."""
    if len(node.reads) > 2 and node.reads[2] and reader.constant(node.reads[2]).any():
        raise Unfit(": in training")


def _cast(reader: Reader, node: Node) -> None:
    """What it reads: sizes stay what they are in whole numbers, and values are float32 here, whatever came in."""
    from onnx import TensorProto

    to = node.given["to"]
    wanted = (TensorProto.INT32, TensorProto.INT64) if reader.is_size(node.reads[0]) else (TensorProto.FLOAT,)
    if to not in wanted:
        raise Unfit(f": to {TensorProto.DataType.Name(to).lower()}")


def _flatten(reader: Reader, node: Node) -> Step:
    shape, axis = reader.shape(node.reads[0]), node.given["axis"]
    if axis != 1 and (shape is None or axis != -len(shape) or reader.opset < 11):
        raise Unfit(f": from axis {axis}")
    return Step("", "flatten")


def _reshape(reader: Reader, node: Node) -> Step:
    """One that is proven to keep the inputs, and to join all else."""
    shape, target = reader.shape(node.reads[0]), reader.sizes(node.reads[1])
    if shape is not None and not _joins(shape, target.tolist(), reader.count, node.given.get("allowzero", 0)):
        raise Unfit(f": to {str(target.tolist())[:40]}")
    return Step("", "flatten")


def _joins(shape: tuple, target: list, count: int | None, allowzero: int) -> bool:
    """Whether a Reshape of `count` inputs of this shape each to `target` makes a row of each."""
    if np.ndim(target) != 1 or len(target) != 2 or (allowzero and 0 in target):
        return False
    inputs, width = target
    kept = inputs in (0, COUNT) or (count is not None and inputs == count)
    whole = (None not in shape and width == math.prod(shape)) or (width == 0 and len(shape) == 1)
    return (whole and (kept or inputs == -1)) or (kept and width == -1)


def _convolution(reader: Reader, node: Node) -> Step:
    weight, bias = reader.numbers(node.reads[1]), reader.optional(node.reads, 2)
    _rank(reader, node.reads[0], 4)
    if weight.ndim != 4:
        raise Unfit(f": a weight of {weight.ndim} dimensions")
    kernel = tuple(node.given.get("kernel_shape", weight.shape[2:]))
    if max(node.given.get("dilations", [1])) != 1 or kernel != weight.shape[2:]:
        raise Unfit(": dilations, or a kernel of another shape than the weight")
    settings = {"groups": node.given["group"]} | _window(node, kernel)
    bias = 0.0 if bias is None else vector(bias, len(weight))
    return Step("", "convolution", weight, bias, settings=settings)


def _pool(reader: Reader, node: Node) -> Step:
    given, kind = node.given, node.kind
    _rank(reader, node.reads[0], 4)
    if kind == "ReduceMean":
        axes = reader.whole(node.reads[1]) if any(node.reads[1:]) else given.get("axes", [])
        if sorted(axis + 4 if axis < 0 else axis for axis in axes) != [2, 3]:
            raise Unfit(f": over axes {str(list(axes))[:40]}")
    if kind in ("GlobalAveragePool", "GlobalMaxPool", "ReduceMean"):
        rows = kind == "ReduceMean" and not given["keepdims"]
        return Step("", "pool", settings={"mean": kind != "GlobalMaxPool", "rows": rows})
    if given.get("ceil_mode") or max(given.get("dilations", [1])) != 1 or node.outputs > 1:
        raise Unfit(": ceil_mode, dilations or indices")
    kernel = tuple(given["kernel_shape"])
    settings = {"mean": kind == "AveragePool", "count_pads": bool(given.get("count_include_pad"))}
    settings |= {"kernel": kernel} | _window(node, kernel)
    if any(pad >= size for pad, size in zip(settings["pads"], 2 * kernel, strict=True)):
        raise Unfit(f": kernel {kernel}, pads {settings['pads']}"[:80])
    return Step("", "pool", settings=settings)


def _window(node: Node, kernel: Sequence[int]) -> dict:
    """Strides and pads (top, left, bottom, right) of a convolution or pooling over height and width."""
    given, padding = node.given, node.given["auto_pad"].decode("utf-8", "replace")
    strides, pads = tuple(given.get("strides", (1, 1))), tuple(given.get("pads", (0, 0, 0, 0)))
    if padding not in ("NOTSET", "VALID") or (padding == "VALID" and "pads" in given):
        raise Unfit(f": padding {shortened(padding, 20)}")
    if not len(kernel) == len(strides) == len(pads) / 2 == 2:
        raise Unfit(": not over height and width")
    if min(*kernel, *strides) < 1 or min(pads) < 0 or max(pads) > MOST_PADS:
        raise Unfit(f": kernel {kernel}, strides {strides}, pads {pads}"[:80])
    return {"strides": strides, "pads": pads}


def _softmax(reader: Reader, node: Node) -> Step:
    """Over one axis; before opset 13 over it and all after it."""
    shape, axis = reader.shape(node.reads[0]), node.given["axis"]
    rank = len(shape or ()) + 1
    if shape is not None and (not -rank <= axis < rank or axis % rank == 0):
        raise Unfit(f": over axis {axis}")
    axes = range(axis % rank, rank if reader.opset < 13 else axis % rank + 1)
    return Step("", "softmax", settings={"log": node.kind == "LogSoftmax", "axes": tuple(axes)})


KINDS: dict[str, Callable[[Reader, Node], Step | None]] = {
    "Gemm": _gemm, "MatMul": _matmul, "Conv": _convolution, "BatchNormalization": _norm, "Clip": _clip, "Relu": _relu,
    "Flatten": _flatten, "Reshape": _reshape, "Dropout": _dropout, "Cast": _cast, "Softmax": _softmax,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _scale), "LogSoftmax": _softmax,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean"), _pool),
}  # fmt: skip
