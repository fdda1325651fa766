"""The contract of every engine: what it prepares, the session that it opens, its rows, and the options of a run."""

import abc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.limits import Machine
from spdnn.core.locks import cached_property
from spdnn.core.network import Layer, Network
from spdnn.core.numbers import whole
from spdnn.core.result import KeptInputs, LastRows, LayerWork, Result
from spdnn.core.threads import MAX_THREADS
from spdnn.engines.memory import limit_bytes, resident_bytes
from spdnn.engines.reductions.dead import dead_from
from spdnn.engines.reductions.inputs import DuplicateSearch, Representatives
from spdnn.engines.reductions.registry import REDUCTIONS

RESIDENT = "layer loop, resident"
STREAMED = "layer loop, weights streamed"
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
        threads, memory = whole(self.threads), whole(self.memory)
        if threads is None or not 1 <= threads <= MAX_THREADS:
            raise InputError(f"threads {self.threads!r}: an integer from 1 to {MAX_THREADS}")
        if self.memory is not None and (memory is None or memory < 1):
            raise InputError(f"memory {self.memory!r}: a number of bytes from 1, or None")
        object.__setattr__(self, "threads", threads)
        object.__setattr__(self, "memory", memory)

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
        Merged layers take a part of what `memory` (as of Options) leaves, others are merged again when read."""
        # Reductions build on each other, in order; each gets a part of the memory that those before it left.
        findings, prepared = {}, network
        for name in reductions:
            room = max(0, limit_bytes(memory) - resident_bytes()) // KEPT_PART
            prepared, note = REDUCTIONS[name].prepare(prepared, room)
            if note is not None:
                findings[name] = note
        return cls(network, prepared, reductions, findings)

    @cached_property
    def dead_from(self) -> int:
        """The first layer (0-based) before which dead rows may leave; the depth when they may not."""
        if "dead" not in self.reductions:
            return self.network.depth
        return dead_from(self.findings["dead"]["layers_that_revive_zeros"], self.network.depth)

    @cached_property
    def widths(self) -> list[int]:
        """Of the inputs, then of each layer's outputs."""
        return [self.network.inputs, *(self.network.header(k).outputs for k in range(self.network.depth))]

    @cached_property
    def edges(self) -> np.ndarray:
        """int64 (layers,)."""
        return np.array([self.network.header(k).edges for k in range(self.network.depth)], np.int64)

    @cached_property
    def edges_ahead(self) -> list[int]:
        """Of each layer to the end; 0 at last (layers + 1,)."""
        return [*np.cumsum(self.edges[::-1])[::-1].tolist(), 0]

    def first(self, depth: int) -> "Prepared":
        """Of the first `depth` layers, InputError if there are fewer; findings are then of these, and its seconds of
        all that were prepared."""
        source, network, made = self.source.first(depth), self.network.first(depth), self.network.depth
        notes = {name: REDUCTIONS[name].first(note, source, network, made) for name, note in self.findings.items()}
        return Prepared(source, network, self.reductions, notes)


@dataclass(kw_only=True)
class Counters:
    """What one run counted, over all its batches.

    Attributes:
        survivors: int64 (layers,), inputs with a nonzero row after each layer.
        rows, edges: int64 (layers,), as LayerWork has them: rows that each layer had to compute, and inputs x edges
            that it went through; counted where that is done.
        searches: for identical rows, of which so many `merged`, in `searching` seconds.
        closing: seconds spent on closing the gaps of rows that left.
    """

    survivors: np.ndarray
    rows: np.ndarray
    edges: np.ndarray
    searches: int = 0
    merged: int = 0
    searching: float = 0.0
    closing: float = 0.0

    @classmethod
    def zeros(cls, depth: int, **others: Any) -> Self:
        """Of so many layers, before a run; `others`: fields of a class of its own."""
        return cls(**{name: np.zeros(depth, np.int64) for name in ("survivors", "rows", "edges")}, **others)

    def counted(self, prepared: "Prepared", sparse: bool = False) -> dict[str, Any]:
        """What a Result has of them; `sparse`: as LayerWork has it."""
        counts = LayerWork(self.rows, prepared.edges, self.edges, sparse)
        return {"survivors": self.survivors, "edges_computed": int(self.edges.sum()), "counts": counts}

    def note(self, prepared: "Prepared", findings: dict) -> None:
        """Add to Session.findings what the run found of the reductions that depend on the inputs."""
        if "inputs" in prepared.reductions:
            findings["inputs"] = {"looks": self.searches, "rows_merged": self.merged, "seconds": self.searching}


