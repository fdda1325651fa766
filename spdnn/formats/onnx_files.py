"""Models in .onnx: ONNX Runtime reads and simplifies them; a chain of layers becomes a network.

ONNX Runtime's basic optimisations compute what is constant (masks of pruned weights, shapes), drop what does nothing in
inference, and fold BatchNorm into convolutions. Weights may be in the file or in others of the same folder.
"""

import contextlib
import itertools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.core import safe_open
from spdnn.core.errors import InputError, Unavailable, install
from spdnn.core.locks import cached_property
from spdnn.core.network import RELU, Activation, MemoryNetwork
from spdnn.core.signature import ModelInput, Signature
from spdnn.core.validation import shorten
from spdnn.formats.detection import NO_FILE, file_name
from spdnn.formats.options import USUAL, ReadOptions
from spdnn.formats.state_dicts import norm_scale
from spdnn.formats.steps import Step, UnsupportedStep, channels, fuse_steps, network_of, vector

ENDS = ("Softmax", "LogSoftmax")  # what may follow the last layer of a chain
LOCATION, SEARCHED = b"location", 1 << 20  # the key of a weight's file in a model; bytes that are searched at a time
LARGE_MODEL = 1 << 30  # bytes of a model that goes through a file: a message holds 2^31
SILENT = 4  # of ONNX Runtime: messages come as exceptions
TYPES = {  # onnx.TensorProto.DataType, of types that NumPy has; 8: strings
    1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 8: np.object_,
    9: np.bool_, 10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64,
}  # fmt: skip


def runtime():
    """The module onnxruntime, without telemetry. Raises Unavailable: it or the package onnx is missing."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else its import writes a device's id into the home folder
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        name = (error.name or "onnxruntime").partition(".")[0]
        raise Unavailable(f"the package {name} is missing; {install('onnx')} brings it") from error
    assert onnx
    return onnxruntime


def session(model: Any, change: Callable[[Any], None] = lambda options: None, what: Any = "the model") -> Any:
    """An InferenceSession on the processor of a file, its content or a ModelProto; `change` gets its SessionOptions.

    Raises:
        InputError: ONNX Runtime does not run it, with its reason.
        Unavailable: a package is missing.
    """
    ort = runtime()
    options = ort.SessionOptions()
    options.log_severity_level, options.inter_op_num_threads = SILENT, 1
    change(options)
    model = _in_one(model) if isinstance(model, str | os.PathLike) else model
    with contextlib.ExitStack() as stack:
        if isinstance(model, str | os.PathLike | bytes):
            source: str | bytes = os.fspath(model)
        elif model.ByteSize() < LARGE_MODEL:
            source = model.SerializeToString()
        else:
            import onnx

            source = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spdnn-")), "model.onnx"))
            copy = type(model)()
            copy.CopyFrom(model)  # whose weights onnx.save moves to the file
            onnx.save(copy, source, save_as_external_data=True)
        try:
            return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of many types, none of them public
            raise InputError(f"{what}: ONNX Runtime cannot run it: {reason(error)}") from error


def without_optimisations(options: Any) -> None:
    """For `session`: each node of the model as its file has it."""
    options.graph_optimization_level = runtime().GraphOptimizationLevel.ORT_DISABLE_ALL


def _in_one(path: str | os.PathLike) -> Any:
    """The ModelProto of a file whose weights are in other files; else `path` itself.

    ONNX Runtime maps those files for as long as the session lives, and who overwrites one changes a model that serves,
    or ends its process by a bus error.
    """
    import onnx
    from onnx.external_data_helper import load_external_data_for_model, uses_external_data

    # Of what is no sound model, ONNX Runtime says why.
    with contextlib.suppress(Exception), safe_open.open_file(path) as file:
        before = b""
        while (block := file.read(SEARCHED)) and LOCATION not in before + block:
            before = block[-len(LOCATION) :]
        if block:  # it may be the name of anything
            model = onnx.load(path, load_external_data=False)
            if any(map(uses_external_data, _tensors_of(model.graph))):
                load_external_data_for_model(model, str(Path(path).parent))
                return model
    return path


def _refuse_external(model: Any) -> None:
    """Raise InputError where weights of the bytes of a model, or of a ModelProto, are in other files: those are in the
    folder of a file, and this model has none."""
    import onnx
    from onnx.external_data_helper import uses_external_data

    if isinstance(model, bytes):
        if LOCATION not in model:  # which most have not, and to parse them takes time
            return
        try:
            model = onnx.ModelProto.FromString(model)
        except Exception:  # of what is no sound model, ONNX Runtime says why
            return
    for tensor in _tensors_of(model.graph):
        if uses_external_data(tensor):
            raise InputError(
                f"{NO_FILE} has weights in other files ({shorten(tensor.name, 30)!r}), and no folder to find them in: "
                "give the path of its .onnx file, or what onnx.load(path) makes of that"
            )


def _tensors_of(graph) -> Iterator[Any]:
    """All constants of a graph, and of the graphs in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
        for inside in subgraphs(node):
            yield from _tensors_of(inside)


