"""The section on the twelve networks: a row for each, and every run and published figure that rows are chosen from.

Our runs and the published figures are compared by the challenge's rate; a ratio names the span of theirs where ours has
another.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from spdnn.core import challenge
from spdnn.core.shown import listed, printable, significant
from spdnn.core.shown import published as printed
from spdnn.core.table import RATE, RATIO, SECONDS, Column, Number, Phrase, Rows, Styled, Table, mark
from spdnn.report.common.blocks import Block, Paragraph, Section, term
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, line, logarithmic, set_ticks
from spdnn.report.common.run_rows import BUSY_MARK, RunRow, every_run, group_by
from spdnn.runs.records.published import DEVICES, KINDS, Baseline, Ratio

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
SERIES = ("reduced", "like", "plain")  # ours: work avoided, the same work as published systems, nothing left out
NAMES = {"reduced": "work avoided, exactly", "like": "same work", "plain": "no reductions"}
PUBLISHED = {"one": "one device", "any": "any", "lossy": "any"}  # exact on one device and on any, lossy; the devices
UNNAMED = replace(RATE, name="")  # of columns whose caption has the unit
NAME, TITLE = "networks", "The twelve networks"
LEAST = 3  # networks of different sizes, for a slope
MARKS = {"reduced": ("*", 0), "like": ("D", 1), "plain": ("P", 4), "solution": ("s", 2)}  # mark, colour
SOLUTION = "time to solution, work avoided"


@dataclass(frozen=True)
class Size:
    """One of the twelve networks, run or not.

    Attributes:
        ours: the best run of each of SERIES, the official inputs and quiet machines first; None where there is none.
        best: the fastest published figure of each of PUBLISHED, or None.
    """

    problem: challenge.OfficialProblem
    ours: Mapping[str, RunRow | None]
    best: Mapping[str, Baseline | None]

    @property
    def key(self) -> str:
        """Its name in files."""
        return f"{self.problem.neurons}-{self.problem.layers}"

    @property
    def name(self) -> str:
        return f"{self.problem.neurons:,} × {self.problem.layers:,}"

    @property
    def runs(self) -> list[RunRow]:
        """Those of `ours` that there are."""
        return [run for run in self.ours.values() if run]

    def ratio(self, name: str, devices: str) -> Ratio | None:
        """Ours of a series against the best published; None unless there are both, ours on the official inputs."""
        run, best = self.ours[name], self.best[devices]
        return Ratio.of(run.record, best) if run and run.comparable and best else None


@once
def twelve(collection: Collection) -> list[Size]:
    """Each official network, run or not."""
    rows = []
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        own = [run for run in collection.own if run.official_size == size]
        published = [row for row in collection.baselines if (row.neurons, row.layers) == size and row.edges_per_second]
        exact, lossy = ([row for row in published if row.lossy == kind] for kind in (False, True))
        best = {"one": _fastest(exact, DEVICES[:1]), "any": _fastest(exact, DEVICES), "lossy": _fastest(lossy, DEVICES)}
        rows.append(Size(problem, {name: _ours(own, name) for name in SERIES}, best))
    return rows


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
        where = Styled("published figures", href="#table-published")
        blocks.append(
            Paragraph((have, *(["; ", where, " are in a table of their own"] if published else []), "."), "soft")
        )
    blocks += _growth(rows)
    blocks.append(every_run("Every run on these networks", official, "ours"))
    if published:
        blocks.append(_published(published))
    return Section(NAME, TITLE, blocks)


def _compared(rows: Sequence[Size]) -> Table:
    """The table of ours and the best published."""
    columns = [Column("Neurons × layers", lambda row: row.name)]
    for name in SERIES:
        columns.append(
            Column(
                f"Ours, {NAMES[name]}",
                lambda row, name=name: (run := row.ours[name]) and Number(run.rate.median, RATE),
                UNNAMED,
                below=lambda row, name=name: _ours_below(row.ours[name]),
                csv=f"ours_{name}_edges_per_second",
            )
        )
    for devices in PUBLISHED:
        columns.append(
            Column(
                f"Best published, {'lossy' if devices == 'lossy' else 'exact'}, {hardware(rows, devices)}",
                lambda row, devices=devices: _figure_cell(row.best[devices]),
                UNNAMED,
                below=lambda row, devices=devices: _figure_below(row.best[devices]),
                csv=f"published_{devices}_edges_per_second",
            )
        )
        columns += [
            Column(
                f"Ratio, {NAMES[name]}",
                lambda row, pair=(name, devices): (ratio := row.ratio(*pair)) and ratio.times,
                RATIO,
                below=lambda row, pair=(name, devices): f"their time: {theirs}"
                if (ratio := row.ratio(*pair)) and (theirs := ratio.theirs) else None,
                csv=f"ratio_{name}_{devices}",
            )
            for name in SERIES if name != "reduced" and devices != "lossy"
        ]  # fmt: skip
    caption = (
        RATE, ", and under it ", SECONDS, " of inference; ratios: ours ÷ published, exact; their time: what the "
        "published time includes, where ours includes something else",
    )  # fmt: skip
    return Table("Ours and the best published, by network", columns, caption, "twelve")


def _ours_below(run: RunRow | None) -> Phrase:
    """Seconds of a run of ours, and what a reader must know of it."""
    if run is None:
        return None
    marks = [mark("other inputs")] * (not run.comparable) + [BUSY_MARK] * bool(run.busy)
    marks += [mark("measured once")] * (run.repeats == 1)
    return Number(run.inference_seconds, SECONDS), *(part for one in marks for part in (" ", one))


def _figure_cell(best: Baseline | None) -> Phrase:
    """A published rate as it was printed."""
    text = best and printed(best.edges_per_second / 1e12)
    return best and Styled(Number(best.edges_per_second, RATE, text), title=label(best))


def _figure_below(best: Baseline | None) -> Phrase:
    return Number(best.seconds, SECONDS, printed(best.seconds)) if best and best.seconds else None


def _published(rows: Sequence[Baseline]) -> Rows:
    """Every published figure: a row for each system, hardware and publication, a column for each network."""
    groups = group_by(
        rows, lambda row: (row.system, row.hardware, row.devices, row.year, row.span, row.source, row.lossy)
    )
    best = {key: {(row.neurons, row.layers): row for row in sorted(members, key=_order, reverse=True)}
            for key, members in groups.items()}  # fmt: skip
    order = sorted(best.items(), key=lambda item: (-max(row.edges_per_second for row in item[1].values()), item[0]))
    columns = [
        Column("System", lambda item: (item[0][0], *([" ", mark("lossy")] if item[0][6] else [])),
               below=lambda item: f"{item[0][5]}"),
        Column("On", lambda item: f"{item[0][2] or 'devices not stated'} × {item[0][1]}, {item[0][3]}"),
        Column("Time includes", lambda item: item[0][4]),
    ]  # fmt: skip
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        columns.append(
            Column(
                f"{size[0]:,} × {size[1]:,}",
                lambda item, size=size: (
                    (row := item[1].get(size))
                    and Number(row.edges_per_second, RATE, printed(row.edges_per_second / 1e12))
                ),
                UNNAMED,
                below=lambda item, size=size: _figure_below(item[1].get(size)),
            )
        )
    caption = RATE, ", and under it ", SECONDS, " of inference; lossy methods do not give the exact values"
    return Table("Every published figure on these networks", columns, caption, "published").of(
        order, title=f"Every published figure on these networks: {len(rows):,}"
    )


def hardware(rows: Sequence[Size], name: str) -> str:
    """What the best published figures of the rows ran on, of one of PUBLISHED: "one GPU", "up to 768 GPUs"."""
    best = [row.best[name] for row in rows if row.best[name]]
    if not best:
        return PUBLISHED[name]
    kinds = " or ".join(kind for kind in KINDS if any(figure.kind == kind for figure in best))
    most = max((int(figure.devices) for figure in best if figure.devices.isdecimal()), default=1)
    return f"one {kinds}" if most == 1 else f"up to {most:,} {kinds}s"


def machines(rows: Sequence[Size]) -> str:
    """What our runs in the rows ran on."""
    runs = [run for row in rows for run in row.runs]
    return listed(sorted({f"{run.hardware}, {run.threads_text}" for run in runs}), 2, "; ")


def series(run: RunRow) -> str:
    """Which of SERIES a run belongs to."""
    return "like" if run.like_for_like else "reduced" if run.reduced else "plain"


def _ours(runs: Sequence[RunRow], name: str) -> RunRow | None:
    """The fastest of our runs of a series, the official inputs and quiet machines first; None without one."""

    def rank(run: RunRow) -> tuple:
        return run.comparable, not run.busy, run.rate.median, -run.number

    return max((run for run in runs if series(run) == name), key=rank, default=None)


def _fastest(rows: Sequence[Baseline], devices: Sequence[str]) -> Baseline | None:
    return min((row for row in rows if row.device_class in devices), key=_order, default=None)


def _order(row: Baseline) -> tuple:
    return -row.edges_per_second, row.system, row.devices, row.hardware


def label(row: Baseline) -> str:
    """A published figure's system and what it ran on, in a few words."""
    devices = f"{row.devices} × " if row.devices.isdecimal() else f"{row.devices}, " if row.devices else ""
    system = _AUTHORS.sub("", row.system)
    return printable(f"{system}, {devices}{row.hardware.split(' (')[0]}, {row.year}")


