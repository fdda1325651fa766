"""The contract of a program on one product: prepared outside the clock, run on it, its output as an array.

Programs that multiply the whole matrix share `DenseProgram`.
"""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.ops.topology import Topology

OURS, SPARSE, DENSE = "ours", "sparse", "dense"  # kinds of programs, as records have them


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
    threads: int

    @property
    def width(self) -> int:
        """Columns of the dense operands: N."""
        return self.first.shape[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the output."""
        return (self.topology.rows, self.width) if self.operation == "spmm" else (self.topology.nnz,)

    @property
    def multiply_adds(self) -> int:
        """On nonzeros: half of the useful operations."""
        return self.topology.nnz * self.width

    @property
    def dense_multiply_adds(self) -> int:
        return self.topology.shape[0] * self.topology.shape[1] * self.width

    @property
    def operand_bytes(self) -> int:
        """Of dense operands and the output."""
        second = 0 if self.second is None else self.second.nbytes
        return self.first.nbytes + second + 4 * int(np.prod(self.shape, dtype=np.int64))


class Program(abc.ABC):
    """A program, made of a Product: layouts and handles are its constructor's, and no part of a sample.

    Attributes:
        name, kind: as records have them; kind is OURS, SPARSE or DENSE.
        version: of the library; notes: how threads were set, layout; values that JSON can hold.
        threads_used: fewer than the product's where a library has none.
        matrix_bytes: that it holds of the sparse matrix (of its positions, where values play no part).
    """

    name: str
    kind: str
    version: str
    notes: dict
    threads_used: int
    matrix_bytes: int

    @staticmethod
    def missing() -> str | None:
        """None when it can run here, else one sentence."""
        return None

    @abc.abstractmethod
    def __init__(self, product: Product): ...

    @abc.abstractmethod
    def run(self) -> Any:
        """One call; what it returns is overwritten by the next."""

    def array(self, out: Any) -> np.ndarray:
        """What `run` returned as float32, of the product's shape."""
        return out

    def imbalance(self) -> float | None:
        """Maximum over mean of the busy seconds of the last run's threads; None where the program has no numbers."""
        return None

    def nonzero_imbalance(self) -> float | None:
        """Maximum over mean of the nonzeros of each thread; None where the program has no numbers."""
        return None

    def close(self) -> None:  # noqa: B027  most programs hold nothing but arrays
        """Give back what the garbage collector does not."""


class DenseProgram(Program):
    """A program on the whole matrix with its zeros, which multiplies `left` and `right` into `whole`.

    Of sddmm, the nonzeros are then taken out of `whole`, by their indices in the topology's order.
    """

    kind = DENSE

    def __init__(self, product: Product):
        topology, (rows, inner) = product.topology, product.topology.shape
        self.threads_used, self.matrix_bytes, self.indices = product.threads, 4 * rows * inner, None
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

    def run(self) -> np.ndarray:
        self.multiply()
        if self.indices is None:
            return self.whole
        # "clip", for the indices are right: checking them would copy the output.
        return np.take(self.whole.reshape(-1), self.indices, out=self.out, mode="clip")


def csr_bytes(product: Product) -> int:
    """Bytes of a compressed matrix with 32-bit indices and offsets, as the libraries here store it."""
    return 4 * (product.topology.rows + 1) + 8 * product.topology.nnz
