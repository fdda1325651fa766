"""Sparse operations for deep learning, on the processor and on NVIDIA GPUs: pruned weights, sparse attention.

>>> import numpy as np
>>> from spdnn import ops
>>> A = ops.SparseMatrix.from_dense([[1, 0.1], [0.2, 3]], sparsity=0.5)  # the largest half of the entries stays
>>> ops.spmm(A, np.ones((2, 1), np.float32))
array([[1.],
       [3.]], dtype=float32)

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
