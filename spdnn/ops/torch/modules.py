"""The sparse layers: SparseLinear and SparseConv2d, whose weights are parameters over a fixed topology, and attention
over a fixed mask."""

import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spdnn.core.errors import InputError
from spdnn.core.numbers import check_whole
from spdnn.ops.matrix import SparseMatrix
from spdnn.ops.topology import Topology
from spdnn.ops.torch import library
from spdnn.ops.torch.dense_layers import compute, is_trained, prune_weight
from spdnn.ops.torch.dense_weight import DenseWeight

_attentions: weakref.WeakKeyDictionary[Topology, "SparseAttention"] = weakref.WeakKeyDictionary()


class SparseWeight(nn.Module):
    """A sparse matrix (out, in) and a bias; what both layers share.

    Attributes:
        values: parameter (nnz,), float32 or float16, by rows; bias: parameter (out,), or None.
        offsets, columns: buffers, int64 (out + 1,) and int32 (nnz,): where the values are.

    A state_dict holds all of them. Loading one takes its topology too, so that of a model that was sparsified with
    other weights fits; an optimiser is to be made after that. Other types than these two are refused at a call.
    What is written to offsets and columns holds from the next call on, in whatever way it is written; on a GPU through
    their own methods alone, not through .data or DLPack.
    """

    def __init__(self, weight: Any, bias: Any = None):
        """
        Args:
            weight: ops.SparseMatrix, or a torch tensor (sparse CSR or COO, or dense: what is not zero), (out, in).
            bias: (out,), or None.

        Raises:
            InputError: a weight that is none of these, a batch, or a bias that does not fit.
        """
        super().__init__()
        device = weight.device if isinstance(weight, Tensor) else None
        if isinstance(weight, Tensor):
            weight = SparseMatrix.from_torch(weight.cpu() if weight.layout == torch.strided else weight)
        if not isinstance(weight, SparseMatrix):
            raise InputError(f"the weight is a {type(weight).__name__}; it must be a SparseMatrix or a torch tensor")
        if weight.batch is not None:
            raise InputError(f"the weight is a batch of {weight.batch} matrices; a layer has one")
        self._set(weight.topology)
        self.values = nn.Parameter(torch.from_numpy(np.array(weight.to("cpu").values)))
        self.register_parameter("bias", None)
        if bias is not None:
            bias = bias if isinstance(bias, Tensor) else torch.as_tensor(bias, device="cpu")
            bias = bias.detach().to(self.values).clone()
            if bias.shape != (weight.shape[0],):
                raise InputError(f"bias has shape {tuple(bias.shape)}; it must be ({weight.shape[0]},)")
            self.bias = nn.Parameter(bias)
        if device is not None:
            self.to(device)

    def _set(self, topology: Topology) -> None:
        self.rows, self.width = topology.shape
        self.register_buffer("offsets", torch.from_numpy(topology.offsets.copy()))
        self.register_buffer("columns", torch.from_numpy(topology.columns.astype(np.int32)))

    @property
    def nnz(self) -> int:
        return self.columns.shape[0]

    @property
    def sparsity(self) -> float:
        """The part of the matrix that is no nonzero, 0 to 1."""
        return 1 - self.nnz / (self.rows * self.width)

    @property
    def weight(self) -> Tensor:
        """The weight as a dense tensor that can be read, with gradients; its numbers are made anew at each use of them,
        which is slow. What would write into it raises InputError."""
        if torch.compiler.is_compiling():
            return self._to_dense()
        return DenseWeight(self._shape, self.values, self._to_dense)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.rows, self.width

    def _to_dense(self) -> Tensor:
        """The dense weight, through which gradients reach the values."""
        if not torch.compiler.is_compiling():
            library.topology_of(self.offsets, self.columns, self.width)  # positions that became wrong are refused
        rows = torch.repeat_interleave(self.offsets.diff(), output_size=self.nnz)
        places = rows * self.width + self.columns
        flat = self.values.new_zeros(self.rows * self.width).index_put((places,), self.values)
        return flat.view(self._shape)

    def matrix(self) -> SparseMatrix:
        """What the layer holds now, copied, on the processor."""
        topology = library.topology_of(self.offsets.cpu(), self.columns.cpu(), self.width)
        return SparseMatrix(topology, self.values.detach().cpu().numpy().copy())

    def _product(self, x: Tensor, by_rows: bool) -> Tensor:
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(self.values.dtype)
        if self.values.dtype not in library.DTYPES:
            raise InputError(
                f"the sparse weights are of {self.values.dtype}; they must be float32 or float16: float() or half()"
            )
        if x.dtype != self.values.dtype:
            raise InputError(
                f"the input is of {x.dtype}, and the sparse weights of {self.values.dtype}; they must be the same"
            )
        library.refuse_tangents(x, self.values, self.bias)
        return library.product(x, self.values, self.offsets, self.columns, self.width, self.bias, False, by_rows)

    def _load_from_state_dict(self, state, prefix, metadata, strict, missing, unexpected, errors):
        """The topology of `state` first: the parameter stays the same object, of as many values as it has there."""
        offsets, columns, values = (state.get(prefix + name) for name in ("offsets", "columns", "values"))
        if values is None and prefix + "weight" in state:
            errors.append(
                f"{prefix.rstrip('.') or 'the layer'} is sparse, and its weight in the state is dense: load it into "
                "the dense model, and then sparsify that"
            )
        if isinstance(offsets, Tensor) and isinstance(columns, Tensor) and isinstance(values, Tensor):
            same = torch.equal(offsets.cpu(), self.offsets.cpu()) and torch.equal(columns.cpu(), self.columns.cpu())
            try:
                arrays = (tensor.detach().cpu().numpy() for tensor in (offsets, columns))
                topology = None if same else Topology((self.rows, self.width), *arrays)
            except InputError as error:
                errors.append(f"{prefix.rstrip('.')}: {error}")
                return
            if topology is not None and values.shape == (topology.nnz,):
                device = self.values.device
                self._set(topology)
                self.offsets, self.columns = self.offsets.to(device), self.columns.to(device)
                self.values.data = self.values.data.new_empty(topology.nnz)
                self.values.grad = None
        super()._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, errors)


