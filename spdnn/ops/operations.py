"""The public operations: arguments checked, one sentence for what is wrong; then the backend where the arrays are.

Sparse matrices are by rows (CSR), dense ones row-major. A batch is a first dimension: of the values, of the dense
operands, or of both; what has none is shared by the whole batch. Outputs are of the library of the dense operand
(NumPy, CuPy, torch), on its device, of its dtype.
"""

import math
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.ops import checks
from spdnn.ops.arrays import operand
from spdnn.ops.backends import backend, on_callers_stream
from spdnn.ops.matrix import SparseMatrix
from spdnn.ops.topology import Topology

LAYOUTS = ("NCHW", "NHWC")
STRIDES = (1, 2)


@on_callers_stream
def spmm(
    A: SparseMatrix, B: Any, bias: Any = None, activation: Any = None, out: Any = None, threads: int | None = None
) -> Any:
    """Sparse times dense: activation(A B + bias), fused.

    Args:
        A: (M, K), or a batch of them.
        B: (K, N) or (batch, K, N), of A's dtype and on A's device.
        bias: float32 (M,), added to each row; or None.
        activation: None, "relu", or (low, high): values are clipped to them.
        out: where the result is written, of its shape and B's dtype, apart from B; by default a new array, whose
            memory the system has to find page by page.
        threads: of the processor; by default all cores of this process. Not for a GPU.

    Returns:
        (M, N) or (batch, M, N): `out`, or new. float16 is summed in float32 and rounded once.

    Costs:
        2 nnz N operations for each matrix of the batch. The bits do not depend on threads, tiles or the batch.

    Raises:
        InputError: shapes, dtypes or devices that do not match, or NaN (a GPU does not search for NaN: it stays NaN).
        Unavailable: the kernels or the device are missing.

    Source: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section V.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.spmm(A, np.ones((3, 2), np.float32), bias=np.float32([-4, 0]), activation="relu")
        array([[0., 0.],
               [3., 3.]], dtype=float32)
    """
    checks.sparse(A, "A")
    b = operand(B, "B", dimensions=(2, 3))
    (M, K), N = A.shape, b.array.shape[-1]
    checks.matches(A, b, "B")
    if b.array.shape[-2] != K:
        raise InputError(f"B has shape {b.array.shape}; A of {M} x {K} needs {K} rows")
    batch = checks.batch({"A": A.batch, "B": checks.lead(b, 2)})
    run, low, high = backend(b.device, threads), *checks.bounds(activation)
    vector = checks.bias(bias, M, b)
    target, result = checks.output(run, (M, N), batch, b, out, (A.values, b.array, vector))
    if target.size:
        values, dense = checks.with_batch(A.values, 1), checks.spread(b.array, 2, batch)
        run.spmm(A.topology, values, dense, vector, low, high, target)
    return result


@on_callers_stream
def linear(
    X: Any, A: SparseMatrix, bias: Any = None, activation: Any = None, out: Any = None, threads: int | None = None
) -> Any:
    """A network's layer, an input a row: activation(X A^T + bias), fused. Nothing is turned over in memory.

    Args:
        X: (N, K), of A's dtype and on A's device.
        A: (M, K), not a batch.
        bias, activation, out, threads: as of spmm.

    Returns:
        (N, M): `out`, or new, with the bits of spmm(A, X^T)^T.

    Costs:
        2 nnz N operations. A GPU turns X and the result over, each through a copy.

    Raises:
        InputError, Unavailable: see spmm.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.linear(np.float32([[1, 1, 1]]), A)
        array([[3., 3.]], dtype=float32)
    """
    checks.sparse(A, "A")
    x = operand(X, "X", dimensions=(2,))
    (M, K), N = A.shape, len(x.array)
    checks.matches(A, x, "X")
    if A.batch is not None:
        raise InputError(f"A is a batch of {A.batch} matrices; a layer has one: with_values(values[i])")
    if x.array.shape[1] != K:
        raise InputError(f"X has shape {x.array.shape}; A of {M} x {K} needs {K} columns")
    run, low, high = backend(x.device, threads), *checks.bounds(activation)
    vector = checks.bias(bias, M, x)
    target, result = checks.output(run, (N, M), None, x, out, (A.values, x.array, vector))
    if target.size:
        run.linear(A.topology, A.values, x.array, vector, low, high, target[0])
    return result


