"""The operations in float64, written as they are defined. Every kernel is compared with them.

They share no code with the kernels; dense NumPy is used wherever a definition is shorter so. Arrays have the shapes of
the public functions, with or without a batch in front; results are float64.
"""

import numpy as np
import scipy.sparse


def spmm(topology, values, b, bias=None, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """(..., M, N): activation(A b + bias[:, None])."""
    b = np.asarray(b, np.float64)
    values = np.broadcast_to(np.asarray(values, np.float64), (*b.shape[:-2], topology.nnz))
    shift = 0 if bias is None else np.asarray(bias, np.float64)[:, None]
    place = np.asarray(topology.columns, np.int64), topology.offsets

    def product(values: np.ndarray, dense: np.ndarray) -> np.ndarray:
        return scipy.sparse.csr_array((values, *place), shape=topology.shape) @ dense + shift

    y = product(values, b) if b.ndim == 2 else np.stack(list(map(product, values, b)))
    return activation(y, low, high)


def sddmm(topology, q, k, scale: float = 1.0) -> np.ndarray:
    """(..., nnz): scale * q[i] . k[j] for each nonzero (i, j)."""
    q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
    rows, columns = topology.row_numbers, topology.columns
    return scale * np.einsum("...ed,...ed->...e", q[..., rows, :], k[..., columns, :])


def softmax(topology, values, scale: float = 1.0) -> np.ndarray:
    """(..., nnz): of each row's nonzeros; a row that has none is left out."""
    scores = scale * np.asarray(values, np.float64)
    out = np.empty_like(scores)
    for first, last in zip(topology.offsets[:-1], topology.offsets[1:], strict=True):
        if last > first:
            row = np.exp(scores[..., first:last] - scores[..., first:last].max(axis=-1, keepdims=True))
            out[..., first:last] = row / row.sum(axis=-1, keepdims=True)
    return out


def attention(topology, q, k, v, scale: float) -> np.ndarray:
    """(..., M, Dv): softmax over each row's nonzeros of scale * q k^T, times v."""
    return spmm(topology, softmax(topology, sddmm(topology, q, k, scale)), v)


def depthwise_conv(x, weights, bias=None, low=-np.inf, high=np.inf, stride: int = 1, nhwc: bool = False) -> np.ndarray:
    """(images, C, H', W'), or (images, H', W', C): each channel with its 3 x 3 weights, padding 1."""
    x, weights = np.asarray(x, np.float64), np.asarray(weights, np.float64)
    if nhwc:
        return np.moveaxis(depthwise_conv(np.moveaxis(x, -1, 1), weights, bias, low, high, stride), 1, -1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = ((size - 1) // stride + 1 for size in x.shape[2:])
    out = np.zeros((*x.shape[:2], height, width))
    for r in range(3):
        for c in range(3):
            part = padded[:, :, r : r + stride * (height - 1) + 1 : stride, c : c + stride * (width - 1) + 1 : stride]
            out += part * weights[:, r, c][:, None, None]
    return activation(out + (0 if bias is None else np.asarray(bias, np.float64)[:, None, None]), low, high)


def activation(y: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clipped to low .. high; NaN stays."""
    return np.where(y < low, low, np.where(y > high, high, y))


def tolerance(magnitude, terms: int, dtype=np.float32) -> np.ndarray:
    """How far a float32 sum of `terms` products may lie from the exact one, whose terms' absolute values sum to
    `magnitude`, rounded to `dtype` at the end: the standard bound n u sum|a b| (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1), and one rounding."""
    unit = np.finfo(np.float32).eps / 2
    rounding = np.finfo(dtype).eps / 2 + np.finfo(np.float32).eps
    least = float(np.finfo(dtype).smallest_subnormal)
    return np.asarray(magnitude) * ((terms + 2) * unit + rounding) + least