@dataclass(frozen=True)
class OnnxGraph:
    """An ONNX model, as its file has it and as ONNX Runtime's basic optimisations leave it.

    Attributes:
        path: of the file; None: there is none any more.
        name: in messages.
        model: the onnx.ModelProto, with all that is constant computed.
    """

    path: Path | None
    name: Any
    model: Any

    @classmethod
    def read(cls, source: Any, name: Any = None) -> "OnnxGraph":
        """The model in a file, in the bytes of one, or in a ModelProto, which stays as it is.

        Args:
            source: the path, the bytes or the ModelProto.
            name: what messages call it; by default the path of its file.

        Raises:
            InputError: no sound ONNX model, or one that ONNX Runtime does not run; operators that it does not know
                are named. Or weights of bytes or of a ModelProto are in other files.
            Unavailable: the package onnx or onnxruntime is missing.
        """
        ort, path = runtime(), Path(source) if isinstance(source, str | os.PathLike) else None
        name = name or (NO_FILE if path is None else source)
        import onnx

        if path is None:
            _refuse_external(source)
        with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
            written = Path(folder, "model.onnx")

            def change(options) -> None:
                options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
                options.optimized_model_filepath = str(written)
                options.intra_op_num_threads = 1
                configure, weights = options.add_session_config_entry, "session.optimized_model_external_initializers"
                configure("session.disable_prepacking", "1")
                configure(f"{weights}_file_name", "weights")
                configure(f"{weights}_min_size_in_bytes", "1024")

            session(source if path is None else path, change, name)
            model = onnx.load(written)
        _densify(model.graph)
        if model.ir_version < 4:  # whose initializers are listed among the inputs, and are constants all the same
            held = {tensor.name for tensor in model.graph.initializer}
            for value in [value for value in model.graph.input if value.name in held]:
                model.graph.input.remove(value)
        return cls(path, name, model)

    @classmethod
    def of_content(cls, content: bytes, name: Any) -> "OnnxGraph":
        """A model without a file, from the bytes of `model`; Unavailable: a package is missing."""
        runtime()
        import onnx

        return cls(None, name, onnx.ModelProto.FromString(content))

    def session(self, change: Callable[[Any], None] = lambda options: None) -> Any:
        """A session of the model as its file has it. Raises as `session`."""
        return session(self.path or self.model, change, self.name)

    @cached_property
    def signature(self) -> Signature:
        """The inputs that a caller must give."""
        given = {tensor.name for tensor in self.model.graph.initializer}
        inputs = tuple(_input(value) for value in self.model.graph.input if value.name not in given)
        return Signature(str(self.name), inputs)

    def chain(self, layers: int | None = None) -> tuple[MemoryNetwork, Step | None]:
        """(the network of a chain of layers, of the first so many; the softmax behind the last layer, if there is one).

        Raises:
            InputError: another model; the sentence names the first node that no network has.
        """
        steps = self._steps()
        softmax = steps.pop() if steps[-1].kind in ENDS else None
        return network_of(Path(self.name), steps, "onnx", layers), softmax

    def network(self, last: str | None = None, layers: int | None = None) -> MemoryNetwork:
        """The network of a chain of layers, without a softmax at its end where `last` = 'none' says so.

        Raises:
            InputError: no chain of layers; a softmax, and nothing said; something said that a model says itself.
        """
        network, softmax = self.chain(layers)
        if last not in (None, "none") or (last and not softmax):
            raise InputError(f"{self.name}: an ONNX model has its own last activation; it cannot be {last!r}")
        if softmax and last is None:
            raise InputError(
                f"{self.name}: it ends in a softmax ({softmax.name[:40]!r}), which is not run here; --last none (in "
                "Python spdnn.open_network(path, last='none')) stops at the logits, and the predicted classes stay the "
                "same"
            )
        return network

    @np.errstate(all="ignore")  # what is not finite is refused in the layer that has it
    def _steps(self) -> list[Step]:
        """The steps of a model each of whose nodes is a layer, or part of one, and reads the one before it; a softmax
        of the last features may be at the end, as a step of its own kind. Raises as `chain`.
        """
        from onnx import numpy_helper

        graph, path = self.model.graph, self.name
        constants = {tensor.name: tensor for tensor in graph.initializer}
        inputs = self.signature.inputs
        if len(inputs) != 1 or len(graph.output) != 1:
            raise InputError(
                f"{path}: {len(inputs)} inputs and {len(graph.output)} outputs; a network has one of each, and "
                "spdnn.compile runs other models"
            )
        (last, dtype, shape, _), steps = inputs[0], []
        if dtype is None or shape is None or len(shape) < 2:
            said = "a type that NumPy does not have" if dtype is None else "no shape" if shape is None else "no rows"
            raise InputError(
                f"{path}: it is no chain of layers: {last!r} states {said}; spdnn.compile runs any ONNX model"
            )
        sizes = [size if isinstance(size, int) and size else None for size in shape]
        reader = Chain(constants, numpy_helper.to_array, sizes, dtype == np.float32)
        read = Counter(value for node in graph.node for value in node.input)
        read.update(output.name for output in graph.output)
        for node in graph.node:
            try:
                if read[last] != 1 or last not in node.input or sum(map(bool, node.output)) != 1:
                    raise UnsupportedStep(": it does not follow the one before it alone")
                if steps and steps[-1].kind in ENDS:
                    raise UnsupportedStep(": after a softmax")
                step = reader.step(node, last)
            except UnsupportedStep as error:
                raise InputError(
                    f"{path}: it is no chain of layers: {shorten(node.name or node.output[0], 40)!r} "
                    f"({shorten(node.op_type, 30)}{error}); spdnn.compile runs any ONNX model"
                ) from error
            if step is not None:
                steps.append(step._replace(name=node.name or node.output[0]))
            last = node.output[0]
        if last != graph.output[0].name or not steps:
            raise InputError(f"{path}: its output does not come from its input through layers")
        return list(fuse_steps(steps))


