"""The section on scaling: runs of several ranks, threads or GPUs, compared with one; then published systems.

Strong scaling: the same inputs on more workers. Weak scaling: inputs that grow with them. Speed-up is the ratio of the
challenge's rates, so it means the same in both, and efficiency is speed-up / workers.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import NamedTuple

from spdnn.core.shown import plural, printable, significant, size
from spdnn.core.shown import published as printed
from spdnn.core.table import BYTES, NUMBER, PERCENT, RATE, RATIO, SECONDS, Column, Number, Styled, Table, code, mark
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Fold, Paragraph, Part, Section, Terms
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import MOST_DRAWN, Figure
from spdnn.report.common.groups import OTHER, RANKS, STRONG, WEAK, Group, workers
from spdnn.report.common.plotting import INK, canvas, colours, despine, line, logarithmic, patch, plain
from spdnn.report.common.run_rows import RunRow, interval, run_name
from spdnn.runs.records.distribution import PER_REPEAT, Distribution, OneRank
from spdnn.runs.records.published import Baseline

NAME, TITLE = "scaling", "Scaling"
ABSENT = (
    "Scaling is not shown: nothing was run on several numbers of threads, ranks or GPUs. ",
    code("snakemake --configfile config/strong.yaml"), " (the same inputs on more ranks) and ",
    code("snakemake --configfile config/weak.yaml"), " (inputs that grow with the ranks) run them.",
)  # fmt: skip
KINDS = {STRONG: "Strong scaling", WEAK: "Weak scaling", OTHER: "Not compared"}
LEAST_DEVICES = 4  # numbers of devices that make a published scaling curve
MOST_GROUPS = 8
MOST_RANKS, MOST_EXCHANGES = 64, 20  # that one run's details list
MARKS = {"static": "o", "cyclic": "s", "rebalanced": "^", None: "o"}  # None: not of ranks
BASE_MARK = "D"
WIDE = 4  # seconds that differ by this factor are on a logarithmic scale
FEW = 100  # rates that differ by less have ticks between the powers of ten
SHADE, GREY = "#e9ebee", "#7b8794"
OVER = mark("oversubscribed")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


class OfRanks(NamedTuple):
    """Of several ranks: their imbalance, as of Imbalance, parts of all their seconds, and rows that changed ranks."""

    edges: float | None = None
    edges_from_exchange: float | None = None
    seconds: float | None = None
    waiting: float | None = None
    communication: float | None = None
    moved: int | None = None


@dataclass(frozen=True)
class ScaledRun:
    """A run on so many workers, compared with `base`, the run on one; None: there is none."""

    run: RunRow
    workers: int
    base: RunRow | None

    @property
    def distribution(self) -> Distribution | None:
        return self.run.record.distribution

    @property
    def speedup(self) -> float | None:
        """The ratio of the challenge's rates."""
        if self.base is None:
            return None
        inputs = self.run.problem.input_count / self.base.problem.input_count
        return inputs * self.base.inference_seconds / self.run.inference_seconds

    @property
    def efficiency(self) -> float | None:
        return None if self.speedup is None else self.speedup / self.workers

    @property
    def oversubscribed(self) -> bool:
        """Whether a node has more threads than cores."""
        hosts = Counter(rank.host for rank in self.distribution.per_rank) if self.distribution else {"": 1}
        return max(hosts.values()) * self.run.record.threads > self.run.record.environment.cores

    @property
    def nodes(self) -> str | None:
        """How many, where there are several."""
        return f"on {self.distribution.nodes} nodes" if self.distribution and self.distribution.nodes > 1 else None

    @cached_property
    def of_ranks(self) -> OfRanks:
        """All are None of a run of one rank."""
        if not self.distribution:
            return OfRanks()
        ranks, moved = self.distribution.per_rank, sum(exchange.rows for exchange in self.distribution.exchanges)
        whole, waiting, communication = (
            sum(sum(getattr(rank, part)) for rank in ranks) for part in PER_REPEAT
        )  # of all repeats together
        return OfRanks(*self.distribution.imbalance, waiting / whole, communication / whole, moved)


class RankRow(NamedTuple):
    """One rank of a run."""

    number: int
    rank: OneRank


