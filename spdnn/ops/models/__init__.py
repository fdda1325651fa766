"""Models with sparse arithmetic, and the same models with dense: a Transformer decoder, MobileNetV1.

`Transformer(TransformerConfig()).prefill(tokens, "sparse")` gives logits, with the paper's sizes and random weights.

A model is made once, of a configuration and its weights; each call names the arithmetic. What the two have in common is
the same code, so that a comparison of them is one of the sparse operations alone.

Source of the models: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VIII.
"""

from spdnn.ops.models.masks import band_and_decay
from spdnn.ops.models.mobilenet import MobileNet, MobileNetConfig
from spdnn.ops.models.transformer import Transformer, TransformerConfig

__all__ = ["MobileNet", "MobileNetConfig", "Transformer", "TransformerConfig", "band_and_decay"]
