"""Models in .onnx, as Steps: what the file's nodes do, with BatchNorm, activations and constants where they belong.

Whatever a model holds that no Step says is named, all of it in one sentence. Weights may be in the file or, as large
ones are, in one beside it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.common import door
from spdnn.common.errors import InputError, Unavailable, install
from spdnn.common.validation import WHOLE, quoted, shortened
from spdnn.formats.onnx_operators import KINDS, MOST_SIZES, SIZES, Node, as_type, computed_sizes, shape_after
from spdnn.formats.steps import Step, Unfit, needed, network_of, together
from spdnn.problem.network import MemoryNetwork

MOST = (1 << 31) - 1  # bytes of a message of Protocol Buffers
OPSETS = range(7, 27)  # that are known; before 7 operators broadcast in another way
OTHERS = ("Tanh", "Sigmoid", "LeakyRelu", "PRelu", "Gelu", "Elu", "Selu", "Celu", "Mish", "Softplus", "Softsign",
          "HardSigmoid", "HardSwish", "ThresholdedRelu", "Erf")  # activations that are not read  # fmt: skip
OWN = ("", "ai.onnx")  # names of ONNX's own domain


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
        raise Unavailable(f"{path}: the package onnx is missing; {install('onnx')} brings it") from error
    with door.sound(f"{path}: this is no sound ONNX model"):
        model = onnx.load_model_from_string(door.whole(path, MOST))
        return Reader(Path(path), model).steps()


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
            f"{path}: it ends in a softmax ({steps[-1].name[:40]!r}), which is not run here; --last none (in Python "
            "spdnn.open_network(path, last='none')) stops at the logits, and the predicted classes stay the same"
        )
    return network_of(Path(path), steps[: len(steps) - ends], "onnx", layers)


class Reader:
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
        other = any(node.op_type in OTHERS for node in graph.node)
        read = " (activations are Relu, Clip from 0, Softmax and LogSoftmax)" if other else ""
        together(self._path, problems, f"not all of it can be read{read}")
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
        taken = Node(node.op_type, self._attributes(node), reads, sum(map(bool, node.output)))
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
            self._sizes[gives] = computed_sizes(self, taken)
        elif taken.kind not in KINDS:
            raise Unfit("")
        else:
            self._note(KINDS[taken.kind](self, taken), taken, name, gives)

    def _note(self, step: Step | None, node: Node, name: str, gives: str) -> None:
        if step is None:
            self._same[gives] = node.reads[0]
            return
        step = step._replace(name=name, gives=gives, reads=step.reads or (node.reads[0],))
        self._steps[gives], self._shapes[gives] = step, shape_after(step, self.shape(step.reads[0]))

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

    def _computed(self, node: Node) -> np.ndarray:
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
            return as_type(array, node.given["to"])
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


def _named(names) -> str:
    return shortened(", ".join(names), 60)
