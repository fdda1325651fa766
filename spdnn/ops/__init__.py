"""Sparse operations for deep learning, on the processor and on NVIDIA GPUs: pruned weights, sparse attention.

    from spdnn import ops

    A = ops.SparseMatrix.from_dense(weights, sparsity=0.9)     # or from_scipy, from_torch, from_smtx
    y = ops.spmm(A, x, bias=bias, activation="relu")           # (out, in) x (in, columns); NumPy, CuPy or torch
    y = ops.linear(x, A, bias=bias)                            # (batch, in) x (in, out), as a network's layer has them

Source of the operations: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020 (Sputnik).
"""

from spdnn.ops.matrix import SparseMatrix
from spdnn.ops.operations import (
    attention,
    depthwise_conv,
    linear,
    sddmm,
    sddmm_gradients,
    softmax,
    spmm,
    spmm_gradients,
    transpose,
)
from spdnn.ops.topology import Topology

__all__ = [
    "SparseMatrix",
    "Topology",
    "attention",
    "depthwise_conv",
    "linear",
    "sddmm",
    "sddmm_gradients",
    "softmax",
    "spmm",
    "spmm_gradients",
    "transpose",
]
