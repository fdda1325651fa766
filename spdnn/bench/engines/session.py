"""A session of an engine around a library: all inputs through one layer after the other.

Weights and features are made when it opens, outside the clock. The clock holds, for every layer: product, bias,
activation, and which rows are still nonzero.
"""

import resource
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import InputError, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.core.result import LastLayer, Result, row_hashes
from spdnn.engines.base import Options, Prepared, SharesRows
from spdnn.engines.exchange import HeldRows, Parcel, RowExchange
from spdnn.engines.memory import limit_bytes, more_memory
from spdnn.engines.reductions.inputs import Representatives

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
ROUNDED_UP = 2.0**-23  # by each term of a sum, at most, in all
# Rows that died are left behind when no more than this share lives: an input is then copied a few times at most.
SHRINK_SHARE = 0.5


class LibrarySession(SharesRows):
    """All weights, and the features of all inputs, in the library's layout; `library`: a Library (library.py)."""

    def __init__(self, library: Any, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared)
        network = prepared.network
        inputs.check_width(network.inputs)
        # Memory of this machine: the process now, and what weights and features take; a device's is no part of it.
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        least, limit = resident + library.host_bytes(network, inputs.count), limit_bytes(options.memory)
        if least > limit:
            raise InputError(
                f"engine {library.name} holds {library.holds}, about {least:,} bytes; {limit:,} are allowed: "
                f"fewer inputs (--count) or more memory ({more_memory(least)})"
            )
        self.library, self.last, self.keep = library, LastLayer(network), options.keep
        self.dead_from = prepared.dead_from
        self.device = options.device
        library.use(self.device)
        self.notes = library.start(options.threads)
        library.check_device(network, inputs.count)
        # Overflow is refused before the run: a bound on the values goes through the layers with their weights.
        self.weights, rows = [], inputs.dense(inputs.numbers_of(0, inputs.count))
        largest = float(max(rows.max(), -rows.min()))
        for k, layer in enumerate(progress.bar(network.layers(), "weights", network.depth)):
            largest = upper_bound(layer, largest, k, library.name)
            self.weights.append(library.weights(layer))
        self.work_profile = prepared.work_profile()
        self.layer_edges = np.array([float(weights.edges) for weights in self.weights])
        self.inputs, self.first = inputs, library.features(rows)
        del rows
        # Libraries that compile at the first call run once now, so that compilation is not on the clock.
        if library.compiles:
            self.run()

    def run(self, exchange: RowExchange | None = None) -> Result:
        library, depth = self.library, len(self.weights)
        library.use(self.device)
        features, spare, numbers = self.first, None, self.inputs.numbers_of(0, self.inputs.count)
        survivors, computed = np.zeros(depth, np.int64), 0
        exchange_at = exchange.first(1, depth, numbers.size) if exchange else depth
        with progress.Inference(self.work_profile, numbers.size) as stage:
            stage.begin(numbers.size, lambda k: (computed, self._rows(features, numbers.size, k)))
            for k, weights in enumerate(self.weights, 1):
                # Layer: features of the layer before are room for the next ones; the first ones stay for other runs.
                alive = np.zeros(0, bool)
                if numbers.size:
                    computed += library.work(features, weights, numbers.size)
                    following = library.step(features, weights, spare)
                    spare = None if features is self.first else features
                    features, alive = following, library.alive(following, weights.low < 0)
                count = survivors[k - 1] = np.count_nonzero(alive)
                stage.at(k, count)
                if k == depth:
                    break
                # Dead inputs: a library copies what is left, so it is done when at most half of the rows live.
                if k >= self.dead_from:
                    if not count:
                        numbers = numbers[:0]  # nothing revives a row from here on
                        if exchange_at == depth:
                            stage.at(depth, 0)
                            break
                    elif count <= SHRINK_SHARE * numbers.size:
                        spare = None  # its memory is free while both copies exist
                        features, numbers = library.take(features, alive), numbers[alive]
                # Exchange: rows are in the library's layout until one of them moves; then they are laid out anew.
                if k == exchange_at:
                    local = LibraryRows(
                        library, features, numbers, may_leave=k >= self.dead_from, edges=computed,
                        neurons=self.weights[k].inputs, capacity=self.inputs.total, work=self.layer_edges,
                    )  # fmt: skip
                    exchange_at = exchange.meet(k, local)
                    if local.rows is not None:
                        numbers, spare = local.inputs().numbers, None
                        features = library.features(local.rows) if numbers.size else features
        if exchange:
            exchange.end(computed)
        # Last rows: only those that are alive are brought to NumPy, for statistics and values.
        rows, spare = np.zeros((0, self.last.outputs), np.float32), None
        if alive.any():
            rows = library.dense(features if alive.all() else library.take(features, alive))
        numbers = numbers[alive] if numbers.size else numbers
        return self.last.result(
            self.inputs.total, [self.last.rows(numbers, rows, self.keep)], self.keep,
            survivors=survivors, edges_computed=computed, notes=self.notes,
        )  # fmt: skip

    def _rows(self, features: Any, count: int, layer: int) -> float:
        """Rows of work in the coming layer (0-based), for features of `count` inputs before it."""
        weights = self.weights[min(layer, len(self.weights) - 1)]
        return self.library.work(features, weights, count) / max(1, weights.edges) if count else 0.0


