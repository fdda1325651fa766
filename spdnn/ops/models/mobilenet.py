"""MobileNetV1 with sparse 1 x 1 convolutions: images in, logits out.

A 3 x 3 convolution of stride 2, thirteen blocks (3 x 3 of each channel, then 1 x 1 over channels), the mean over all
places, a classifier. Batch norms are folded into weights and biases; bias and ReLU are fused with what they follow. The
1 x 1 convolutions hold nearly all weights and operations, and are pruned by magnitude, but for the first blocks.

Arithmetics:
    sparse      1 x 1 convolutions as sparse times dense, bias and ReLU fused
    dense       the same pruned weights as dense matrices, by BLAS, bias and ReLU in one pass after it

Features are (channels, images, height, width), so that a 1 x 1 convolution of many images is one product with one
matrix, and every other layer of the two arithmetics is the same code.

Sources: Howard et al., "MobileNets", 2017; Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC
2020, section VIII-B, whose code (sgk of google-research) has ReLU, not ReLU6, channels in multiples of 8 (of 1 in the
first block), the first 1 x 1 dense, and 90 % sparsity at widths 1.3 to 1.8 against dense widths 1, 1.2 and 1.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from statistics import NormalDist
from typing import Any

import numpy as np

from spdnn.core.arrays import settled
from spdnn.core.errors import InputError
from spdnn.core.locks import Lock
from spdnn.core.numbers import ceil_div, whole
from spdnn.ops import SparseMatrix
from spdnn.ops.backends import thread_count
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.models import weights as files
from spdnn.ops.models.arithmetic import Clock, Workers, blas_threads, check_arithmetic, check_below, check_whole, finite

ARITHMETICS = ("sparse", "dense")
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
STEM = 32  # channels at width 1
COLOURS = 3
IMAGES_TOGETHER = 2  # images that a thread takes through a layer at once: measured; more leave the caches


@dataclass(frozen=True)
class MobileNetConfig:
    """The sizes of a model.

    Attributes:
        width: multiplies all channels, 0.1 to below 8; size: of an image's side, 8 to 4096, in costs alone; classes.
        sparsity: of the pruned 1 x 1 convolutions, 0 to below 1; None: the weights' zeros are what is pruned.
        dense_blocks: how many of the first blocks keep their 1 x 1 dense.

    Raises:
        InputError: one of them out of range.
    """

    width: float = 1.0
    size: int = 224
    classes: int = 1000
    sparsity: float | None = 0.9
    dense_blocks: int = 1

    def __post_init__(self):
        checked: dict[str, Any] = {"width": check_below("width", self.width, 0.1, 8)}
        for name, least, most in (("size", 8, 4096), ("classes", 1, 1 << 20), ("dense_blocks", 0, len(BLOCKS))):
            checked[name] = check_whole(name, getattr(self, name), least, most)
        if self.sparsity is not None:
            checked["sparsity"] = check_below("sparsity", self.sparsity, 0, 1)
        self.__dict__.update(checked)

    @property
    def channels(self) -> tuple[int, ...]:
        """Of the first convolution, then of each block's 1 x 1."""
        wide = [_round_channels(int(self.width * filters), 8 if k else 1) for k, (filters, _) in enumerate(BLOCKS)]
        return (_round_channels(STEM * self.width, 8), *wide)


PRESETS = {
    "paper": MobileNetConfig(width=1.8),
    "medium": MobileNetConfig(width=1.0),
    "small": MobileNetConfig(width=0.25, size=64, classes=10),
}


def tensor_shapes(config: MobileNetConfig) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a model's tensors."""
    channels = config.channels
    shapes = {"stem.weight": (channels[0], COLOURS, 3, 3), "stem.bias": (channels[0],)}
    for k, (before, after) in enumerate(pairwise(channels)):
        shapes |= {
            f"blocks.{k}.depthwise.weight": (before, 3, 3),
            f"blocks.{k}.depthwise.bias": (before,),
            _pointwise(k): (after, before),
            f"blocks.{k}.pointwise.bias": (after,),
        }
    return shapes | {"classifier.weight": (config.classes, channels[-1]), "classifier.bias": (config.classes,)}


