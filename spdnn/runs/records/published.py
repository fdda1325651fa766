"""Published results: tables of `config/`, read and checked. Of the Sparse DNN Graph Challenge in `baselines.csv`, of
sparse operations for deep learning in `ops-baselines.csv`.

Published times do not all include the same. The column `span` says what each includes, in the closed vocabulary SPANS;
figures are comparable within a span; a `Ratio` names the span of a figure that has another one than our run.
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Self

from spdnn.core import challenge, config_tables
from spdnn.core.errors import InputError
from spdnn.core.safe_open import existing
from spdnn.core.validation import quote
from spdnn.runs.records.run_record import RunRecord

SPANS = {
    "product only": "the sparse product alone; activation, compaction and every copy are left out",
    "kernels, resident": "product, bias and activation, with weights and inputs on the device; compaction is left out",
    "layer loop, resident": "all layers, compaction included, with weights and inputs in memory (on a GPU: its own)",
    "layer loop with weight copies": "all layers, compaction and the copies of weights to the device; inputs are there",
    "host wall clock with weight copies": (
        "the host's clock around all layers, with the copies of weights to the device"
    ),
    "host wall clock with input and weight copies": (
        "the host's clock around all layers, with the copies of inputs and weights and the finding of categories"
    ),
    "not stated": "the source does not say, or leaves more than one possibility",
}
QUANTITIES = ("seconds", "edges_per_second", "both")
KINDS = ("CPU", "GPU", "FPGA")
DEVICES = ("one device", "several devices", "devices not stated")
OPERATION_QUANTITIES = ("speed-up", "percent of peak", "memory ratio")

_KIND = {
    "GPU": re.compile(r"NVIDIA|GeForce|GPU"),
    "FPGA": re.compile(r"Xilinx|FPGA"),
    "CPU": re.compile(r"CPU|Intel|IBM|AMD"),
}


class Preparation(NamedTuple):
    """What a published system does before its inference time begins.

    Attributes:
        covers: the networks that the seconds are of, in words.
        seconds: as the source states them, mostly rounded.
        source: where they are stated, and in which words.
    """

    system: str
    year: int
    hardware: str
    stage: str
    covers: str
    seconds: float
    source: str


class OperationBaseline(NamedTuple):
    """One published figure of sparse operations.

    Attributes:
        operation: as records name it, or several joined by commas.
        network: empty where the figure is over several.
        quantity: one of OPERATION_QUANTITIES; `value` is in its unit (a ratio, or percent).
        printed: what the source has, of which `value` is the ratio where it is one of two figures.
        against: what it is a ratio to.
        source: the publication, with section or table.
    """

    operation: str
    network: str
    quantity: str
    value: float
    printed: str
    hardware: str
    against: str
    source: str


class Baseline(NamedTuple):
    """One published figure of the challenge.

    Attributes:
        devices: as printed ("1", "2 nodes", "1 thread"...); empty when it is not stated.
        neurons, layers: None when the source does not name the network.
        seconds: None when only a rate was published.
        edges_per_second: the challenge's rate; None when there is none.
        span: a key of SPANS.
        lossy: the method does not give the exact values.
        quantity: which of seconds and edges_per_second was printed; the other one was derived.
        finished: False when the run was given up after `seconds`; it then has no rate.
    """

    system: str
    year: int
    venue: str
    hardware: str
    devices: str
    neurons: int | None
    layers: int | None
    seconds: float | None
    edges_per_second: float | None
    span: str
    lossy: bool
    quantity: str
    source: str
    finished: bool

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return next(kind for kind, words in _KIND.items() if words.search(self.hardware))

    @property
    def device_class(self) -> str:
        """One of DEVICES. A thread, a socket and a node each count as one."""
        if not self.devices:
            return DEVICES[2]
        return DEVICES[0] if int(re.match(r"\d+", self.devices)[0]) == 1 else DEVICES[1]


class Ratio(NamedTuple):
    """A run of ours compared with a published figure of the same network.

    Attributes:
        times: our rate / the published one, both by the challenge's formula; ours is the median.
        theirs: the span of the published figure where it is not that of our run; else empty. Shown next to `times`.
    """

    times: float
    theirs: str

    @classmethod
    def of(cls, ours: RunRecord, published: Baseline) -> Self:
        times = ours.edges_per_second.median / published.edges_per_second
        return cls(times, "" if published.span == ours.span else published.span)


def read_baselines(path: str | Path | None = None) -> list[Baseline]:
    """The rows of the table at `path`; by default, of the table `baselines.csv`.

    Raises:
        InputError: no such file, other columns, a value out of its vocabulary or range, a row twice, or a
            rate that does not follow from the seconds.
        Unavailable: the default table is absent.
    """
    path = config_tables.table("baselines.csv") if path is None else existing(path, "table of published results")
    baselines, seen = [], {}
    for cell, where in config_tables.rows(path, Baseline._fields[:-1]):
        row = _baseline(cell, where)
        key = (row.system, row.year, row.hardware, row.devices, row.neurons, row.layers)
        if key in seen:
            raise InputError(f"{where}: {seen[key]} is the same figure; give each once")
        seen[key] = where.removeprefix(f"{path} ")
        baselines.append(row)
    return baselines


def read_preparations() -> list[Preparation]:
    """The rows of the table `preparations.csv`; raises as `read_baselines`."""
    preparations = []
    for cell, where in config_tables.rows(config_tables.table("preparations.csv"), Preparation._fields):
        config_tables.check_filled(cell, Preparation._fields, where)
        seconds = config_tables.positive(cell["seconds"], "seconds", where)
        year = config_tables.whole(cell["year"], "year", where)
        preparations.append(Preparation(**cell | {"year": year, "seconds": seconds}))
    return preparations


def read_operation_baselines(path: str | Path | None = None) -> list[OperationBaseline]:
    """The rows of the table at `path`; by default, of `ops-baselines.csv`. Raises as `read_baselines`."""
    path = config_tables.table("ops-baselines.csv") if path is None else existing(path, "table of published results")
    baselines = []
    for cell, where in config_tables.rows(path, OperationBaseline._fields):
        config_tables.check_filled(cell, (name for name in cell if name != "network"), where)
        _check_words(cell, where, quantity=OPERATION_QUANTITIES)
        value = config_tables.positive(cell["value"], "value", where)
        baselines.append(OperationBaseline(**cell | {"value": value}))
    return baselines


def _check_words(cell: dict[str, str], where: str, **allowed: Collection[str]) -> None:
    """Raise InputError where the cell of a column is none of the words allowed there."""
    for name, words in allowed.items():
        if cell[name] not in words:
            raise InputError(f"{where}: {name} {quote(cell[name])} must be one of: {'; '.join(words)}")


def _baseline(cell: dict[str, str], where: str) -> Baseline:
    config_tables.check_filled(cell, ("system", "venue", "hardware", "source"), where)
    _check_words(cell, where, span=SPANS, lossy=("yes", "no"), quantity=QUANTITIES)
    if not any(words.search(cell["hardware"]) for words in _KIND.values()):
        raise InputError(f"{where}: hardware {quote(cell['hardware'])} names no CPU, GPU or FPGA")
    if cell["devices"] and not re.match(r"[1-9]\d*(?!\d)", cell["devices"]):
        raise InputError(f"{where}: devices {quote(cell['devices'])} must begin with a number from 1, or be empty")
    year, finished = config_tables.whole(cell["year"], "year", where), not cell["seconds"].startswith(">")
    numbers = {}
    for name in ("neurons", "layers", "seconds", "edges_per_second"):
        read = config_tables.whole if name in ("neurons", "layers") else config_tables.positive
        text = cell[name].removeprefix(">") if name == "seconds" else cell[name]
        numbers[name] = read(text, name, where) if cell[name] else None
    row = Baseline(**cell | numbers | {"year": year, "lossy": cell["lossy"] == "yes", "finished": finished})
    _check_rate(row, rounded="." not in cell["seconds"], where=where)
    return row


def _check_rate(row: Baseline, rounded: bool, where: str) -> None:
    """The rate follows from the seconds within 1 %; whole seconds are taken as rounded to 1 s."""
    if (row.neurons is None) != (row.layers is None):
        raise InputError(f"{where}: neurons and layers must both be given, or neither")
    for name in ("seconds", "edges_per_second"):
        if row.quantity in (name, "both") and getattr(row, name) is None:
            raise InputError(f"{where}: quantity is {quote(row.quantity)}, but {name} is empty")
    if not row.finished and row.edges_per_second is not None:
        raise InputError(f"{where}: a run that did not finish has no rate")
    if None in (row.neurons, row.seconds, row.edges_per_second):
        return
    edges = challenge.NONZEROS_PER_NEURON * row.neurons * row.layers
    spread = 0.5 if rounded else 0.0  # a whole number of seconds is at least 1
    slowest = challenge.edges_per_second(challenge.INPUTS, edges, row.seconds + spread)
    fastest = challenge.edges_per_second(challenge.INPUTS, edges, row.seconds - spread)
    if not slowest * 0.99 <= row.edges_per_second <= fastest * 1.01:
        raise InputError(
            f"{where}: {row.edges_per_second:g} edges per second do not follow from {row.seconds:g} seconds "
            f"on {row.neurons} x {row.layers} ({slowest:.4g} would)"
        )