class SparseLinear(SparseWeight):
    """torch.nn.Linear with a sparse weight: x (..., in) to (..., out).

    A NaN stays one. float16 is summed in float32. Under autocast the input becomes of the weights' type.
    """

    @classmethod
    def from_dense(cls, module: nn.Linear, sparsity: float | None = None) -> "SparseLinear":
        """Of a Linear layer, with copies of the weight and the bias that its call in evaluation computes with.

        They include torch's masks (torch.nn.utils.prune), weight_norm, spectral_norm and other parametrizations. Of
        these, the layer keeps the positions of the weight's mask alone. A weight may be a sparse tensor of torch.

        Args:
            sparsity: the part of all weights that becomes zero, 0 to below 1, the smallest ones; None: what its mask
                keeps, or without one what is not zero.

        Raises:
            InputError: another module, one with hooks of its user or another forward, a sparsity out of range, or
                weights that are not finite, or no plain tensor of float32 or float16.
        """
        if not isinstance(module, nn.Linear):
            raise InputError(f"{type(module).__name__} is no torch.nn.Linear")
        computed = compute(module)
        return _restore(cls(prune_weight(computed, sparsity), computed.bias), module, computed.weight)

    @property
    def in_features(self) -> int:
        return self.width

    @property
    def out_features(self) -> int:
        return self.rows

    def to_dense(self) -> nn.Linear:
        """A torch.nn.Linear with the same weights, zeros where there are none."""
        options = {"bias": self.bias is not None, "dtype": self.values.dtype}
        return _fill(nn.utils.skip_init(nn.Linear, self.width, self.rows, **options), self)

    def forward(self, x: Tensor) -> Tensor:
        """Raises InputError: an input of another width or type."""
        if x.is_nested:
            raise InputError(
                "the input is a nested tensor; it must be a plain one, as a TransformerEncoder gives its layers with "
                "enable_nested_tensor=False"
            )
        if not x.dim() or x.shape[-1] != self.width:
            raise InputError(f"the input has shape {tuple(x.shape)}; its last size must be {self.width}")
        y = self._product(x.reshape(-1, self.width), True)
        return y.view(*x.shape[:-1], self.rows)

    def extra_repr(self) -> str:
        return f"{self.width}, {self.rows}, sparsity={self.sparsity:.4f}, bias={self.bias is not None}"


