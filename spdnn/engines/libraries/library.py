"""What a peer is: a `Library` that computes one layer, and the engine that runs a network with it.

Each library keeps weights and features in the orientation and layout that is fastest for it; both are made when a
session opens, outside the clock. The clock holds, for every layer: product, bias, activation, and finding the rows
that are still nonzero.
"""

from __future__ import annotations

import abc
import math
import os
import resource
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.common import progress
from spdnn.common.errors import InputError, Unsuitable
from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.engines.exchange import HeldRows, Parcel, RowExchange
from spdnn.problem.features import Inputs
from spdnn.problem.network import Header, Layer, Network
from spdnn.problem.result import Result, RowStatistics, row_hashes
from spdnn.reductions.inputs import Representatives

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
MEMORY_SHARE = 0.7  # of the machine's memory, when no limit was given
FEATURE_COPIES = 3  # of the features at the peak: the first ones, and two that take turns
EDGE_BYTES = 12  # of a weight in the widest layout: a 64-bit index and a value
# Rows that died are left behind when no more than this share lives: an input is then copied a few times at most.
SHRINK_SHARE = 0.5


@dataclass(frozen=True)
class Weights:
    """One layer as a library takes it.

    Attributes:
        matrix: in the library's own type.
        bias: in the library's own type and shape, to be added to its features.
        low, high: of the activation.
        inputs, outputs, edges: of the layer.
    """

    matrix: Any
    bias: Any
    low: float
    high: float
    inputs: int
    outputs: int
    edges: int


class Library(abc.ABC):
    """One other library. Importing its module imports nothing but NumPy and SciPy.

    Attributes:
        name, summary: as `spdnn engines` prints them.
        offers: ("dead",) when rows that became all zero can leave between layers.
        value_bytes: of one feature, at most.
        holds: what it keeps in this machine's memory, for the sentence on what does not fit.
        compiles: whether the first run compiles, so that one is made before the clock starts.
        on_device: as Engine.on_device.
    """

    name: str
    summary: str
    offers: tuple[str, ...] = ("dead",)
    value_bytes = 4
    holds = "all weights and features"
    compiles = False
    on_device = False

    @abc.abstractmethod
    def missing(self) -> str | None:
        """None when the library is installed, else one sentence; nothing is imported to find out."""

    @abc.abstractmethod
    def start(self, threads: int) -> dict:
        """Import the library and set its threads; what was set, its version and layout, fit for JSON.

        Raises:
            InputError: its threads were set before, and cannot be set again in this process.
        """

    def use(self, device: int | None) -> None:  # noqa: B027  most libraries run on the processor
        """Work on that device from here on; None: on the first, where the library needs one.

        Raises:
            InputError: there is no such device.
        """

    def host_bytes(self, network: Network, count: int) -> int:
        """Bytes of this machine's memory that weights and features of `count` inputs take at the peak."""
        return FEATURE_COPIES * self.value_bytes * count * network.width + EDGE_BYTES * network.edges

    def check_device(self, network: Network, count: int) -> None:  # noqa: B027
        """Raise MemoryTooSmall when they do not fit the device; the library is started."""

    def check(self, header: Header, reductions: tuple[str, ...]) -> None:  # noqa: B027  most libraries run every layer
        """Raise Unsuitable when the library cannot run a layer with these reductions."""

    @abc.abstractmethod
    def weights(self, layer: Layer) -> Weights:
        """The layer in the library's layout."""

    @abc.abstractmethod
    def features(self, rows: np.ndarray) -> Any:
        """float32 (count, neurons) in the library's layout; the array is not kept."""

    @abc.abstractmethod
    def step(self, features: Any, weights: Weights, spare: Any = None) -> Any:
        """activation(features W + bias), complete when it returns; `features` stay as they are.

        Args:
            spare: features that are needed no more and may be overwritten, of any size, or None.
        """

    @abc.abstractmethod
    def alive(self, features: Any, signed: bool) -> np.ndarray:
        """bool (count,): the inputs with a nonzero value; `signed`: values may be negative."""

    @abc.abstractmethod
    def take(self, features: Any, kept: np.ndarray) -> Any:
        """The features of the inputs `kept`, bool (count,), of which at least one is set."""

    @abc.abstractmethod
    def dense(self, features: Any) -> np.ndarray:
        """float32 (count, neurons)."""

    def work(self, features: Any, weights: Weights, count: int) -> int:
        """Inputs x edges that a step goes through, for features of `count` inputs."""
        return count * weights.edges


