"""The layers of MobileNet for some images, and the buffers that they share."""

from collections.abc import Mapping, Sequence

import numpy as np

from spdnn.ops import SparseMatrix
from spdnn.ops.backends import backend
from spdnn.ops.models.arithmetic import Clock

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
STEM = 32  # channels at width 1
COLOURS = 3


class MobileNetPass:
    """Two buffers alternate as a layer's input and output; a third holds the windows of the first convolution."""

    def __init__(self, channels: tuple[int, ...], images: int, size: tuple[int, int], threads: int):
        self.run, self.channels = backend("cpu", threads), channels
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
