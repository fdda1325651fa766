"""A model that is more than a chain of layers (convolutions, branches, a softmax), made ready once and called often.

Pruned 1 x 1 convolutions and layers, and larger convolutions over copied windows, are sparse times dense with bias and
activation fused; depthwise 3 x 3 ones have a kernel of their own; the others are dense products by BLAS. Features are
(channels, images, height, width), so that a 1 x 1 convolution of many images is one product. With as many images as
threads, each thread takes a few of them through the whole model, and they stay in its caches.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from spdnn.common import arrays
from spdnn.common.errors import InputError, SpdnnError
from spdnn.common.shown import Shown, counted
from spdnn.engines.model import Model, refuse_gradient
from spdnn.formats.steps import Step
from spdnn.ops import SparseMatrix
from spdnn.ops.backends import thread_count
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.models.arithmetic import Workers, blas_threads

DENSE_FROM = 0.3  # the part of weights that are not zero from which a dense product is as fast (measured)
LEAST_SHARED = 1 << 22  # multiply-adds of a dense product that are worth other threads
TOGETHER = 2  # images that a thread takes through the model at once
IMAGES = ("convolution", "pool", "add", "product")  # kinds of steps that no network has
Run = Callable[..., np.ndarray]  # (backend, value or values) -> value


class Program(Shown):
    """A model that is more than a chain of layers, ready for calls: convolutions, branches, a softmax at the end.

    An array goes in, the model's outputs come out; it has no `infer`. Calls may come from several threads.

    Args:
        steps: in the order in which they run; see spdnn.formats.onnx_files. A step 'network' has a Model as its weight.
        threads: of a call; all cores by default.

    Raises:
        InputError: weights that do not fit, or are not finite.
        Unavailable: the compiled kernels are missing.
    """

    def __init__(self, steps: Sequence[Step], threads: int | None = None):
        self.threads, self._lock = thread_count(threads), threading.Lock()
        self._start = _start(steps)
        self._parts = [(step, _made(step)) for step in steps]
        self._images = any(step.kind in ("convolution", "pool") for step in steps)
        self._models = [step.weight for step in steps if step.kind == "network"]
        self._backends = [CpuBackend(n, refuse_nan=False) for n in (self.threads, *[1] * self.threads)]
        self._said, self._steps = _said(steps), len(steps)
        self.sparse = [step.name for step, run in self._parts if getattr(run, "sparse", False)]

    def __call__(self, x: Any) -> Any:
        """The model's output for each input of x.

        Args:
            x: (inputs, ...) as the model reads them, images as (images, channels, height, width): real numbers, of
                NumPy, torch, JAX, CuPy or anything with DLPack; rounded to float32.

        Returns:
            float32 (inputs, outputs), of the library of x and on its device.

        Raises:
            InputError: another shape or type, a value that is not finite, a tensor that asks for a gradient, or
                the model is closed.
            SpdnnError: a sum passed the range of float32.
        """
        if not self._parts:
            raise InputError("this model is closed; spdnn.compile makes another one")
        refuse_gradient(x)
        value = arrays.host(x, "x")
        if value.ndim < 2 or value.dtype.kind not in "fiub" or 0 in value.shape[1:]:
            raise InputError(f"x is of {value.dtype} and shape {value.shape}; it must be real numbers, (inputs, ...)")
        with np.errstate(over="ignore"):
            value = np.ascontiguousarray(value, np.float32)
        if not np.isfinite(value).all():
            raise InputError("x holds a value that is not finite; it must be finite")
        with self._lock, np.errstate(over="ignore", invalid="ignore"):
            out = self._outputs(value)
        if not np.isfinite(out).all():
            raise SpdnnError("a sum passed the range of float32")
        return arrays.like(out, x)

    def close(self) -> None:
        """Let weights and buffers go. Closing again does nothing."""
        for model in self._models:
            model.close()
        self._parts = []

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        facts = self._said or {"steps": counted(self._steps, "steps"), "sparse": f"{len(self.sparse)} sparse"}
        return facts | ({"threads": counted(self.threads, "threads")} if self._parts else {"state": "closed"})

    def _outputs(self, x: np.ndarray) -> np.ndarray:
        if not self._images or len(x) < self.threads or self.threads == 1 or not len(x):
            with blas_threads(1):
                return self._passed(x if len(x) else np.zeros((1, *x.shape[1:]), np.float32), 0)[: len(x)]
        groups = [slice(first, first + TOGETHER) for first in range(0, len(x), TOGETHER)]
        found: dict[int, np.ndarray] = {}

        def work(group: slice, worker: int) -> None:
            found[group.start] = self._passed(x[group], 1 + worker)

        with Workers(self.threads) as workers:
            workers.each(work, groups)
        return np.concatenate([found[group.start] for group in groups])

    def _passed(self, x: np.ndarray, worker: int) -> np.ndarray:
        """All steps, by the backend of a worker (0: by that of all threads); a value goes when it was read last."""
        run = self._backends[worker]
        left = Counter(value for step, _ in self._parts for value in step.reads)
        values = {self._start: x.swapaxes(0, 1) if x.ndim == 4 else x}
        for step, make in self._parts:
            try:
                made = make(run, *(values[value] for value in step.reads))
            except (ValueError, IndexError) as error:
                shapes = ", ".join(str(values[value].shape) for value in step.reads)
                raise InputError(f"{step.name!r} ({step.kind}) cannot take features of shape {shapes}") from error
            for value in step.reads:
                left[value] -= 1
                if not left[value]:
                    values.pop(value, None)
            values[step.gives] = made
        return made.swapaxes(0, 1).copy() if made.ndim == 4 else made


def around(model: Model, steps: Sequence[Step]) -> Model | Program:
    """The model of a chain of steps, with the flattening before it and the softmax at its end, where there are any."""
    ends = [step._replace(reads=("logits",)) for step in steps[-1:] if step.kind == "softmax"]
    if not ends and not any(step.kind == "flatten" for step in steps):
        return model
    flat = Step("inputs", "flatten", reads=("x",), gives="rows")
    return Program([flat, Step("layers", "network", model, reads=("rows",), gives="logits"), *ends], model.threads)


def _said(steps: Sequence[Step]) -> dict[str, str]:
    """What `around` made: its network, and the softmax at its end, if there is one; of other steps nothing."""
    said = {}
    for step in steps:
        if step.kind == "network":
            model = step.weight
            chain = f"network {model.inputs} -> {model.outputs} of {counted(model.depth, 'layers')}"
            said = {"network": f"{chain} with {counted(model.edges, 'edges')}"}
        elif step.kind == "softmax" and said:
            said["softmax"] = "LogSoftmax" if step.settings.get("log") else "Softmax"
    return said


def _start(steps: Sequence[Step]) -> str:
    """The name of the value that no step gives: the model's input."""
    given = {step.gives for step in steps}
    return next(value for step in steps for value in step.reads if value not in given)