class PeerEngine(Engine):
    """The engine around a library; subclasses name it."""

    library: Library

    def __init__(self):
        self.name, self.summary, self.offers = self.library.name, self.library.summary, self.library.offers
        self.on_device = self.library.on_device

    def missing(self) -> str | None:
        return self.library.missing()

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        for k in range(network.depth):
            self.library.check(network.header(k), reductions)
        return Prepared.reduced(network, reductions)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return PeerSession(self.library, prepared, inputs, options)


class PeerSession(Session):
    """All weights, and the features of all inputs, in the library's layout."""

    exchanges_rows = True

    def __init__(self, library: Library, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared)
        network = prepared.network
        inputs.check_width(network.inputs)
        _check_memory(library, network, inputs, options)
        self.library, self.outputs, self.keep_values = library, network.outputs, options.values
        self.dead_from = prepared.dead_from
        self.device = options.device
        library.use(self.device)
        self.notes = library.start(options.threads)
        library.check_device(network, inputs.count)
        self.weights, rows = [], inputs.dense(inputs.numbered(0, inputs.count))
        largest = float(max(rows.max(), -rows.min()))
        for k, layer in enumerate(progress.bar(network.layers(), "weights", network.depth)):
            largest = bound(layer, largest, k, library.name)
            self.weights.append(library.weights(layer))
        self.course = prepared.course()
        self.layer_edges = np.array([float(weights.edges) for weights in self.weights])
        self.inputs, self.first = inputs, library.features(rows)
        del rows
        if library.compiles:
            self.run()

    def run(self, exchange: RowExchange | None = None) -> Result:
        library, depth = self.library, len(self.weights)
        library.use(self.device)
        features, spare, numbers = self.first, None, self.inputs.numbered(0, self.inputs.count)
        survivors, computed = np.zeros(depth, np.int64), 0
        exchange_at = exchange.first(1, depth, numbers.size) if exchange else depth
        with progress.Inference(self.course, numbers.size) as stage:
            stage.begin(numbers.size, lambda k: (computed, self._rows(features, numbers.size, k)))
            for k, weights in enumerate(self.weights, 1):
                alive = np.zeros(0, bool)
                if numbers.size:
                    computed += library.work(features, weights, numbers.size)
                    following = library.step(features, weights, spare)
                    spare = None if features is self.first else features
                    features, alive = following, library.alive(following, weights.low < 0)
                left = survivors[k - 1] = np.count_nonzero(alive)
                stage.at(k, left)
                if k == depth:
                    break
                if k >= self.dead_from:
                    if not left:
                        numbers = numbers[:0]  # nothing revives a row from here on
                        if exchange_at == depth:
                            stage.at(depth, 0)
                            break
                    elif left <= SHRINK_SHARE * numbers.size:
                        spare = None  # its memory is free while both copies exist
                        features, numbers = library.take(features, alive), numbers[alive]
                if k == exchange_at:
                    held = PeerRows(self, k, features, numbers, computed)
                    exchange_at = exchange.meet(k, held)
                    if held.rows is not None:
                        numbers, spare = held.inputs().numbers, None
                        features = library.features(held.rows) if numbers.size else features
        if exchange:
            exchange.end(computed)
        rows, spare = np.zeros((0, self.outputs), np.float32), None
        if alive.any():
            rows = library.dense(features if alive.all() else library.take(features, alive))
        numbers = numbers[alive] if numbers.size else numbers
        values = rows if self.keep_values else None
        return Result(
            self.inputs.total, rows.shape[1], numbers, *RowStatistics.of(rows), survivors, computed, values, self.notes
        )

    def _rows(self, features: Any, count: int, layer: int) -> float:
        """Rows of work in the coming layer (0-based), for features of `count` inputs before it."""
        weights = self.weights[min(layer, len(self.weights) - 1)]
        return self.library.work(features, weights, count) / max(1, weights.edges) if count else 0.0


