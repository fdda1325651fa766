"""The contract of every engine: what it prepares, the session that it opens, and the options of a run.

An engine is one way to run inference. A session is an inference that is ready to run; its `run` is what is timed.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.limits import Machine
from spdnn.core.network import Layer, Network
from spdnn.core.result import KeptInputs, Result
from spdnn.engines.exchange import RowExchange
from spdnn.engines.memory import limit_bytes, resident_bytes
from spdnn.engines.reductions.dead import dead_from
from spdnn.engines.reductions.registry import REDUCTIONS

RESIDENT = "layer loop, resident"
STREAMED = "layer loop, weights streamed"
MAX_THREADS = 1024
KEPT_PART = 8  # of the memory that is left, for merged layers; the rest is for features and weights


@dataclass(frozen=True)
class Options:
    """How to run.

    Attributes:
        threads: of this process.
        device: which of the engine's devices, counted from 0; None for an engine that needs none.
        memory: bytes of peak resident memory that must not be passed, or None: most of what is free.
        values: keep the values of all last rows; or of the inputs with these numbers (int64, ascending) alone.
        settings: those of the engine, of the type Engine.settings; None: its defaults.
    """

    threads: int = 1
    memory: int | None = None
    values: bool | np.ndarray = False
    device: int | None = None
    settings: Any = None

    def __post_init__(self):
        if not (isinstance(self.threads, int) and 1 <= self.threads <= MAX_THREADS):
            raise InputError(f"threads {self.threads!r}: an integer from 1 to {MAX_THREADS}")
        if self.memory is not None and not (isinstance(self.memory, int | np.integer) and self.memory >= 1):
            raise InputError(f"memory {self.memory!r}: a number of bytes from 1, or None")

    @property
    def keep(self) -> KeptInputs:
        """Which last rows are kept with their values."""
        return KeptInputs(self.values)


@dataclass(frozen=True)
class Prepared:
    """A network in an engine's layout, and the findings of each reduction in it.

    Attributes:
        source: the network before reductions.
        network: what the engine reads, layer by layer.
        reductions: the names that are on.
        findings: of each of them; fit for JSON.
        layout: of each layer, what Engine.layout gave for it, in memory already; None: `open` makes it.
    """

    source: Network
    network: Network
    reductions: tuple[str, ...] = ()
    findings: dict = field(default_factory=dict)
    layout: Sequence[tuple[np.ndarray, ...]] | None = None

    @classmethod
    def reduce(cls, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> "Prepared":
        """Without what the reductions leave out of the network itself; the engine keeps its layers by output neuron.

        Args:
            memory: see Engine.prepare; merged layers take a part of what it leaves, others are merged again when read.
        """
        # Reductions build on each other, in order; each gets a part of the memory that those before it left.
        findings, prepared = {}, network
        for name in reductions:
            room = max(0, limit_bytes(memory) - resident_bytes()) // KEPT_PART
            prepared, note = REDUCTIONS[name].prepare(prepared, room)
            if note is not None:
                findings[name] = note
        return cls(network, prepared, reductions, findings)

    @property
    def dead_from(self) -> int:
        """The first layer (0-based) before which dead rows may leave; the depth when they may not."""
        if "dead" not in self.reductions:
            return self.network.depth
        return dead_from(self.findings["dead"]["layers_that_revive_zeros"], self.network.depth)

    def work_profile(self) -> progress.WorkProfile:
        """The layers for progress; built when a session opens, for it reads every header."""
        depth = range(self.network.depth)
        source_edges, prepared_edges = ((net.header(k).edges for k in depth) for net in (self.source, self.network))
        return progress.WorkProfile.of(source_edges, prepared_edges)

    def first(self, depth: int) -> "Prepared":
        """Of the first `depth` layers; findings are then of these, and its seconds of all that were prepared.

        Raises:
            InputError: there are fewer.
        """
        source, network, findings = self.source.first(depth), self.network.first(depth), dict(self.findings)
        for name, note in self.findings.items():
            findings[name] = REDUCTIONS[name].first(note, source, network, self.network.depth)
        return Prepared(source, network, self.reductions, findings)


class Session(abc.ABC):
    """An inference that is ready to run: weights in memory (or streamed), buffers allocated.

    Attributes:
        span: what the time of `run` includes, RESIDENT or STREAMED.
        findings: of the reductions that depend on how many layers run; fit for JSON.
    """

    span: str = RESIDENT

    def __init__(self, prepared: Prepared):
        notes = {name: REDUCTIONS[name].session_note(note, prepared.network.depth)
                 for name, note in prepared.findings.items()}  # fmt: skip
        self.findings: dict = {name: note for name, note in notes.items() if note is not None}

    @abc.abstractmethod
    def run(self, exchange: RowExchange | None = None) -> Result:
        """Run once, from inputs and weights in memory to categories and row sums. Its time is the inference time.

        The result numbers inputs as the whole does that they are a part of. With an exchange, rows may come from and go
        to other ranks: it tells the survivors and work of rows while they were here, and `alive` need not ascend.

        One rule for overflow: no result comes of a layer's sum, bias added, that is not finite before the activation,
        which would hide it. It is checked once for each batch at least. An engine adds in the order that it likes, and
        nothing is promised of partial sums.

        Raises:
            SpdnnError: a sum is not finite; see spdnn.core.errors.past_float32.
        """

    def tell(self, result: Result) -> None:  # noqa: B027  most leave it to `run`
        """Add to the notes of the last run's result what is of no use to the run, and so not on its clock."""


