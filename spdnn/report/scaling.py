"""The section on scaling: runs of several ranks, threads or GPUs, compared with one; then published systems.

Strong scaling: the same inputs on more workers. Weak scaling: inputs that grow with them. Speed-up is the ratio of the
challenge's rates, so it means the same in both, and efficiency is speed-up / workers.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from spdnn.report.common.plotting import INK, canvas, colours, despine, line, logarithmic, patch, plain, set_ticks
from spdnn.report.common.run_rows import RunRow, interval, run_name
from spdnn.runs.records.distribution import PER_REPEAT
from spdnn.runs.records.published import Baseline

NAME, TITLE = "scaling", "Scaling"
ABSENT = (
    "Scaling is not shown: nothing was run on several numbers of threads, ranks or GPUs. ",
    code("snakemake --configfile config/strong.yaml"), " (the same inputs on more ranks) and ",
    code("snakemake --configfile config/weak.yaml"), " (inputs that grow with the ranks) run them.",
)  # fmt: skip
KINDS = {STRONG: "Strong scaling", WEAK: "Weak scaling", OTHER: "Not compared"}
LEAST_DEVICES = 4  # numbers of devices that make a published scaling curve
SCALING_GROUPS = 8  # of runs that are compared, with figures
LISTED_RANKS, MOST_EXCHANGES = 64, 20  # that one run's details list
# The mark of a partition and its index into seaborn's "colorblind"; None: not of ranks.
MARKS = {"static": ("o", 0), "cyclic": ("s", 3), "rebalanced": ("^", 2), None: ("o", 0)}
BASE_MARK = "D"
WIDE_SECONDS = 4  # seconds that differ by this factor are on a logarithmic scale
SHADE, GREY = "#e9ebee", "#7b8794"
OVER = mark("oversubscribed")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


class OfRanks(NamedTuple):
    """Of several ranks: their Imbalance, parts of all their seconds, rows that changed ranks; of one, nothing."""

    edges: float | None = None
    edges_from_exchange: float | None = None
    seconds: float | None = None
    waiting: float | None = None
    communication: float | None = None
    moved: int | None = None


class ScaledRun:
    """A run on so many workers, compared with `base`, the run on one.

    Attributes:
        speedup: the ratio of the challenge's rates; efficiency: of each worker. Both are None without `base`.
        nodes: how many, where there are several; oversubscribed: whether one has more threads than cores.
    """

    def __init__(self, run: RunRow, workers: int, base: RunRow | None) -> None:
        record, whole = run.record, run.record.distribution
        self.run, self.workers = run, workers
        inputs = base and run.problem.input_count / base.problem.input_count
        self.speedup = base and inputs * base.inference_seconds / run.inference_seconds
        self.efficiency = base and self.speedup / workers
        hosts = Counter(rank.host for rank in whole.per_rank) if whole else {"": 1}
        self.nodes = f"on {len(hosts)} nodes" if len(hosts) > 1 else None
        self.oversubscribed = max(hosts.values()) * record.threads > record.environment.cores
        self.of_ranks = OfRanks()
        if whole:
            moved = sum(exchange.rows for exchange in whole.exchanges)
            # Of all repeats together.
            spent, *parts = (sum(sum(getattr(rank, name)) for rank in whole.per_rank) for name in PER_REPEAT)
            self.of_ranks = OfRanks(*whole.imbalance, *(part / spent for part in parts), moved)


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


EACH_RANK = Table(  # of (number, OneRank)
    "Ranks",
    [
        Column("Rank", lambda row: f"{row[0]}"),
        Column("Host", lambda row: row[1].host),
        Column("Inputs", lambda row: row[1].inputs, NUMBER),
        Column("Inference", lambda row: median(row[1].inference_seconds), SECONDS),
        Column("Computing", lambda row: row[1].computing_seconds, SECONDS),
        Column("Waiting", lambda row: median(row[1].waiting_seconds), SECONDS),
        Column("Communication", lambda row: median(row[1].communication_seconds), SECONDS),
        Column("Edges computed", lambda row: row[1].edges_computed, NUMBER),
        Column("From first exchange on", lambda row: row[1].edges_from_exchange, NUMBER),
        Column("Rows sent", lambda row: row[1].rows_sent, NUMBER),
        Column("Rows received", lambda row: row[1].rows_received, NUMBER),
        Column("Active inputs at the end", lambda row: row[1].survivors[-1], NUMBER),
        Column("Peak memory of its own", lambda row: row[1].peak_memory_bytes, BYTES),
        Column("With its part of what is shared", lambda row: row[1].proportional_memory_bytes, BYTES),
    ],
    "Medians over the repeats",
)


def table(kind: str, over: str) -> Table:
    """The table of a group's runs."""
    ranked = ". Waiting and communication: parts of all ranks' inference seconds" * (over == RANKS)
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
    for place, group in enumerate(groups[:SCALING_GROUPS]):
        counts[group.kind] += 1
        drawn = place < MOST_DRAWN and group.kind != OTHER
        blocks.append(_part(group, f"scaling-{group.kind}-{counts[group.kind]}", drawn))
    if more := len(groups[SCALING_GROUPS:]):
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
    blocks: list[Block] = [Paragraph(f"{inputs}; {_settings(group)}; {plural(cores, 'core')} on a node.", "soft")]
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
    blocks += [_ranks(row.run) for row in rows if row.run.record.distribution]
    return Part(f"{KINDS[kind]} over {over}: {network}", blocks, f"{name}-head")