def _growth(rows: Sequence[Size]) -> list[Figure]:
    """Seconds and peak memory against edges, both logarithmic; none for fewer than LEAST networks."""
    runs_of = {name: [row.ours[name] for row in rows if row.ours[name]] for name in SERIES}
    runs_of = {name: runs for name, runs in runs_of.items() if len({run.problem.edges for run in runs}) >= LEAST}
    if not runs_of:
        return []
    solved = [run for run in runs_of.get("reduced", ()) if run.solution]
    curves = [(name, NAMES[name], runs, lambda run: run.inference_seconds) for name, runs in runs_of.items()]
    if len({run.problem.edges for run in solved}) >= LEAST:
        curves.append(("solution", SOLUTION, solved, lambda run: run.solution.seconds))
    # Least squares of log seconds over log edges.
    slopes = {}
    for name, _, runs, measure in curves:
        edges, seconds = [run.problem.edges for run in runs], [measure(run) for run in runs]
        slopes[name] = float(np.polyfit(np.log(edges), np.log(seconds), 1)[0])
    first = next(iter(runs_of.values()))
    figure = Figure(
        "growth",
        "Time and memory against the edges of a network",
        "Both axes logarithmic. Large marks: medians; dots: every repeat. The slope is that of a fit, seconds = "
        "c × edges^slope, over networks of all widths. Memory: the peak of the process, inputs included.",
        partial(_plot, curves, slopes),
        ("case", "what", "edges", "seconds", "peak memory, bytes"),
        [
            (run.case, label, run.problem.edges, measure(run), run.record.peak_memory_bytes)
            for _, label, runs, measure in curves for run in runs
        ],
        {run.number: f"{run.case}: {run.inference_seconds:.4g} s" for run in first},
        narrow=True,
    )  # fmt: skip
    return [figure]