class Curve(NamedTuple):
    """Published figures of one network by the number of devices."""

    neurons: int
    layers: int
    points: Mapping[int, Baseline]

    def rate(self, devices: int) -> float | None:
        """Edges a second."""
        return self.points[devices].edges_per_second if devices in self.points else None

    def efficiency(self, devices: int) -> float | None:
        """Against the same hardware's one device; None without that figure."""
        rate, single = self.rate(devices), self.rate(1)
        return rate / devices / single if rate and single else None


class PublishedSystem(NamedTuple):
    """A system and its curves, by network; `devices`: the numbers of any of them."""

    system: str
    hardware: str
    span: str
    source: str
    devices: Sequence[int]
    curves: Sequence[Curve]


EACH_RANK = Table(
    "Ranks",
    [
        Column("Rank", lambda row: f"{row.number}"),
        Column("Host", lambda row: row.rank.host),
        Column("Inputs", lambda row: row.rank.inputs, NUMBER),
        Column("Inference", lambda row: median(row.rank.inference_seconds), SECONDS),
        Column("Computing", lambda row: row.rank.computing_seconds, SECONDS),
        Column("Waiting", lambda row: median(row.rank.waiting_seconds), SECONDS),
        Column("Communication", lambda row: median(row.rank.communication_seconds), SECONDS),
        Column("Edges computed", lambda row: row.rank.edges_computed, NUMBER),
        Column("From first exchange on", lambda row: row.rank.edges_from_exchange, NUMBER),
        Column("Rows sent", lambda row: row.rank.rows_sent, NUMBER),
        Column("Rows received", lambda row: row.rank.rows_received, NUMBER),
        Column("Active inputs at the end", lambda row: row.rank.survivors[-1], NUMBER),
        Column("Peak memory of its own", lambda row: row.rank.peak_memory_bytes, BYTES),
        Column("With its part of what is shared", lambda row: row.rank.proportional_memory_bytes, BYTES),
    ],
    "Medians over the repeats",
)


def table(kind: str, over: str) -> Table:
    """The table of a group's runs."""
    ranked = "" if over != RANKS else ". Waiting and communication: parts of all ranks' inference seconds"
    inputs = [Column("Inputs", lambda row: row.run.problem.input_count, NUMBER)] if kind == WEAK else []
    columns = [
        Column("Case", lambda row: run_name(row.run)),
        Column(f"{over[0].upper()}{over[1:]}", lambda row: row.workers, NUMBER,
               below=lambda row: (row.nodes or "", " ", OVER) if row.oversubscribed else row.nodes),
        Column("Partition", lambda row: row.run.partition),
        *inputs,
        Column("Inference", lambda row: row.run.inference_seconds, SECONDS, below=lambda row: interval(row.run)),
        Column("", lambda row: row.run.rate.median, RATE,
               below=lambda row: (Number(row.run.computed_share, PERCENT), " computed")),
        Column("Speed-up", lambda row: row.speedup, RATIO),
        Column("Efficiency", lambda row: row.efficiency, PERCENT),
        Column("Imbalance of edges", lambda row: row.of_ranks.edges, NUMBER),
        Column("From first exchange on", lambda row: row.of_ranks.edges_from_exchange, NUMBER),
        Column("Imbalance of seconds", lambda row: row.of_ranks.seconds, NUMBER),
        Column("Waiting", lambda row: row.of_ranks.waiting, PERCENT),
        Column("Communication", lambda row: row.of_ranks.communication, PERCENT),
        Column("Rows exchanged", lambda row: row.of_ranks.moved, NUMBER),
    ]  # fmt: skip
    return Table(
        f"{kind.capitalize()} scaling over {over}", columns, f"Medians; under each, its interval{ranked}",
        record=lambda row: row.run.number,
    )  # fmt: skip


def scaled_runs(group: Group) -> list[ScaledRun]:
    """The runs of a group; of several of one setting, the latest."""
    return [ScaledRun(run, workers(run, group.over), group.base) for run in group.shown]


