"""The operators of spdnn.torch, as torch's dispatcher knows them: shapes for tracing, gradients of every order.

A sparse matrix W (M, K) is `values` (nnz,), `offsets` int64 (M + 1,), `columns` int32 (nnz,) and its width K: tensors,
so that a traced program holds all that it needs. Four operators are closed under differentiation:

    product    W X + b, or W^T X; X (batch, K, N), or by rows (N, K)
    sampled    A B^T at the nonzeros of W alone, which is the gradient by values
    softmax    of each row's nonzeros
    attention  the three of them, fused

A NaN stays one, as in torch; float16 is summed in float32.
"""

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

from spdnn.core.errors import InputError
from spdnn.kernels.dispatch import compiled_module
from spdnn.ops.arrays import CPU, native
from spdnn.ops.backend import Backend
from spdnn.ops.backends import backend, on_callers_stream, thread_count
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.topology import Topology

DTYPES = (torch.float32, torch.float16)
COMPARED_ALONE = 1 << 18  # columns that one thread compares sooner than another one wakes
_known: dict[tuple, tuple] = {}  # topologies that were checked, by the memory of their tensors


def topology_of(offsets: Tensor, columns: Tensor, width: int) -> Topology:
    """The checked topology of these tensors; kept as long as their memory lives and holds the same.

    On the processor they are compared at each call: torch counts no write through .data, NumPy or DLPack, and none to
    a tensor of inference mode. On a GPU, where a comparison waits for all that is queued, its count of writes decides,
    but for tensors of inference mode, which have none.

    Raises:
        InputError: see Topology.
    """
    storages = offsets.untyped_storage(), columns.untyped_storage()
    parts = tuple((tensor.storage_offset(), tensor.numel(), tensor.dtype) for tensor in (offsets, columns))
    key = (storages[0]._cdata, storages[1]._cdata, width, *parts)
    writes = tuple(None if tensor.is_inference() else tensor._version for tensor in (offsets, columns))
    entry = _known.get(key)
    if entry is None or entry[1] != writes or not _same(entry[2], offsets, columns):
        for other in [k for k, (references, *_) in _known.items() if any(part.expired() for part in references)]:
            _known.pop(other, None)
        # A weak reference keeps the address from another storage, so that a key cannot come to mean another memory.
        topology = Topology((len(offsets) - 1, width), *map(_numpy, (offsets, columns)))
        entry = _known[key] = tuple(map(StorageWeakRef, storages)), writes, topology
    return entry[2]


