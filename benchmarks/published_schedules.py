"""The simulator beside SNIG's published table on 1 to 4 RTX 2080 Ti (Lin and Huang, HPEC 2020, Table II).

    python benchmarks/published_schedules.py [--json FILE]

Their parameters, as their paper and their public program tell: batches of 5,000 inputs; SNIG copies each layer's
weights into two buffers while it computes, and devices draw batches; GPipe* copies all weights first, then shares out
the layers evenly, and rows go from device to device as pages fault; BF gives each device its part of the inputs, resets
all their features between layers, and its host looks for those that are left. Features are dense float32, weights take
8 bytes an edge and 4 a neuron for each part of a row that fits 48 KiB.

What is fitted: to SNIG and to BF on one GPU, what an edge and a layer cost at a width and, at the smallest, what SNIG
spends on each batch's graph; to OVERHEAD, what a layer of BF takes whatever its inputs; to FAULTS, the rate of pages
that come by faults, and go where there is no room. COPIES is what PCIe 3.0 x16 commonly reaches. Every other figure,
GPipe*'s among them, tests the model: its kernels are SNIG's.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from spdnn.core import challenge
from spdnn.core.files import write_text
from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work
from spdnn.engines.costs.official import official_shares, official_work
from spdnn.engines.taskgraph.decomposition import Decomposition, stages_of
from spdnn.engines.taskgraph.settings import GRAPH, PIPELINE, STREAM
from spdnn.engines.taskgraph.simulation import TaskCosts, simulate
from spdnn.runs.records.published import read_baselines

HARDWARE = "GeForce RTX 2080 Ti 11GB"
SNIG, BF, GPIPE = "SNIG", "BF (SNIG authors' baseline)", "GPipe* (SNIG authors' baseline)"
SYSTEMS = (SNIG, BF, GPIPE)
BATCH = 5000
BUFFERS = 2
MEMORY_BYTES = 11e9
SHARED_BYTES = 48 * 2**10  # of a block: a row's outputs are computed in parts of so many
COPIES = 12e9
OVERHEAD = (BF, 1024, 1920, 4)  # the figure that fixes what a layer of BF costs whatever its inputs
FAULTS = (BF, 65536, 120, 1)  # the figure that fixes the rate of page faults
CLOSE = 1.05  # two published times that differ by less than this factor have no order to speak of

Key = tuple[str, int, int, int]  # system, neurons, layers, devices


@dataclass(frozen=True)
class Row:
    """One published figure beside its prediction.

    Attributes:
        published_seconds: what they measured or, where not `finished`, the time after which they gave up.
        calibration: the model was fitted to it.
    """

    system: str
    neurons: int
    layers: int
    devices: int
    predicted_seconds: float
    published_seconds: float
    finished: bool
    calibration: bool

    @property
    def error(self) -> float | None:
        """(predicted - published) / published seconds; None where they gave up."""
        return self.predicted_seconds / self.published_seconds - 1 if self.finished else None


@dataclass(frozen=True)
class Table:
    """All rows, and the constants that all networks share."""

    rows: list[Row]
    fault_bytes_per_second: float
    overhead_seconds: float
    graph_seconds: float

    def errors(self) -> list[float]:
        """The absolute errors of the rows that nothing was fitted to, ascending."""
        return sorted(abs(row.error) for row in self.rows if not row.calibration and row.finished)

    def pairs(self) -> Iterator[tuple[Row, Row]]:
        """Two systems on the same network and devices, both finished or only the second not; the faster one first."""
        key = lambda row: (row.neurons, row.layers, row.devices)  # noqa: E731
        for one, other in combinations(sorted(self.rows, key=key), 2):
            if key(one) == key(other) and (one.finished or other.finished):
                fast, slow = sorted((one, other), key=lambda row: (not row.finished, row.published_seconds))
                yield fast, slow

    def order(self, factor: float = 1.0) -> tuple[int, int]:
        """(pairs whose order is right, pairs) of those whose published times differ by more than the factor."""
        ordered = [(a, b) for a, b in self.pairs() if b.published_seconds > factor * a.published_seconds]
        return sum(bool(a.predicted_seconds < b.predicted_seconds) for a, b in ordered), len(ordered)


def snig_table(path: str | Path | None = None) -> Table:
    """Every figure of their table beside its prediction.

    Args:
        path: the table of published results; None: config/baselines.csv.
    """
    found = [row for row in read_baselines(path) if row.hardware == HARDWARE and row.system in SYSTEMS]
    published = {(row.system, row.neurons, row.layers, int(row.devices)): row for row in found}
    model = _Fitted({key: row.seconds for key, row in published.items() if row.finished})
    rows = [
        Row(*key, model.seconds(key), row.seconds, row.finished, key in model.used)
        for key, row in sorted(published.items(), key=lambda item: (*item[0][1:], SYSTEMS.index(item[0][0])))
    ]
    return Table(rows, model.faults, model.overhead, float(model.graph))


@dataclass(frozen=True)
class _Rates:
    """Of a width and a system on one device: seconds of a row's edge, and of a layer of all its inputs or a batch."""

    edge: float
    layer: float