def open_network(path: Any, options: ReadOptions) -> MemoryNetwork:
    """The network in an ONNX model, a path or in memory.

    Raises:
        InputError: it is no chain of layers, or the options state what an ONNX model states.
    """
    if options.bias is not None or options.clip != USUAL or options.rows is not None or options.epsilon is not None:
        raise InputError(
            f"{file_name(path)}: leave out --bias, --clip, --rows and --epsilon: an ONNX model states them"
        )
    return OnnxGraph.read(path).network(options.last, options.layers)


def _densify(graph) -> None:
    """Make plain constants of those that a graph, and the graphs in it, hold as sparse tensors."""
    from onnx import numpy_helper

    for sparse in graph.sparse_initializer:
        values, indices = (numpy_helper.to_array(part) for part in (sparse.values, sparse.indices))
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
        dense.reshape(-1)[places] = values
        graph.initializer.append(numpy_helper.from_array(dense, sparse.values.name))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for inside in subgraphs(node):
            _densify(inside)


def subgraphs(node) -> list:
    """The branches or the body of a node."""
    graphs = ([attribute.g] if attribute.HasField("g") else attribute.graphs for attribute in node.attribute)
    return list(itertools.chain.from_iterable(graphs))


def names_in(graph) -> Iterator[str]:
    yield from (output.name for output in graph.output)
    for node in graph.node:
        yield from node.input
        for inside in subgraphs(node):
            yield from names_in(inside)