def _settings(group: Group) -> str:
    run = group.shown[0]
    each = f"{plural(run.record.threads, 'thread')} for each rank" if group.over == RANKS else "one rank"
    return f"engine {run.engine}, {each}, reductions: {run.reductions}"


def _ranks(run: RunRow) -> Fold:
    """What each rank of a run did, medians over the repeats; of very many, those that computed longest."""
    whole, count = run.record.distribution, run.record.ranks
    exchanges = [
        f"before layer {one.before_layer:,}: {plural(one.rows, 'row')}, {size(one.bytes)}" for one in whole.exchanges
    ]
    if more := len(exchanges[MOST_EXCHANGES:]):
        exchanges[MOST_EXCHANGES:] = [f"and {plural(more, 'more exchange')}"]
    latency, bandwidth = 1e6 * whole.message_latency_seconds, whole.message_bytes_per_second / 1e9
    terms = [
        ("Rows exchanged", "; ".join([whole.told, *exchanges])),
        ("Rows merged across ranks", whole.rows_merged_across_ranks),
        ("Memory", f"Weights: {whole.weights}; {size(whole.shared_bytes)} of weights and inputs in shared windows; "
                   f"{size(run.record.peak_memory_bytes)} at the peak"),
        ("Messages", f"{significant(latency, 3)} µs for a small allgather, {significant(bandwidth, 3)} GB/s between "
                     "two ranks; measured after the repeats"),
    ]  # fmt: skip
    longest = sorted(enumerate(whole.per_rank), key=lambda row: (-row[1].computing_seconds, row[0]))[:LISTED_RANKS]
    others = f"; the ranks that computed longest, {count - LISTED_RANKS:,} others are left out" * (count > LISTED_RANKS)
    rows = EACH_RANK.of(sorted(longest), title=f"Ranks of {run.case}", caption=f"{EACH_RANK.caption}{others}")
    return Fold(f"{run.case}: each of its {count} ranks", [Terms(terms), rows])


