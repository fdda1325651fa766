"""Dense features in blocks of columns: what the libraries share that multiply a sparse matrix with dense features.

Features are a list of C-ordered (neurons, inputs) arrays of at most `block_inputs` inputs each. Weights are W^T by row
(CSR, outputs x inputs), so that one weight scales a run of neighbouring numbers. A block fits a cache: with all inputs
in one array, SciPy and MKL took 1.5 to 2.5 times as long from 1024 to 65536 neurons.
"""

import abc
from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.library import Library, Weights
from spdnn.core.network import Layer, common_value

BLOCK_VALUES = 1 << 19  # 2 MB: a block of features, of some hundred inputs
LEAST_COLUMNS, MOST_BLOCK = 64, 512


def block_inputs(neurons: int) -> int:
    """Inputs in a block of features of that many neurons: 512 at 1024, 128 at 4096, 64 from 16384 on."""
    return min(MOST_BLOCK, max(LEAST_COLUMNS, BLOCK_VALUES // neurons))


class Columns(Library):
    """Dense features in blocks of columns; a library says how one block is multiplied."""

    def weights(self, layer: Layer) -> Weights:
        # W^T by row: a row holds the weights of one output, each of which scales a run of neighbouring inputs.
        matrix = self.matrix(sp.csr_array(layer.matrix().T))
        bias = common_value(np.atleast_1d(layer.bias))
        column = bias.reshape(-1, 1) if np.ndim(bias) else bias
        low, high = layer.activation.low, layer.activation.high
        return Weights(matrix, self.native(column), low, high, layer.inputs, layer.outputs, layer.edges)

    def features(self, rows: np.ndarray) -> list:
        return self._blocks(rows.T)

    def step(self, features: list, weights: Weights, spare: list | None = None) -> list:
        # Buffers of the layer before last are written again where their shapes agree, so that no page is new.
        fits = spare is not None and [b.shape for b in spare] == [(weights.outputs, b.shape[1]) for b in features]
        spares = spare if fits else [None] * len(features)
        return [self.block_step(block, weights, out) for block, out in zip(features, spares, strict=True)]

    def alive(self, features: list, signed: bool) -> np.ndarray:
        return np.concatenate([self.block_alive(block, signed) for block in features])

    def take(self, features: list, kept: np.ndarray) -> list:
        # Blocks are filled up again after rows have left: narrow ones make poor use of the cache and of vectors.
        ends = np.cumsum([block.shape[1] for block in features])[:-1]
        parts = [self.array(block)[:, part] for block, part in zip(features, np.split(kept, ends), strict=True)]
        return self._blocks(np.concatenate(parts, axis=1))

    def _blocks(self, columns: np.ndarray) -> list:
        size = block_inputs(len(columns))
        starts = range(0, columns.shape[1], size)
        return [self.native(np.ascontiguousarray(columns[:, start : start + size])) for start in starts]

    def dense(self, features: list) -> np.ndarray:
        return np.concatenate([self.array(block).T for block in features])

    def matrix(self, rows: sp.csr_array) -> Any:
        """W^T, SciPy CSR float32 (outputs, inputs), as the library takes it."""
        return rows

    def native(self, array: np.ndarray) -> Any:
        """An array, or a number, as the library takes it."""
        return array

    def array(self, block: Any) -> np.ndarray:
        """A block as a NumPy array, not copied where that is possible."""
        return block

    @abc.abstractmethod
    def block_step(self, block: Any, weights: Weights, out: Any) -> Any:
        """One block through one layer, into `out` (of the right shape) or a new array."""

    def block_alive(self, block: Any, signed: bool) -> np.ndarray:
        """bool (inputs of the block,): which have a nonzero value."""
        return block.any(axis=0) if signed else block.max(axis=0) > 0  # the second is many times as fast