@dataclass(frozen=True)
class Parcel:
    """Rows on their way from one rank to another.

    Attributes:
        sizes: int64 (rows,), bytes of each; data: uint8, all of them, one after the other.
        numbers: int64, the inputs that they represent; row_of: int64, the row of each of these.
    """

    sizes: np.ndarray
    data: np.ndarray
    numbers: np.ndarray
    row_of: np.ndarray


class MovableRows(abc.ABC):
    """The rows of a batch on their way, as execute.advance takes them through the layers, alone or as one rank of many.

    They may merge, and move to other ranks, which compare, take and replace them; counted from 0.

    Args:
        numbers: int64, ascending, the inputs of the batch; each has a row.
        counters: of the run. capacity: rows that there is room for.

    Attributes:
        layer: that they go into next (0-based).
        left: the inputs that had a nonzero row after the last layer.
        inputs: which row represents which inputs; may be written to, for rows that stay.
        search: when the rows are searched for identical ones.
        searched: whether `compact` has just done so; planned: layers of the next pass, as other ranks are told.
        gaps: whether rows that left have gaps behind them, which `replace` closes: any row may then go as well as
            another, else the last ones leave none.
    """

    layer: int = 0
    left: int
    gaps: bool = True
    searched: bool = False
    planned: int = 1

    def __init__(self, prepared: Prepared, numbers: np.ndarray, counters: Counters, capacity: int):
        self.prepared, self.counters, self.capacity = prepared, counters, capacity
        self.inputs, self.search = Representatives(numbers), DuplicateSearch()
        self.left = numbers.size

    @property
    def count(self) -> int:
        """Of the rows that go on."""
        return self.inputs.weights.size

    def plan_pass(self) -> int:
        """How many layers the pass from `layer` on should have, at most: between two passes rows leave and merge."""
        return 1

    @abc.abstractmethod
    def compute(self, layers: list) -> None:
        """Take all rows through these layers, bound, of which the first is `layer`; count what was done.

        Raises:
            SpdnnError: a sum is not finite; see spdnn.core.errors.past_float32.
        """

    @abc.abstractmethod
    def compact(self, meeting: bool) -> None:
        """Let dead rows go and identical ones merge before `layer`, where that pays. At a `meeting` other ranks see the
        rows next: dead ones leave and identical ones merge, so that none is sent."""

    @property
    def neurons(self) -> int:
        """Of a row before `layer`."""
        return self.prepared.widths[self.layer]

    @property
    def may_leave(self) -> bool:
        """Whether rows of zeros need not go on."""
        return self.layer >= self.prepared.dead_from

    @property
    def work(self) -> np.ndarray:
        """float64 (layers,): edges that one row goes through in each layer of the network."""
        return self.prepared.edges.astype(np.float64)

    def search_costs(self, meeting: bool) -> tuple[float, float, float]:
        """(deaths, cost, ahead) of a search for identical rows before `layer`, as DuplicateSearch takes them."""
        return 0.0, 0.0, float(self.prepared.edges_ahead[self.layer]) * self.count

    def layers_to_search(self, meeting: bool = False) -> int | None:
        """Layers until the next search for identical rows; None: none is in sight."""
        if "inputs" not in self.prepared.reductions or not self.count:
            return None
        return self.search.layers_to_search(self.layer, self.count, *self.search_costs(meeting), meeting)

    def merge_identical(self, meeting: bool) -> bool:
        """Search for identical rows where that is due, and let one of each group represent all; whether it was."""
        if self.layers_to_search(meeting) != 0:
            return False
        start, before = time.perf_counter(), self.count
        merged = self.merge()
        self.search.finish(self.layer, before, merged)
        self.counters.searches += 1
        self.counters.merged += merged
        self.counters.searching += time.perf_counter() - start
        return True

    def merge(self) -> int:
        """Let one of each group of identical rows represent all; the number of rows that left."""
        return 0

    @abc.abstractmethod
    def hashes(self) -> np.ndarray:
        """uint64 (count,), equal for rows that are equal to the bit, on every rank."""

    @abc.abstractmethod
    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(sizes, data) of a Parcel of these rows (int64); equal bytes for equal rows, and for no others. With `spare`,
        the data may lie in memory that `scratch` gives as well."""

    def scratch(self, nbytes: int) -> np.ndarray:
        """uint8 (nbytes,), for rows that arrive: memory that need not be kept after `replace`, nor before it."""
        return np.empty(nbytes, np.uint8)

    @abc.abstractmethod
    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        """Rows that are not `kept` (bool) leave, and those of the parcel follow the ones that stay."""

    def set_merged(self, rows: int) -> None:
        """So many rows left, or came to represent others', since equal ones were on other ranks."""
        self.counters.merged += rows

    @abc.abstractmethod
    def finish(self) -> LastRows:
        """Numbers, statistics and values of the rows that are nonzero at the end."""