def section(collection: Collection) -> Section | None:
    """The section; None without a run of several ranks, and where no other workers are compared."""
    groups, counts = collection.scaling, Counter()
    if not groups:
        return None
    over = list(dict.fromkeys(group.over for group in groups))
    spans = f" The time of several ranks is {words.SEVERAL}." if RANKS in over else ""
    meaning = Styled("What each figure means", href="#meaning")
    compared = f"Runs on several {' or '.join(over)}, compared with the same settings on one.{spans} "
    more = " is defined below; ", code("spdnn plan RECORDS"), " predicts more of them."
    blocks: list[Block] = [Paragraph((compared, meaning, *more))]
    for place, group in enumerate(groups[:MOST_GROUPS]):
        counts[group.kind] += 1
        drawn = place < MOST_DRAWN and group.kind != OTHER
        blocks.append(_part(group, f"scaling-{group.kind}-{counts[group.kind]}", drawn))
    if (more := len(groups) - MOST_GROUPS) > 0:
        left = f"{plural(more, 'more group')} left off here; all are in ", Styled("the records", href="#records"), "."
        blocks.append(Paragraph(left, "soft"))
    systems = enumerate(published_systems(collection.baselines), 1)
    blocks += [_published(system, f"published-scaling-{number}") for number, system in systems]
    return Section(NAME, TITLE, blocks)


def _part(group: Group, name: str, drawn: bool) -> Part:
    """A group: what was compared, its figure and table, and the ranks of each run."""
    rows, first, kind, over = scaled_runs(group), group.shown[0], group.kind, group.over
    one, network, cores = over[:-1], words.network(first.problem), first.record.environment.cores
    inputs = f"{first.inputs} inputs on any number of {over}"
    if kind == WEAK:
        inputs = f"{plural(first.problem.input_count // workers(first, over), 'input')} for each {one}"
    settings = f"engine {first.engine}, {_each(group)}, reductions: {first.reductions}"
    blocks: list[Block] = [Paragraph(f"{inputs}; {settings}; {plural(cores, 'core')} on a node.", "soft")]
    notes = []
    if kind == OTHER:
        notes.append(f"No other number of {over} was run with these settings, so there is nothing to compare with.")
    elif not group.base:
        notes.append(f"There is no run of one {one} with these settings, so there is no speed-up and no efficiency.")
    if any(row.oversubscribed for row in rows):
        shaded = ", hollow and shaded in the figure" if kind != OTHER else ""
        notes.append(
            f"Where {'ranks × ' if over == RANKS else ''}threads exceed the cores of a node ({cores} here), threads "
            "share cores: no speed-up can be expected there. These runs are marked oversubscribed"
            f"{shaded}; they show what {over} cost, not what they gain."
        )
    blocks += [Paragraph(note, "note") for note in notes]
    blocks += [Paragraph(group.left_out, "soft")] if group.left_out else []
    blocks += [scaling(group, rows, name)] if drawn else []
    runs = table(kind, over)
    blocks.append(runs.of(rows, title=f"{runs.title} on {network}"))
    blocks += [_ranks(row) for row in rows if row.distribution]
    return Part(f"{KINDS[kind]} over {over}: {network}", blocks, f"{name}-head")


def _each(group: Group) -> str:
    return f"{plural(group.shown[0].record.threads, 'thread')} for each rank" if group.over == RANKS else "one rank"


def _ranks(row: ScaledRun) -> Fold:
    """What each rank of a run did, medians over the repeats; of very many, those that computed longest."""
    whole, run = row.distribution, row.run
    exchanges = [
        f"before layer {one.before_layer:,}: {plural(one.rows, 'row')}, {size(one.bytes)}" for one in whole.exchanges
    ]
    more = len(exchanges) - MOST_EXCHANGES
    left = [f"and {plural(more, 'more exchange')}"] if more > 0 else []
    latency, bandwidth = whole.message_latency_seconds, whole.message_bytes_per_second
    terms = [
        ("Rows exchanged", "; ".join([whole.told, *exchanges[:MOST_EXCHANGES], *left])),
        ("Rows merged across ranks", whole.rows_merged_across_ranks),
        ("Memory", f"Weights: {whole.weights}; {size(whole.shared_bytes)} of weights and inputs in shared windows; "
                   f"{size(run.record.peak_memory_bytes)} at the peak"),
        ("Messages", f"{significant(1e6 * latency, 3)} µs for a small allgather, {significant(bandwidth / 1e9, 3)} "
                     "GB/s between two ranks; measured after the repeats"),
    ]  # fmt: skip
    ranks = [RankRow(number, rank) for number, rank in enumerate(whole.per_rank)]
    longest = sorted(ranks, key=lambda one: (-one.rank.computing_seconds, one.number))[:MOST_RANKS]
    others = f"; the ranks that computed longest, {len(ranks) - MOST_RANKS:,} others are left out"
    caption = f"{EACH_RANK.caption}{others if len(ranks) > MOST_RANKS else ''}"
    rows = EACH_RANK.of(sorted(longest), title=f"Ranks of {run.case}", caption=caption)
    return Fold(f"{run.case}: each of its {row.workers} ranks", [Terms(terms), rows])


