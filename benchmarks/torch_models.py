"""The same models in PyTorch, as one would write them there, beside which ours are measured; models for sparsify."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spdnn.core.errors import install
from spdnn.ops.models.mobilenet import BLOCKS, MobileNet
from spdnn.ops.models.transformer import LAYER_NORM_EPSILON, TransformerConfig


def missing() -> str | None:
    """None when torch is installed, else one sentence."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return f"torch is missing: {install('torch')}"
    return None


class Decoder:
    """The Transformer with plain causal attention: scaled_dot_product_attention(is_causal=True).

    Args:
        weights: as of transformer.Transformer; not copied.
    """

    def __init__(self, config: TransformerConfig, weights: Mapping[str, np.ndarray], threads: int):
        import torch

        self.torch, self.config, self.threads = torch, config, threads
        self.weights = {name: torch.from_numpy(array) for name, array in weights.items()}

    def prefill(self, tokens: np.ndarray) -> np.ndarray:
        """Logits (n, vocabulary) float32."""
        torch, w, c = self.torch, self.weights, self.config
        linear, norm = torch.nn.functional.linear, torch.nn.functional.layer_norm
        attention = torch.nn.functional.scaled_dot_product_attention
        torch.set_num_threads(self.threads)

        def normed(x, name):
            return norm(x, (c.width,), w[f"{name}.weight"], w[f"{name}.bias"], float(LAYER_NORM_EPSILON))

        with torch.inference_mode():
            x = w["token.weight"][torch.from_numpy(tokens)] + w["position.weight"][: len(tokens)]
            for k in range(c.layers):
                layer = f"layers.{k}"
                y = normed(x, f"{layer}.attention_norm")
                q, key, v = (
                    linear(y, w[f"{layer}.{part}.weight"]).view(1, -1, c.heads, c.depth).transpose(1, 2)
                    for part in ("query", "key", "value")
                )
                y = attention(q, key, v, is_causal=True).transpose(1, 2).reshape(len(tokens), c.width)
                x += linear(y, w[f"{layer}.output.weight"])
                y = linear(normed(x, f"{layer}.between_norm"), w[f"{layer}.up.weight"], w[f"{layer}.up.bias"]).relu_()
                x += linear(y, w[f"{layer}.down.weight"], w[f"{layer}.down.bias"])
            return linear(normed(x, "norm"), w["logits.weight"]).numpy()


class ConvNet:
    """MobileNetV1 by conv2d, the pruned weights as dense ones; channels last, which is torch's faster layout here."""

    def __init__(self, model: MobileNet, threads: int):
        import torch

        self.torch, self.threads = torch, threads
        weights = {name: torch.from_numpy(array) for name, array in model.weights.items()}
        self.layers = [(weights["stem.weight"], weights["stem.bias"], 2, 1)]
        for k, (_, stride) in enumerate(BLOCKS):
            name = f"blocks.{k}"
            depthwise = weights[f"{name}.depthwise.weight"][:, None]
            pointwise = torch.from_numpy(model.dense(k))[:, :, None, None]
            self.layers.append((depthwise, weights[f"{name}.depthwise.bias"], stride, len(depthwise)))
            self.layers.append((pointwise, weights[f"{name}.pointwise.bias"], 1, 1))
        self.layers = [(w.contiguous(memory_format=torch.channels_last), *rest) for w, *rest in self.layers]
        self.classifier = weights["classifier.weight"], weights["classifier.bias"]

    def images(self, x: np.ndarray) -> np.ndarray:
        """Logits (images, classes) of x (images, 3, height, width) float32."""
        torch = self.torch
        torch.set_num_threads(self.threads)
        with torch.inference_mode():
            y = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
            for weight, bias, stride, groups in self.layers:
                edge = weight.shape[2] // 2
                y = torch.nn.functional.conv2d(y, weight, bias, stride, edge, groups=groups).relu_()
            return torch.nn.functional.linear(y.mean((2, 3)), *self.classifier).numpy()


def mlp(width: int = 4096, layers: int = 4):
    """So many square Linear layers, ReLU between them."""
    from torch import nn

    parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def _convolution(inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1, relu: bool = True) -> list:
    from torch import nn

    convolution = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outer), *([nn.ReLU(inplace=True)] if relu else [])]


def mobilenet():
    """MobileNetV1 of width 1, 1,000 classes (Howard et al., 2017)."""
    from torch import nn

    layers, inner = _convolution(3, 32, 3, 2), 32
    for outer, stride in BLOCKS:
        layers += _convolution(inner, inner, 3, stride, inner) + _convolution(inner, outer, 1)
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def resnet50():
    """ResNet-50, the stride in the convolution of 3 x 3 (He et al., 2016)."""
    from torch import nn

    class Bottleneck(nn.Module):
        def __init__(self, inner: int, middle: int, stride: int):
            super().__init__()
            first, second = _convolution(inner, middle, 1), _convolution(middle, middle, 3, stride)
            self.path = nn.Sequential(*first, *second, *_convolution(middle, 4 * middle, 1, relu=False))
            straight = stride == 1 and inner == 4 * middle
            self.side = None if straight else nn.Sequential(*_convolution(inner, 4 * middle, 1, stride, relu=False))

        def forward(self, x):
            return (self.path(x) + (x if self.side is None else self.side(x))).relu_()

    layers, inner = [*_convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(inner, middle, stride if k == 0 else 1))
            inner = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def encoder(width: int = 768, heads: int = 12):
    """A block of a Transformer encoder, its four projections and two wide layers Linear."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            y = self.first(x)
            parts = (
                part(y).unflatten(-1, (heads, -1)).transpose(-2, -3) for part in (self.query, self.key, self.value)
            )
            y = nn.functional.scaled_dot_product_attention(*parts)
            x = x + self.output(y.transpose(-2, -3).flatten(-2))
            return x + self.down(nn.functional.gelu(self.up(self.second(x))))

    return Block()