def random_weights(config: MobileNetConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal weights of variance 2 / inputs (He et al., 2015), where pruned, for what stays; small biases."""
    random, weights = np.random.default_rng(seed), {}
    for name, shape in tensor_shapes(config).items():
        values = random.standard_normal(shape, np.float32)
        if name.endswith("bias"):
            scale = 0.1
        elif name.endswith("pointwise.weight"):
            pruned = config.sparsity if int(name.split(".")[1]) >= config.dense_blocks else None
            scale = (2 / (shape[1] * _energy(pruned or 0.0))) ** 0.5
        else:
            scale = (2 / np.prod(shape[1:])) ** 0.5
        weights[name] = values * np.float32(scale)
    return weights


class MobileNet:
    """A network of a configuration and weights.

    Args:
        weights: by the names of `tensor_shapes`, or with batch norms (weights.py); a path of a file of them
            (.safetensors, .npz); a seed of random ones.

    Attributes:
        weights: all but the 1 x 1 convolutions; pointwise: of each block, that: a SparseMatrix, or a dense array.
        seconds: where the time of the last call went, by part.

    Raises:
        InputError: see weights.read.
    """

    def __init__(self, config: MobileNetConfig, weights: Mapping[str, np.ndarray] | str | int = 0):
        self.config = config
        seed, source = whole(weights), weights
        if seed is not None or isinstance(source, int):
            source = random_weights(config, seed or 0)
        tensors = files.read(source, tensor_shapes(config))
        dense = [tensors.pop(_pointwise(k)) for k in range(len(BLOCKS))]
        first = config.dense_blocks
        sparse = [SparseMatrix.from_dense(weight, sparsity=config.sparsity) for weight in dense[first:]]
        self.pointwise: list[np.ndarray | SparseMatrix] = [*dense[:first], *sparse]
        self.weights = tensors
        self.seconds: dict[str, float] = {}
        self._dense: dict[int, np.ndarray] = {}
        self._lock, self._passes = Lock(), ((), [])

    def __getstate__(self) -> dict[str, Any]:  # of pickle and deepcopy: without buffers, and locks
        return {name: getattr(self, name) for name in ("config", "weights", "pointwise", "seconds")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = {**state, "weights": {name: settled(array) for name, array in state["weights"].items()}}
        self.__dict__.update(state, _dense={}, _lock=Lock(), _passes=((), []))

    def images(self, x: Any, arithmetic: str = "sparse", threads: int | None = None) -> np.ndarray:
        """The logits of images.

        Args:
            x: float32 (images, 3, height, width), C-contiguous, at least one image of 1 x 1.
            arithmetic: see the module.
            threads: by default all cores of this process. With as many images as threads or more, each thread takes
                some of them through the whole network.

        Returns:
            float32 (images, classes). One call at a time of a model runs; others wait.

        Costs:
            `flops` operations an image; memory for the features of 2 images a thread, kept until the next call.

        Raises:
            InputError: no such images, arithmetic or threads, or a result that is NaN.
            Unavailable: the compiled kernels are missing.
        """
        check_arithmetic(arithmetic, ARITHMETICS)
        if not isinstance(x, np.ndarray) or x.dtype != np.float32 or x.ndim != 4 or x.shape[1] != COLOURS or not x.size:
            what = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise InputError(f"images are {what}; they must be a float32 array (images, {COLOURS}, height, width)")
        threads, clock = thread_count(threads), Clock()
        out = np.empty((len(x), self.config.classes), np.float32)
        with self._lock:
            apart = threads if len(x) >= threads else 1
            together = min(IMAGES_TOGETHER, ceil_div(len(x), apart))
            # Buffers of the last call serve again where they fit.
            key = (apart, together, x.shape[2:], threads // apart)
            if self._passes[0] != key:
                self._passes = key, [MobileNetPass(self.config.channels, *key[1:]) for _ in range(apart)]
            passes = self._passes[1]
            pointwise = self.pointwise if arithmetic == "sparse" else [self.dense(k) for k in range(len(BLOCKS))]
            groups = [slice(first, min(first + together, len(x))) for first in range(0, len(x), together)]

            def run(group: slice, worker: int) -> None:
                passes[worker].logits(self.weights, pointwise, x[group], out[group], clock, apart)

            if apart == 1:
                with blas_threads(threads):
                    for group in groups:
                        run(group, 0)
            else:
                with Workers(apart) as workers:
                    workers.each(run, groups)
        self.seconds = clock.seconds
        return finite(out)

    def flops(self, arithmetic: str = "sparse") -> int:
        """Multiplications and additions of one image of the configuration's size."""
        check_arithmetic(arithmetic, ARITHMETICS)
        side, channels = strided_side(self.config.size, 2), self.config.channels
        total = channels[0] * COLOURS * 9 * side**2
        for k, (_, stride) in enumerate(BLOCKS):
            side = strided_side(side, stride)
            matrix = self.pointwise[k]
            weights = channels[k] * channels[k + 1]
            if arithmetic == "sparse" and isinstance(matrix, SparseMatrix):
                weights = matrix.nnz
            total += (9 * channels[k] + weights) * side**2
        return 2 * (total + channels[-1] * self.config.classes)

    def weight_bytes(self, arithmetic: str = "sparse") -> int:
        """Bytes of the weights, those of sparse matrices with their indices and offsets."""
        check_arithmetic(arithmetic, ARITHMETICS)
        total = sum(array.nbytes for array in self.weights.values())
        for matrix in self.pointwise:
            sparse = arithmetic == "sparse" or not isinstance(matrix, SparseMatrix)
            total += matrix.nbytes if sparse else 4 * matrix.shape[0] * matrix.shape[1]
        return total

    def save(self, path: str | PathLike) -> None:
        """Write the weights, as they are pruned, to a .safetensors or .npz file. Raises as weights.write does."""
        pruned = {_pointwise(k): self.dense(k) for k in range(len(BLOCKS))}
        files.write(path, self.weights | pruned, tensor_shapes(self.config))

    def dense(self, block: int) -> np.ndarray:
        """The 1 x 1 convolution of a block as a dense matrix, pruned where it is."""
        block = check_whole("block", block, 0, len(BLOCKS) - 1)
        matrix = self.pointwise[block]
        if not isinstance(matrix, SparseMatrix):
            return matrix
        if block not in self._dense:
            self._dense[block] = matrix.to_dense()
        return self._dense[block]


class MobileNetPass:
    """The layers for some images, and the buffers that they share: two alternate as a layer's input and output, a third
    holds the windows of the first convolution."""

    def __init__(self, channels: tuple[int, ...], images: int, size: tuple[int, int], threads: int):
        self.run, self.channels = CpuBackend(threads), channels
        height, width = size
        self.padded = np.zeros(images * COLOURS * (height + 2) * (width + 2), np.float32)
        height, width = strided_side(height, 2), strided_side(width, 2)
        self.windows = np.empty(COLOURS * 9 * height * width, np.float32)
        most = self.channels[0] * height * width
        for k, (_, stride) in enumerate(BLOCKS):
            height, width = strided_side(height, stride), strided_side(width, stride)
            most = max(most, max(self.channels[k : k + 2]) * height * width)
        self.features = [self.run.empty((most * images,), np.float32) for _ in range(2)]

    def logits(self, weights: Mapping[str, np.ndarray], pointwise: Sequence, x, out, clock: Clock, others: int) -> None:
        """out (images, classes) <- the logits of x (images, 3, height, width).

        Args:
            pointwise: of each block, the 1 x 1 convolution: a SparseMatrix, or a dense array.
            others: passes at the same time.
        """
        with clock("first convolution", others):
            x = self._stem(x, weights)
        for k, (_, stride) in enumerate(BLOCKS):
            with clock("depthwise", others):
                x = self._depthwise(x, weights, k, stride)
            with clock("pointwise", others):
                x = self._pointwise(x, pointwise[k], weights[f"blocks.{k}.pointwise.bias"])
        with clock("classifier", others):
            pooled = x.mean(axis=(2, 3))
            np.matmul(pooled.T, weights["classifier.weight"].T, out=out)
            out += weights["classifier.bias"]

    def _buffer(self, like: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
        """The buffer that `like` is not in, of a shape."""
        into = self.features[int(like is not None and np.shares_memory(like, self.features[0]))]
        return into[: np.prod(shape)].reshape(shape)

    def _stem(self, x: np.ndarray, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        """3 x 3, stride 2, padding 1: the windows of an image (27, positions) copied together, then one product."""
        count, _, height, width = x.shape
        padded = self.padded[: count * COLOURS * (height + 2) * (width + 2)]
        padded = padded.reshape(count, COLOURS, height + 2, width + 2)
        padded[:, :, 1:-1, 1:-1] = x
        height, width = strided_side(height, 2), strided_side(width, 2)
        out = self._buffer(None, (self.channels[0], count, height, width))
        windows = self.windows.reshape(COLOURS, 3, 3, height, width)
        matrix = weights["stem.weight"].reshape(self.channels[0], -1)
        for image in range(count):
            for r in range(3):
                for c in range(3):
                    windows[:, r, c] = padded[image, :, r : r + 2 * height : 2, c : c + 2 * width : 2]
            np.matmul(matrix, windows.reshape(COLOURS * 9, -1), out=out[:, image].reshape(self.channels[0], -1))
        self._epilogue(out, weights["stem.bias"])
        return out

    def _depthwise(self, x: np.ndarray, weights: Mapping[str, np.ndarray], block: int, stride: int) -> np.ndarray:
        """Channels and images are one dimension to it: (1, channels x images, height, width)."""
        channels, count, height, width = x.shape
        out = self._buffer(x, (channels, count, strided_side(height, stride), strided_side(width, stride)))
        name = f"blocks.{block}.depthwise"
        weight, bias = (np.repeat(weights[f"{name}.{part}"], count, axis=0) for part in ("weight", "bias"))
        flat, target = x.reshape(1, -1, height, width), out.reshape(1, -1, *out.shape[2:])
        self.run.depthwise(flat, weight, bias, 0.0, np.inf, stride, False, target)
        return out

    def _pointwise(self, x: np.ndarray, matrix: SparseMatrix | np.ndarray, bias: np.ndarray) -> np.ndarray:
        out = self._buffer(x, (bias.size, *x.shape[1:]))
        flat, target = x.reshape(len(x), -1), out.reshape(len(out), -1)
        if isinstance(matrix, SparseMatrix):
            self.run.spmm(matrix.topology, matrix.values[None], flat[None], bias, 0.0, np.inf, target[None])
        else:
            np.matmul(matrix, flat, out=target)
            self._epilogue(out, bias)
        return out

    def _epilogue(self, x: np.ndarray, bias: np.ndarray) -> None:
        self.run.bias_activation(x.reshape(1, len(x), -1), bias, 0.0, np.inf)


def strided_side(size: int, stride: int) -> int:
    """The side of what a convolution of a stride makes of a side, padded so that stride 1 keeps it."""
    return (size - 1) // stride + 1


def _pointwise(block: int) -> str:
    return f"blocks.{block}.pointwise.weight"


def _round_channels(channels: float, divisor: int) -> int:
    """The nearest multiple of `divisor`, at least one, and not more than 10 % below."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def _energy(sparsity: float) -> float:
    """The part of the sum of squares of normal numbers that is in their largest 1 - sparsity."""
    if not sparsity:
        return 1.0
    normal = NormalDist()
    edge = normal.inv_cdf((1 + sparsity) / 2)
    return 2 * (edge * normal.pdf(edge) + 1 - normal.cdf(edge))