def _made(step: Step) -> Run:
    """What runs a step: (backend, values) -> value, of features (channels, images, height, width) or rows."""
    low, high = step.activation.low, step.activation.high
    if step.kind in ("linear", "product"):
        return _Product(step, np.asarray(step.weight))
    if step.kind == "convolution":
        groups, weight = step.settings["groups"], step.weight
        if groups == 1:
            return _Product(step, weight.reshape(len(weight), -1), weight.shape[2:])
        square = weight.shape[1:] == (1, 3, 3) and groups == len(weight)
        if square and step.settings["pads"] == (1, 1, 1, 1) and step.settings["strides"] in ((1, 1), (2, 2)):
            return _depthwise(step)
        return _grouped(step)
    if step.kind == "network":
        return lambda run, x: step.weight(x)
    if step.kind == "scale":
        center, factor, shift = (np.asarray(one, np.float32) for one in (step.center, step.weight, step.bias))

        def run_scale(run, x: np.ndarray) -> np.ndarray:
            x = x - _along(center, x) if center.any() else x
            return np.clip(x * _along(factor, x) + _along(shift, x), low, high)

        return run_scale
    if step.kind == "add":
        return lambda run, x, y: np.clip(_alike(x, y) + y, low, high)
    if step.kind == "activation":
        return lambda run, x: np.clip(x, low, high)
    if step.kind == "flatten":
        return lambda run, x: np.clip(_flat(x), low, high)
    if step.kind == "pool":
        return _pooling(step)
    return lambda run, x: _softmax(x, **step.settings)


