"""The contract of a program in a contest: prepared outside the clock, called on it, its outputs as arrays.

A program solves a `Product` (one sparse product), a layer with its features, a `Network`, or another ONNX model.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from spdnn.bench.contest import digest
from spdnn.bench.engines.library import Library
from spdnn.core.errors import Unavailable, absent
from spdnn.core.network import Layer, Network
from spdnn.core.resources import COMPARISON_SHARE, available_bytes
from spdnn.ops.topology import Topology

OURS, SPARSE, DENSE = "ours", "sparse", "dense"  # kinds of programs, as records have them
COPIES = 3  # of dense weights that a library holds at most, while it makes its own layout


@dataclass(frozen=True)
class Product:
    """One problem with its operands, float32.

    Attributes:
        operation: spmm (out (M, N) = A first, first (K, N)) or sddmm (out (nnz,) = first[i] . second[j], first (M, N),
            second (K, N)).
        values: (nnz,) of A; of sddmm they play no part.
        second: None of spmm.
    """

    operation: str
    topology: Topology
    values: np.ndarray
    first: np.ndarray
    second: np.ndarray | None

    @property
    def width(self) -> int:
        """Columns of the dense operands: N."""
        return self.first.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        return (self.topology.rows, self.width) if self.operation == "spmm" else (self.topology.nnz,)

    @property
    def multiply_adds(self) -> tuple[int, int]:
        """On nonzeros (half of the useful operations), and on all entries."""
        rows, inner = self.topology.shape
        return self.topology.nnz * self.width, rows * inner * self.width

    @property
    def csr(self) -> tuple[np.ndarray, np.ndarray]:
        """(columns, offsets) of the sparse matrix with 32 bits, as the libraries here take them."""
        return self.topology.columns.astype(np.int32), self.topology.offsets.astype(np.int32)

    @property
    def csr_bytes(self) -> int:
        """Of the sparse matrix with these indices and its values."""
        return 4 * (self.topology.rows + 1) + 8 * self.topology.nnz

    @property
    def operand_bytes(self) -> int:
        """Of dense operands and the output."""
        second = 0 if self.second is None else self.second.nbytes
        return self.first.nbytes + second + 4 * int(np.prod(self.shape, dtype=np.int64))


class TimedProgram(abc.ABC):
    """A program on one problem. The constructor makes layouts and handles; no sample includes it.

    Attributes:
        name, kind: as records have them; kind is OURS, SPARSE or DENSE.
        takes: types of models that it runs.
        engine: the engine around the same library, which knows its version and sets its threads; needs: where there is
            none, by module, the extra that installs it.
        version: of the library; notes: how threads were set, layout; values that JSON can hold.
        threads_used: one where a library has no threads.
        precision: of a model, the type that it computes in: float32, bfloat16, float16.
        matrix_bytes: of all weights, or of the sparse matrix, as the program holds them (of its positions, where values
            play no part).
        attention_bytes: of masks and scores, of a whole model with attention.
        own_seconds: of the last turn, by the clock of the program, where it runs in a process of its own; None: the
            contest's clock counts. own_processor_seconds: that this process has taken so far.
    """

    name: str
    kind: str
    takes: tuple[type, ...] = (Network,)
    engine: type[Library] | None = None
    needs: Mapping[str, str] = MappingProxyType({})
    version: str
    notes: dict
    threads_used: int
    precision: str = "float32"
    matrix_bytes: int
    attention_bytes: int | None = None
    own_seconds: float | None = None
    own_processor_seconds: float = 0.0

    @classmethod
    def missing(cls) -> str | None:
        """None when it can run here, else one sentence."""
        if cls.engine:
            return cls.engine().missing()
        return next(filter(None, (absent(module, extra) for module, extra in cls.needs.items())), None)

    def start(self, threads: int, layout: str) -> None:
        """Start the library of `engine` with so many threads: version, threads_used and notes."""
        started = self.engine().start(threads)
        self.version = started["library"].split(", ")[-1]
        self.threads_used = started.get("threads_used", threads)
        self.notes = {"threads_set": started.get("threads_set", "it has one"), "layout": layout}

    @abc.abstractmethod
    def __call__(self, x: Any = None) -> Any:
        """One call, on what `convert_inputs` gave; a product or layer has its operands. The next may reuse it."""

    def prepare_shapes(self, *x: np.ndarray) -> None:  # noqa: B027  most programs have nothing to prepare
        """Get ready for calls of inputs of these shapes."""

    def convert_inputs(self, *x: np.ndarray) -> Any:
        """The inputs of a call as the library takes them; of a network, rows of float32 (inputs, neurons)."""
        return x[0]

    def turn(self, inputs: Sequence[Any]) -> list[Any]:
        """What several calls give, one after the other."""
        return [self(each) for each in inputs]

    def array(self, out: Any) -> np.ndarray:
        """The only output of a call."""
        return out

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        """All outputs of a call."""
        return [self.array(out)]

    def digest(self, out: Any) -> str:
        """Of all outputs of a call, to the bit."""
        return digest(*self.arrays(out))

    def findings(self, x: Any) -> dict:
        """What is noted of a model besides, found once its calls are timed; `x`: the inputs of a call."""
        return {}

    def imbalance(self) -> float | None:
        """Maximum over mean of the busy seconds of the last call's threads; None where the program has no numbers."""
        return None

    def nonzero_imbalance(self) -> float | None:
        """Maximum over mean of the nonzeros of each thread; None where the program has no numbers."""
        return None

    def close(self) -> None:  # noqa: B027  most programs hold nothing but arrays
        """Give back what the garbage collector does not."""


