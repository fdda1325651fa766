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
from spdnn.core.result import LastLayer, LastRows, Result, row_hashes
from spdnn.engines.base import Counters, MovableRows, Options, Parcel, Prepared
from spdnn.engines.execute import BatchSession
from spdnn.engines.memory import limit_bytes, more_memory
from spdnn.engines.reductions.inputs import Representatives

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
ROUNDED_UP = 2.0**-23  # by each term of a sum, at most, in all
# Rows that died are left behind when no more than this share lives: an input is then copied a few times at most.
SHRINK_SHARE = 0.5


class LibrarySession(BatchSession):
    """All weights, and the features of all inputs, in the library's layout; `library`: a Library (library.py)."""

    def __init__(self, library: Any, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared, inputs)
        network = prepared.network
        # Memory of this machine: the process now, and what weights and features take; a device's is no part of it.
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        least, limit = resident + library.host_bytes(network, inputs.count), limit_bytes(options.memory)
        if least > limit:
            raise InputError(
                f"engine {library.name} holds {library.holds}, about {least:,} bytes; {limit:,} are allowed: "
                f"fewer inputs (--count) or more memory ({more_memory(least)})"
            )
        self.library, self.last, self.keep = library, LastLayer(network), options.keep
        self.batch, self.device = inputs.count, options.device
        library.use(self.device)
        self.notes = library.start(options.threads)
        library.check_device(network, inputs.count)
        # Overflow is refused before the run: a bound on the values goes through the layers with their weights.
        self.layers, rows = [], inputs.dense(inputs.numbers_of(0, inputs.count))
        largest = float(max(rows.max(), -rows.min()))
        for k, layer in enumerate(progress.bar(network.layers(), "weights", network.depth)):
            largest = upper_bound(layer, largest, k, library.name)
            self.layers.append(library.weights(layer))
        self.first = library.features(rows)
        del rows
        # Libraries that compile at the first call run once now, so that compilation is not on the clock.
        if library.compiles:
            self.run()

    def begin(self, numbers: np.ndarray, counters: Counters) -> "LibraryRows":
        self.library.use(self.device)
        return LibraryRows(self, numbers, counters)

    def survivors_of(self, numbers: np.ndarray) -> None:
        """None: the features of all inputs were laid out when it was opened."""

    def result(self, parts: list[LastRows], counters: Counters, size: int) -> Result:
        return self.last.result(
            self.inputs.total, parts, self.keep, **counters.counted(self.prepared, self.library.sparse),
            notes=self.notes,
        )  # fmt: skip


class LibraryRows(MovableRows):
    """All rows of a LibrarySession, in the library's layout; dead ones among them until half of them are.

    Attributes:
        rows: float32 (count, neurons), where the ranks have just exchanged some: a library's layout has no way to put
            rows in, so they are laid out anew before the next layer.
        alive: bool (count,), those that are nonzero.
    """

    def __init__(self, session: LibrarySession, numbers: np.ndarray, counters: Counters):
        super().__init__(session.prepared, numbers, counters, session.inputs.total)
        self.session, self.library, self.features, self.spare = session, session.library, session.first, None
        self.rows: np.ndarray | None = None
        self.alive = np.ones(numbers.size, bool)

    def compute(self, layers: list) -> None:
        (weights,), library = layers, self.library
        if self.rows is not None:
            self.features, self.rows, self.spare = library.features(self.rows), None, None
        # Features of the layer before are room for the next ones; the first ones stay for other runs.
        self.counters.rows[self.layer] += np.count_nonzero(self.alive) if self.may_leave else self.count
        self.counters.edges[self.layer] += library.work(self.features, weights, self.count)
        following = library.step(self.features, weights, self.spare)
        self.spare = None if self.features is self.session.first else self.features
        self.features, self.alive = following, library.alive(following, weights.low < 0)
        self.left = np.count_nonzero(self.alive)
        self.counters.survivors[self.layer] += self.left

    def compact(self, meeting: bool) -> None:
        # A library copies what is left, so dead rows leave when at most half of the rows live.
        if self.may_leave and self.alive.size == self.count and self.left <= SHRINK_SHARE * self.count:
            self.inputs.keep(self.alive)
            if self.left:
                self.spare = None  # its memory is free while both copies exist
                self.features = self.library.take(self.features, self.alive)
            self.alive = self.alive[self.alive]

    def hashes(self) -> np.ndarray:
        return row_hashes(self._dense())

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return np.full(rows.size, 4 * self.neurons), self._dense()[rows].reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        rows = np.concatenate([self._dense()[kept], values])
        self.inputs.keep(kept)
        self.inputs.add(arrived.numbers, int(kept.sum()) + arrived.row_of, len(rows))
        # Each row represents one input here; they go on in the order of these.
        self.rows, self.inputs = rows[self.inputs.row_of], Representatives(self.inputs.numbers)
        self.alive = self.rows.any(axis=1)

    def finish(self) -> LastRows:
        # Only rows that are alive are brought to NumPy, for statistics and values.
        rows = np.zeros((0, self.neurons), np.float32)
        self.spare, alive = None, self.alive if self.count else self.alive[:0]
        if alive.any():
            rows = self.library.dense(self.features if alive.all() else self.library.take(self.features, alive))
        return self.session.last.rows(self.inputs.numbers[alive], np.arange(len(rows)), rows, self.session.keep)

    def _dense(self) -> np.ndarray:
        if self.rows is not None:
            return self.rows
        if not self.count:
            return np.zeros((0, self.neurons), np.float32)
        return np.ascontiguousarray(self.library.dense(self.features), np.float32)


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
