"""The sparse Transformer and MobileNet on a GPU: sparse and dense arithmetic, verified, timed in turns.

Sparse layers are the kernels of spdnn.ops; dense products, norms and activations are CuPy's, the same in both
arithmetics. A sample is one pass between two events, launched from Python, with weights and inputs in place. The logits
of both are compared with those of the same model on the processor (spdnn.ops.models), which its tests compare with
float64. Of the Transformer, `dense` keeps the scores of a head at a time, all positions up to the diagonal and those
that the mask hides as minus infinity.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from spdnn.bench import models
from spdnn.bench.contest import ComparisonSettings, Entrant, check_same, digest
from spdnn.bench.records import operation_records
from spdnn.core.limits import Machine
from spdnn.core.resources import usable_cores
from spdnn.kernels.cuda.device import Device
from spdnn.ops import SparseMatrix
from spdnn.ops.cuda import CudaBackend
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference
from spdnn.ops.models.mobilenet import BLOCKS, COLOURS, strided_side
from spdnn.ops.models.transformer import LAYER_NORM_EPSILON
from spdnn.runs.records.operation_record import OperationRecord, Verification

NAMES = ("transformer-paper", "mobilenet-paper")
ARITHMETICS = ("sparse", "dense")
IMAGES = 64
SAMPLES = 5


class DeviceTransformer:
    """One prefill of all tokens of a spdnn.ops.models.Transformer.

    Args:
        xp: CuPy, or what stands in for it; run: the operations on the same device.
        tokens: (n,), n the whole sequence.
    """

    def __init__(self, xp: Any, run: CudaBackend, model: Any, tokens: np.ndarray):
        self.xp, self.run, self.mask, self.config = xp, run, model.mask, model.config
        self.weights = {name: run.device.upload(array) for name, array in model.weights.items()}
        self.start = self.weights["token.weight"][run.device.upload(tokens)] + self.weights["position.weight"]
        self.shape = c = (self.config.heads, tokens.size, self.config.depth)
        self.out = run.empty(c, np.float32)
        hidden = np.full((tokens.size, tokens.size), -np.inf, np.float32)
        hidden[self.mask.row_numbers, self.mask.columns] = 0
        self.hidden = run.device.upload(hidden)

    def __call__(self, arithmetic: str) -> Any:
        xp, w = self.xp, self.weights
        heads, count, depth = self.shape
        x = self.start
        for k in range(self.config.layers):
            name = f"layers.{k}"
            # Attention of each head to the positions of the mask.
            normed = self._norm(x, f"{name}.attention_norm")
            parts = (normed @ w[f"{name}.{part}.weight"].T for part in ("query", "key", "value"))
            apart = (part.reshape(count, heads, depth).swapaxes(0, 1) for part in parts)
            self._attend(arithmetic, *map(xp.ascontiguousarray, apart))
            joined = self.out.swapaxes(0, 1).reshape(count, heads * depth)
            x = x + joined @ w[f"{name}.output.weight"].T
            # Two layers of each token.
            normed = self._norm(x, f"{name}.between_norm")
            wide = xp.maximum(normed @ w[f"{name}.up.weight"].T + w[f"{name}.up.bias"], 0)
            x = x + wide @ w[f"{name}.down.weight"].T + w[f"{name}.down.bias"]
        return self._norm(x, "norm") @ w["logits.weight"].T

    def _attend(self, arithmetic: str, q: Any, k: Any, v: Any) -> None:
        scale = self.shape[2] ** -0.5
        if arithmetic == "sparse":
            self.run.attention(self.mask, q, k, v, scale, self.out)
            return
        for head in range(self.shape[0]):
            scores = q[head] @ k[head].T * np.float32(scale) + self.hidden
            scores = self.xp.exp(scores - scores.max(axis=1, keepdims=True))
            self.out[head] = scores @ v[head] / scores.sum(axis=1, keepdims=True)

    def _norm(self, x: Any, name: str) -> Any:
        x = x - x.mean(axis=1, keepdims=True)
        variance = (x * x).mean(axis=1, keepdims=True)
        return (
            x / self.xp.sqrt(variance + LAYER_NORM_EPSILON) * self.weights[f"{name}.weight"]
            + self.weights[f"{name}.bias"]
        )


class DeviceMobileNet:
    """The images of a batch through a spdnn.ops.models.MobileNet, features (channels, images, height, width).

    Args:
        xp, run: as of DeviceTransformer.
        images: float32 (n, 3, height, width).
    """

    def __init__(self, xp: Any, run: CudaBackend, model: Any, images: np.ndarray):
        self.xp, self.run, put = xp, run, run.device.upload
        count = len(images)
        self.weights = {name: put(array) for name, array in model.weights.items()}
        for name in [name for name in self.weights if ".depthwise." in name]:
            self.weights[name] = put(np.repeat(model.weights[name], count, axis=0))
        self.sparse = [
            (each.topology, put(each.values[None])) if isinstance(each, SparseMatrix) else put(each)
            for each in model.pointwise
        ]
        self.dense = [put(model.dense(k)) for k in range(len(BLOCKS))]
        padded = np.pad(images.swapaxes(0, 1), ((0, 0), (0, 0), (1, 1), (1, 1)))
        self.images = put(np.ascontiguousarray(padded))

    def __call__(self, arithmetic: str) -> Any:
        w, x = self.weights, self._stem()
        for k, (_, stride) in enumerate(BLOCKS):
            x = self._depthwise(x, k, stride)
            x = self._pointwise(x, (self.sparse if arithmetic == "sparse" else self.dense)[k], k)
        return x.mean(axis=(2, 3)).T @ w["classifier.weight"].T + w["classifier.bias"]

    def _stem(self) -> Any:
        """3 x 3, stride 2, as one product with the windows of all images."""
        _, count, height, width = self.images.shape
        height, width = strided_side(height - 2, 2), strided_side(width - 2, 2)
        windows = self.xp.stack(
            [self.images[:, :, r : r + 2 * height : 2, c : c + 2 * width : 2] for r in range(3) for c in range(3)],
            axis=1,
        )
        weight, bias = self.weights["stem.weight"], self.weights["stem.bias"]
        out = weight.reshape(len(weight), -1) @ windows.reshape(9 * COLOURS, -1) + bias[:, None]
        return self.xp.maximum(out, 0).reshape(len(weight), count, height, width)

    def _depthwise(self, x: Any, block: int, stride: int) -> Any:
        """Channels and images are one dimension to it, as on the processor."""
        channels, count, height, width = x.shape
        shape = channels, count, strided_side(height, stride), strided_side(width, stride)
        out, name = self.run.empty(shape, np.float32), f"blocks.{block}.depthwise"
        flat, target = x.reshape(1, -1, height, width), out.reshape(1, -1, *shape[2:])
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        self.run.depthwise(flat, weight, bias, 0.0, math.inf, stride, False, target)
        return out

    def _pointwise(self, x: Any, matrix: Any, block: int) -> Any:
        bias, flat = self.weights[f"blocks.{block}.pointwise.bias"], x.reshape(len(x), -1)
        if isinstance(matrix, tuple):
            out = self.run.empty((1, bias.size, flat.shape[1]), np.float32)
            self.run.spmm(*matrix, flat[None], bias, 0.0, math.inf, out)
        else:
            out = self.xp.maximum(matrix @ flat + bias[:, None], 0)
        return out.reshape(bias.size, *x.shape[1:])


PASSES = {"transformer": DeviceTransformer, "mobilenet": DeviceMobileNet}


def compare(device: Device, xp: Any, name: str, machine: Machine, command: str) -> list[OperationRecord]:
    """The records of a model, sparse and dense.

    Args:
        xp: CuPy, or what stands in for it.
        name: MODEL-PRESET, as `spdnn bench sets --models` has it.

    Raises:
        AssertionError: an arithmetic gives other logits than the processor; SpdnnError: other bits while it is timed.
    """
    kind, _, preset = name.partition("-")
    ready = models.MODELS[kind](preset, usable_cores(), IMAGES)
    expected = ready.run("sparse")
    passes: list[Callable[[str], Any]] = []
    outputs: dict[str, Any] = {}
    # All of it on the device's stream: CuPy's own work goes where operations are launched.
    device.seconds(lambda: passes.append(PASSES[kind](xp, CudaBackend(device), ready.model, ready.inputs)))

    def once(arithmetic: str) -> float:
        return device.seconds(lambda: outputs.update({arithmetic: passes[0](arithmetic)}))

    # Verify before timing; kernels are chosen and compiled here.
    rule = f"largest difference from the logits of the processor <= {ARITHMETIC_TOLERANCE:g} of the largest"
    notes = {"software": device.properties.software, "dense products": f"{xp.__name__} {xp.__version__}"}
    size, entrants = expected.size, {}
    for arithmetic in ARITHMETICS:
        once(arithmetic)
        found = device.read(outputs[arithmetic])
        worst = difference(found, expected) / ARITHMETIC_TOLERANCE
        assert worst <= 1, f"{name}, {arithmetic}: {worst:.3g} times what rounding explains"
        entrants[arithmetic] = Entrant(models.ModelRun(ready, arithmetic, 1, notes), 0.0, digest(found))
        entrants[arithmetic].verdict = Verification(size, size, None, rule, worst, digest(found))
    for _ in range(SAMPLES):
        for arithmetic, entrant in entrants.items():
            entrant.seconds.append(once(arithmetic))
            check_same(f"{name}, {arithmetic}", digest(device.read(outputs[arithmetic])), entrant.digest)
    settings = ComparisonSettings(1, (), 0.0, command)
    return operation_records(
        ready.task(name), settings, entrants.values(), None, device.properties.name, machine
    )  # fmt: skip
