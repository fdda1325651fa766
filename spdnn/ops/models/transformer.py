"""A Transformer decoder with sparse attention, in full (prefill): tokens in, logits out.

Pre-LayerNorm blocks: x += attention(norm(x)), x += down(relu(up(norm(x)))); a norm and the logits at the end. The
projections have no bias, the two layers between have. All heads and layers share one mask: a dense band and random far
positions.

Arithmetics:
    sparse      attention at the mask's positions alone, fused: no score is written to memory
    unfused     the same as sddmm, softmax and spmm, which keep the scores: the paper's way
    dense       the same model: every position up to the diagonal by BLAS, what the mask hides is minus infinity
    stored      the same with the scores of all heads in memory, as in the paper's dense model: for its memory, not time
    causal      another model: plain attention to all positions up to the diagonal, with which the paper compares

Source: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VIII-A. Its code (sgk of
google-research) has 3 layers, 8 heads, 12,288 positions, band 256, sparsity 0.95, and otherwise Tensor2Tensor's
`transformer_big`: width 1,024, 4,096 between, ReLU, positions as sines; pixels of ImageNet-64, 256 values.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.ops.backends import thread_count
from spdnn.ops.models import dense_attention
from spdnn.ops.models import weights as files
from spdnn.ops.models.arithmetic import Clock, Workers, check_arithmetic, finite
from spdnn.ops.models.masks import band_and_decay, first_rows
from spdnn.ops.models.transformer_config import TransformerConfig
from spdnn.ops.models.transformer_pass import TransformerPass

ARITHMETICS = ("sparse", "unfused", "dense", "stored", "causal")


PRESETS = {
    "paper": TransformerConfig(),
    "medium": TransformerConfig(sequence=3072),
    "small": TransformerConfig(sequence=256, layers=2, heads=4, width=64, between=256, band=32, sparsity=0.9),
}


def tensor_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a model's tensors; matrices are (outputs, inputs)."""
    width, between = config.width, config.between
    shapes = {"token.weight": (config.vocabulary, width), "position.weight": (config.sequence, width)}
    for k in range(config.layers):
        shapes |= {
            f"layers.{k}.attention_norm.weight": (width,),
            f"layers.{k}.attention_norm.bias": (width,),
            f"layers.{k}.query.weight": (width, width),
            f"layers.{k}.key.weight": (width, width),
            f"layers.{k}.value.weight": (width, width),
            f"layers.{k}.output.weight": (width, width),
            f"layers.{k}.between_norm.weight": (width,),
            f"layers.{k}.between_norm.bias": (width,),
            f"layers.{k}.up.weight": (between, width),
            f"layers.{k}.up.bias": (between,),
            f"layers.{k}.down.weight": (width, between),
            f"layers.{k}.down.bias": (width,),
        }
    return shapes | {"norm.weight": (width,), "norm.bias": (width,), "logits.weight": (config.vocabulary, width)}


