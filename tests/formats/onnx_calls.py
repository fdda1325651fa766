"""Random ONNX graphs of products, scales, branches and changes of shape, and calls of them, right ones and wrong ones.

`judge` compares what a compiled model takes and gives with ONNX Runtime: acceptance, shapes, types and numbers.
"""

import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import Maker

import spdnn
from spdnn.core.errors import SpdnnError
from spdnn.formats import onnx_files

TYPES = ["float32", "float64", "float16", "bool", *(f"{s}int{bits}" for s in ("", "u") for bits in (8, 16, 32, 64))]
OTHERS = {  # arrays of other types than a model takes, which hold the same numbers or do not
    "float32": [("float64", 1), ("int64", 3), ("float64", 1e300), ("complex64", 1)],
    "bool": [("uint8", 1), ("uint8", 255)],
    "uint8": [("int64", 7), ("int64", -1), ("float32", 0.5)],
    "int8": [("int64", 127), ("int64", 128)],
}
TOLERANCE = 1e-4


class Grower(Maker):
    """A graph that grows a node at a time; `shape` is that of the latest value, of `count` inputs."""

    def __init__(self, seed: int):
        super().__init__(seed=[seed, 7])
        self.sparse = []
        self.count = self.any_of(1, 2, 3, 32)
        rank = self.any_of(1, 2, 2, 2, 2, 3, 4, 4)
        sizes = {2: (self.any_of(8, 32, 40),), 3: (4, 8), 4: (4, 6, 6)}.get(rank, ())
        self.kind = self.any_of(*["float32"] * 8, *TYPES)
        self.shape = (self.count, *sizes) if rank > 1 else (self.any_of(8, 32),)
        self.stated = [self.any_of(None, "n", self.count) if rank > 1 else self.shape[0], *sizes]
        self.stated = [self.any_of(size, size, size, f"free{k}") if k else size for k, size in enumerate(self.stated)]
        self.stated = None if self.random.random() < 0.08 else self.stated
        self.input, self.chain = self.shape, rank > 1 and self.random.random() < 0.5

    def any_of(self, *values):
        return values[int(self.random.integers(len(values)))]

    def constant(self, array):
        array, name = np.asarray(array), f"c{len(self.constants) + len(self.sparse)}"
        if array.ndim == 2 and self.random.random() < 0.1:
            at = np.flatnonzero(array)
            values = numpy_helper.from_array(array.reshape(-1)[at], name)
            self.sparse.append(helper.make_sparse_tensor(values, numpy_helper.from_array(at, "at"), array.shape))
        else:
            self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, kind, *constants, reads=None, **attributes):
        inputs = [self.last, *map(self.constant, constants)] if reads is None else reads
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.last], name=self.last, **attributes))

    def weight(self, *shape):
        density = self.any_of(0.05, 0.1, 0.2, *([1.0] * (not self.chain)))
        return self.draw(*shape, density=density) / np.float32(shape[0] ** 0.5)

    def grow(self):
        steps = [self.product, self.product, self.scale, self.bound, self.reshape, self.activation, self.normal]
        if not self.chain:
            steps += [self.branch, *([self.convolution] * 3 if len(self.shape) == 4 else [])]
        self.any_of(*steps)()

    def product(self):
        if len(self.shape) > 2 and self.random.random() < 0.7:
            return self.reshape()
        width, out = self.shape[-1], self.any_of(8, 32, 40)
        if len(self.shape) == 2 and self.random.random() < 0.6:
            shapes = [(out,), (1, out), (), (1,), (1, 1), (self.shape[0], 1), (self.shape[0], out)]
            turned, extra = int(self.random.random() < 0.5), {"alpha": 0.5, "beta": 2.0} if self.any_of(0, 1) else {}
            weight = self.weight(out, width) if turned else self.weight(width, out)
            self.add("Gemm", weight, *([self.draw(*self.any_of(*shapes))] * self.any_of(0, 1)), transB=turned, **extra)
        else:
            self.add("MatMul", self.weight(width, out))
        self.shape = (*self.shape[:-1], out)

    def convolution(self):
        groups, out, size = self.any_of(1, 1, 2), 16, self.any_of(1, 3)
        bias = [self.draw(out)] * self.any_of(0, 1)
        self.add(
            "Conv", self.weight(out, self.shape[1] // groups, size, size), *bias, group=groups, pads=[size // 2] * 4
        )
        self.shape = (self.shape[0], out, *self.shape[2:])

    def scale(self):
        width, rank = self.shape[-1], len(self.shape)
        shapes = [(), (1,), (width,), (1, width), (1, 1), (1,) * (rank + 1), (*self.shape[1:-2], 1, 1)]
        constant = np.float32(0.5) + np.abs(self.draw(*self.any_of(*shapes)))
        self.add(self.any_of("Add", "Sub", "Mul", "Div"), constant)
        self.shape = np.broadcast_shapes(self.shape, constant.shape)

    def bound(self):
        zero = np.zeros(self.any_of((), (1,), (1, 1), (1, 1, 1)), np.float32)
        self.add(self.any_of("Max", "Min"), zero)
        self.shape = np.broadcast_shapes(self.shape, zero.shape)

    def activation(self):
        kind = self.any_of("Relu", "Clip", "Identity", "Dropout", "Softmax", *(["Sigmoid", "Tanh"] * (not self.chain)))
        bounds = [np.float32(self.any_of(0, -1)), np.float32(self.any_of(1, 6))] if kind == "Clip" else []
        self.add(kind, *bounds, **({"axis": -1} if kind == "Softmax" else {}))

    def normal(self):
        if len(self.shape) in (2, 4):
            parts = [self.draw(self.shape[1]) for _ in range(3)]
            self.add("BatchNormalization", *parts, np.abs(self.draw(self.shape[1])) + np.float32(0.1))

    def reshape(self):
        whole = int(np.prod(self.shape))
        if self.any_of(0, 1):
            axis = self.any_of(0, 1, 1, 1, -1)
            self.add("Flatten", axis=axis)
            first = int(np.prod(self.shape[:axis]))
            self.shape = (first, whole // first)
        else:
            targets = [(self.shape[0], -1), (-1, whole // self.shape[0])] + [(0, -1)] * (len(self.shape) > 1)
            self.add("Reshape", np.array(self.any_of(*targets)))
            self.shape = (self.shape[0], whole // self.shape[0])

    def branch(self):
        """Two branches whose values have the same names."""
        width, before = self.shape[-1], self.last

        def body(name):
            held = numpy_helper.from_array(self.weight(width, 40), "held")
            weight, inside = (held.name, [held]) if self.any_of(0, 1) else (self.constant(self.weight(width, 40)), [])
            nodes = [helper.make_node("MatMul", [before, weight], ["product"])]
            nodes.append(helper.make_node("Relu", ["product"], ["given"]))
            return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info("given")], inside)

        self.nodes.append(helper.make_node("ReduceSum", [before], [f"sum{len(self.nodes)}"], keepdims=0))
        condition = f"positive{len(self.nodes)}"
        zero = self.constant(np.float32(self.any_of(0, 1e9)))
        self.nodes.append(helper.make_node("Greater", [self.nodes[-1].output[0], zero], [condition]))
        self.add("If", reads=[condition], then_branch=body("then"), else_branch=body("else"))
        self.shape = (*self.shape[:-1], 40)

    def save(self, path):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.kind))
        if self.kind != "float32":
            self.nodes.insert(0, helper.make_node("Cast", ["x"], ["cast"], to=onnx.TensorProto.FLOAT))
            for node in self.nodes[1:]:
                for graph in [node, *(inside for each in onnx_files.subgraphs(node) for inside in each.node)]:
                    graph.input[:] = ["cast" if name == "x" else name for name in graph.input]
        last = "cast" if self.last == "x" and self.kind != "float32" else self.last
        inputs, outputs = (
            [helper.make_tensor_value_info("x", kind, self.stated)],
            [helper.make_empty_tensor_value_info(last)],
        )
        graph = helper.make_graph(self.nodes, "grown", inputs, outputs, self.constants, sparse_initializer=self.sparse)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    def calls(self):
        """(arguments, named, the same as ONNX Runtime takes it, None: it takes nothing like it)."""
        x = self.draw(*self.input) * 3
        x = (x > 0 if self.kind == "bool" else np.abs(x)).astype(self.kind)
        yield (x,), {}, x
        yield (), {"x": x}, x
        yield (), {"y": x}, None
        yield (x, x), {}, None
        yield (), {}, None
        for other in (x[:0], np.concatenate([x, x]), x[None], x[..., :1], np.asarray(x[0]), x.swapaxes(0, -1).copy()):
            yield (other,), {}, other
        for kind, value in OTHERS.get(self.kind, ()):
            other = np.full(self.input, value, kind)
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                same = other.astype(self.kind)
            held = kind != "complex64" and np.all(np.isfinite(same)) and np.all(same.astype(kind) == other)
            yield (other,), {}, same if held else None


def judge(seed: int, folder: Path) -> str:
    """Compare a graph and its calls; what the model became.

    Raises:
        AssertionError: the compiled model takes or gives something else than ONNX Runtime does.
    """
    made = Grower(seed)
    for _ in range(int(made.random.integers(1, 6))):
        made.grow()
    path = folder / f"{seed}.onnx"
    made.save(path)
    try:
        session = onnx_files.session(str(path))
    except SpdnnError:
        session = None
    try:
        with warnings.catch_warnings(action="error", category=RuntimeWarning):
            model = spdnn.compile(path, threads=1)
    except SpdnnError as error:
        model, told = None, str(error)
    assert (model is None) == (session is None), f"{seed}: {'compiled' if model else told}; ONNX Runtime: {session}"
    if model is None:
        return "refused"
    for number, (x, named, same) in enumerate(made.calls()):
        try:
            wanted = None if same is None else session.run(None, {"x": same})[0]
        except Exception:  # of many types
            wanted = None
        try:
            found, told = model(*x, **named), ""
        except SpdnnError as error:
            found, told = None, str(error)
        where = f"{seed}, call {number} of {type(model).__name__}"
        # A sum past float32 is refused, and no inputs give no outputs, though a Reshape to -1 cannot say how many.
        if "passed the range of float32" in told or (wanted is None and found is not None and not len(found)):
            continue
        assert (found is None) == (wanted is None), f"{where}: {told or 'taken'}; ONNX Runtime: {wanted is not None}"
        if found is not None:
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), f"{where}: {found.shape}, {wanted.shape}"
            apart, largest = np.abs(found - wanted).max(initial=0), np.abs(wanted).max(initial=1)
            assert apart <= TOLERANCE * largest, f"{where}: off by {apart:.2g} of {largest:.2g}"
    path.unlink()
    return type(model).__name__