def _plot(curves: Sequence[tuple], slopes: dict[str, float], narrow: bool):
    shape = (2, 1) if narrow else (1, 2)
    plot, (times, memory) = canvas(6.4 if narrow else 4.0, *shape, narrow=narrow)
    palette, handles = colours(), []
    for name, label, runs, measure in curves:
        mark, hue = MARKS[name]
        colour, edges = palette[hue], [run.problem.edges / 1e9 for run in runs]
        if name != "solution":
            for run in runs:
                times.plot([run.problem.edges / 1e9] * run.repeats, run.record.seconds, linestyle="", marker=".",
                           markersize=3, color=colour, alpha=0.5)  # fmt: skip
        for run in runs:
            identity = f"{RECORD}{run.number}" if name == curves[0][0] else None
            times.scatter(
                [run.problem.edges / 1e9], [measure(run)], marker=mark, s=46, color=colour, zorder=3, gid=identity
            )
        if name != "solution":
            memory.scatter(edges, [run.record.peak_memory_bytes / 2**30 for run in runs], marker=mark, s=46,
                           color=colour, zorder=3)  # fmt: skip
        slope = significant(slopes[name], 2)
        handles.append(line(f"{label}, slope {slope}", linestyle="", marker=mark, color=colour))
    for axes, what in ((times, "seconds"), (memory, "peak memory, GiB")):
        logarithmic(axes, "xy")
        axes.set_xlabel("edges of the network, 10⁹")
        axes.set_ylabel(what)
    set_ticks(memory.yaxis, [run.record.peak_memory_bytes / 2**30 for _, _, runs, _ in curves for run in runs])
    despine(plot)
    plot.legend(handles=handles, loc="outside upper left", ncols=1 if narrow else 2, frameon=False)
    return plot