class _Product:
    """A layer or a convolution over all channels: one product, sparse where most weights are zero."""

    def __init__(self, step: Step, matrix: np.ndarray, kernel: Any = None):
        with np.errstate(over="ignore"):
            matrix = np.ascontiguousarray(matrix, np.float32)
        self.step, self.kernel = step, kernel
        self.bias = _bias(step, len(matrix))
        if not np.isfinite(matrix).all():
            raise InputError(f"{step.name!r}: a weight is NaN or infinite; only finite numbers are allowed")
        self.sparse = np.count_nonzero(matrix) < DENSE_FROM * matrix.size
        self.matrix: Any = SparseMatrix.from_dense(matrix) if self.sparse else matrix

    def __call__(self, run, x: np.ndarray) -> np.ndarray:
        return self._rows(run, x) if self.kernel is None else self._features(run, x)

    def _rows(self, run, x: np.ndarray) -> np.ndarray:
        low, high = self.step.activation.low, self.step.activation.high
        flat = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        _width(self.matrix.shape[1], flat.shape[1])
        if self.sparse:
            out = run.empty((len(flat), len(self.bias)), np.float32)
            run.linear(self.matrix.topology, self.matrix.values, flat, self.bias, low, high, out)
        else:
            out = np.clip(flat @ self.matrix.T + self.bias, low, high)
        return out.reshape(*x.shape[:-1], -1)

    def _features(self, run, x: np.ndarray) -> np.ndarray:
        low, high = self.step.activation.low, self.step.activation.high
        windows = _windows(x, self.kernel, self.step.settings)
        flat = windows.reshape(-1, int(np.prod(windows.shape[3:])))
        _width(self.matrix.shape[1], len(flat))
        out = run.empty((len(self.bias), *windows.shape[3:]), np.float32)
        target = out.reshape(1, len(out), -1)
        if self.sparse:
            run.spmm(self.matrix.topology, self.matrix.values[None], flat[None], self.bias, low, high, target)
        else:
            _multiply(self.matrix, flat, target[0], run.threads)
            run.bias_activation(target, self.bias, low, high)
        return out


