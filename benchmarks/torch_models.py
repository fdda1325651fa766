"""The same models in PyTorch, as one would write them there, beside which ours are measured; no code of ours runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spdnn.ops.models.mobilenet import BLOCKS, MobileNet
from spdnn.ops.models.transformer import TransformerConfig
from spdnn.ops.models.transformer_pass import EPSILON


def missing() -> str | None:
    """None when torch is installed, else one sentence."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return "torch is missing: pip install 'spdnn[torch]'"
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
            return norm(x, (c.width,), w[f"{name}.weight"], w[f"{name}.bias"], float(EPSILON))

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
