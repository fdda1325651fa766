"""The section on the twelve networks: a row for each, and every run and published figure that rows are chosen from.

Our runs and the published figures are compared by the challenge's rate; a ratio names the span of theirs where ours has
another.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from spdnn.core import challenge
from spdnn.core.shown import listed, printable, significant
from spdnn.core.shown import published as printed
from spdnn.core.table import RATE, RATIO, SECONDS, Column, Number, Phrase, Rows, Styled, Table, Unit, mark
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Section, term
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, line, logarithmic, set_ticks
from spdnn.report.common.run_rows import BUSY_MARK, RunRow, every_run, group_by
from spdnn.runs.records.published import DEVICES, KINDS, Baseline, Ratio

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
NAMES = {"reduced": "work avoided, exactly", "like": "same work", "plain": "no reductions"}  # of the series of ours
# Of published figures, exact on one device and on any, and lossy: (whether lossy, device) of each, and the devices.
PUBLISHED = {
    "one": ([(False, DEVICES[0])], "one device"),
    "any": ([(False, device) for device in DEVICES], "any"),
    "lossy": ([(True, device) for device in DEVICES], "any"),
}
UNNAMED = replace(RATE, name="")  # of columns whose caption has the unit
NAME, TITLE = "networks", "The twelve networks"
LEAST_SIZES = 3  # networks of different sizes, for a slope
MARKS = {"reduced": ("*", 0), "like": ("D", 1), "plain": ("P", 4), "solution": ("s", 2)}  # mark, colour
SOLUTION = "time to solution, work avoided"


class Size:
    """One of the twelve networks, run or not.

    Attributes:
        key: its name in files.
        ours: the best run of each series of NAMES, official inputs and quiet machines first, or None.
        runs: those of `ours` that there are.
        best: the fastest published figure of each of PUBLISHED, or None.
    """

    def __init__(
        self, problem: challenge.OfficialProblem, runs: Sequence[RunRow], baselines: Sequence[Baseline]
    ) -> None:
        neurons, layers = size = problem.neurons, problem.layers
        self.problem, self.key, self.name = problem, f"{neurons}-{layers}", f"{neurons:,} × {layers:,}"
        own = group_by((run for run in runs if run.official_size == size), series)
        self.ours = {name: max(own.get(name, ()), key=_rank, default=None) for name in NAMES}
        self.runs = [run for run in self.ours.values() if run]
        rows = [row for row in baselines if (row.neurons, row.layers) == size and row.edges_per_second]
        self.best = {
            name: min((row for row in rows if (row.lossy, row.device_class) in kinds), key=_order, default=None)
            for name, (kinds, _) in PUBLISHED.items()
        }

    def ratio(self, name: str, devices: str) -> Ratio | None:
        """Ours of a series against the best published; None unless there are both, ours on the official inputs."""
        run, best = self.ours[name], self.best[devices]
        return Ratio.of(run.record, best) if run and run.comparable and best else None


def _rank(run: RunRow) -> tuple:
    return run.comparable, not run.busy, run.rate.median, -run.number


@once
def twelve(collection: Collection) -> list[Size]:
    """Each official network, run or not."""
    return [Size(problem, collection.own, collection.baselines) for problem in challenge.PROBLEMS]


def section(collection: Collection) -> Section | None:
    """The section; None without a run of one of the twelve."""
    official = [run for run in collection.own if run.official_size]
    if not official:
        return None
    rows = twelve(collection)
    shown = [row for row in rows if row.runs]
    published = [row for row in collection.baselines if row.neurons and row.edges_per_second]
    blocks: list[Block] = [
        Paragraph((
            "Runs are in two divisions: ", term("same work"), " as the published systems, and ",
            term("work avoided, exactly"), ". Ratios compare our same-work and no-reduction runs with exact results; ",
            term("lossy"), f" methods give approximate values. Ours: {machines(rows)}. Published times do not all ",
            term("include", "spans"), " the same as ours: each ratio says where.",
        )),
        _compared(rows).of(shown),
    ]  # fmt: skip
    if absent := len(rows) - len(shown):
        have = f"{absent} of the twelve networks {'has' if absent == 1 else 'have'} no run here"
        where = "; ", Styled("published figures", href="#table-published"), " are in a table of their own"
        blocks.append(Paragraph((have, where if published else "", "."), "soft"))
    blocks += _growth(rows)
    blocks.append(every_run("Every run on these networks", official, "ours"))
    if published:
        blocks.append(_published(published))
    return Section(NAME, TITLE, blocks)


def _compared(rows: Sequence[Size]) -> Table:
    """The table of ours and the best published."""
    reduced, *others = map(_ours, NAMES)
    columns = [Column("Neurons × layers", lambda row: row.name), reduced, _prepared("reduced"), *others]
    for devices in PUBLISHED:
        columns.append(_best(devices, f"{'lossy' if devices == 'lossy' else 'exact'}, {hardware(rows, devices)}"))
        columns += [_ratio(name, devices) for name in ("like", "plain") if devices != "lossy"]
    caption = (
        RATE, ", and under it ", SECONDS, " of inference; with preparation: reductions found and weights laid out, and "
        "under it from the start of the command to its verified categories; ratios: ours ÷ published, exact; their "
        "time: what the published time includes, where ours includes something else",
    )  # fmt: skip
    return Table("Ours and the best published, by network", columns, caption, "twelve")


def _ours(name: str) -> Column:
    """The rates of a series of ours; under each the seconds, and what a reader must know of the run."""

    def below(row: Size) -> Phrase:
        if not (run := row.ours[name]):
            return None
        marks = [mark("other inputs")] * (not run.comparable) + [BUSY_MARK] * bool(run.busy)
        marks += [mark("measured once")] * (run.repeats == 1)
        return Number(run.inference_seconds, SECONDS), *(part for one in marks for part in (" ", one))

    def rate(row: Size) -> Phrase:
        return row.ours[name] and row.ours[name].rate.median

    return Column(f"Ours, {NAMES[name]}", rate, UNNAMED, below, f"ours_{name}_edges_per_second")


def _prepared(name: str) -> Column:
    """The rates of a series of ours with the preparation on the clock; under each that of the whole command."""

    def rate(row: Size) -> float | None:
        return (run := row.ours[name]) and run.record.prepared_rate

    def below(row: Size) -> Phrase:
        whole = (run := row.ours[name]) and run.record.whole_rate
        return whole and (Number(whole, UNNAMED), " whole command")

    return Column("The same, with preparation", rate, UNNAMED, below, f"ours_{name}_prepared_edges_per_second")


def _best(devices: str, what: str) -> Column:
    """The best published rates, and under each its seconds."""
    return Column(
        f"Best published, {what}",
        lambda row: (best := row.best[devices]) and Styled(_printed(best), title=label(best)),
        UNNAMED,
        lambda row: _printed(row.best[devices], SECONDS),
        f"published_{devices}_edges_per_second",
    )


def _ratio(name: str, devices: str) -> Column:
    """Ours ÷ the best published, and under each ratio what their time includes, where ours includes something else."""

    def times(row: Size) -> Phrase:
        return (ratio := row.ratio(name, devices)) and ratio.times

    def below(row: Size) -> Phrase:
        ratio = row.ratio(name, devices)
        return f"their time: {ratio.theirs}" if ratio and ratio.theirs else None

    return Column(f"Ratio, {NAMES[name]}", times, RATIO, below, f"ratio_{name}_{devices}")


def _printed(row: Baseline | None, unit: Unit = RATE) -> Number | None:
    """A published rate or its seconds, as they were printed."""
    if unit is RATE:
        return row and Number(row.edges_per_second, RATE, printed(row.edges_per_second / 1e12))
    return Number(row.seconds, SECONDS, printed(row.seconds)) if row and row.seconds else None


def _published(rows: Sequence[Baseline]) -> Rows:
    """Every published figure: a row for each system, hardware and publication, a column for each network."""
    # (one of the figures of the row, which says what all have; the best figure by size)
    groups = group_by(rows, attrgetter("system", "hardware", "devices", "year", "span", "source", "lossy"))
    best = [
        (key, members[0], {(row.neurons, row.layers): row for row in sorted(members, key=_order, reverse=True)})
        for key, members in groups.items()
    ]
    best.sort(key=lambda item: (-max(row.edges_per_second for row in item[2].values()), item[0]))
    columns = [
        Column("System", lambda item: (item[1].system, *([" ", mark("lossy")] if item[1].lossy else [])),
               below=lambda item: item[1].source),
        Column("On", lambda item: f"{item[1].devices or 'devices not stated'} × {item[1].hardware}, {item[1].year}"),
        Column("Time includes", lambda item: item[1].span),
        *(
            Column(
                f"{problem.neurons:,} × {problem.layers:,}",
                lambda item, size=(problem.neurons, problem.layers): _printed(item[2].get(size)),
                UNNAMED,
                lambda item, size=(problem.neurons, problem.layers): _printed(item[2].get(size), SECONDS),
            )
            for problem in challenge.PROBLEMS
        ),
    ]  # fmt: skip
    caption = RATE, ", and under it ", SECONDS, " of inference; lossy methods do not give the exact values"
    title = "Every published figure on these networks"
    return Table(title, columns, caption, "published").of(best, title=f"{title}: {len(rows):,}")


def hardware(rows: Sequence[Size], name: str) -> str:
    """What the best published figures of the rows ran on, of one of PUBLISHED: "one GPU", "up to 768 GPUs"."""
    best = [row.best[name] for row in rows if row.best[name]]
    if not best:
        return PUBLISHED[name][1]
    kinds = " or ".join(kind for kind in KINDS if any(figure.kind == kind for figure in best))
    most = max((int(figure.devices) for figure in best if figure.devices.isdecimal()), default=1)
    return f"one {kinds}" if most == 1 else f"up to {most:,} {kinds}s"


def machines(rows: Sequence[Size]) -> str:
    """What our runs in the rows ran on."""
    runs = [run for row in rows for run in row.runs]
    return listed(sorted({f"{words.device(run.record.environment)}, {run.threads_text}" for run in runs}), 2, "; ")


def series(run: RunRow) -> str:
    """Which series of NAMES a run belongs to."""
    return "like" if run.like_for_like else "reduced" if run.reduced else "plain"


def _order(row: Baseline) -> tuple:
    return -row.edges_per_second, row.system, row.devices, row.hardware


def label(row: Baseline) -> str:
    """A published figure's system and what it ran on, in a few words."""
    devices = f"{row.devices} × " if row.devices.isdecimal() else f"{row.devices}, " if row.devices else ""
    system = _AUTHORS.sub("", row.system)
    return printable(f"{system}, {devices}{row.hardware.split(' (')[0]}, {row.year}")