@on_callers_stream
def sddmm(
    mask: SparseMatrix | Topology, Q: Any, K: Any, scale: float = 1.0, out: Any = None, threads: int | None = None
) -> SparseMatrix:
    """Dense times dense at the mask's nonzeros alone: scale * Q K^T, sampled.

    Args:
        mask: (M, N); its values play no part.
        Q: (M, D) or (batch, M, D); K: (N, D) or (batch, N, D), of one dtype and device.
        out: where the values are written, (nnz,) or (batch, nnz), as of spmm.

    Returns:
        A SparseMatrix with the mask's topology, or a batch of them.

    Costs:
        2 nnz D operations for each matrix of the batch.

    Raises:
        InputError, Unavailable: see spmm.

    Source: the same, section VI.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.sddmm(A, np.float32([[1], [10]]), np.float32([[1], [2], [3]])).to_dense()
        array([[ 1.,  0.,  3.],
               [ 0., 20.,  0.]], dtype=float32)
    """
    topology = checks.topology(mask)
    q, k = operand(Q, "Q", dimensions=(2, 3)), operand(K, "K", dimensions=(2, 3))
    batch = checks.queries(topology, q, k)
    run, factor = backend(q.device, threads), checks.number(scale, "scale")
    target, _ = checks.output(run, (topology.nnz,), batch, q, out, (q.array, k.array))
    if target.size:
        run.sddmm(topology, checks.spread(q.array, 2, batch), checks.spread(k.array, 2, batch), factor, target)
    return SparseMatrix.of(topology, target if batch is not None else target[0])


@on_callers_stream
def softmax(A: SparseMatrix, scale: float = 1.0, out: Any = None, threads: int | None = None) -> SparseMatrix:
    """softmax(scale * A) over the nonzeros of each row; rows that have none stay empty.

    Args:
        out: where the values are written, as A's; they may be A's own.

    Returns:
        A SparseMatrix with A's topology and dtype; float32 inside.

    Raises:
        InputError: a row whose values are all -inf, or have +inf among them; Unavailable: see spmm.

    Source: the same, section VIII-A.

    Example:
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.softmax(A).to_dense().round(2)
        array([[0.27, 0.  , 0.73],
               [0.  , 1.  , 0.  ]], dtype=float32)
    """
    checks.sparse(A, "A")
    run, factor, values = backend(A.device, threads), checks.number(scale, "scale"), checks.own(A)
    target, _ = checks.output(run, (A.nnz,), A.batch, values, out, same=A.values)
    if target.size:
        run.softmax(A.topology, checks.with_batch(A.values, 1), factor, target)
    return SparseMatrix.of(A.topology, target if A.batch is not None else target[0])


@on_callers_stream
def transpose(A: SparseMatrix, out: Any = None, threads: int | None = None) -> SparseMatrix:
    """The transpose, by rows again. The topology's is made once and kept; then it costs one gather of the values.

    Args:
        out: where the values are written, as A's and apart from them.

    Raises:
        InputError, Unavailable: see spmm.

    Example:
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.transpose(A).to_dense()
        array([[1., 0.],
               [0., 3.],
               [2., 0.]], dtype=float32)
    """
    checks.sparse(A, "A")
    topology, permutation = A.topology.transposed
    run = backend(A.device, threads)
    target, _ = checks.output(run, (A.nnz,), A.batch, checks.own(A), out, (A.values,))
    if target.size:
        run.gather(checks.with_batch(A.values, 1), permutation, target)
    return SparseMatrix.of(topology, target if A.batch is not None else target[0])