def scaling(group: Group, rows: Sequence[ScaledRun], name: str) -> Figure:
    """Time, speed-up and efficiency over workers; of ranks imbalance, waiting and communication too.

    Colour and mark are the partition. The row of one worker, if any, begins the curve of every partition.
    """
    over, kind, ranked = group.over, group.kind.capitalize(), group.over == RANKS
    weak = (
        " With even work for each input the seconds would stay as they are; how many inputs die depends on the inputs."
    )
    of_ranks = "imbalance of edges", "imbalance from the first exchange on", "waiting", "communication"
    network, settings = words.network(group.shown[0].problem), _settings(group)
    return Figure(
        name,
        f"{kind} scaling, {network}: time, speed-up, efficiency{', imbalance' * ranked} by {over}",
        f"{kind} scaling over {over}. Speed-up is on a logarithmic scale, and so are seconds that differ by a "
        f"factor of four; vertical lines are the medians' intervals; dotted: each {over[:-1]} gaining as much as the "
        f"first.{' Colour and mark: the partition.' * ranked}{weak * (group.kind == WEAK)} "
        f"{settings[0].upper()}{settings[1:]}.",
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


PANELS = (  # label, factor, and what is plotted over workers; the second of two is dashed
    ("inference seconds", 1, [lambda row: row.run.inference_seconds]),
    ("speed-up", 1, [lambda row: row.speedup]),
    ("efficiency, %", 100, [lambda row: row.efficiency]),
    ("imbalance of edges,\nmaximum / mean", 1,
     [lambda row: row.of_ranks.edges, lambda row: row.of_ranks.edges_from_exchange]),
    ("% of inference", 100, [lambda row: row.of_ranks.waiting, lambda row: row.of_ranks.communication]),
)  # fmt: skip


def _plot(rows: Sequence[ScaledRun], over: str, narrow: bool):
    ranked, numbers, start = over == RANKS, sorted({row.workers for row in rows}), shade_start(rows)
    plot, grid = canvas(6.4 if ranked else 4.3, 3 if ranked else 2, 2, narrow=narrow)
    *panels, legend = grid.flat
    time, speedup, efficiency = panels[:3]
    partitions = [name for name in MARKS if any(row.run.partition == name and row.workers > 1 for row in rows)]
    styles = {name: {"marker": mark, "color": colours()[hue]} for name, (mark, hue) in MARKS.items()}
    for axes, (label, factor, values) in zip(panels, PANELS, strict=False):
        for name in partitions:
            curve = [row for row in rows if row.run.partition in (None, name)]
            for value, dashes in zip(values, ("-", "--"), strict=False):
                points = [(row, factor * number) for row in curve if (number := value(row)) is not None]
                _plot_curve(axes, points, dashes, **styles[name])
        _over(axes, numbers, over, label)
        if start is not None:
            axes.axvspan(max(start, axes.get_xlim()[0]), axes.get_xlim()[1], color=SHADE, zorder=0)
    for row in rows:
        time.plot([row.workers] * 2, row.run.ends, color=INK, linewidth=1.2)
    # What more workers bring at best, and the axes of what is plotted.
    scaled = any(row.speedup is not None for row in rows)
    if scaled:
        ends = [1, numbers[-1]]
        for axes, ideal in ((speedup, ends), (efficiency, [100, 100])):
            axes.plot(ends, ideal, color=INK, linestyle=":", linewidth=1.2, zorder=1)
    seconds = [row.run.inference_seconds for row in rows]
    wide = max(seconds) >= WIDE_SECONDS * min(seconds)
    for axes in [time] * wide + [speedup] * scaled:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(plain)
    for axes in [time] * (not wide) + [efficiency, *panels[4:]]:
        axes.set_ylim(bottom=0)
    despine(plot)
    # The meaning of marks, lines and shade, instead of a last panel.
    legend.set_axis_off()
    handles = [line(name, **styles[name]) for name in partitions if name]
    if numbers[0] == 1:
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


def _plot_curve(axes, points: Sequence[tuple[ScaledRun, float]], dashes: str, marker: str, color: str) -> None:
    """One partition's figures over workers; one has its own mark, and oversubscribed runs are hollow."""
    axes.plot([row.workers for row, _ in points], [number for _, number in points], dashes, color=color, zorder=2)
    for row, number in points:
        mark, edge = (BASE_MARK, INK) if row.workers == 1 else (marker, color)
        axes.plot([row.workers], [number], mark, color=edge, zorder=3,
                  markerfacecolor="white" if row.oversubscribed else edge)  # fmt: skip


def _over(axes, numbers: Sequence[int], label: str, values: str) -> None:
    """A logarithmic axis with a tick at each number that was run, and the labels of both axes."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(numbers[0] / 1.25, numbers[-1] * 1.25)
    axes.set_xticks(numbers, list(map(str, numbers)))
    axes.set_xticks([], minor=True)
    axes.set(xlabel=label, ylabel=values)


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
    who, hardware, devices = printable(system.system), printable(system.hardware), system.devices
    figure = Figure(
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
    return Part(f"Published scaling: {title}", [Paragraph(text), figure, rows], f"{name}-head")


def _plot_published(system: PublishedSystem, narrow: bool):
    """Rates and efficiencies over devices: colour is the width, dash and mark the depth."""
    plot, (rates, efficiency) = canvas(4.6, 1, 2, narrow=narrow)
    widths, depths = (list(dict.fromkeys(sizes)) for sizes in list(zip(*system.curves, strict=True))[:2])
    palette, lines, every = colours(max(10, len(widths))), [], []
    for curve in system.curves:
        depth, numbers = depths.index(curve.layers) % len(DASHES), sorted(curve.points)
        style = {"color": palette[widths.index(curve.neurons)], "linestyle": DASHES[depth], "marker": "osD^"[depth]}
        tera = [curve.rate(count) / 1e12 for count in numbers]
        every += tera
        lines += rates.plot(numbers, tera, markersize=4, **style)
        if 1 in curve.points:
            efficiency.plot(numbers, [100 * curve.efficiency(count) for count in numbers], markersize=4, **style)
    for axes, label in ((rates, "TeraEdges/s, published"), (efficiency, "efficiency, %, published")):
        _over(axes, system.devices, system.hardware, label)
    logarithmic(rates, "y")
    set_ticks(rates.yaxis, every)
    efficiency.set_ylim(bottom=0)
    despine(plot)
    labels = [f"{curve.neurons} × {curve.layers}" for curve in system.curves]
    plot.legend(lines, labels, loc="outside lower center", ncols=max(1, len(widths)),
                title="neurons × layers", fontsize=9)  # fmt: skip
    return plot