class LibraryRows(HeldRows):
    """The rows of an engine between two layers, as other ranks see them: in the library's layout until one moves.

    Args:
        library: a Library (library.py).
        features: in the library's layout; numbers: int64, the inputs that they are of.
        others: attributes of HeldRows.

    Attributes:
        rows: float32 (count, neurons) once the ranks have exchanged some, else None.
    """

    def __init__(self, library: Any, features: Any, numbers: np.ndarray, **others):
        self._library, self._features, self._inputs = library, features, Representatives(numbers)
        self.rows: np.ndarray | None = None
        vars(self).update(others)

    def inputs(self) -> Representatives:
        return self._inputs

    def hashes(self) -> np.ndarray:
        return row_hashes(self._dense())

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return np.full(rows.size, 4 * self.neurons), self._dense()[rows].reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        # The first exchange brings all rows to NumPy, for a library's layout has no way to put rows in.
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        rows = np.concatenate([self._dense()[kept], values])
        self._inputs.keep(kept)
        self._inputs.add(arrived.numbers, int(kept.sum()) + arrived.row_of, len(rows))
        # Each row represents one input here; they go on in the order of these.
        self.rows, self._inputs = rows[self._inputs.row_of], Representatives(self._inputs.numbers)

    def set_merged(self, rows: int) -> None:
        """No library offers to merge equal rows."""

    def _dense(self) -> np.ndarray:
        if self.rows is not None:
            return self.rows
        if not self.count:
            return np.zeros((0, self.neurons), np.float32)
        return np.ascontiguousarray(self._library.dense(self._features), np.float32)


def upper_bound(layer: Layer, largest: float, k: int, name: str) -> float:
    """No value after layer k is larger than this, if none before it is larger than `largest`.

    A library clips an infinity to YMAX and goes on, and a search in every product would be on its clock; so
    what could pass float32, rounded up at every addition, is refused before it starts.

    Raises:
        Unsuitable: a product may pass the range of float32.
    """
    # A sum is at most the largest column sum of absolute weights times the largest feature; rounding adds some.
    weights = abs(layer.matrix(np.float64)).sum(axis=0).max(initial=0.0)
    product = float(weights) * largest + float(abs(layer.bias).max(initial=0.0))
    product *= 1 + ROUNDED_UP * (int(np.diff(layer.offsets).max()) + 2)
    if product > LARGEST_FLOAT32:
        raise Unsuitable(
            f"engine {name} does not look for values past float32, and layer {k + 1} could give one; "
            "--engine cpu checks every value"
        )
    return min(product, layer.activation.high)