class DenseProduct(TimedProgram):
    """A program on the whole matrix with its zeros, which multiplies `left` and `right` into `whole`.

    Of sddmm, the nonzeros are then taken out of `whole`, by their indices in the topology's order.
    """

    kind = DENSE

    def __init__(self, product: Product, threads: int):
        topology, (rows, inner) = product.topology, product.topology.shape
        self.threads_used, self.matrix_bytes, self.indices = threads, 4 * rows * inner, None
        if product.operation == "spmm":
            self.left, self.right = np.zeros(topology.shape, np.float32), product.first
            self.left[topology.row_numbers, topology.columns] = product.values
            self.whole = np.zeros(product.shape, np.float32)
        else:
            self.left, self.right = product.first, product.second
            self.whole, self.out = np.zeros((rows, inner), np.float32), np.zeros(topology.nnz, np.float32)
            self.indices = topology.row_numbers.astype(np.int64) * inner + topology.columns

    @abc.abstractmethod
    def multiply(self) -> None:
        """whole <- left right, of sddmm left right^T."""

    def __call__(self, x: Any = None) -> np.ndarray:
        self.multiply()
        if self.indices is None:
            return self.whole
        # "clip", for the indices are right: checking them would copy the output.
        return np.take(self.whole.reshape(-1), self.indices, out=self.out, mode="clip")


def dense(layer: Layer) -> np.ndarray:
    """float32 (inputs, outputs): the weights of a layer with their zeros."""
    return layer.matrix().toarray(order="C")


def check_memory(network: Network) -> int:
    """Bytes of all weights with their zeros; Unavailable where a library that has them would not fit."""
    size = 4 * network.entries
    free = available_bytes()
    if free is not None and COPIES * size > COMPARISON_SHARE * free:
        raise Unavailable(
            f"dense weights take {size:,} bytes, {COPIES} times over while they are laid out; {free:,} are free"
        )
    return size


def after(layer: Layer) -> tuple[np.ndarray, float, float]:
    """What follows the product: bias of each output, float32; the least and the largest value."""
    bias = np.ascontiguousarray(np.broadcast_to(layer.bias, layer.outputs), np.float32).copy()
    return bias, layer.activation.low, layer.activation.high


def clip(y: np.ndarray, low: float, high: float) -> None:
    """Limit values in place."""
    if np.isfinite(low):
        np.maximum(y, np.float32(low), out=y)
    if np.isfinite(high):
        np.minimum(y, np.float32(high), out=y)