class _Fitted:
    """The constants, and with them any figure of the table."""

    def __init__(self, seconds: dict[Key, float]):
        self.published, self.used = seconds, {OVERHEAD, FAULTS}
        self.faults, self.overhead, self.graph = 4e9, 0.0, 0.0
        self.graph = self._columns(SNIG, challenge.WIDTHS[0], 3)[2]
        self.rates = {(SNIG, width): self._one(SNIG, width) for width in challenge.WIDTHS}
        for _ in range(4):  # each constant hardly moves the other's figure
            for width in challenge.WIDTHS[:-1]:
                self.rates[BF, width] = self._one(BF, width)
            self.rates[BF, challenge.WIDTHS[-1]] = self._widest()
            self._fit("faults", FAULTS, 1e8, 1e11, falls=True)
            self._fit("overhead", OVERHEAD, 1e-6, self.rates[BF, OVERHEAD[1]].layer, falls=False)

    def seconds(self, key: Key) -> float:
        """Predicted, of one figure."""
        system, neurons, layers, devices = key
        work = _work(neurons, layers)
        shares = lambda batches: official_shares(work, neurons, batches, "static")  # noqa: E731
        decomposition = _cut(system, work, devices)
        costs = TaskCosts(work, *self._device(system, work, devices), row_shares=shares)
        return float(simulate(decomposition, costs).seconds)

    def _device(self, system: str, work: Work, devices: int) -> tuple[DeviceCosts, MessageCosts]:
        """(what a device costs, what rows cost that move)."""
        row, weights = float(work.row_bytes[0]), float(work.weight_bytes[0])
        rates = self.rates[SNIG if system == GPIPE else system, int(row) // 4]
        once = self._once(system, row)
        made = DeviceCosts((rates.edge,), once, rates.layer, copy_bytes_per_second=COPIES)
        if system == BF:
            part, fixed = work.inputs / devices, min(self.overhead, rates.layer)
            layer = fixed + (rates.layer - fixed) / devices
            if 2 * part * row > MEMORY_BYTES:
                layer += 2 * part * row / self.faults  # the features that are reset come, and others go
            made = replace(made, seconds_per_layer=layer)
        if system != GPIPE:
            return made, FREE
        layer, memory_bytes = rates.layer, work.layers / devices * weights + 2 * BATCH * row
        if memory_bytes > MEMORY_BYTES:
            layer += 2 * weights / self.faults  # so do the weights, before the next batch needs them
        first = work.layers * weights / COPIES  # one device's after the other's
        return replace(made, seconds_per_layer=layer, seconds_per_run=first), MessageCosts(0.0, self.faults)

    def _once(self, system: str, row: float) -> float:
        """Seconds of an input, once: it is fetched ahead in batches, or comes as its pages fault."""
        return row / COPIES + self.graph / BATCH if system == SNIG else row / self.faults

    def _one(self, system: str, neurons: int) -> _Rates:
        return _Rates(*map(float, self._columns(system, neurons, 2)[:2]))

    def _columns(self, system: str, neurons: int, used: int) -> np.ndarray:
        """Seconds of an edge, a layer and a batch that explain one device at its depths; as many as are `used`.

        Non-negative, relative least squares.
        """
        depths = [layers for layers in challenge.DEPTHS if (system, neurons, layers, 1) in self.published]
        seconds = np.array([self.published[system, neurons, layers, 1] for layers in depths])
        self.used |= {(system, neurons, layers, 1) for layers in depths}
        work = [_work(neurons, layers) for layers in depths]
        batches = challenge.INPUTS / BATCH if system == SNIG else 1
        edges = np.array([float((layer.rows * layer.edges).sum()) for layer in work])
        columns = np.stack([edges, batches * np.array(depths, float), np.full(len(depths), batches)], axis=1)
        known = challenge.INPUTS * self._once(system, 4.0 * neurons)
        columns = (columns / seconds[:, None])[:, :used]
        scale = columns.max(axis=0)
        return nnls(columns / scale, np.maximum(0.0, 1 - known / seconds))[0] / scale

    def _widest(self) -> _Rates:
        """BF at the width where one device has no room: an edge as at the next narrower one, a layer by its bytes."""
        wide, narrow = challenge.WIDTHS[-1], challenge.WIDTHS[-2]
        rates = self.rates[BF, narrow]
        return _Rates(rates.edge, rates.layer * wide / narrow)

    def _fit(self, name: str, key: Key, low: float, high: float, falls: bool) -> None:
        """Set a constant between low and high so that a figure comes out; `falls`: seconds fall as it grows."""
        for _ in range(30):
            middle = math.sqrt(low * high)
            setattr(self, name, middle)
            low, high = (middle, high) if (self.seconds(key) > self.published[key]) == falls else (low, middle)


def _work(neurons: int, layers: int) -> Work:
    """An official problem as their programs hold it."""
    work = official_work(neurons, layers)
    parts = next(n for n in range(1, neurons + 1) if not neurons % n and 4 * neurons // n <= SHARED_BYTES)
    edges = challenge.NONZEROS_PER_NEURON * neurons
    return replace(work, weight_bytes=np.full(layers, 8.0 * edges + 4.0 * neurons * parts))


def _cut(system: str, work: Work, devices: int) -> Decomposition:
    """How a system cuts an inference. Stages of several layers stand for as many of one: fewer tasks, the same time."""
    weights = work.weight_bytes.tolist()
    if system == SNIG:
        stages = stages_of(weights, True)
        span = ((0, len(stages)),)
        return Decomposition(GRAPH, work.inputs, BATCH, stages, span, devices, BUFFERS, drawn=True)
    if system == BF:
        stages = stages_of(weights, True)
        part = -(-work.inputs // devices)
        return Decomposition(STREAM, work.inputs, part, stages, ((0, len(stages)),), devices, BUFFERS)
    part = work.layers // devices
    own = [[(k * part + a, k * part + b) for a, b in stages_of(weights[:part], k == 0)] for k in range(devices)]
    ends = np.cumsum([0, *map(len, own)]).tolist()
    ranges = tuple(zip(ends, ends[1:], strict=False))
    stages = tuple(stage for device in own for stage in device)
    return Decomposition(PIPELINE, work.inputs, BATCH, stages, ranges, slots=work.inputs // BATCH)


def _show(table: Table) -> dict:
    """Print the table, predicted beside published; what JSON holds of it."""
    errors, (right, pairs), (clear, apart) = table.errors(), table.order(), table.order(CLOSE)
    fitted = sum(row.calibration for row in table.rows)
    print(
        f"SNIG's published table on 1 to 4 {HARDWARE}, seconds: predicted / published; * the model was fitted to it\n"
    )
    short = dict(zip(SYSTEMS, ("SNIG", "BF", "GPipe*"), strict=True))
    print(f"{'network':>12} {'devices':>7}" + "".join(f"{name:>28}" for name in short.values()))
    known = {(row.neurons, row.layers, row.devices, row.system): row for row in table.rows}
    for network in dict.fromkeys(key[:3] for key in known):
        cells = "".join(f"{_cell(known.get((*network, system))):>28}" for system in SYSTEMS)
        print(f"{network[0]:>7}-{network[1]:<4} {network[2]:>7}{cells}")
    print(
        f"\norder of two systems on one network and number of devices: right in {right} of {pairs} pairs "
        f"({right / pairs:.0%}); of those that differ by more than {CLOSE - 1:.0%}, in {clear} of {apart} "
        f"({clear / apart:.0%})\nerror of the {len(errors)} figures that nothing was fitted to: median "
        f"{statistics.median(errors):.1%}, worst {errors[-1]:.1%}\nfitted: {fitted} "
        f"figures; what networks share: page faults at {table.fault_bytes_per_second / 1e9:.1f} GB/s, "
        f"{table.overhead_seconds * 1e3:.2f} ms a layer of BF, {table.graph_seconds * 1e3:.0f} ms a batch of SNIG"
    )
    return {
        "snig": asdict(table),
        "order": {"right": right, "pairs": pairs, "right_where_apart": clear, "pairs_apart": apart},
        "median_error": statistics.median(errors),
        "worst_error": errors[-1],
    }


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if not row.finished:
        return f"{row.predicted_seconds:.4g} / >{row.published_seconds:.4g}"
    return (
        f"{row.predicted_seconds:.4g} / {row.published_seconds:.4g} {row.error:+.0%}{'*' if row.calibration else ' '}"
    )


def main(words: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE", help="write all figures")
    args = options.parse_args(words)
    content = _show(snig_table())
    if args.json:
        write_text(args.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