class SharesRows(Session):
    """A session whose `run` takes an exchange, so that rows move between ranks.

    Attributes:
        batches: into how many batches the memory makes it split its inputs.
        least_batches: it makes no fewer, so that ranks make equally many; the last ones may be empty.
    """

    batches: int = 1
    least_batches: int = 0


class Engine(abc.ABC):
    """One way to run inference. Importing an engine's module must need nothing that may be absent.

    Attributes:
        name: as the command takes it.
        summary: one line on what it is.
        offers: the reductions it can use.
        settings: a frozen dataclass, the type of Options.settings; None: it has none.
        on_device: it is one of OnDevices.
    """

    name: str
    summary: str
    offers: tuple[str, ...] = ()
    settings: type | None = None
    on_device: bool = False

    @abc.abstractmethod
    def missing(self) -> str | None:
        """None when the engine can run here, else one sentence that says what is missing."""

    @abc.abstractmethod
    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        """Apply the reductions that need the network alone, and lay it out.

        Args:
            memory: as in Options.

        Raises:
            Unsuitable: the engine cannot run this network.
        """

    def ceilings(self, options: Options, seconds: float, together: int = 1) -> Machine | None:
        """What the machine, or the device that `options` names, does at best, measured now in about so many seconds;
        None: it is not this engine's limit. `together` processes of this machine measure at the same moment.

        Raises:
            Unavailable: too little memory is free to measure it.
        """
        return None

    @abc.abstractmethod
    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        """Make ready to run: read the weights, allocate.

        Raises:
            InputError: the inputs' width is not the network's, or the memory allowed is too small.
        """


class SharesWeights(Engine):
    """An engine whose sessions read weights where they lie, so that the ranks of a node hold them once."""

    def layout(self, layer: Layer) -> tuple[np.ndarray, ...] | None:
        """The arrays of a layer in an order of the engine's own; None: it reads those of the layer."""
        return None


class OnDevices(Engine):
    """An engine that keeps weights and features in the memory of devices, of which each rank takes its own."""

    on_device = True

    @abc.abstractmethod
    def device_identities(self) -> tuple[str, ...]:
        """Of each device that this process sees, what tells it from all others on this node, in every process. From
        those of all ranks it is decided which takes which (runs/ranks/partition.py).

        Raises:
            Unavailable: they cannot be distinguished.
        """


class AnswersCalls(Engine):
    """An engine that answers calls of a few inputs faster than a session is opened."""

    @abc.abstractmethod
    def forward(self, prepared: Prepared, options: Options) -> Callable[[np.ndarray], np.ndarray]:
        """What takes x, float32 (count, inputs), C-contiguous, to its last rows, float32 (count, outputs), for calls of
        any count from several threads at once. Weights are in memory.

        It raises InputError for an x that is not finite, and as Session.run does.
        """