def _multiply(matrix: np.ndarray, flat: np.ndarray, out: np.ndarray, threads: int) -> None:
    """out <- matrix @ flat, columns shared out: BLAS's own threads and those of the kernels wait for one another."""
    columns, size = flat.shape[1], matrix.size
    if threads == 1 or columns * size < LEAST_SHARED:
        np.matmul(matrix, flat, out=out)
        return
    ends = [columns * k // threads for k in range(threads + 1)]
    pieces = [slice(*pair) for pair in pairwise(ends)]
    work = (lambda piece=piece: np.matmul(matrix, flat[:, piece], out=out[:, piece]) for piece in pieces)
    for done in [_pool(threads).submit(one) for one in work]:
        done.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


os.register_at_fork(after_in_child=_pool.cache_clear)  # whose threads are not in it


def _depthwise(step: Step) -> Run:
    weight, bias = np.ascontiguousarray(step.weight[:, 0], np.float32), _bias(step, len(step.weight))
    stride, low, high = step.settings["strides"][0], step.activation.low, step.activation.high

    def run_depthwise(run, x: np.ndarray) -> np.ndarray:
        """Channels and images are one dimension to it: (1, channels x images, height, width)."""
        channels, count, height, width = x.shape
        _width(len(weight), channels)
        out = run.empty((channels, count, (height - 1) // stride + 1, (width - 1) // stride + 1), np.float32)
        each = (np.repeat(one, count, axis=0) for one in (weight, bias))
        flat, target = np.ascontiguousarray(x).reshape(1, -1, height, width), out.reshape(1, -1, *out.shape[2:])
        run.depthwise(flat, *each, low, high, stride, False, target)
        return out

    return run_depthwise


def _grouped(step: Step) -> Run:
    """Any convolution of groups of channels, a group after the other."""
    groups = step.settings["groups"]
    if groups < 1 or len(step.weight) % groups:
        raise InputError(f"{step.name!r}: {len(step.weight)} channels in {groups} groups")
    biases = _bias(step, len(step.weight)).reshape(groups, -1)
    parts = [
        _Product(step._replace(bias=bias), weight.reshape(len(weight), -1), weight.shape[2:])
        for weight, bias in zip(np.split(step.weight, groups), biases, strict=True)
    ]
    return lambda run, x: np.concatenate(
        [part(run, piece) for part, piece in zip(parts, np.split(x, groups), strict=True)]
    )


def _pooling(step: Step) -> Run:
    settings, low, high = step.settings, step.activation.low, step.activation.high
    mean = settings["mean"]
    if "kernel" not in settings:
        keep = not settings["rows"]
        whole = np.mean if mean else np.max

        def run_whole(run, x: np.ndarray) -> np.ndarray:
            found = np.clip(whole(x, axis=(2, 3), keepdims=keep), low, high)
            return found if keep else found.T

        return run_whole
    counts = settings.get("count_pads", False)

    def run_pool(run, x: np.ndarray) -> np.ndarray:
        if not mean:
            return np.clip(_slid(x, settings, -np.inf, np.maximum), low, high)
        ones = np.ones((1, 1, *x.shape[2:]), np.float32)
        return np.clip(_slid(x, settings, 0, np.add) / _slid(ones, settings, float(counts), np.add), low, high)

    return run_pool


def _slid(x: np.ndarray, settings: dict, fill: float, join: np.ufunc) -> np.ndarray:
    """The sum or the largest of each window: first along columns, then along rows; nothing larger than x is copied."""
    x = _padded(x, settings["pads"], fill)
    for axis, size, stride in zip((2, 3), settings["kernel"], settings["strides"], strict=True):
        last = (x.shape[axis] - size) // stride * stride
        if last < 0:
            raise ValueError("a window that is larger than the features")
        before = (slice(None),) * axis
        out = x[(*before, slice(0, last + 1, stride))].copy()
        for k in range(1, size):
            join(out, x[(*before, slice(k, k + last + 1, stride))], out=out)
        x = out
    return x


def _padded(x: np.ndarray, pads: Sequence[int], fill: float) -> np.ndarray:
    top, left, bottom, right = pads
    if not any(pads):
        return x
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=np.float32(fill))


def _windows(x: np.ndarray, kernel: Sequence[int], settings: dict) -> np.ndarray:
    """(channels, kernel height, kernel width, images, height', width'), contiguous: what each output reads."""
    x, (down, across) = _padded(x, settings["pads"], 0), settings["strides"]
    if tuple(kernel) == (1, 1):
        return np.ascontiguousarray(x[:, None, None, :, ::down, ::across])
    views = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))[:, :, ::down, ::across]
    return np.ascontiguousarray(views.transpose(0, 4, 5, 1, 2, 3))


def _bias(step: Step, channels: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        bias = np.array(np.broadcast_to(np.asarray(step.bias, np.float32), channels))
    if not np.isfinite(bias).all():
        raise InputError(f"{step.name!r}: a bias is NaN or infinite; only finite numbers are allowed")
    return bias


def _along(numbers: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Of channels, as they meet x: first in features, last in rows."""
    return numbers.reshape(-1, 1, 1, 1) if x.ndim == 4 else numbers


def _flat(x: np.ndarray) -> np.ndarray:
    """Rows of inputs, of features or of other values."""
    x = x.swapaxes(0, 1) if x.ndim == 4 else x
    return x.reshape(len(x), -1)


def _alike(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    _width(x.shape, y.shape)
    return x


def _width(wanted: Any, got: Any) -> None:
    """Raise ValueError, which the step's sentence tells."""
    if wanted != got:
        raise ValueError(f"{got}, not {wanted}")


def _softmax(x: np.ndarray, log: bool, axes: tuple[int, ...]) -> np.ndarray:
    axes = tuple(axis - (axis == 1) for axis in axes) if x.ndim == 4 else axes  # channels come first
    x = x - x.max(axis=axes, keepdims=True)
    shares = np.exp(x)
    total = shares.sum(axis=axes, keepdims=True)
    return x - np.log(total) if log else shares / total
