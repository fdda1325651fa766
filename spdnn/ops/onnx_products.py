"""The pruned products in the graph of an ONNX model, and the same graph with ours in their places.

A MatMul, Gemm or Conv whose weights are constants with many zeros becomes a node `GraphProduct` of the domain spdnn
(spdnn/kernels/cpu/onnx_products.cpp), with the bias and the activation that follow it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.formats.onnx_files import names_in, subgraphs

MOST_NONZERO = 0.5  # of the weights of a product that is worth a trial
LEAST_WEIGHTS = 1024
DOMAIN = "spdnn"
# Operators that make a large difference of a small one: what follows them says nothing of the products before.
JUMPS = {
    "ArgMax", "ArgMin", "Bernoulli", "Cast", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater",
    "GreaterOrEqual", "Hardmax", "Less", "LessOrEqual", "Mod", "Multinomial", "NonMaxSuppression", "NonZero",
    "QuantizeLinear", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Round", "Sign", "TopK",
    "Unique",
}  # fmt: skip


@dataclass(frozen=True)
class GraphProduct:
    """A product in a graph.

    Attributes:
        nodes: those that it replaces, in order: the product, a bias, an activation.
        reads, gives: names of values.
        matrix: float32 (outputs, inputs x kernel) by rows, zeros left out.
        bias: float32 (outputs,).
        window: of a convolution, as the kernels take it; or None.
        path: to its graph: of each graph around it, the number of the node and of the branch; empty: the model's own.
        constants: that the nodes read.
        outside: whether it reads a value of the model's own graph.
        names: by which a profile of ONNX Runtime may call it, with whatever is fused with it: of its first node, and of
            the outputs of its nodes; follower: the output of the only node that reads it, or empty.
    """

    nodes: tuple
    reads: str
    gives: str
    matrix: Any = field(repr=False)
    bias: np.ndarray = field(repr=False)
    low: float
    high: float
    window: tuple[int, ...] | None
    path: tuple[int, ...]
    constants: tuple = field(repr=False)
    outside: bool = True
    names: frozenset[str] = frozenset()
    follower: str = ""

    @property
    def place(self) -> tuple:
        """What tells it from all others of the model: branches of two graphs may give values of one name."""
        return self.path, self.gives

    @property
    def name(self) -> str:
        return self.nodes[0].name or self.nodes[0].output[0]

    @property
    def nonzero(self) -> float:
        """The part of weights that are not zero."""
        return self.matrix.nnz / max(1, np.prod(self.matrix.shape))


def products(
    graph, outer: Mapping[str, Any] | None = None, path: tuple[int, ...] = (), hidden: frozenset[str] = frozenset()
) -> Iterator[GraphProduct]:
    """All products of a graph that are worth a trial, those of its branches and loops among them.

    Args:
        outer: constants of the graphs around it; path: to it.
        hidden: names of values in graphs on the path, which are no values of the model's own graph.
    """
    if path:
        hidden |= {*(value.name for value in graph.input), *(name for node in graph.node for name in node.output)}
    # Weights must be constants: initialisers, here or around a branch, that no caller may replace.
    constants = {**(outer or {}), **{tensor.name: tensor for tensor in graph.initializer}}
    for value in graph.input:
        constants.pop(value.name, None)  # a default that a caller may replace
    readers, reads = _readers(graph)
    for number, node in enumerate(graph.node):
        # Branches and loops have graphs of their own. The body of a Scan must state shapes, which end at our nodes.
        for branch, inside in enumerate(subgraphs(node) if node.op_type != "Scan" else ()):
            yield from products(inside, constants, (*path, number, branch), hidden)
        parts = _product(node, constants)
        if parts is not None:
            product = _fuse_epilogue(node, *parts, constants, readers, reads, path)
            yield replace(product, outside=product.reads not in hidden)


def _product(node, constants: Mapping[str, Any]) -> tuple | None:
    """(matrix, bias, window) of a node that is a product with constant weights, many of them zero."""
    from onnx import TensorProto

    if node.domain not in ("", "ai.onnx") or node.op_type not in PRODUCTS:
        return None
    # Small products are not worth a call of ours.
    tensor = constants.get(node.input[1])
    if tensor is None or tensor.data_type != TensorProto.FLOAT or np.prod(tensor.dims) < LEAST_WEIGHTS:
        return None
    bias = np.zeros(1, np.float32)
    if len(node.input) > 2 and node.input[2]:
        if node.input[2] not in constants:
            return None
        bias = _array(constants[node.input[2]])
    # Dense weights stay with ONNX Runtime; so do infinities and NaN, whose products with zero are not zero.
    weight = _array(tensor)
    if np.count_nonzero(weight) > MOST_NONZERO * weight.size or not np.isfinite(weight).all():
        return None
    attributes = _attributes(node)
    parts = PRODUCTS[node.op_type](weight, attributes)
    if parts is None:
        return None
    (matrix, window), bias = parts, bias * np.float32(attributes.get("beta", 1))
    # A bias of another shape is broadcast in a way that our kernels do not know: (rows, 1) is one for each row.
    if bias.ndim > 2 or not bias.size:
        return None
    if bias.size > 1 and (bias.size != matrix.shape[0] or bias.shape[-1] != bias.size):
        return None
    return matrix.astype(np.float32), np.broadcast_to(bias.ravel(), matrix.shape[0]).astype(np.float32), window


def _linear(weight: np.ndarray, attributes: dict) -> tuple | None:
    """(matrix, no window) of MatMul and Gemm."""
    if weight.ndim != 2 or attributes.get("transA"):
        return None
    return sp.csr_array(weight if attributes.get("transB") else weight.T) * np.float32(attributes.get("alpha", 1)), None


def _convolution(weight: np.ndarray, attributes: dict) -> tuple | None:
    """(matrix, window) of a Conv over height and width, if it states them: a window is (channels, height, width,
    strides, pads, dilations, groups)."""
    shape = weight.shape
    if list(attributes.get("kernel_shape", shape[2:])) != list(shape[2:]):
        return None
    if len(shape) != 4 or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    defaults = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    strides, pads, dilations, groups = (attributes.get(name, usual) for name, usual in defaults.items())
    window = shape[1] * groups, *shape[2:], *strides, *pads, *dilations, groups
    return _of_groups(weight.reshape(len(weight), -1), groups), window


def _of_groups(weight: np.ndarray, groups: int) -> Any:
    """The matrix of all groups of a convolution: each reads its own channels."""
    matrix = sp.csr_array(weight)
    if groups == 1:
        return matrix
    outputs, inputs = weight.shape
    first = np.arange(outputs) // (outputs // groups) * inputs  # column of each row
    columns = matrix.indices + np.repeat(first, np.diff(matrix.indptr)).astype(matrix.indices.dtype)
    return sp.csr_array((matrix.data, columns, matrix.indptr), shape=(outputs, inputs * groups))


# By kind of node: a function of its weights and attributes, which gives (matrix, window), or None for no product.
PRODUCTS: dict[str, Callable[[np.ndarray, dict], tuple | None]] = {
    "MatMul": _linear, "Gemm": _linear, "Conv": _convolution,
}  # fmt: skip


def _fuse_epilogue(node, matrix, bias, window, constants, readers, reads: Counter, path: tuple) -> GraphProduct:
    """The product with the bias and the activation that follow it and read nothing else."""
    nodes, low, high = [node], -np.inf, np.inf

    def after() -> Any:
        value = nodes[-1].output[0]
        return readers[value] if reads[value] == 1 and value in readers else None

    # A bias and an activation are fused, where nobody else reads what is in between.
    following = after()
    if following is not None and following.op_type == "Add" and window is None:
        other = [value for value in following.input if value != nodes[-1].output[0]]
        shift = _array(constants[other[0]]) if len(other) == 1 and other[0] in constants else None
        if shift is not None and shift.dtype == np.float32 and shift.shape == bias.shape:
            bias, _ = bias + shift, nodes.append(following)
            following = after()
    # A clip and a ReLU are both bounds of the stored value.
    limits = _limits(following, constants) if following is not None else None
    if limits is not None:
        (low, high), _ = limits, nodes.append(following)
    used = {value: constants[value] for each in nodes for value in each.input if value in constants}
    gives, weights, behind = nodes[-1].output[0], tuple(used.values()), after()
    names = frozenset(filter(None, (node.name, *(each.output[0] for each in nodes))))
    return GraphProduct(
        tuple(nodes), node.input[0], gives, matrix, bias, low, high, window, path, weights, names=names,
        follower="" if behind is None else behind.output[0],
    )  # fmt: skip


def _limits(node, constants: Mapping[str, Any]) -> tuple[float, float] | None:
    """(least, most) of an activation that clips."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Relu":
        return 0.0, np.inf
    if node.op_type != "Clip" or any(value and value not in constants for value in node.input[1:]):
        return None
    attributes = _attributes(node)
    bounds = [_array(constants[value]).item() if value else None for value in (*node.input[1:], "", "")][:2]
    low, high = (
        attributes.get(name) if bound is None else bound for bound, name in zip(bounds, ("min", "max"), strict=True)
    )
    most = float(np.finfo(np.float32).max)  # where ONNX Runtime bounds what has no bound
    return -most if low is None else float(low), most if high is None else float(high)


def _readers(graph) -> tuple[dict[str, Any], Counter]:
    """(the last node that reads each value, how often each is read): by nodes, by what is inside them, as an output."""
    readers, reads = {}, Counter(output.name for output in graph.output)
    for node in graph.node:
        for value in node.input:
            readers[value] = node
            reads[value] += 1
        for inside in subgraphs(node):
            reads.update(names_in(inside))
    return readers, reads


def jumps(graph) -> bool:
    """Whether an operator of JUMPS, or one of another domain, is in a graph or in one inside it."""
    return any(
        node.op_type in JUMPS or node.domain not in ("", "ai.onnx") or any(map(jumps, subgraphs(node)))
        for node in graph.node
    )


def _attributes(node) -> dict[str, Any]:
    from onnx import helper

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _array(tensor) -> np.ndarray:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)