class Curve(NamedTuple):
    """A series of ours in the figure of growth: seconds of its runs."""

    name: str
    label: str
    runs: Sequence[RunRow]
    seconds: Sequence[float]


def _growth(rows: Sequence[Size]) -> list[Figure]:
    """Seconds and peak memory against edges, both logarithmic; none for fewer than LEAST_SIZES networks."""
    runs_of = {name: [row.ours[name] for row in rows if row.ours[name]] for name in NAMES}
    solved = [run for run in runs_of["reduced"] if run.solution]
    curves = [Curve(name, NAMES[name], runs, [run.inference_seconds for run in runs]) for name, runs in runs_of.items()]
    curves.append(Curve("solution", SOLUTION, solved, [run.solution.seconds for run in solved]))
    curves = [curve for curve in curves if len({run.problem.edges for run in curve.runs}) >= LEAST_SIZES]
    if not curves:
        return []
    figure = Figure(
        "growth",
        "Time and memory against the edges of a network",
        "Both axes logarithmic. Large marks: medians; dots: every repeat. The slope is that of a fit, seconds = "
        "c × edges^slope, over networks of all widths. Memory: the peak of the process, inputs included.",
        partial(_plot, curves),
        ("case", "what", "edges", "seconds", "peak memory, bytes"),
        [
            (run.case, curve.label, run.problem.edges, seconds, run.record.peak_memory_bytes)
            for curve in curves for run, seconds in zip(curve.runs, curve.seconds, strict=True)
        ],
        {run.number: f"{run.case}: {run.inference_seconds:.4g} s" for run in curves[0].runs},
        narrow=True,
    )  # fmt: skip
    return [figure]