def random_weights(config: TransformerConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal weights of variance 1 / inputs (2 / inputs before the ReLU), positions as sines; all else near 1 or 0.

    What is added to x is scaled down by sqrt(2 layers), so that x stays of one size (as in GPT-2).
    """
    random, weights = np.random.default_rng(seed), {}
    for name, shape in tensor_shapes(config).items():
        part, kind = name.split(".")[-2:]
        drawn = random.standard_normal(shape, np.float32)
        if part == "position":
            # Sines and cosines of many periods (Vaswani et al., "Attention is all you need", section 3.5).
            (count, width), half = shape, (shape[1] + 1) // 2
            angles = np.arange(count)[:, None] * np.exp(-np.log(1e4) * np.arange(half) / max(half - 1, 1))
            drawn = np.concatenate((np.sin(angles), np.cos(angles)), axis=1)[:, :width].astype(np.float32)
        elif kind == "bias" or part.endswith("norm"):
            drawn = np.float32(0.1) * drawn + np.float32(kind == "weight")
        elif part != "token":
            gain = {"up": 2.0, "output": 0.5 / config.layers, "down": 0.5 / config.layers}.get(part, 1.0)
            drawn *= np.float32((gain / shape[1]) ** 0.5)
        weights[name] = drawn
    return weights


class Transformer:
    """A decoder of a configuration and weights.

    Args:
        weights: by the names of `tensor_shapes`; a path of a file of them (.safetensors, .npz); a seed of random ones.

    Attributes:
        mask: the Topology that all layers and heads share.
        seconds: where the time of the last prefill went, by part.

    Raises:
        InputError: see weights.read.
    """

    def __init__(self, config: TransformerConfig, weights: Mapping[str, np.ndarray] | str | int = 0):
        self.config, shapes = config, tensor_shapes(config)
        if isinstance(weights, int):
            weights = random_weights(config, weights)
        self.weights = (
            files.check_tensors(weights, shapes) if isinstance(weights, Mapping) else files.read(weights, shapes)
        )
        self.mask = band_and_decay(config.sequence, config.band, config.sparsity, config.seed)
        self.seconds: dict[str, float] = {}

    def prefill(self, tokens: Any, arithmetic: str = "sparse", threads: int | None = None) -> np.ndarray:
        """The logits of each token's successor.

        Args:
            tokens: whole numbers (n,), 0 to below the vocabulary; n from 1 to the configuration's sequence. The mask is
                that of the first n positions.
            arithmetic: see the module.
            threads: by default all cores of this process.

        Returns:
            float32 (n, vocabulary).

        Costs:
            `flops` operations; memory of 7 n width values besides `weight_bytes` and `attention_bytes`.

        Raises:
            InputError: tokens or arithmetic out of range, or a result that is NaN.
            Unavailable: the compiled kernels are missing.
        """
        check_arithmetic(arithmetic, ARITHMETICS)
        ids, clock = self._tokens(tokens), Clock()
        with Workers(thread_count(threads)) as workers:
            logits = TransformerPass(self.config, self.weights, self.mask, ids, arithmetic, workers, clock).logits()
        self.seconds = clock.seconds
        return finite(logits)

    def flops(self, arithmetic: str = "sparse", tokens: int | None = None) -> int:
        """Multiplications and additions of a prefill of `tokens` (by default the whole sequence) in its products."""
        c, n = self.config, tokens or self.config.sequence
        check_arithmetic(arithmetic, ARITHMETICS)
        seen = int(first_rows(self.mask, n).nnz) if arithmetic in ("sparse", "unfused") else n * (n + 1) // 2
        layer = 4 * c.width**2 * n + 2 * c.width * c.between * n + 2 * seen * c.width
        return 2 * (c.layers * layer + n * c.width * c.vocabulary)

    def weight_bytes(self, arithmetic: str = "sparse") -> int:
        """Bytes of the weights; every arithmetic has the same."""
        check_arithmetic(arithmetic, ARITHMETICS)
        return sum(array.nbytes for array in self.weights.values())

    def attention_bytes(self, arithmetic: str = "sparse", threads: int | None = None) -> int:
        """Bytes that attention holds besides its operands and result, for a whole sequence: mask, scores, sums.

        What the fused kernel keeps for each thread, a few rows of scores, is left out.
        """
        check_arithmetic(arithmetic, ARITHMETICS)
        c, mask = self.config, self.mask.nbytes + self.mask.order.nbytes
        if arithmetic in ("sparse", "unfused"):
            return mask + (4 * c.heads * self.mask.nnz if arithmetic == "unfused" else 0)
        if arithmetic == "stored":
            return self.mask.nbytes + 8 * c.heads * c.sequence**2
        masked, workers = arithmetic == "dense", thread_count(threads)
        scratch = dense_attention.buffers((c.heads, c.sequence, c.depth), masked, workers)
        return sum(array.nbytes for each in scratch for array in each.values()) + (self.mask.nbytes if masked else 0)

    def save(self, path: str | PathLike) -> None:
        """Write the weights to a .safetensors or .npz file. Raises as weights.write does."""
        files.write(path, self.weights, tensor_shapes(self.config))

    def _tokens(self, tokens: Any) -> np.ndarray:
        ids, c = np.asarray(tokens), self.config
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or not 1 <= ids.size <= c.sequence:
            raise InputError(
                f"tokens are {ids.dtype} of shape {ids.shape}; they must be 1 to {c.sequence:,} whole numbers"
            )
        for token in (ids.min(), ids.max()):
            if not 0 <= token < c.vocabulary:
                raise InputError(f"token {token}: it must be 0 to {c.vocabulary - 1}")
        return ids
