"""The engine around another library, and what the library must be able to do: compute one layer.

Each library has a subclass in a file of its own, with the orientation and layout that is fastest for it.
"""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.bench.engines.session import LibrarySession
from spdnn.core.features import Inputs
from spdnn.core.network import Header, Layer, Network
from spdnn.engines.base import Engine, Options, Prepared, Session

FEATURE_COPIES = 3  # of the features at the peak: the first ones, and two that alternate
WIDEST_BYTES = 12  # of an edge in the widest layout of a library: a 64-bit index and a value


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


class Library(Engine):
    """One other library. Importing its module imports nothing but NumPy and SciPy.

    Attributes:
        offers: ("dead",) when rows that became all zero can leave between layers.
        value_bytes: of one feature, at most.
        holds: what it keeps in this machine's memory, for the sentence on what does not fit.
        compiles: whether the first run compiles, so that one is made before the clock starts.
        sparse: whether features hold their nonzeros alone, and `work` counts the edges of these.
    """

    offers: tuple[str, ...] = ("dead",)
    value_bytes = 4
    holds = "all weights and features"
    compiles = False
    sparse = False

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        for k in range(network.depth):
            self.check(network.header(k), reductions)
        return Prepared.reduce(network, reductions)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return LibrarySession(self, prepared, inputs, options)

    @abc.abstractmethod
    def start(self, threads: int) -> dict:
        """Import the library and set its threads; what was set, its version and layout, fit for JSON.

        Raises:
            InputError: its threads were set before, and cannot be set again in this process.
        """

    def use(self, device: int | None) -> None:
        """Work on that device from here on; None: on the first, where the library needs one.

        Raises:
            InputError: there is no such device.
        """

    def host_bytes(self, network: Network, count: int) -> int:
        """Bytes of this machine's memory that weights and features of `count` inputs take at the peak."""
        return FEATURE_COPIES * self.value_bytes * count * network.width + WIDEST_BYTES * network.edges

    def check_device(self, network: Network, count: int) -> None:
        """Raise MemoryTooSmall when they do not fit the device; the library is started."""

    def check(self, header: Header, reductions: tuple[str, ...]) -> None:
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
