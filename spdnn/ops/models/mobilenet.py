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

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from statistics import NormalDist
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.ops import SparseMatrix
from spdnn.ops.backends import thread_count
from spdnn.ops.models import weights as files
from spdnn.ops.models.arithmetic import Clock, Workers, blas_threads, check_arithmetic, finite, share, whole
from spdnn.ops.models.mobilenet_pass import BLOCKS, COLOURS, STEM, MobileNetPass, strided_side

ARITHMETICS = ("sparse", "dense")
TOGETHER = 2  # images that a thread takes through a layer at once: measured; more leave the caches


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
        share("width", self.width, 0.1, 8)
        whole("size", self.size, 8, 4096)
        whole("classes", self.classes, 1, 1 << 20)
        whole("dense_blocks", self.dense_blocks, 0, len(BLOCKS))
        if self.sparsity is not None:
            share("sparsity", self.sparsity, 0, 1)

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
        drawn = random.standard_normal(shape, np.float32)
        if name.endswith("bias"):
            scale = 0.1
        elif name.endswith("pointwise.weight"):
            pruned = config.sparsity if int(name.split(".")[1]) >= config.dense_blocks else None
            scale = (2 / (shape[1] * _energy(pruned or 0.0))) ** 0.5
        else:
            scale = (2 / np.prod(shape[1:])) ** 0.5
        weights[name] = drawn * np.float32(scale)
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
        self.config, shapes = config, tensor_shapes(config)
        if isinstance(weights, int):
            weights = random_weights(config, weights)
        tensors = files.check_tensors(weights, shapes) if isinstance(weights, Mapping) else files.read(weights, shapes)
        dense = [tensors.pop(_pointwise(k)) for k in range(len(BLOCKS))]
        first = config.dense_blocks
        sparse = [SparseMatrix.from_dense(weight, sparsity=config.sparsity) for weight in dense[first:]]
        self.pointwise: list[np.ndarray | SparseMatrix] = [*dense[:first], *sparse]
        self.weights = tensors
        self.seconds: dict[str, float] = {}
        self._dense: dict[int, np.ndarray] = {}
        self._lock, self._held = threading.Lock(), ((), [])

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
            given = f"{x.dtype} of shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise InputError(f"images are {given}; they must be a float32 array (images, {COLOURS}, height, width)")
        threads, clock = thread_count(threads), Clock()
        out = np.empty((len(x), self.config.classes), np.float32)
        with self._lock:
            apart = threads if len(x) >= threads else 1
            together = min(TOGETHER, -(-len(x) // apart))
            # Buffers of the last call serve again where they fit.
            key = (apart, together, x.shape[2:], threads // apart)
            if self._held[0] != key:
                self._held = key, [MobileNetPass(self.config.channels, *key[1:]) for _ in range(apart)]
            passes = self._held[1]
            pointwise = self.pointwise if arithmetic == "sparse" else [self.dense(k) for k in range(len(BLOCKS))]
            groups = [slice(first, min(first + together, len(x))) for first in range(0, len(x), together)]
            if apart == 1:
                with blas_threads(threads):
                    for group in groups:
                        passes[0].logits(self.weights, pointwise, x[group], out[group], clock, 1)
            else:
                with Workers(apart) as workers:
                    workers.each(
                        lambda group, worker: passes[worker].logits(
                            self.weights, pointwise, x[group], out[group], clock, apart
                        ),
                        groups,
                    )
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
        matrix = self.pointwise[block]
        if not isinstance(matrix, SparseMatrix):
            return matrix
        if block not in self._dense:
            self._dense[block] = matrix.to_dense()
        return self._dense[block]


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
