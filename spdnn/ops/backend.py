"""The contract of the backends, which run the operations: the processor's kernels (cpu.py) and a GPU's (cuda.py)."""

import abc
from typing import Any

import numpy as np

from spdnn.ops.topology import Topology


class Backend(abc.ABC):
    """The operations on arrays of one device.

    All arguments were checked: shapes, one dtype (float32 or float16; `bias` float32), C-contiguous. `batch` is always
    there; values that the batch shares have a first dimension of 1. M x K is the topology's shape. Every sum is float32
    and rounded once, to the dtype of `out`; the activation is y < low ? low : y > high ? high : y.

    Attributes:
        notes: of the last call: the operation, its setting and what was measured; values that JSON can hold.
    """

    notes: dict

    @abc.abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array, uninitialised."""

    @abc.abstractmethod
    def spmm(
        self, topology: Topology, values: Any, b: Any, bias: Any | None, low: float, high: float, out: Any
    ) -> None:
        """out (batch, M, N) <- activation(A b + bias[:, None]).

        values (1 or batch, nnz), b (batch, K, N), bias (M,).
        """

    def linear(
        self, topology: Topology, values: Any, x: Any, bias: Any | None, low: float, high: float, out: Any
    ) -> None:
        """out (N, M) <- activation(x A^T + bias); x (N, K), values (nnz,). Here: turned over, and back."""
        turned, product = self.empty((1, *x.shape[::-1]), x.dtype), self.empty((1, *out.shape[::-1]), out.dtype)
        turned[0] = x.T
        self.spmm(topology, values[None], turned, bias, low, high, product)
        out[...] = product[0].T

    @abc.abstractmethod
    def sddmm(self, topology: Topology, q: Any, k: Any, scale: float, out: Any) -> None:
        """out (batch, nnz) <- scale * q[i] . k[j] for each nonzero (i, j); q (batch, M, D), k (batch, K, D)."""

    @abc.abstractmethod
    def softmax(self, topology: Topology, values: Any, scale: float, out: Any) -> None:
        """out (batch, nnz) <- softmax of scale * values over the nonzeros of each row."""

    @abc.abstractmethod
    def gather(self, values: Any, permutation: np.ndarray, out: Any) -> None:
        """out (batch, nnz) <- values[:, permutation]; permutation int64 (nnz,), on the host."""

    @abc.abstractmethod
    def attention(self, topology: Topology, q: Any, k: Any, v: Any, scale: float, out: Any) -> None:
        """out (batch, M, Dv) <- softmax(scale * q k^T at the nonzeros) v; v (batch, K, Dv). Scores are not kept."""

    @abc.abstractmethod
    def depthwise(
        self, x: Any, weights: Any, bias: Any | None, low: float, high: float, stride: int, nhwc: bool, out: Any
    ) -> None:
        """3 x 3 convolution of each channel, padding 1.

        x (images, C, H, W), or with `nhwc` (images, H, W, C), and `out` alike; weights (C, 3, 3).
        """