@on_callers_stream
def attention(
    mask: SparseMatrix | Topology,
    Q: Any,
    K: Any,
    V: Any,
    scale: float | None = None,
    fused: bool = True,
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """Sparse attention: softmax over each row's nonzeros of scale * Q K^T, times V.

    Args:
        mask: (M, N), which keys each query sees; its values play no part. A batch (heads) shares it.
        Q: (M, D), K: (N, D), V: (N, Dv), or with a batch in front.
        scale: by default 1 / sqrt(D).
        fused: scores stay in the caches and are never written out; else sddmm, softmax and spmm follow one another.
        out: where the result is written, as of spmm.

    Returns:
        (M, Dv) or (batch, M, Dv); a row of the mask without nonzeros gives zeros.

    Costs:
        2 nnz (D + Dv) operations and nnz exponentials for each matrix of the batch; unfused, 2 nnz values of memory.

    Raises:
        InputError, Unavailable: see spmm.

    Source: the same, section VIII-A; fused, Dao et al., "FlashAttention", NeurIPS 2022, on a sparse mask.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> ops.attention(A, np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32), np.eye(3, dtype=np.float32))
        array([[0.5, 0. , 0.5],
               [0. , 1. , 0. ]], dtype=float32)
    """
    topology = checks.topology(mask)
    q, k, v = (operand(array, name, dimensions=(2, 3)) for array, name in ((Q, "Q"), (K, "K"), (V, "V")))
    checks.queries(topology, q, k)
    checks.alike(q, v, "Q", "V")
    if v.array.shape[-2] != topology.shape[1]:
        raise InputError(
            f"V has shape {v.array.shape}; a mask of {checks.times(topology)} needs {topology.shape[1]} rows"
        )
    batch = checks.batch({"Q": checks.lead(q, 2), "K": checks.lead(k, 2), "V": checks.lead(v, 2)})
    scale = 1 / math.sqrt(q.array.shape[-1]) if scale is None else checks.number(scale, "scale")
    if not fused:
        scores = sddmm(topology, Q, K, scale, threads=threads)
        return spmm(softmax(scores, out=scores.values, threads=threads), V, out=out, threads=threads)
    run, operands = backend(q.device, threads), [operand.array for operand in (q, k, v)]
    target, result = checks.output(run, (topology.rows, v.array.shape[-1]), batch, q, out, operands)
    if target.size:
        spread_q, spread_k, spread_v = (checks.spread(array, 2, batch) for array in operands)
        run.attention(topology, spread_q, spread_k, spread_v, scale, target)
    return result


@on_callers_stream
def depthwise_conv(
    X: Any,
    weights: Any,
    bias: Any = None,
    activation: Any = None,
    stride: int = 1,
    layout: str = "NCHW",
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """3 x 3 convolution of each channel with its own weights, padding 1, bias and activation fused.

    Args:
        X: (images, C, H, W), or with layout "NHWC" (images, H, W, C).
        weights: (C, 3, 3), of X's dtype and on its device.
        bias: float32 (C,) or None; activation, out: as of spmm; stride: 1 or 2.

    Returns:
        (images, C, H', W') or (images, H', W', C), H' = (H - 1) // stride + 1.

    Costs:
        18 operations an output; it is bound by reading X and writing the output.

    Raises:
        InputError, Unavailable: see spmm.

    Source: the same, section VIII-B (MobileNet).

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> ops.depthwise_conv(np.ones((1, 1, 3, 3), np.float32), np.ones((1, 3, 3), np.float32))[0, 0]
        array([[4., 6., 4.],
               [6., 9., 6.],
               [4., 6., 4.]], dtype=float32)
    """
    x, w = operand(X, "X", dimensions=(4,)), operand(weights, "weights", dimensions=(3,))
    nhwc, stride = checks.choice(layout, "layout", LAYOUTS) == "NHWC", checks.choice(stride, "stride", STRIDES)
    images, height, width = x.array.shape[0], *(x.array.shape[1:3] if nhwc else x.array.shape[2:])
    channels = x.array.shape[3 if nhwc else 1]
    if w.array.shape != (channels, 3, 3):
        raise InputError(
            f"weights have shape {w.array.shape}; X of {channels} channels ({layout}) needs {(channels, 3, 3)}"
        )
    checks.alike(x, w, "X", "weights")
    run, low, high = backend(x.device, threads), *checks.bounds(activation)
    height, width = ((size - 1) // stride + 1 for size in (height, width))
    shape, vector = (height, width, channels) if nhwc else (channels, height, width), checks.bias(bias, channels, x)
    target, result = checks.output(run, shape, images, x, out, (x.array, w.array, vector))
    if target.size and x.array.size:
        run.depthwise(x.array, w.array, vector, low, high, stride, nhwc, target)
    return result


@on_callers_stream
def spmm_gradients(A: SparseMatrix, B: Any, dC: Any, threads: int | None = None) -> tuple[SparseMatrix, Any]:
    """(dA, dB) of C = A B, from the loss's gradient dC (M, N): sddmm(A, dC, B), and spmm(transpose(A), dC).

    dA[i, j] is dC[i] . B[j]: both are rows in memory, so nothing is transposed but A, through its kept permutation.
    One matrix A and one B: no batches.

    Raises:
        InputError, Unavailable: see spmm.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> dA, dB = ops.spmm_gradients(A, np.ones((3, 1), np.float32), np.float32([[1], [10]]))
        >>> dA.values, dB[:, 0]
        (array([ 1.,  1., 10.], dtype=float32), array([ 1., 30.,  2.], dtype=float32))
    """
    checks.sparse(A, "A")
    dense, gradient = operand(B, "B", dimensions=(2,)), operand(dC, "dC", dimensions=(2,))
    if A.batch is not None:
        raise InputError(f"A is a batch of {A.batch} matrices; gradients are of one: with_values(values[i])")
    for matrix, name in ((dense, "B"), (gradient, "dC")):
        checks.matches(A, matrix, name)
    if dense.array.shape[0] != A.shape[1]:
        raise InputError(f"B has shape {dense.array.shape}; A of {checks.times(A.topology)} needs {A.shape[1]} rows")
    if gradient.array.shape != (A.shape[0], dense.array.shape[1]):
        raise InputError(f"dC has shape {gradient.array.shape}; it must be {(A.shape[0], dense.array.shape[1])}, as C")
    if dense.array.shape[1]:
        dA = sddmm(A, gradient.array, dense.array, threads=threads)
    else:  # sums of nothing
        dA = SparseMatrix.of(A.topology, np.zeros_like(A.values))
    return dA, spmm(transpose(A, threads=threads), dC, threads=threads)


@on_callers_stream
def sddmm_gradients(
    dS: SparseMatrix, Q: Any, K: Any, scale: float = 1.0, threads: int | None = None
) -> tuple[Any, Any]:
    """(dQ, dK) of S = sddmm(mask, Q, K, scale), from the gradient dS at the mask's nonzeros: two products.

    scale is applied to dS first, and the product rounded to its dtype. What a batch shared (Q or K without one) gets a
    gradient for each of its matrices; their sum is the gradient of what was shared.

    Raises:
        InputError, Unavailable: see spmm.

    Example:
        >>> import numpy as np
        >>> from spdnn import ops
        >>> A = ops.SparseMatrix.from_dense([[1, 0, 2], [0, 3, 0]])
        >>> dQ, dK = ops.sddmm_gradients(A, np.float32([[1], [10]]), np.float32([[1], [2], [3]]))
        >>> dQ[:, 0], dK[:, 0]
        (array([7., 6.], dtype=float32), array([ 1., 30.,  2.], dtype=float32))
    """
    checks.sparse(dS, "dS")
    q, k = operand(Q, "Q", dimensions=(2, 3)), operand(K, "K", dimensions=(2, 3))
    checks.matches(dS, q, "Q")
    checks.queries(dS.topology, q, k)
    checks.batch({"dS": dS.batch, "Q": checks.lead(q, 2), "K": checks.lead(k, 2)})
    factor = np.float32(checks.number(scale, "scale"))
    with np.errstate(over="ignore", under="ignore"):
        scaled = SparseMatrix.of(dS.topology, (dS.values * factor).astype(dS.dtype))
    return spmm(scaled, K, threads=threads), spmm(transpose(scaled, threads=threads), Q, threads=threads)