def scaling(group: Group, rows: Sequence[ScaledRun], name: str) -> Figure:
    """Time, speed-up and efficiency over workers; of ranks imbalance, waiting and communication too.

    Colour and mark are the partition. The row of one worker, if any, begins the curve of every partition.
    """
    over, first, kind = group.over, group.shown[0], group.kind.capitalize()
    ranked = over == RANKS
    weak = (
        " With even work for each input the seconds would stay as they are; how many inputs die depends on the inputs."
    )
    of_ranks = "imbalance of edges", "imbalance from the first exchange on", "waiting", "communication"
    return Figure(
        name,
        f"{kind} scaling, {words.network(first.problem)}: time, speed-up, efficiency{', imbalance' * ranked} by {over}",
        f"{kind} scaling over {over}. Speed-up is on a logarithmic scale, and so are seconds that differ by a "
        f"factor of four; vertical lines are the medians' intervals; dotted: each {over[:-1]} gaining as much as the "
        f"first.{' Colour and mark: the partition.' * ranked}{weak if group.kind == WEAK else ''} Engine "
        f"{first.engine}, {_each(group)}, reductions: {first.reductions}.",
        partial(_plot, rows, over),
        ("case", over, "partition", "inference seconds", "low", "high", "speed-up", "efficiency", "oversubscribed",
         *(of_ranks if ranked else ())),
        [
            (row.run.case, row.workers, row.run.partition, row.run.inference_seconds, *row.run.ends, row.speedup,
             row.efficiency, row.oversubscribed,
             *((*row.of_ranks[:2], row.of_ranks.waiting, row.of_ranks.communication) if ranked else ()))
            for row in rows
        ],
    )  # fmt: skip


def _plot(rows: Sequence[ScaledRun], over: str, narrow: bool):
    ranked = over == RANKS
    palette = dict(zip(MARKS, (colours()[k] for k in (0, 3, 2, 0)), strict=True))
    plot, panels = canvas(6.4, 3, 2, narrow=narrow) if ranked else canvas(4.3, 2, 2, narrow=narrow)
    time, speedup, efficiency, *others, legend = panels.flat
    # Where each curve is, and whether it is dashed.
    drawn: list[tuple] = [
        (time, lambda row: row.run.inference_seconds, False),
        (speedup, lambda row: row.speedup, False),
        (efficiency, lambda row: _percent(row.efficiency), False),
    ]
    if ranked:
        imbalance, shares = others
        drawn += [
            (imbalance, lambda row: row.of_ranks.edges, False),
            (imbalance, lambda row: row.of_ranks.edges_from_exchange, True),
            (shares, lambda row: _percent(row.of_ranks.waiting), False),
            (shares, lambda row: _percent(row.of_ranks.communication), True),
        ]
    partitions = [name for name in MARKS if any(row.run.partition == name and row.workers > 1 for row in rows)]
    for name in partitions:
        curve = [row for row in rows if row.run.partition in (None, name)]
        for row in curve:
            time.plot([row.workers] * 2, row.run.ends, color=INK, linewidth=1.2)
        for axes, value, dashed in drawn:
            _plot_curve(axes, curve, value, palette[name], MARKS[name], dashed)
    if any(row.speedup is not None for row in rows):  # the ideal of more workers
        ends, ideal = [1, max(row.workers for row in rows)], {"color": INK, "linestyle": ":", "linewidth": 1.2}
        speedup.plot(ends, ends, zorder=1, **ideal)
        efficiency.plot(ends, [100, 100], zorder=1, **ideal)
    _scale(rows, over, time, speedup, efficiency, *others)
    despine(plot)
    # The meaning of marks, lines and shade, instead of a last panel.
    legend.set_axis_off()
    handles = [line(name, color=palette[name], marker=MARKS[name]) for name in partitions if name]
    if any(row.workers == 1 for row in rows):
        handles.append(line(f"one {over[:-1]}, the base", color=INK, linestyle="", marker=BASE_MARK))
        handles.append(line("ideal", color=INK, linestyle=":"))
    if any(row.of_ranks.edges_from_exchange is not None for row in rows):
        handles.append(line("imbalance: from the first exchange on", color=GREY, linestyle="--"))
    if ranked:
        handles.append(line("% of inference: waiting", color=GREY))
        handles.append(line("% of inference: communication", color=GREY, linestyle="--"))
    if any(row.oversubscribed for row in rows):
        handles.append(patch("more threads than cores (hollow marks)", color=SHADE))
    title = "partition" if ranked else None
    legend.legend(handles=handles, loc="center left", fontsize=9, alignment="left", title=title)
    return plot


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _plot_curve(
    axes, rows: Sequence[ScaledRun], value: Callable[[ScaledRun], float | None], colour: str, shape: str, dashed: bool
) -> None:
    """One partition's figures over workers; one has its own mark, and oversubscribed runs are hollow."""
    points = [(row, number) for row in rows if (number := value(row)) is not None]
    if not points:
        return
    counts, numbers = [row.workers for row, _ in points], [number for _, number in points]
    axes.plot(counts, numbers, color=colour, linestyle="--" if dashed else "-", linewidth=1.4, zorder=2)
    for row, number in points:
        single = row.workers == 1
        edge = INK if single else colour
        axes.plot(
            [row.workers], [number], linestyle="", marker=BASE_MARK if single else shape, markersize=6,
            markeredgecolor=edge, markerfacecolor="white" if row.oversubscribed else edge, zorder=3,
        )  # fmt: skip


