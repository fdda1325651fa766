"""Sparse attention with gradients: SparseAttention over a fixed mask, and `attention` for a mask at hand."""

import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spdnn.core.errors import InputError
from spdnn.ops.matrix import SparseMatrix
from spdnn.ops.topology import Topology
from spdnn.ops.torch import library

_layers: weakref.WeakKeyDictionary[Topology, "SparseAttention"] = weakref.WeakKeyDictionary()


class SparseAttention(nn.Module):
    """softmax of scale * Q K^T over the positions of a mask, times V; fused, so that no scores are kept.

    Args:
        mask: ops.Topology or SparseMatrix (its values play no part), or a torch tensor (M, N): what is not zero.

    Raises:
        InputError: a mask that is none of these.
    """

    def __init__(self, mask: Any):
        super().__init__()
        if isinstance(mask, Tensor):
            mask = SparseMatrix.from_torch(mask.float() if mask.layout == torch.strided else mask)
        topology = mask.topology if isinstance(mask, SparseMatrix) else mask
        if not isinstance(topology, Topology):
            raise InputError(f"mask is a {type(mask).__name__}; it must be a Topology, a SparseMatrix or a tensor")
        self.shape = topology.shape
        self.register_buffer("offsets", torch.from_numpy(topology.offsets.copy()))
        self.register_buffer("columns", torch.from_numpy(topology.columns.astype(np.int32)))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        """
        Args:
            q (..., M, D), k (..., N, D), v (..., N, Dv): of one dtype (float32 or float16), the sizes in front alike.
            scale: by default 1 / sqrt(D).

        Returns:
            (..., M, Dv); a row of the mask that sees nothing gives zeros.

        Raises:
            InputError: shapes or dtypes that do not fit.
        """
        for operand, name, rows in ((q, "Q", self.shape[0]), (k, "K", self.shape[1]), (v, "V", self.shape[1])):
            if operand.dim() < 2 or operand.shape[-2] != rows or operand.shape[:-2] != q.shape[:-2]:
                raise InputError(
                    f"{name} has shape {tuple(operand.shape)}; a mask of {self.shape[0]} x {self.shape[1]} needs "
                    f"{rows} rows, and Q, K and V the same sizes in front"
                )
            if operand.dtype != q.dtype or operand.dtype not in library.DTYPES:
                raise InputError(f"{name} is of {operand.dtype}; Q, K and V must all be float32, or all float16")
        if k.shape[-1] != q.shape[-1] or not q.shape[-1]:
            raise InputError(f"Q has {q.shape[-1]} columns and K {k.shape[-1]}; they must be as many, and some")
        library.refuse_tangents(q, k, v)
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
        flat = (operand.reshape(-1, *operand.shape[-2:]) if operand.dim() != 3 else operand for operand in (q, k, v))
        out = library.attention(*flat, self.offsets, self.columns, factor)
        return out.reshape(*q.shape[:-1], v.shape[-1])

    def extra_repr(self) -> str:
        return f"{self.shape[0]} x {self.shape[1]}, {self.columns.shape[0]} positions"


def attention(mask: Any, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """SparseAttention(mask)(q, k, v, scale); what is made of a Topology is kept as long as that lives."""
    if not isinstance(mask, (Topology, SparseMatrix)):
        return SparseAttention(mask).to(q.device)(q, k, v, scale)
    topology = mask.topology if isinstance(mask, SparseMatrix) else mask
    layer = _layers.get(topology)
    if layer is None or layer.offsets.device != q.device:
        layer = _layers[topology] = SparseAttention(topology).to(q.device)
    return layer(q, k, v, scale)