class SparseConv2d(SparseWeight):
    """torch.nn.Conv2d with kernels of 1 x 1 and a sparse weight: x (images, in, H, W) to (images, out, H', W').

    Both layouts of torch are read where they are; the output is channels last where the input is.
    """

    def __init__(self, weight: Any, bias: Any = None, stride: tuple[int, int] = (1, 1)):
        """`weight` (out, in), and `bias` as of SparseLinear. Raises as it does."""
        super().__init__(weight, bias)
        self.stride = tuple(check_whole(each, "stride") for each in stride)

    @classmethod
    def from_dense(cls, module: nn.Conv2d, sparsity: float | None = None) -> "SparseConv2d":
        """Of a convolution with kernels of 1 x 1, one group, no padding; see SparseLinear.from_dense."""
        if not isinstance(module, nn.Conv2d):
            raise InputError(f"{type(module).__name__} is no torch.nn.Conv2d")
        if why := unsuitable(module):
            raise InputError(f"this convolution {why}; SparseConv2d has kernels of 1 x 1, one group, no padding")
        computed = compute(module)
        layer = cls(prune_weight(computed, sparsity), computed.bias, module.stride)
        return _restore(layer, module, computed.weight)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.rows, self.width, 1, 1

    @property
    def in_channels(self) -> int:
        return self.width

    @property
    def out_channels(self) -> int:
        return self.rows

    def to_dense(self) -> nn.Conv2d:
        """A torch.nn.Conv2d with the same weights, zeros where there are none."""
        options = {"stride": self.stride, "bias": self.bias is not None, "dtype": self.values.dtype}
        return _fill(nn.utils.skip_init(nn.Conv2d, self.width, self.rows, 1, **options), self)

    def forward(self, x: Tensor) -> Tensor:
        """Raises InputError: an input of another shape or type."""
        if x.dim() not in (3, 4) or x.shape[-3] != self.width:
            raise InputError(f"the input has shape {tuple(x.shape)}; it must be (images, {self.width}, height, width)")
        images = x if x.dim() == 4 else x[None]
        # Within vmap torch does not say whether images are channels last.
        last = not images.is_contiguous() and not library.transformed()
        last = last and images.is_contiguous(memory_format=torch.channels_last)
        if self.stride != (1, 1):
            images = images[:, :, :: self.stride[0], :: self.stride[1]]
        count, _, height, width = images.shape
        if last:
            y = self._product(images.permute(0, 2, 3, 1).reshape(-1, self.width), True)
            y = y.view(count, height, width, self.rows).permute(0, 3, 1, 2)
        else:
            y = self._product(images.reshape(count, self.width, height * width), False)
            y = y.view(count, self.rows, height, width)
        return y if x.dim() == 4 else y[0]

    def extra_repr(self) -> str:
        sizes = f"{self.width}, {self.rows}, stride={self.stride}"
        return f"{sizes}, sparsity={self.sparsity:.4f}, bias={self.bias is not None}"


def unsuitable(module: nn.Conv2d) -> str | None:
    """None, or why it is not what SparseConv2d does, as a sentence goes on."""
    if module.kernel_size != (1, 1):
        return f"has kernels of {module.kernel_size[0]} x {module.kernel_size[1]}"
    if module.groups != 1:
        return f"has {module.groups} groups"
    if module.padding not in ((0, 0), "valid", "same"):
        return f"has a padding of {module.padding}"
    return None


def _restore(layer: SparseWeight, module: nn.Module, weight: Tensor) -> Any:
    """The layer as the module was: the device of its weight, its mode and what of it is trained."""
    layer.values.requires_grad_(is_trained(module, "weight"))
    if layer.bias is not None:
        layer.bias.requires_grad_(is_trained(module, "bias"))
    return layer.to(weight.device).train(module.training)


def _fill(dense: nn.Module, layer: SparseWeight) -> Any:
    """The dense layer, which has no weights yet, with those of the sparse one."""
    with torch.no_grad():
        dense.weight.copy_(torch.from_numpy(layer.matrix().to_dense()).view(dense.weight.shape))
        if layer.bias is not None:
            dense.bias.copy_(layer.bias)
    return dense.to(layer.values.device).train(layer.training)


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
    layer = _attentions.get(topology)
    if layer is None or layer.offsets.device != q.device:
        layer = _attentions[topology] = SparseAttention(topology).to(q.device)
    return layer(q, k, v, scale)