def _input(value) -> ModelInput:
    if value.type.WhichOneof("value") != "tensor_type":
        return ModelInput(value.name, None, None, tensor=False)
    kind = value.type.tensor_type
    dtype, shape = TYPES.get(kind.elem_type), None
    if kind.HasField("shape"):
        # A negative size is a free one to ONNX Runtime.
        sizes = [size.dim_value if size.HasField("dim_value") else size.dim_param or None for size in kind.shape.dim]
        shape = tuple(None if isinstance(size, int) and size < 0 else size for size in sizes)
    return ModelInput(value.name, None if dtype is None else np.dtype(dtype), shape)


class Chain:
    """What each node of a chain is; `shape` of the features that the next one reads, None for a size that is free."""

    def __init__(self, constants: dict, to_array: Callable[[Any], np.ndarray], shape: list, floats: bool):
        self._constants, self._to_array, self.shape, self._floats = constants, to_array, shape, floats

    def step(self, node, last: str) -> Step | None:
        """Raises UnsupportedStep: no layer, nor a part of one."""
        from onnx import helper

        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.domain not in ("", "ai.onnx") or node.op_type not in KINDS:
            raise UnsupportedStep("")
        if not self._floats and node.op_type not in ("Cast", "Flatten", "Reshape"):
            raise UnsupportedStep(": of other numbers than float")
        return KINDS[node.op_type](self, node, given, list(node.input).index(last))

    def constant(self, node, place: int) -> np.ndarray | None:
        """float32, of an input that may be left out. Raises UnsupportedStep: it is no constant."""
        if len(node.input) <= place or not node.input[place]:
            return None
        if node.input[place] not in self._constants:
            raise UnsupportedStep(": it takes a value where only a constant is read")
        return self._to_array(self._constants[node.input[place]])

    def rows(self) -> None:
        """Raises UnsupportedStep: features that are no rows."""
        if len(self.shape) != 2:
            raise UnsupportedStep(f": of {len(self.shape)} dimensions")

    def cast(self, node, given: dict, place: int) -> None:
        if given["to"] != 1:
            raise UnsupportedStep(": to another type than float")
        self._floats = True

    def flatten(self, node, given: dict, place: int) -> Step:
        if given.get("axis", 1) not in (1, 1 - len(self.shape)):
            raise UnsupportedStep(f": from axis {given['axis']}")
        return self.flat()

    def reshape(self, node, given: dict, place: int) -> Step:
        """One that keeps the inputs and joins all else."""
        target, sizes = self.constant(node, 1), self.shape[1:]
        target = [] if target is None or place else target.tolist()
        width = None if None in sizes else int(np.prod(sizes))
        kept = len(target) == 2 and (target[0] in (0, self.shape[0]) or (target[0] == -1 and target[1] == width))
        if not kept or target[1] not in (-1, width) or (given.get("allowzero") and 0 in target):
            raise UnsupportedStep(f": to {str(target)[:40]}")
        return self.flat()

    def flat(self) -> Step:
        self.shape = [self.shape[0], None if None in self.shape[1:] else int(np.prod(self.shape[1:]))]
        return Step("", "flatten")

    def gemm(self, node, given: dict, place: int) -> Step:
        self.rows()
        weight, bias = self.constant(node, 1 - place), self.constant(node, 2) if node.op_type == "Gemm" else None
        if weight is None or weight.ndim != 2 or place or given.get("transA"):
            why = "weights times values" if place else "a weight of other dimensions than two, or transA"
            raise UnsupportedStep(f": {why}")
        weight = weight if given.get("transB") else weight.T
        if given.get("alpha", 1) != 1:
            weight = weight.astype(np.float64) * given["alpha"]
        self.shape = [self.shape[0], len(weight)]
        if bias is not None and bias.ndim > 2:
            raise UnsupportedStep(f": a C of {bias.ndim} dimensions")
        shift = 0.0 if bias is None else vector(bias.astype(np.float64) * given.get("beta", 1), len(weight))
        return Step("", "linear", weight, shift)

    def scale(self, node, given: dict, place: int) -> Step:
        """Add, Sub, Mul or Div of a constant."""
        constant = self.constant(node, 1 - place)
        if constant is None:
            raise UnsupportedStep(" of two values")
        number = channels(constant, tuple(self.shape[1:]))
        if place and node.op_type == "Div":
            raise UnsupportedStep(": a constant divided by a value")
        difference = (-1.0, number) if place else (1.0, -number)
        kinds = {"Add": (1.0, number), "Sub": difference, "Mul": (number, 0.0), "Div": (1 / number, 0.0)}
        return Step("", "scale", *kinds[node.op_type])

    def norm(self, node, given: dict, place: int) -> Step:
        self.rows()
        parts = [self.constant(node, k) for k in range(1, 5)]
        if any(part is None for part in parts) or given.get("training_mode"):
            raise UnsupportedStep(": in training")
        return norm_scale("", *(part.astype(np.float64) for part in parts), given.get("epsilon", 1e-5))

    def relu(self, node, given: dict, place: int) -> Step:
        return Step("", "activation", activation=RELU)

    def clip(self, node, given: dict, place: int) -> Step | None:
        """Clip, or Max or Min with one number, which torch makes of a clamp."""
        if node.op_type == "Clip":
            low, high = (self.constant(node, k) for k in (1, 2))
        else:
            bound = self.constant(node, 1 - place) if len(node.input) == 2 else None
            if bound is None or bound.size != 1 or bound.ndim > len(self.shape):
                raise UnsupportedStep(" of several values")
            low, high = (bound, None) if node.op_type == "Max" else (None, bound)
        least = float(given.get("min", -np.inf) if low is None else low.item())
        most = float(given.get("max", np.inf) if high is None else high.item())
        largest = float(np.finfo(np.float32).max)
        if least <= -largest and most >= largest:
            return None
        if least == 0 and most > 0:
            return Step("", "activation", activation=RELU if most >= largest else Activation("relu", most))
        raise UnsupportedStep(f": to {least:g} and {most:g}; 0 and a positive number are an activation here")

    def softmax(self, node, given: dict, place: int) -> Step:
        self.rows()
        if given.get("axis", -1) not in (1, -1):
            raise UnsupportedStep(f": over axis {given['axis']}")
        return Step("", node.op_type)

    def same(self, node, given: dict, place: int) -> None:
        """Nothing in inference."""
        if any(node.input[k] for k in range(1, len(node.input))):
            raise UnsupportedStep(": in training")


KINDS: dict[str, Callable[[Chain, Any, dict, int], Step | None]] = {
    "Gemm": Chain.gemm, "MatMul": Chain.gemm, "Relu": Chain.relu, "BatchNormalization": Chain.norm,
    "Cast": Chain.cast, "Flatten": Chain.flatten, "Reshape": Chain.reshape, "Identity": Chain.same,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), Chain.scale), **dict.fromkeys(("Clip", "Max", "Min"), Chain.clip),
    **dict.fromkeys(ENDS, Chain.softmax), "Dropout": Chain.same,
}  # fmt: skip


def reason(error: Exception) -> str:
    """ONNX Runtime's message without its codes, and without places and signatures of its own source."""
    return shorten(" ".join(_OWN.sub("", str(error).strip()).split()), 200)


_OWN = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed:|\S+\.(cc|h):\d+ ([^()]*::.*\) (?=[A-Z]))?"
)