class PeerRows(HeldRows):
    """The rows of a peer before layer k, in the library's layout until one moves.

    Attributes:
        rows: float32 (count, neurons) once the ranks have exchanged some, else None.
    """

    def __init__(self, session: PeerSession, k: int, features: Any, numbers: np.ndarray, computed: int):
        self._library, self._features, self._inputs = session.library, features, Representatives(numbers)
        self.rows: np.ndarray | None = None
        self.may_leave, self.edges = k >= session.dead_from, computed
        self.neurons = session.weights[k].inputs
        self.capacity = session.inputs.total
        self.work = session.layer_edges

    def inputs(self) -> Representatives:
        return self._inputs

    def hashes(self) -> np.ndarray:
        return row_hashes(self._dense())

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return np.full(rows.size, 4 * self.neurons), self._dense()[rows].reshape(-1).view(np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        rows = np.concatenate([self._dense()[kept], values])
        self._inputs.keep(kept)
        self._inputs.add(arrived.numbers, int(kept.sum()) + arrived.row_of, len(rows))
        # Each row stands for one input here; they go on in the order of these.
        self.rows, self._inputs = rows[self._inputs.row_of], Representatives(self._inputs.numbers)

    def merged(self, rows: int) -> None:
        """No peer offers to merge equal rows."""

    def _dense(self) -> np.ndarray:
        if self.rows is not None:
            return self.rows
        if not self.count:
            return np.zeros((0, self.neurons), np.float32)
        return np.ascontiguousarray(self._library.dense(self._features), np.float32)


def bound(layer: Layer, largest: float, k: int, name: str) -> float:
    """No value after layer k is larger than this, given that none before it is larger than `largest`.

    A library clips an infinity to YMAX and goes on, and to look for one in every product would be on its clock; so
    what could pass float32 is refused before it starts.

    Raises:
        Unsuitable: a product may pass the range of float32.
    """
    weights = abs(layer.matrix(np.float64)).sum(axis=0).max(initial=0.0)
    product = float(weights) * largest + float(abs(layer.bias).max(initial=0.0))
    if product > LARGEST_FLOAT32:
        raise Unsuitable(
            f"engine {name} does not look for values past float32, and layer {k + 1} could give one; "
            "--engine cpu looks at every value"
        )
    return min(product, layer.activation.high)


def _check_memory(library: Library, network: Network, inputs: Inputs, options: Options) -> None:
    """Refuse what would not fit this machine's memory, of which a device's is no part."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = options.memory if options.memory is not None else int(MEMORY_SHARE * whole)
    least = held + library.host_bytes(network, inputs.count)
    if least > limit:
        raise InputError(
            f"engine {library.name} holds {library.holds}, about {least:,} bytes; {limit:,} are allowed: "
            "fewer inputs (--count) or more memory (--memory)"
        )


def uniform(bias: np.float32 | np.ndarray) -> bool:
    """Whether a bias is one number for all outputs."""
    return np.size(bias) <= 1 or bool((bias == bias.flat[0]).all())


def degree(edges: int, inputs: int, nonzeros: int) -> int:
    """Inputs x edges behind `nonzeros` features: each goes through the edges of its neuron, `edges / inputs` of them
    on average."""
    return math.ceil(nonzeros * edges / inputs)