def _same(topology: Topology, offsets: Tensor, columns: Tensor) -> bool:
    """Whether the tensors still hold the topology, where their count of writes cannot say it."""
    if columns.is_cuda and not columns.is_inference():
        return True
    current = _numpy(columns)
    if current.dtype.itemsize < 4:
        current = current.astype(np.int32)
    threads = min(torch.get_num_threads(), 1 + current.size // COMPARED_ALONE)
    same = compiled_module().same_columns(np.ascontiguousarray(current), topology.columns, threads)
    return same and np.array_equal(_numpy(offsets), topology.offsets)


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def refuse_tangents(*tensors: Tensor | None) -> None:
    """Raises InputError for forward-mode derivatives (torch.func.jvp): torch would take them for zero."""
    if torch.compiler.is_compiling():
        return
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        _no_tangents()


def _no_tangents(*_: Any) -> NoReturn:
    """Raises InputError: also the rule that torch calls for tangents within other transforms."""
    raise InputError(
        "spdnn.torch has no forward-mode derivatives (jvp, jacfwd, hessian); backward() and jacrev have all"
    )


def _backend(device: str) -> Backend:
    if device == CPU:
        return CpuBackend(thread_count(torch.get_num_threads(), warn=False), refuse_nan=False)
    return backend(device)


def _array(tensor: Tensor):
    """NumPy's or CuPy's, on the same memory."""
    tensor = tensor.detach()
    return tensor.numpy() if tensor.device.type == "cpu" else native(tensor, "the tensor").array


def _device(tensor: Tensor) -> str:
    return CPU if tensor.device.type == "cpu" else "cuda"


def _gather(run: Backend, values: Tensor, permutation) -> Tensor:
    """values[..., permutation] (batch, nnz)."""
    values = values.contiguous()
    out = torch.empty_like(values)
    if values.numel():
        shape = (-1, values.shape[-1])
        run.gather(_array(values.view(shape)), permutation, _array(out.view(shape)))
    return out


def _sizes(offsets: Tensor, width: int, transposed: bool) -> tuple[int, int]:
    """(rows of the result, rows of what is multiplied)."""
    rows = offsets.shape[0] - 1
    return (width, rows) if transposed else (rows, width)


def _product_shape(x: Tensor, outer: int, by_rows: bool) -> tuple:
    return (x.shape[0], outer) if by_rows else (x.shape[0], outer, x.shape[2])


def _row_numbers(offsets: Tensor, nonzeros: int) -> Tensor:
    """The row of each nonzero."""
    rows = torch.arange(offsets.shape[0] - 1, device=offsets.device)
    return torch.repeat_interleave(rows, offsets.diff(), output_size=nonzeros)


def transformed() -> bool:
    """Whether a transform of torch.func runs."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def transformable(operator: Any, context: Callable, backward: Callable) -> Callable[..., Tensor]:
    """The operator with these gradients, within torch.func's transforms too: those take no Function but one whose
    context is set apart, which register_autograd does not make."""
    operator.register_autograd(backward, setup_context=context)
    members = {
        "generate_vmap_rule": True,
        "forward": staticmethod(operator),
        "setup_context": staticmethod(context),
        "backward": staticmethod(backward),
        "jvp": staticmethod(_no_tangents),
    }
    function = type(operator._name, (torch.autograd.Function,), members)

    def call(*arguments: Any) -> Tensor:
        if transformed():
            return function.apply(*arguments)
        return operator(*arguments)

    return call


@torch.library.custom_op("spdnn::product", mutates_args=())
@on_callers_stream
def _product(
    x: Tensor,
    values: Tensor,
    offsets: Tensor,
    columns: Tensor,
    width: int,
    bias: Tensor | None,
    transposed: bool,
    by_rows: bool,
) -> Tensor:
    """by_rows: x (N, inner) to (N, outer), values (nnz,); else x (batch, inner, N) to (batch, outer, N), values
    (nnz,) or (batch, nnz). `bias` (outer,)."""
    outer, inner = _sizes(offsets, width, transposed)
    if x.shape[1] != inner:
        raise InputError(f"the input has {x.shape[1]} features; the sparse weights need {inner}")
    topology, run = topology_of(offsets, columns, width), _backend(_device(x))
    if values.shape[-1] != topology.nnz:
        raise InputError(f"there are {values.shape[-1]} values; the topology has {topology.nnz} nonzeros")
    if transposed:
        topology, permutation = topology.transposed
        values = _gather(run, values, permutation)
    out = x.new_empty(_product_shape(x, outer, by_rows))
    if out.numel():
        operands = (
            _array(part.contiguous()) for part in (values[None] if values.dim() == 1 and not by_rows else values, x)
        )
        vector = None if bias is None else _array(bias.float().contiguous())
        work = run.linear if by_rows else run.spmm
        work(topology, *operands, vector, -math.inf, math.inf, _array(out))
    return out


@_product.register_fake
def _(x, values, offsets, columns, width, bias, transposed, by_rows):
    return x.new_empty(_product_shape(x, _sizes(offsets, width, transposed)[0], by_rows))


def _product_context(ctx, inputs, output):
    x, values, offsets, columns, ctx.width, bias, ctx.transposed, ctx.by_rows = inputs
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.save_for_backward(x, values, offsets, columns)


def _product_backward(ctx, gradient):
    x, values, offsets, columns = ctx.saved_tensors
    topology, by_rows = (offsets, columns, ctx.width), ctx.by_rows
    of_x = of_values = of_bias = None
    if ctx.needs_input_grad[0]:
        of_x = product(gradient, values, *topology, None, not ctx.transposed, by_rows)
    if ctx.needs_input_grad[1]:
        rows, others = (x, gradient) if ctx.transposed else (gradient, x)
        of_values = sample_product(rows, others, *topology, by_rows)
        of_values = of_values if by_rows or values.dim() == 2 else of_values.sum(0)
    if ctx.needs_input_grad[5]:
        of_bias = gradient.sum(0 if by_rows else (0, 2), dtype=torch.float32).to(ctx.bias_dtype)
    return of_x, of_values, None, None, None, of_bias, None, None


product = transformable(_product, _product_context, _product_backward)


@torch.library.custom_op("spdnn::sampled", mutates_args=())
@on_callers_stream
def _sample_product(
    rows: Tensor, others: Tensor, offsets: Tensor, columns: Tensor, width: int, by_rows: bool
) -> Tensor:
    """rows (batch, M, N), others (batch, K, N) to (batch, nnz); by_rows: (N, M) and (N, K) to (nnz,)."""
    if by_rows:
        rows, others = (operand.t().contiguous()[None] for operand in (rows, others))
    topology, run = topology_of(offsets, columns, width), _backend(_device(rows))
    shape = rows.shape[0], topology.nnz
    out = rows.new_empty(shape) if rows.shape[2] else rows.new_zeros(shape)  # a sum of nothing is 0
    if rows.shape[2] and out.numel():
        run.sddmm(topology, _array(rows.contiguous()), _array(others.contiguous()), 1.0, _array(out))
    return out[0] if by_rows else out


@_sample_product.register_fake
def _(rows, others, offsets, columns, width, by_rows):
    return rows.new_empty(columns.shape if by_rows else (rows.shape[0], *columns.shape))


def _sampled_context(ctx, inputs, output):
    rows, others, offsets, columns, ctx.width, ctx.by_rows = inputs
    ctx.save_for_backward(rows, others, offsets, columns)


def _sampled_backward(ctx, gradient):
    rows, others, offsets, columns = ctx.saved_tensors
    topology = offsets, columns, ctx.width, None
    of_rows = product(others, gradient, *topology, False, ctx.by_rows) if ctx.needs_input_grad[0] else None
    of_others = product(rows, gradient, *topology, True, ctx.by_rows) if ctx.needs_input_grad[1] else None
    return of_rows, of_others, None, None, None, None


sample_product = transformable(_sample_product, _sampled_context, _sampled_backward)


@torch.library.custom_op("spdnn::softmax", mutates_args=())
@on_callers_stream
def _softmax(values: Tensor, offsets: Tensor, columns: Tensor, width: int, scale: float) -> Tensor:
    """softmax(scale * values) over the nonzeros of each row, (batch, nnz)."""
    out = torch.empty_like(values, memory_format=torch.contiguous_format)
    if out.numel():
        topology, run = topology_of(offsets, columns, width), _backend(_device(values))
        run.softmax(topology, _array(values.contiguous()), scale, _array(out))
    return out


@_softmax.register_fake
def _(values, offsets, columns, width, scale):
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _softmax_context(ctx, inputs, output):
    _, offsets, _, _, ctx.scale = inputs
    ctx.save_for_backward(output, offsets)


def _softmax_backward(ctx, gradient):
    output, offsets = ctx.saved_tensors
    count = offsets.shape[0] - 1
    number = _row_numbers(offsets, output.shape[1])
    weighed = output * gradient
    sums = weighed.new_zeros((len(output), count)).index_add(1, number, weighed)
    return ctx.scale * (weighed - output * sums[:, number]), None, None, None, None


softmax = transformable(_softmax, _softmax_context, _softmax_backward)


@torch.library.custom_op("spdnn::attention", mutates_args=())
@on_callers_stream
def _attention(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, columns: Tensor, scale: float) -> Tensor:
    """softmax of scale * q k^T at the nonzeros, times v; q (batch, M, D), k (batch, K, D), v (batch, K, Dv)."""
    out = q.new_empty((*q.shape[:2], v.shape[2]))
    if out.numel():
        topology, run = topology_of(offsets, columns, k.shape[1]), _backend(_device(q))
        run.attention(topology, *(_array(operand.contiguous()) for operand in (q, k, v)), scale, _array(out))
    return out


@_attention.register_fake
def _(q, k, v, offsets, columns, scale):
    return q.new_empty((*q.shape[:2], v.shape[2]))


def _attention_context(ctx, inputs, output):
    *tensors, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _attention_backward(ctx, gradient):
    """The scores again: they were not kept."""
    q, k, v, offsets, columns = ctx.saved_tensors
    topology, scale = (offsets, columns, k.shape[1]), ctx.scale
    weights = softmax(sample_product(q, k, *topology, False), *topology, scale)
    of_v = product(gradient, weights, *topology, None, True, False) if ctx.needs_input_grad[2] else None
    of_q = of_k = None
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
        rows = (gradient.float() * product(v, weights, *topology, None, False, False).float()).sum(2)
        of_weights = sample_product(gradient, v, *topology, False)
        number = _row_numbers(offsets, columns.shape[0])
        of_scores = (scale * weights * (of_weights - rows[:, number])).to(q.dtype)
        of_q = product(k, of_scores, *topology, None, False, False) if ctx.needs_input_grad[0] else None
        of_k = product(q, of_scores, *topology, None, True, False) if ctx.needs_input_grad[1] else None
    return of_q, of_k, of_v, None, None, None


attention = transformable(_attention, _attention_context, _attention_backward)