class RowExchange(abc.ABC):
    """The other ranks, as execute.advance sees them: all meet before the same layers.

    What happens there (runs/ranks/exchange.py) reaches the rows through MovableRows, so that no engine knows of
    messages, and what moves rows knows of no engine.
    """

    @abc.abstractmethod
    def first(self, planned: int, depth: int, count: int) -> int:
        """The layer before which all ranks meet first; the depth for none. Begins a batch of `count` inputs, of which
        this rank would take `planned` layers without a break."""

    @abc.abstractmethod
    def meet(self, rows: MovableRows) -> int:
        """All ranks meet before `rows.layer`; the layer before which they do so next."""

    @abc.abstractmethod
    def end(self, edges: int) -> None:
        """This rank is through with a batch, and has gone through so many inputs x edges since the run began."""


class Session(abc.ABC):
    """An inference that is ready to run: weights in memory or streamed, buffers allocated. Its `run` is what is timed.

    Attributes:
        span: what the time of `run` includes, RESIDENT or STREAMED.
        findings: of the reductions that depend on how many layers run; fit for JSON.
        edges_passed: of the source, as an Inference takes them.
        startup_seconds: of opening it, what its devices took to start, their kernels compiled.

    Raises:
        InputError: the inputs' width is not the network's.
    """

    span: str = RESIDENT
    startup_seconds = 0.0

    def __init__(self, prepared: Prepared, inputs: Inputs):
        inputs.check_width(prepared.network.inputs)
        self.prepared, self.inputs, depth = prepared, inputs, prepared.network.depth
        self.edges_passed = progress.edges_passed(prepared.source.header(k).edges for k in range(depth))
        notes = {name: REDUCTIONS[name].session_note(note, depth) for name, note in prepared.findings.items()}
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

    def survivors_of(self, numbers: np.ndarray) -> np.ndarray | None:
        """int64 (layers,): the survivors of a run of the inputs `numbers` (int64, ascending) alone; None: such a run
        needs a session of its own."""
        return None

    def tell(self, result: Result) -> None:  # noqa: B027  most leave it to `run`
        """Add to the notes of the last run's result what is of no use to the run, and so not on its clock."""


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

    def missing(self) -> str | None:
        """None when the engine can run here, as by default, else one sentence that says what is missing."""
        return None

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        """Apply the reductions that need the network alone.

        Args:
            memory: as in Options.

        Raises:
            Unsuitable: the engine cannot run this network.
        """
        return Prepared.reduce(network, reductions, memory)

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
