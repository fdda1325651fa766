"""One prefill of the Transformer: threads take blocks of tokens through the layers; attention takes all tokens at once.

Norms, bias, ReLU and sums between two products are done on a block that is still in the caches, by all threads.
"""

from collections.abc import Mapping

import numpy as np

from spdnn.ops.backends import backend
from spdnn.ops.models import dense_attention
from spdnn.ops.models.arithmetic import Clock, Workers
from spdnn.ops.models.masks import first_rows
from spdnn.ops.models.transformer_config import TransformerConfig
from spdnn.ops.topology import Topology

TOKENS = 512  # of a block that a thread takes through a layer: measured; the weights are read once for each
EPSILON = np.float32(1e-6)  # of a layer norm, as Tensor2Tensor has it


class TransformerPass:
    """One prefill: its buffers, and its steps, block of tokens by block."""

    def __init__(
        self, config: TransformerConfig, weights: Mapping[str, np.ndarray], mask: Topology, tokens: np.ndarray,
        arithmetic: str, workers: Workers, clock: Clock,
    ):  # fmt: skip
        self.config, self.weights, self.clock, self.workers = config, weights, clock, workers
        self.arithmetic, count, c = arithmetic, tokens.size, config
        self.mask = None if arithmetic == "causal" else first_rows(mask, count)
        self.run = backend("cpu", workers.threads)  # its arrays are aligned
        self.alone = backend("cpu", 1)
        self.x = self.weights["token.weight"][tokens]
        self.x += self.weights["position.weight"][:count]
        self.q, self.k, self.v, self.out = (self.run.empty((c.heads, count, c.depth), np.float32) for _ in range(4))
        self.scores = self.run.empty((c.heads, self.mask.nnz), np.float32) if arithmetic == "unfused" else None
        self.attention_scratch = None
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
            normed *= (1 / np.sqrt(variance + EPSILON))[:, None]
            normed *= self.weights[f"{name}.weight"]
            normed += self.weights[f"{name}.bias"]
        return normed

    def _time(self, part: str):
        return self.clock(part, self.workers.threads)
