"""ONNX models with random weights, pruned by magnitude: the ones that docs/explanation/onnx.md compares runtimes on.

    python benchmarks/onnx_models.py FOLDER      writes NAME.onnx of every model

Shapes are those of the published networks; the first dimension, the batch, is free. Convolutions have BatchNorm folded,
as exporters leave them.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

OPSET = 17


class Builder:
    """Collects the nodes of a graph; each call gives the name of a value."""

    def __init__(self, seed: int = 0):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def node(self, kind: str, *reads: str, **attributes) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(reads), [name], name, **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, shape: tuple[int, ...], inputs: int, density: float) -> np.ndarray:
        """float32, He et al.'s initialisation for `inputs` nonzero inputs of each output."""
        weight = self.rng.standard_normal(shape, np.float32)
        if density < 1:
            least = np.partition(np.abs(weight).ravel(), zeros := round(weight.size * (1 - density)))[zeros]
            weight[np.abs(weight) < least] = 0
        return weight * np.float32((2 / max(1, inputs * density)) ** 0.5 / max(weight.std() / density**0.5, 1e-9))

    def linear(self, x: str, inputs: int, outputs: int, density: float = 1.0) -> str:
        product = self.node("MatMul", x, self.constant(self.weight((inputs, outputs), inputs, density) * 0.7))
        return self.node("Add", product, self.constant(self.rng.standard_normal(outputs, np.float32) * 0.01))

    def convolution(
        self, x: str, inputs: int, outputs: int, size: int = 1, stride: int = 1, density: float = 1.0, groups: int = 1
    ) -> str:
        weight = self.weight((outputs, inputs // groups, size, size), inputs // groups * size * size, density)
        bias = self.rng.standard_normal(outputs, np.float32) * 0.01
        return self.node(
            "Conv", x, self.constant(weight), self.constant(bias), group=groups, kernel_shape=[size, size],
            pads=[size // 2] * 4, strides=[stride, stride],
        )  # fmt: skip

    def model(self, shape: tuple, output: str, outputs: tuple) -> ModelProto:
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *sizes])
            for name, sizes in (("x", shape), (output, outputs))
        ]
        graph = helper.make_graph(self.nodes, "model", ends[:1], ends[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return model


def mlp(widths: tuple[int, ...], density: float) -> ModelProto:
    build, x = Builder(), "x"
    for k, (inputs, outputs) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
        x = build.linear(x, inputs, outputs, density)
        if k + 2 < len(widths):
            x = build.node("Relu", x)
    return build.model(widths[:1], x, widths[-1:])


def encoder(density: float, layers: int = 4, width: int = 768, tokens: int = 128, heads: int = 12) -> ModelProto:
    """Transformer encoder layers of Vaswani et al. (2017), normalised after each part, with GELU."""
    build, x = Builder(), "x"
    each = width // heads
    split = build.constant(np.int64([0, 0, heads, each]))
    joined = build.constant(np.int64([0, 0, width]))
    scale, half, one, root = (build.constant(np.float32(v)) for v in (each**-0.5, 0.5, 1, 2**0.5))

    def normalised(x: str) -> str:
        ends = [build.constant(np.ones(width, np.float32)), build.constant(np.zeros(width, np.float32))]
        return build.node("LayerNormalization", x, *ends, axis=-1)

    for _ in range(layers):
        parts = [build.node("Reshape", build.linear(x, width, width, density), split) for _ in range(3)]
        q, k, v = (
            build.node("Transpose", part, perm=perm)
            for part, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
        )
        scores = build.node("Softmax", build.node("Mul", build.node("MatMul", q, k), scale), axis=-1)
        context = build.node("Transpose", build.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        context = build.linear(build.node("Reshape", context, joined), width, width, density)
        x = normalised(build.node("Add", x, context))
        hidden = build.linear(x, width, 4 * width, density)
        gelu = build.node("Add", build.node("Erf", build.node("Div", hidden, root)), one)
        hidden = build.node("Mul", build.node("Mul", hidden, gelu), half)
        x = normalised(build.node("Add", x, build.linear(hidden, 4 * width, width, density)))
    return build.model((tokens, width), x, (tokens, width))


def mobilenet(density: float) -> ModelProto:
    """MobileNetV1 (Howard et al., 2017) at 224 x 224: 1 x 1 convolutions are pruned."""
    build, channels = Builder(), 32
    x = build.node("Relu", build.convolution("x", 3, channels, 3, 2))
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for outputs, stride in blocks:
        x = build.node("Relu", build.convolution(x, channels, channels, 3, stride, groups=channels))
        x = build.node("Relu", build.convolution(x, channels, outputs, density=density))
        channels = outputs
    return _classified(build, x, channels)


def resnet50(density: float, every: bool) -> ModelProto:
    """ResNet-50 (He et al., 2016) at 224 x 224: 1 x 1 convolutions are pruned, or `every` one but the first."""
    build, channels = Builder(), 64
    x = build.node("Relu", build.convolution("x", 3, channels, 7, 2))
    x = build.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            inner = build.node("Relu", build.convolution(x, channels, width, density=density))
            inner = build.convolution(inner, width, width, 3, stride, density if every else 1.0)
            inner = build.convolution(build.node("Relu", inner), width, 4 * width, density=density)
            if block == 0:
                x = build.convolution(x, channels, 4 * width, 1, stride, density)
            x, channels = build.node("Relu", build.node("Add", inner, x)), 4 * width
    return _classified(build, x, channels)


def _classified(build: Builder, x: str, channels: int) -> ModelProto:
    x = build.node("Flatten", build.node("GlobalAveragePool", x))
    weight = build.constant(build.weight((channels, 1000), channels, 1.0))
    x = build.node("Gemm", x, weight, build.constant(np.zeros(1000, np.float32)))
    return build.model((3, 224, 224), x, (1000,))


MODELS: dict[str, Callable[[], ModelProto]] = {
    "mlp-2048-95": lambda: mlp((784, 2048, 2048, 10), 0.05),
    "mlp-4096-90": lambda: mlp((4096,) * 5, 0.1),
    "mlp-4096-95": lambda: mlp((4096,) * 5, 0.05),
    "mlp-4096-98": lambda: mlp((4096,) * 5, 0.02),
    "encoder-90": lambda: encoder(0.1),
    "encoder-dense": lambda: encoder(1.0),
    "mobilenet-90": lambda: mobilenet(0.1),
    "resnet50-1x1-90": lambda: resnet50(0.1, every=False),
    "resnet50-90": lambda: resnet50(0.1, every=True),
    "resnet50-95": lambda: resnet50(0.05, every=True),
    "resnet50-dense": lambda: resnet50(1.0, every=True),
}


def main(folder: str) -> None:
    for name, make in MODELS.items():
        Path(folder, f"{name}.onnx").write_bytes(make().SerializeToString())


if __name__ == "__main__":
    main(*sys.argv[1:])