def _scale(rows: Sequence[ScaledRun], over: str, time, speedup, efficiency, *others) -> None:
    """The axes' labels and limits, and the shade over oversubscribed runs."""
    numbers = sorted({row.workers for row in rows})
    start = shade_start(rows)
    labels = ("inference seconds", "speed-up", "efficiency, %", "imbalance of edges,\nmaximum / mean", "% of inference")
    for axes, label in zip((time, speedup, efficiency, *others), labels, strict=False):
        _over(axes, numbers, over)
        axes.set_ylabel(label)
        if start is not None and axes.has_data():
            axes.axvspan(max(start, axes.get_xlim()[0]), axes.get_xlim()[1], color=SHADE, zorder=0)
    seconds = [row.run.inference_seconds for row in rows]
    if max(seconds) < WIDE * min(seconds):
        time.set_ylim(0, 1.05 * time.get_ylim()[1])
    for axes, wide in ((time, max(seconds) >= WIDE * min(seconds)), (speedup, speedup.has_data())):
        if wide:
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(plain)
    for axes in (efficiency, *others[1:]):
        axes.set_ylim(0, max(10.0, 1.05 * axes.get_ylim()[1]))
    for imbalance in others[:1]:
        imbalance.set_ylim(0.95, max(1.5, imbalance.get_ylim()[1]))


