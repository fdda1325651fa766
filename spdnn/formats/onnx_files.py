"""Models in .onnx, as Steps: what the file's nodes do, with BatchNorm, activations and constants where they belong.

Whatever a model holds that no Step says is named, all of it in one sentence. Weights may be in the file or, as large
ones are, in one beside it.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn.common import door
from spdnn.common.errors import InputError, Unavailable
from spdnn.common.validation import shortened
from spdnn.formats.state_dicts import normalised
from spdnn.formats.steps import Step, Unfit, channels, needed, network_of, together, vector
from spdnn.problem.network import RELU, Activation, MemoryNetwork

MOST = (1 << 31) - 1  # bytes of a message of Protocol Buffers
MOST_PADS = 64  # rows or columns of zeros on one side: a file may not say how much memory a call takes
OPSETS = range(
    7, 27
)  # that are known; before 7 operators broadcast in another way, and ONNX Runtime has not all of them
OWN = ("", "ai.onnx")  # names of ONNX's own domain
COUNT = "inputs"  # how many there are, among sizes
MOST_SIZES = 64
SIZES = ("Shape", "Gather", "Unsqueeze", "Squeeze", "Concat", "Slice")  # what computes the shape of a Reshape


@np.errstate(all="ignore")  # what is not finite is refused in the layer that has it
def read_steps(path) -> list[Step]:
    """The steps of a model, in the order in which they run, those alone that its output needs.

    Kinds besides those of Step: 'pool' (settings: mean or max, kernel, strides, pads, count_pads; no kernel: over all
    places, and rows: the values of an input become a row), 'add' of two values, 'softmax' (settings: log; axes, which
    are one distribution together).

    A node is read where its operator, in the model's opset and with its attributes, is proven to give what the Step
    gives; values are float32. All else is refused.

    Raises:
        InputError: no sound ONNX model, one of another opset, weights beside it that are not there, more inputs or
            outputs than one, an input whose dimensions are not stated, or nodes that no Step says, all of them named.
        Unavailable: the package onnx is missing.
    """
    try:
        import onnx
    except ImportError as error:
        raise Unavailable(f"{path}: the package onnx is missing; pip install 'spdnn[onnx]' brings it") from error
    path = door.checked(path)
    with door.sound(f"{path}: this is no sound ONNX model"):
        model = onnx.load_model_from_string(door.whole(path, MOST))
        return _Reader(path, model).steps()


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


class _Node(NamedTuple):
    """A node of a graph.

    Attributes:
        kind: its operator; given: its attributes by name, ONNX's defaults of the model's opset among them.
        reads: names of values, '' for an optional one that is left out; outputs: how many it has.
    """

    kind: str
    given: dict[str, Any]
    reads: list[str]
    outputs: int


class _Reader:
    """Goes through the nodes of a graph, each of which gives a Step, a constant, another name for a value, or sizes."""

    def __init__(self, path: Path, model):
        self._path, self._model, self._graph = path, model, model.graph
        self._constants: dict[str, Any] = {one.name: one for one in self._graph.initializer}  # arrays, once used
        self._same: dict[str, str] = {}
        self._sizes: dict[str, np.ndarray] = {}  # objects: whole numbers, COUNT, or None where it is not known
        self._shapes: dict[str, tuple | None] = {}  # of one input; None: of what a node gives that is not read
        self._other: set[str] = set()  # names of values that are not float32
        self._steps: dict[str, Step] = {}  # by what they give
        self.opset, self.count = 0, None  # of the model, and of inputs where it states one

    def steps(self) -> list[Step]:
        graph, problems, failed = self._graph, [], set()
        start = self._start()
        if graph.sparse_initializer:
            problems.append("sparse initializers")
        if any(one.domain in OWN for one in self._model.functions):
            problems.append("functions in place of operators")
        seen = {"", start, *self._constants}
        for node in graph.node:
            name = shortened(node.name or next(iter(node.output), ""), 40)
            try:
                if again := seen.intersection(filter(None, node.output)):
                    raise Unfit(f": it gives {shortened(min(again), 30)!r} again")
                if missing := set(node.input) - seen:
                    raise Unfit(f": it reads {shortened(min(missing), 30)!r}, which nothing before it gives")
                if node.op_type in (*SIZES, "Reshape") and failed.intersection(node.input):
                    failed |= set(node.output)  # no problem of its own
                elif node.output:
                    self._take(node, name)
            except Unfit as error:
                problems.append(f"{name!r} ({shortened(node.op_type, 30)}{error})")
                failed |= set(node.output)
            seen |= set(node.output)
        together(self._path, problems, "not all of it can be read")
        if graph.output[0].name in self._other:
            raise InputError(f"{self._path}: its output is of another type than float")
        return needed(self._path, self._steps, self._of(graph.output[0].name), start)

    def _start(self) -> str:
        """The name of the model's input, noted with its dimensions, as the opset is. Raises InputError."""
        opsets = {one.version for one in self._model.opset_import if one.domain in OWN}
        if len(opsets) != 1 or not opsets <= set(OPSETS):
            raise InputError(
                f"{self._path}: opset {', '.join(map(str, sorted(opsets))) or 'not stated'}; {OPSETS.start} to "
                f"{OPSETS.stop - 1} are read, and onnx.version_converter converts a model"
            )
        (self.opset,) = opsets
        inputs = [one for one in self._graph.input if one.name not in self._constants]
        for what, found in (("inputs", inputs), ("outputs", self._graph.output)):
            if len(found) != 1:
                raise InputError(
                    f"{self._path}: {len(found)} {what} ({_named(one.name for one in found)}); one is read"
                )
        name, kind = inputs[0].name, inputs[0].type.tensor_type
        dimensions = [one.dim_value if one.dim_value > 0 else None for one in kind.shape.dim]
        if len(dimensions) < 2:
            raise InputError(
                f"{self._path}: its input {shortened(name, 40)!r} has {len(dimensions)} dimensions stated; "
                "there must be two or more"
            )
        self.count, self._shapes[name] = dimensions[0], tuple(dimensions[1:])
        self._other |= {name} if kind.elem_type != 1 else set()
        return name

    def _take(self, node, name: str) -> None:
        """Note what a node gives. Raises Unfit."""
        if node.domain not in OWN:
            raise Unfit(f" of {shortened(node.domain, 30)}")
        if node.op_type not in (*KINDS, *SIZES, "Constant", "Transpose", "Identity"):
            raise Unfit("")
        gives, reads = node.output[0], [self._of(value) for value in node.input]
        taken = _Node(node.op_type, self._attributes(node), reads, sum(map(bool, node.output)))
        constant = all(value in self._constants for value in reads)
        if self._other.intersection(node.input) and taken.kind not in ("Cast", "Shape"):
            if taken.kind not in ("Identity", "Flatten", "Reshape"):
                raise Unfit(": of other numbers than float")
            self._other.add(gives)
        if taken.kind == "Identity":
            self._same[gives] = reads[0]
        elif taken.kind in ("Constant", "Transpose", "Cast") and constant:
            self._constants[gives] = self._computed(taken)
        elif taken.kind in SIZES:
            self._sizes[gives] = _computed_sizes(self, taken)
        elif taken.kind not in KINDS:
            raise Unfit("")
        else:
            self._note(KINDS[taken.kind](self, taken), taken, name, gives)

    def _note(self, step: Step | None, node: _Node, name: str, gives: str) -> None:
        if step is None:
            self._same[gives] = node.reads[0]
            return
        step = step._replace(name=name, gives=gives, reads=step.reads or (node.reads[0],))
        self._steps[gives], self._shapes[gives] = step, _shape(step, self.shape(step.reads[0]))

    def _attributes(self, node) -> dict[str, Any]:
        """Of a node, by name, with the defaults of its opset. Raises Unfit: some that this opset has not."""
        from onnx import defs, helper

        schema = defs.get_schema(node.op_type, self.opset, "")
        for one in node.attribute:
            known = schema.attributes.get(one.name)
            if known is None or known.type.value != one.type or one.ref_attr_name:
                raise Unfit(f": attribute {shortened(one.name, 30)} in opset {self.opset}")
        if not schema.min_input <= len(node.input) <= schema.max_input or len(node.output) > schema.max_output:
            raise Unfit(f": {len(node.input)} inputs, {len(node.output)} outputs in opset {self.opset}")
        defaults = {name: one.default_value for name, one in schema.attributes.items() if one.default_value.name}
        return {one.name: helper.get_attribute_value(one) for one in (*defaults.values(), *node.attribute)}

    def _of(self, value: str) -> str:
        return self._same.get(value, value)

    def shape(self, value: str) -> tuple | None:
        """Of one input, with None for what is not known; None: of what a node gives that is not read.

        Raises Unfit: no value.
        """
        if value in self._constants or value in self._sizes or not value:
            raise Unfit(": it takes a constant where a value is read")
        return self._shapes.get(value)

    def _computed(self, node: _Node) -> np.ndarray:
        if node.kind == "Constant":
            if "value" in node.given:
                return self._array(node.given["value"])
            forms = (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64))
            for name, dtype in (*forms, ("value_ints", np.int64)):
                if name in node.given:
                    return np.array(node.given[name], dtype)
            raise Unfit(": a constant of another type than numbers")
        array = self.constant(node.reads[0])
        if node.kind == "Cast":
            return _as_type(array, node.given["to"])
        axes = node.given.get("perm", range(array.ndim)[::-1])
        if sorted(axes) != list(range(array.ndim)):
            raise Unfit(f": axes {str(list(axes))[:40]}")
        return array.transpose(axes)

    def constant(self, value: str) -> np.ndarray:
        """A constant, as an array. Raises Unfit: the value is none."""
        if value not in self._constants:
            raise Unfit(": it takes a value where only a constant is read")
        if not isinstance(self._constants[value], np.ndarray):
            self._constants[value] = self._array(self._constants[value])
        return self._constants[value]

    def numbers(self, value: str) -> np.ndarray:
        """A constant of float32. Raises Unfit."""
        array = self.constant(value)
        if array.dtype != np.float32:
            raise Unfit(f": a constant of {array.dtype}")
        return array

    def optional(self, reads: list[str], place: int) -> np.ndarray | None:
        return self.numbers(reads[place]) if len(reads) > place and reads[place] else None

    def is_constant(self, value: str) -> bool:
        return value in self._constants

    def is_size(self, value: str) -> bool:
        return value in self._sizes

    def sizes(self, value: str) -> np.ndarray:
        """Sizes as objects, computed or constant. Raises Unfit: neither."""
        if value in self._sizes:
            return self._sizes[value]
        array = self.constant(value)
        if array.dtype.kind not in "iu" or array.size > MOST_SIZES:
            raise Unfit(": no sizes")
        return array.astype(object)

    def whole(self, value: str) -> list[int]:
        """Sizes that are known, in a row. Raises Unfit: others."""
        sizes = self.sizes(value).ravel().tolist()
        if not all(isinstance(size, int) for size in sizes):
            raise Unfit(": by a size that is not known")
        return sizes

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
        if Path(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{self._path}: weights in {shortened(name, 40)!r}; they may be in its own folder alone")
        file = door.checked(self._path.parent / name, "file of its weights")
        offset, size = int(entries.get("offset", 0)), file.stat().st_size
        length = int(entries.get("length", size - offset))
        if offset < 0 or length < 0 or offset + length > size:
            raise InputError(
                f"{self._path}: {length} bytes of weights at {offset} of {shortened(name, 40)}, which has {size}"
            )
        with open(file, "rb") as stream:
            stream.seek(offset)
            return stream.read(length)


def _named(names) -> str:
    return shortened(", ".join(names), 60)


def _as_type(array: np.ndarray, to: int) -> np.ndarray:
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


def _computed_sizes(reader: _Reader, node: _Node) -> np.ndarray:
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


def _slice(reader: _Reader, node: _Node, sizes: np.ndarray) -> np.ndarray:
    names = ("starts", "ends", "axes", "steps")
    parts = {name: node.given[name] for name in names if name in node.given}  # before opset 10
    parts |= {name: reader.whole(value) for name, value in zip(names, node.reads[1:], strict=False) if value}
    (start,), (end,) = parts["starts"], parts["ends"]
    if sizes.ndim != 1 or list(parts.get("axes", [0])) not in ([0], [-1]) or parts.get("steps", [1]) != [1]:
        raise Unfit(": by axes or steps")
    return sizes[start:end]


def _shape(step: Step, before: tuple | None) -> tuple | None:
    """What a step gives of one input, of what it reads; see _Reader.shape."""
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


def _gemm(reader: _Reader, node: _Node) -> Step:
    given, reads = node.given, node.reads
    _rank(reader, reads[0], 2)
    if given["transA"]:
        raise Unfit(": transA")
    weight, bias = _matrix(reader, reads[1], turned=not given["transB"]), reader.optional(reads, 2)
    weight = weight if given["alpha"] == 1 else weight * given["alpha"]
    return Step("", "linear", weight, 0.0 if bias is None else vector(bias * given["beta"], len(weight)))


def _matmul(reader: _Reader, node: _Node) -> Step:
    rank = _rank(reader, node.reads[0], 2, 3)
    return Step("", "product" if rank == 3 else "linear", _matrix(reader, node.reads[1], turned=True), 0.0)


def _rank(reader: _Reader, value: str, *allowed: int) -> int | None:
    """The dimensions of a value. Raises Unfit: others than are allowed."""
    shape = reader.shape(value)
    if shape is not None and len(shape) + 1 not in allowed:
        raise Unfit(f" of {len(shape) + 1} dimensions")
    return None if shape is None else len(shape) + 1


def _matrix(reader: _Reader, value: str, turned: bool) -> np.ndarray:
    weight = reader.numbers(value)
    if weight.ndim != 2:
        raise Unfit(f": a weight of {weight.ndim} dimensions")
    return weight.T if turned else weight


def _scale(reader: _Reader, node: _Node) -> Step:
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


def _norm(reader: _Reader, node: _Node) -> Step:
    parts, shape = [reader.numbers(value).astype(np.float64) for value in node.reads[1:5]], reader.shape(node.reads[0])
    _rank(reader, node.reads[0], 2, 4)
    if node.given.get("training_mode") or node.outputs > 1 or node.given.get("spatial", 1) != 1:
        raise Unfit(": in training, or not of channels")
    sizes = {(shape or (None,))[0] or parts[0].size, *(one.size for one in parts)}
    if len(sizes) > 1 or any(one.ndim != 1 for one in parts):
        raise Unfit(f": {' and '.join(map(str, sorted(sizes)))} channels")
    return normalised("", *parts, node.given["epsilon"])


def _clip(reader: _Reader, node: _Node) -> Step | None:
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


def _relu(reader: _Reader, node: _Node) -> Step:
    reader.shape(node.reads[0])
    return Step("", "activation", activation=RELU)


def _dropout(reader: _Reader, node: _Node) -> None:
    """What it reads: a dropout drops in training alone."""
    if len(node.reads) > 2 and node.reads[2] and reader.constant(node.reads[2]).any():
        raise Unfit(": in training")


def _cast(reader: _Reader, node: _Node) -> None:
    """What it reads: sizes stay what they are in whole numbers, and values are float32 here, whatever came in."""
    from onnx import TensorProto

    to = node.given["to"]
    wanted = (TensorProto.INT32, TensorProto.INT64) if reader.is_size(node.reads[0]) else (TensorProto.FLOAT,)
    if to not in wanted:
        raise Unfit(f": to {TensorProto.DataType.Name(to).lower()}")


def _flatten(reader: _Reader, node: _Node) -> Step:
    shape, axis = reader.shape(node.reads[0]), node.given["axis"]
    if axis != 1 and (shape is None or axis != -len(shape) or reader.opset < 11):
        raise Unfit(f": from axis {axis}")
    return Step("", "flatten")


def _reshape(reader: _Reader, node: _Node) -> Step:
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


def _convolution(reader: _Reader, node: _Node) -> Step:
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


def _pool(reader: _Reader, node: _Node) -> Step:
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


def _window(node: _Node, kernel: Sequence[int]) -> dict:
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


def _softmax(reader: _Reader, node: _Node) -> Step:
    """Over one axis; before opset 13 over it and all after it."""
    shape, axis = reader.shape(node.reads[0]), node.given["axis"]
    rank = len(shape or ()) + 1
    if shape is not None and (not -rank <= axis < rank or axis % rank == 0):
        raise Unfit(f": over axis {axis}")
    axes = range(axis % rank, rank if reader.opset < 13 else axis % rank + 1)
    return Step("", "softmax", settings={"log": node.kind == "LogSoftmax", "axes": tuple(axes)})


KINDS: dict[str, Callable[[_Reader, _Node], Step | None]] = {
    "Gemm": _gemm, "MatMul": _matmul, "Conv": _convolution, "BatchNormalization": _norm, "Clip": _clip, "Relu": _relu,
    "Flatten": _flatten, "Reshape": _reshape, "Dropout": _dropout, "Cast": _cast, "Softmax": _softmax,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _scale), "LogSoftmax": _softmax,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool", "ReduceMean"), _pool),
}  # fmt: skip