def _plot(curves: Sequence[Curve], narrow: bool):
    shape = (2, 1) if narrow else (1, 2)
    plot, (times, memory) = canvas(6.4 if narrow else 4.0, *shape, narrow=narrow)
    palette, handles, peaks = colours(), [], []
    for name, label, runs, seconds in curves:
        mark, hue = MARKS[name]
        look = {"marker": mark, "s": 46, "color": palette[hue], "zorder": 3}
        for run, median in zip(runs, seconds, strict=True):
            edges, peak = run.problem.edges / 1e9, run.record.peak_memory_bytes / 2**30
            times.scatter(edges, median, gid=f"{RECORD}{run.number}" if name == curves[0].name else None, **look)
            if name != "solution":
                times.plot([edges] * run.repeats, run.record.seconds, ".", markersize=3, color=palette[hue], alpha=0.5)
                memory.scatter(edges, peak, **look)
                peaks.append(peak)
        # Least squares of log seconds over log edges.
        slope, _ = np.polyfit(np.log([run.problem.edges for run in runs]), np.log(seconds), 1)
        text = f"{label}, slope {significant(float(slope), 2)}"
        handles.append(line(text, linestyle="", marker=mark, color=palette[hue]))
    for axes, what in ((times, "seconds"), (memory, "peak memory, GiB")):
        logarithmic(axes, "xy")
        axes.set(xlabel="edges of the network, 10⁹", ylabel=what)
    set_ticks(memory.yaxis, peaks)
    despine(plot)
    plot.legend(handles=handles, loc="outside upper left", ncols=1 if narrow else 2)
    return plot