def _over(axes, numbers: Sequence[int], label: str) -> None:
    """A logarithmic axis with a tick at each number that was run."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(numbers[0] / 1.25, numbers[-1] * 1.25)
    axes.set_xticks(numbers, list(map(str, numbers)))
    axes.set_xticks([], minor=True)
    axes.set_xlabel(label)


def shade_start(rows: Sequence[ScaledRun]) -> float | None:
    """Where, between two numbers of workers, the oversubscribed runs begin; None unless all from there on are."""
    fits = max((row.workers for row in rows if not row.oversubscribed), default=0)
    first = min((row.workers for row in rows if row.oversubscribed and row.workers > fits), default=None)
    return None if first is None else math.sqrt(first * fits)


def published_systems(baselines: Sequence[Baseline]) -> list[PublishedSystem]:
    """The systems with a published curve over at least LEAST_DEVICES numbers of devices, the widest first.

    A system most of whose curves lack the figure of one device is left to the table of published results.
    """
    groups: dict[tuple, dict[tuple, dict[int, Baseline]]] = {}
    for row in baselines:
        if row.devices.isdecimal() and row.edges_per_second and row.neurons and not row.lossy:
            key = row.system, row.hardware.split(" (")[0], row.span, row.source.split(";")[0]
            curves = groups.setdefault(key, {})
            curves.setdefault((row.neurons, row.layers), {})[int(row.devices)] = row
    systems = []
    widest = sorted(groups.items(), key=lambda item: (-max(max(curve) for curve in item[1].values()), item[0]))
    for key, curves in widest:
        long = [Curve(*size, points) for size, points in sorted(curves.items()) if len(points) >= LEAST_DEVICES]
        if long and 2 * sum(1 in curve.points for curve in long) > len(long):  # most have the base of an efficiency
            systems.append(PublishedSystem(*key, sorted({count for curve in long for count in curve.points}), long))
    return systems


def _published(system: PublishedSystem, name: str) -> Part:
    """A system's curves as a figure and as numbers: a row for each network, a column for each number of devices."""
    title, count = f"{system.system}, {system.hardware}", len(system.curves)
    text = (
        f"Published figures of another program on other machines ({system.hardware}), on the official networks with "
        "60,000 inputs: for orientation, not to be compared one to one with those above. What its time includes: "
        f"{system.span}."
    )
    columns = [Column("Neurons × layers", lambda curve: f"{curve.neurons:,} × {curve.layers:,}")]
    columns += [
        Column(
            f"{devices}",
            lambda curve, devices=devices: (rate := curve.rate(devices)) and Number(rate, RATE, printed(rate / 1e12)),
            replace(RATE, name=""),
            below=lambda curve, devices=devices: (share := curve.efficiency(devices)) and Number(share, PERCENT),
        )
        for devices in system.devices
    ]
    curves = "The published curve" if count == 1 else f"The {count} published curves"
    caption = "Published ", RATE, " by number of devices; under each, the efficiency"
    rows = Table(f"{curves} as numbers: {title}", columns, caption).of(system.curves)
    blocks = [Paragraph(text), published_figure(system, name), rows]
    return Part(f"Published scaling: {title}", blocks, f"{name}-head")


def published_figure(system: PublishedSystem, name: str) -> Figure:
    """Published rates and efficiencies over devices: colour is the width, dash and mark the depth."""
    who, hardware, devices = printable(system.system), printable(system.hardware), system.devices
    return Figure(
        name,
        f"Published scaling of {who} on {hardware}: TeraEdges/s and efficiency by devices",
        f"Published, not measured here: TeraEdges/s of {who} (logarithmic), and its efficiency (rate ÷ devices "
        f"÷ the published rate of one device), over {devices[0]} to {devices[-1]} of {hardware}. "
        f"{printable(system.source)}.",
        partial(_plot_published, system),
        ("neurons", "layers", "devices", "edges per second", "efficiency"),
        [
            (curve.neurons, curve.layers, count, curve.rate(count), curve.efficiency(count))
            for curve in system.curves for count in devices
        ],
    )  # fmt: skip


def _plot_published(system: PublishedSystem, narrow: bool):
    from matplotlib.ticker import LogLocator

    plot, (rates, efficiency) = canvas(4.6, 1, 2, narrow=narrow)
    widths, depths = (list(dict.fromkeys(sizes)) for sizes in list(zip(*system.curves, strict=True))[:2])
    palette, lines, ends = colours(max(10, len(widths))), [], []
    for curve in system.curves:
        depth = depths.index(curve.layers)
        style = {
            "color": palette[widths.index(curve.neurons)], "linestyle": DASHES[depth % len(DASHES)],
            "marker": "osD^v"[depth % 5], "markersize": 4, "linewidth": 1.3,
        }  # fmt: skip
        numbers = sorted(curve.points)
        ends += [curve.rate(count) / 1e12 for count in numbers]
        lines += rates.plot(numbers, [curve.rate(count) / 1e12 for count in numbers], **style)
        if 1 in curve.points:
            efficiency.plot(numbers, [100 * curve.efficiency(count) for count in numbers], **style)
    for axes, label in ((rates, "TeraEdges/s, published"), (efficiency, "efficiency, %, published")):
        _over(axes, system.devices, system.hardware)
        axes.set_ylabel(label)
    logarithmic(rates, "y")
    rates.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if max(ends) < FEW * min(ends) else (1.0,)))
    efficiency.set_ylim(bottom=0)
    despine(plot)
    labels = [f"{curve.neurons} × {curve.layers}" for curve in system.curves]
    plot.legend(lines, labels, loc="outside lower center", ncols=max(1, len(widths)),
                title="neurons × layers", fontsize=9)  # fmt: skip
    return plot
