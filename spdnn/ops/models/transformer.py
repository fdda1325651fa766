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
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any

import numpy as np

from spdnn.core.arrays import freeze
from spdnn.core.errors import InputError
from spdnn.core.numbers import whole
from spdnn.ops.backends import thread_count
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.models import dense_attention
from spdnn.ops.models import weights as files
from spdnn.ops.models.arithmetic import Clock, Workers, check_arithmetic, check_below, check_whole, finite
from spdnn.ops.models.masks import MOST_SEQUENCE, band_and_decay, first_rows
from spdnn.ops.topology import Topology

ARITHMETICS = ("sparse", "unfused", "dense", "stored", "causal")
TOKENS = 512  # of a block that a thread takes through a layer: measured; the weights are read once for each
LAYER_NORM_EPSILON = np.float32(1e-6)  # of a layer norm, as Tensor2Tensor has it


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a model; those of the paper by default.

    Attributes:
        sequence: most tokens; layers, heads; width: of a token's features, a multiple of heads; between: of the two
            layers after attention; vocabulary.
        band, sparsity, seed: of the mask (masks.band_and_decay).

    Raises:
        InputError: one of them out of range.
    """

    sequence: int = 12288
    layers: int = 3
    heads: int = 8
    width: int = 1024
    between: int = 4096
    vocabulary: int = 256
    band: int = 256
    sparsity: float = 0.95
    seed: int = 0

    def __post_init__(self):
        limits = {"sequence": MOST_SEQUENCE, "layers": 256, "heads": 256, "band": MOST_SEQUENCE}
        checked: dict[str, Any] = {}
        for field in fields(self):
            if field.name not in ("sparsity", "seed"):
                number = check_whole(field.name, getattr(self, field.name), 1, limits.get(field.name, 1 << 18))
                checked[field.name] = number
        checked["seed"] = check_whole("seed", self.seed, 0, (1 << 63) - 1)
        checked["sparsity"] = check_below("sparsity", self.sparsity, 0, 1)
        self.__dict__.update(checked)
        if self.width % self.heads:
            raise InputError(f"width {self.width}: it must be a multiple of the {self.heads} heads")

    @property
    def depth(self) -> int:
        """Features of a head."""
        return self.width // self.heads


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
            **{f"layers.{k}.{part}.weight": (width, width) for part in ("query", "key", "value", "output")},
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
        values = random.standard_normal(shape, np.float32)
        if part == "position":
            # Sines and cosines of many periods (Vaswani et al., "Attention is all you need", section 3.5).
            (count, width), half = shape, (shape[1] + 1) // 2
            angles = np.arange(count)[:, None] * np.exp(-np.log(1e4) * np.arange(half) / max(half - 1, 1))
            values = np.concatenate((np.sin(angles), np.cos(angles)), axis=1)[:, :width].astype(np.float32)
        elif kind == "bias" or part.endswith("norm"):
            values = np.float32(0.1) * values + np.float32(kind == "weight")
        elif part != "token":
            gain = {"up": 2.0, "output": 0.5 / config.layers, "down": 0.5 / config.layers}.get(part, 1.0)
            values *= np.float32((gain / shape[1]) ** 0.5)
        weights[name] = freeze(values)
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
        self.config = config
        seed, source = whole(weights), weights
        if seed is not None or isinstance(source, int):
            source = random_weights(config, seed or 0)
        self.weights = files.read(source, tensor_shapes(config))
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
        c = self.config
        n = check_whole("tokens", tokens or c.sequence, 1, c.sequence)
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


class TransformerPass:
    """One prefill: threads take blocks of tokens through the layers; attention takes all tokens at once.

    Norms, bias, ReLU and sums between two products are done on a block that is still in the caches, by all threads.
    """

    def __init__(
        self, config: TransformerConfig, weights: Mapping[str, np.ndarray], mask: Topology, tokens: np.ndarray,
        arithmetic: str, workers: Workers, clock: Clock,
    ):  # fmt: skip
        self.config, self.weights, self.clock, self.workers = config, weights, clock, workers
        self.arithmetic, count, c = arithmetic, tokens.size, config
        self.mask: Any = None if arithmetic == "causal" else first_rows(mask, count)
        self.run, self.alone = CpuBackend(workers.threads), CpuBackend(1)  # whose arrays are aligned
        self.x = self.weights["token.weight"][tokens]
        self.x += self.weights["position.weight"][:count]
        self.q, self.k, self.v, self.out = (self.run.empty((c.heads, count, c.depth), np.float32) for _ in range(4))
        self.scores = self.run.empty((c.heads, self.mask.nnz), np.float32) if arithmetic == "unfused" else None
        self.attention_scratch: list = []
        if arithmetic in ("dense", "causal"):
            self.attention_scratch = dense_attention.buffers(self.q.shape, arithmetic == "dense", workers.threads)
        self.blocks = [slice(first, min(first + TOKENS, count)) for first in range(0, count, TOKENS)]
        rows = min(TOKENS, count)
        self.scratch = [
            {"wide": np.empty((c.between, rows), np.float32)}
            | {name: np.empty((rows, c.width), np.float32) for name in ("normed", "added")}
            for _ in range(workers.threads)
        ]

    def logits(self) -> np.ndarray:
        logits = np.empty((len(self.x), self.config.vocabulary), np.float32)
        for layer in range(self.config.layers):
            self.workers.each(lambda rows, worker, layer=layer: self._project(layer, rows, worker), self.blocks)
            with self.clock("attention"):
                self._attend()
            self.workers.each(lambda rows, worker, layer=layer: self._after(layer, rows, worker), self.blocks)

        def last(rows: slice, worker: int) -> None:
            normed = self._norm("norm", rows, worker)
            with self._time("logits"):
                np.matmul(normed, self.weights["logits.weight"].T, out=logits[rows])

        self.workers.each(last, self.blocks)
        return logits

    def _project(self, layer: int, rows: slice, worker: int) -> None:
        """q, k and v of a block, each head's apart."""
        c = self.config
        normed = self._norm(f"layers.{layer}.attention_norm", rows, worker)
        with self._time("projections"):
            for name, target in (("query", self.q), ("key", self.k), ("value", self.v)):
                weight = self.weights[f"layers.{layer}.{name}.weight"].reshape(c.heads, c.depth, c.width)
                np.matmul(normed, weight.transpose(0, 2, 1), out=target[:, rows])

    def _attend(self) -> None:
        q, k, v, out = self.q, self.k, self.v, self.out
        scale = q.shape[2] ** -0.5
        if self.arithmetic == "sparse":
            self.run.attention(self.mask, q, k, v, scale, out)
        elif self.arithmetic == "unfused":
            self.run.sddmm(self.mask, q, k, scale, self.scores)
            self.run.softmax(self.mask, self.scores, 1.0, self.scores)  # a row is read whole before it is written
            self.run.spmm(self.mask, self.scores, v, None, -np.inf, np.inf, out)
        elif self.arithmetic == "stored":
            dense_attention.attend_stored(q, k, v, self.mask, out, self.workers)
        else:
            dense_attention.attend_blocks(q, k, v, self.mask, out, self.workers, self.attention_scratch)

    def _after(self, layer: int, rows: slice, worker: int) -> None:
        """The output's projection and the two layers between, each added to x."""
        scratch, name = self.scratch[worker], f"layers.{layer}"
        count = rows.stop - rows.start
        with self._time("projections"):
            joined = scratch["normed"][:count]
            joined.reshape(count, self.config.heads, -1)[:] = self.out[:, rows].transpose(1, 0, 2)
            self.x[rows] += np.matmul(joined, self.weights[f"{name}.output.weight"].T, out=scratch["added"][:count])
        normed = self._norm(f"{name}.between_norm", rows, worker)
        with self._time("between"):
            wide = scratch["wide"].reshape(-1)[: self.config.between * count].reshape(1, -1, count)
            np.matmul(self.weights[f"{name}.up.weight"], normed.T, out=wide[0])
            self.alone.bias_activation(wide, self.weights[f"{name}.up.bias"], 0.0, np.inf)
            added = np.matmul(wide[0].T, self.weights[f"{name}.down.weight"].T, out=scratch["added"][:count])
            added += self.weights[f"{name}.down.bias"]
            self.x[rows] += added

    def _norm(self, name: str, rows: slice, worker: int) -> np.ndarray:
        """x of a block, each token's features of mean 0 and variance 1, times weight, plus bias."""
        with self._time("norms"):
            x, normed = self.x[rows], self.scratch[worker]["normed"][: rows.stop - rows.start]
            np.subtract(x, x.mean(axis=1, keepdims=True), out=normed)
            variance = np.einsum("ij,ij->i", normed, normed) / np.float32(normed.shape[1])
            normed *= (1 / np.sqrt(variance + LAYER_NORM_EPSILON))[:, None]
            normed *= self.weights[f"{name}.weight"]
            normed += self.weights[f"{name}.bias"]
        return normed

    def _time(self, part: str):
        return self.clock(part, self.workers.threads)
