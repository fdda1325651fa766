"""The section on limits: each run compared with the measured best of its own machine, machine by machine.

`spdnn.core.limits` says what bounds a run; here its ceilings are set next to the rates of the run.
Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from spdnn.core import limits
from spdnn.core.shown import listed, plural, printable, significant
from spdnn.core.table import BILLIONS, BYTES, NUMBER, PERCENT, SECONDS, Column, Number, Phrase, Table, code
from spdnn.report.common import plotting, words
from spdnn.report.common.blocks import Block, Fold, Paragraph, Section, term
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR, Bar, line
from spdnn.report.common.run_rows import RunRow, group_by, run_name
from spdnn.runs.records.notes import TaskgraphNotes

NAME, TITLE = "limits", "How far from the limit"
ABSENT = (
    "The distance to the machine's limits is not shown: the machine was not measured with these runs. ",
    code("spdnn challenge"), ", ", code("spdnn infer"), " and the workflow measure it.",
)  # fmt: skip
COLOURS = {limits.LOADS: 0, limits.MEMORY: 1}  # indices into seaborn's "colorblind"
DASHED = (0, (5, 2))
ROOM = 4  # times that the horizontal axis goes beyond what is on it
STRIP = 0.16  # of the axis' width, for runs without a number of bytes moved
HEIGHT, LEGEND = 4.6, 1.5  # inches
LIMIT_IN_VIEW = 40  # per cent: below, an axis to 100 would leave bars too short to compare
LABEL = 9  # points of a label's letters
RANKED = (
    "Of several ranks, the loads are those that the busiest rank had at least, and every rank has the ceilings of a "
    "machine of its own: ranks that share a node's memory, or its cores, reach less."
)
MEASURED = {  # on what, and whose the ceilings are; True: of a GPU
    False: ("on as many threads", "of all threads together"),
    True: ("on the whole GPU that it used", "of a whole GPU"),
}


class LimitRow:
    """A run and the limit of its machine; of several ranks, each is taken as a machine of its own.

    Attributes:
        least: the least seconds that its work could take, and what binds them; binds: that ceiling, in words.
        share: of the limit, that the run reached.
        roofs: what the machine did at best in a second, all ranks together: edges, by the loads from the nearest cache
            and by those from the second-level cache; bytes, from memory to memory.
        own_rate: edges a second at the run's own limit.
        intensity: edges per byte moved past the caches; edge_bytes: bytes that an edge gathered.
    """

    def __init__(self, run: RunRow) -> None:
        result, ranks = run.record.result, run.record.ranks
        self.run, self.machine, self.least = run, run.record.machine, run.record.limit
        self.binds = words.ceilings(self.machine)[self.least.binds]
        if self.machine.on_device and run.record.bytes_moved is None:
            self.binds += ", memory not counted"
        self.share = self.least.seconds / run.inference_seconds
        loads, second = self.machine.load_bytes_per_second, self.machine.l2_load_bytes_per_second
        edges = [rate * ranks / limits.EDGE_LOAD_BYTES for rate in (loads, second)]
        self.roofs = (*edges, self.machine.copy_bytes_per_second * ranks)
        computed, moved, loaded = result.edges_computed, run.record.bytes_moved, result.bytes_loaded
        self.own_rate = computed / self.least.seconds if self.least.seconds else None
        self.intensity = computed / moved if moved else None
        loaded = computed * limits.EDGE_LOAD_BYTES if loaded is None else loaded
        self.edge_bytes = loaded / computed if computed else None


LIMITS = Table(
    "Limits by case",
    [
        Column("Case", lambda row: run_name(row.run)),
        Column("Share reached", lambda row: row.share, PERCENT),
        Column("Ceiling that binds", lambda row: row.binds),
        Column("Edges really computed a second; at the limit", lambda row: row.run.computed_rate, BILLIONS,
               below=lambda row: row.own_rate and Number(row.own_rate, BILLIONS), csv="edges_per_second"),
        Column("Inference; at the limit", lambda row: row.run.inference_seconds, SECONDS,
               below=lambda row: Number(row.least.seconds, SECONDS), csv="inference_seconds"),
        Column("Load ceiling, edges a second", lambda row: row.roofs[0], BILLIONS),
        Column("Second-level cache, edges a second", lambda row: row.roofs[1], BILLIONS),
        Column("Memory ceiling, bytes a second", lambda row: row.roofs[2], BILLIONS),
        Column("Bytes moved; edges per byte",
               lambda row: "not recorded" if (moved := row.run.record.bytes_moved) is None else moved, BYTES,
               below=lambda row: row.intensity, csv="bytes_moved"),
        Column("Bytes an edge gathered", lambda row: row.edge_bytes, NUMBER),
    ],
    record=lambda row: row.run.number,
)  # fmt: skip


class Panel(NamedTuple):
    """A machine, its runs that can be drawn, and the lowest and highest of each roof; `name`: of its roofline."""

    name: str
    machine: str
    rows: Sequence[LimitRow]
    roofs: Sequence[tuple[float, float]]


@once
def limit_rows(collection: Collection) -> list[LimitRow]:
    """The runs whose machine was measured, nearest to its limit first."""
    rows = [LimitRow(run) for run in collection.runs if run.record.machine]
    return sorted(rows, key=lambda row: (-row.share, row.run.number))


def panels(rows: Sequence[LimitRow]) -> list[Panel]:
    """The machines, that of most runs first."""
    drawable = [row for row in rows if row.run.computed_rate and row.own_rate]
    machines = group_by(drawable, lambda row: (row.machine.on_device, row.run.record.ranks, _place(row.run)))
    order = sorted(machines.items(), key=lambda item: (-len(item[1]), item[0]))
    found = []
    for number, ((*_, place), members) in enumerate(order, 1):
        roofs = [(min(rates), max(rates)) for rates in zip(*(row.roofs for row in members), strict=True)]
        found.append(Panel(f"roofline-{number}", place, members, roofs))
    return found


def _place(run: RunRow) -> str:
    """What was measured, in words: runs that share it have one set of roofs."""
    record, workers = run.record, plural(run.record.threads, "thread")
    if record.machine.on_device:
        devices = run.notes(TaskgraphNotes).devices or 1
        workers = plural(devices, "GPU") if devices > 1 else ""
    if record.ranks > 1:
        workers = f"{record.ranks:,} ranks" + (f" of {workers}" if workers else "")
    level = printable(record.machine.instruction_set)
    return ", ".join(filter(None, (words.machine(record.environment), level, workers)))


def section(collection: Collection) -> Section | None:
    """The section; None where no machine was measured."""
    rows = limit_rows(collection)
    if not rows:
        return None
    machines, best = panels(rows), rows[0]
    kinds = sorted({row.machine.on_device for row in rows})
    measured, ceilings = (" or ".join(texts) for texts in zip(*(MEASURED[kind] for kind in kinds), strict=True))
    nearest: Phrase = (
        f"{best.run.name} came nearest: ", Number(best.share, PERCENT), " of the ", term("machine's limit"),
        f", which is set by {best.binds}. The limits were measured right after each run, {measured}.",
    )  # fmt: skip
    blocks: list[Block] = [Paragraph(nearest), *map(roofline, machines[:1])]
    if unmeasured := [run.case for run in collection.runs if not run.record.machine]:
        which = f"{plural(len(unmeasured), 'run')}: {listed(list(dict.fromkeys(unmeasured)))}"
        blocks.append(Paragraph(f"The machine was not measured with {which}.", "note"))
    if len(rows) > 1:  # a bar alone says no more than the sentence
        folded: list[Block] = [distances(rows), *map(roofline, machines[1:MOST_DRAWN])]
        if more := len(machines[MOST_DRAWN:]):
            left = f"{plural(more, 'machine')} more {'is' if more == 1 else 'are'} in the table, without a figure."
            folded.append(Paragraph(left, "soft"))
        others = ", and rooflines of the other machines" if machines[1:] else ""
        blocks.append(Fold(f"Share of its machine's limit that each run reached{others}", folded))
    blocks.append(LIMITS.of(rows, caption=f"The nearest to its limit first; the ceilings are {ceilings}"))
    if any(row.run.record.ranks > 1 for row in rows):
        blocks.append(Paragraph(RANKED, "soft"))
    notes = "Where memory binds, a share above 100 % means that something else used it while its ceiling was measured."
    if False in kinds:
        which = "of threads " if True in kinds else ""
        notes += f" Loads {which}are counted in each thread's own processor time, which other processes do not shorten."
    notes += " What a GPU does is timed between two of its own events." if True in kinds else ""
    return Section(NAME, TITLE, [*blocks, Paragraph(notes, "soft")])


def roofline(panel: Panel) -> Figure:
    """Edges a second over edges per byte moved, both logarithmic, under the roofs of one machine.

    Roofs are the highest that was measured with one of the runs, shaded down to the lowest; a dash above a run is its
    own limit.
    """
    rows = panel.rows
    highest = f"The highest that was measured with any of {len(rows)} runs, shaded down to the lowest. "
    beside = " Short lines on the right: runs that moved no bytes past the caches, or did not record it."
    named = f" The {MOST_DRAWN} nearest to their limit have their names."
    return Figure(
        panel.name,
        f"Roofline of {panel.machine}: edges a second over edges per byte moved",
        f"Measured ceilings of {panel.machine}, both axes logarithmic. {highest * (len(rows) > 1)}"
        "A flat roof is a quarter of the bytes loaded a second: an edge gathers 4 bytes. A dotted line leads from a "
        f"run to its limit.{beside * (not all(row.intensity for row in rows))}{named * (len(rows) > MOST_DRAWN)}",
        partial(_plot_roofline, panel),
        ("case", "edges per byte moved", "10^9 edges/s", "10^9 edges/s at its own limit", "share of the limit, %",
         "ceiling that binds", "nearest cache, 10^9 edges/s", "second-level cache, 10^9 edges/s",
         "memory, 10^9 bytes/s"),
        [
            (row.run.case, row.intensity, row.run.computed_rate / 1e9, row.own_rate / 1e9, 100 * row.share, row.binds,
             *(rate / 1e9 for rate in row.roofs))
            for row in rows
        ],
        _tips(rows),
    )  # fmt: skip


def _plot_roofline(panel: Panel, narrow: bool):
    rows, palette = panel.rows, plotting.colours()
    (_, loads), _, (_, copies) = panel.roofs
    # The horizontal axis: numbers, and past their end a strip for runs without a number of bytes moved.
    numbers = [loads / copies, *(row.intensity for row in rows if row.intensity)]
    low, high = min(numbers) / ROOM, max(numbers) * ROOM
    strip, others = (high / low) ** STRIP, sum(not row.intensity for row in rows)
    past_end = (high * strip ** (place / others) for place in range(1, others + 1))
    places = [row.intensity or next(past_end) for row in rows]
    plot, axes = plotting.canvas(HEIGHT + LEGEND, narrow=narrow)
    plotting.logarithmic(axes, "xy")
    axes.set_xlim(low, high * strip * 1.15 if others else high)
    rates = [rate / 1e9 for row in rows for rate in (row.run.computed_rate, row.own_rate)]
    axes.set_ylim(min(rates) / 2, 2 * max(*rates, loads / 1e9))
    if others:
        axes.axvspan(high, axes.get_xlim()[1], color="#f1f3f5", zorder=0)
        axes.text(1, -0.02, "none, or not\nrecorded", fontsize=8, ha="right", va="top", transform=axes.transAxes)
    lines = _plot_roofs(axes, panel, low)
    # Each run, and a thin line to its own limit.
    for row, x in zip(rows, places, strict=True):
        colour, rate = palette[COLOURS[row.least.binds]], row.run.computed_rate / 1e9
        axes.plot([x, x], [rate, row.own_rate / 1e9], ":_", color=colour, linewidth=0.9, markersize=7, markevery=[1])
        axes.plot([x], [rate], "o" if row.intensity else "_", color=colour, markersize=5 if row.intensity else 11,
                  markeredgewidth=2, gid=f"{RECORD}{row.run.number}")  # fmt: skip
    _label(axes, rows[:MOST_DRAWN], places)
    tens = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    axes.set_xticks([10.0**power for power in tens])
    axes.set_xlabel("edges really computed per byte moved past the caches")
    axes.set_ylabel("10⁹ edges really computed a second")
    plotting.despine(plot)
    plot.legend(handles=lines, title="measured ceilings", loc="outside lower left", alignment="left", fontsize=8.5)
    _name_ceilings(plot, rows, palette, "o", "outside lower right")
    return plot


def _plot_roofs(axes, panel: Panel, low: float) -> list:
    """Roofs, flat from where the slope of the memory reaches them; the slope goes from `low` to the highest.

    Returns matplotlib's lines, each with its name and number.
    """
    names, right, (loads, second, copies) = words.ceilings(panel.rows[0].machine), axes.get_xlim()[1], panel.roofs
    corner, other = loads[1] / copies[1], second[1] / copies[1]
    kinds = (
        ("loads", names[limits.LOADS], "edges", loads, (corner, right), (1, 1), INK, "-"),
        ("second", "loads from the second-level cache", "edges", second, (other, right), (1, 1), INK, DASHED),
        ("copies", names[limits.MEMORY], "bytes", copies, (low, corner), (low, corner), NO_COLOUR, "-"),
    )
    lines = []
    for gid, name, of, ends, across, factors, colour, dashes in kinds:
        bottom, top = ([rate / 1e9 * factor for factor in factors] for rate in ends)
        numbers = " to ".join(dict.fromkeys(significant(rate / 1e9, 3) for rate in ends))
        lines += axes.plot(across, top, color=colour, linestyle=dashes, gid=f"roof-{gid}",
                           label=f"{name}: {numbers} · 10⁹ {of}/s")  # fmt: skip
        axes.fill_between(across, bottom, top, color=NO_COLOUR, alpha=0.25, linewidth=0)
    return lines


def _label(axes, rows: Sequence[LimitRow], places: Sequence[float]) -> None:
    """The cases in a column on the right, as high as their marks where there is room, each tied to its mark."""
    bottom, top = axes.get_ylim()
    texts = [plotting.fold(row.run.short, 26) for row in rows]
    heights = [math.log(row.run.computed_rate / 1e9 / bottom) / math.log(top / bottom) for row in rows]
    height_of_line = 1.25 * LABEL / (72 * HEIGHT * 0.86)
    order = sorted(range(len(rows)), key=lambda i: (heights[i], i))
    sizes = [height_of_line * (1.2 + texts[i].count("\n")) for i in order]
    for i, height in zip(order, spread([heights[i] for i in order], sizes), strict=True):
        axes.annotate(
            texts[i], (places[i], rows[i].run.computed_rate / 1e9), xytext=(1.03, height),
            textcoords="axes fraction", fontsize=LABEL, color=INK, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": NO_COLOUR, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkB": 3},
        )  # fmt: skip


def spread(heights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """The ascending heights moved as little as two sweeps can so that texts of these sizes do not overlap."""
    positions = list(heights)
    for i in range(1, len(positions)):
        positions[i] = max(positions[i], positions[i - 1] + (sizes[i - 1] + sizes[i]) / 2)
    above = 1.0
    for i in reversed(range(len(positions))):
        positions[i] = min(positions[i], above - sizes[i] / 2)
        above = positions[i] - sizes[i] / 2
    return positions


def distances(rows: Sequence[LimitRow]) -> Figure:
    """The share of its limit that each of the first rows reached; colour is the ceiling that binds."""
    shown, more = rows[:MOST_BARS], f" The first {MOST_BARS} of {len(rows):,} cases; the table has all."
    return Figure(
        "limit-shares",
        "Share of its machine's limit that each run reached",
        f"Machine's limit ÷ median inference seconds, the nearest first.{more * (len(rows) > MOST_BARS)}",
        partial(_plot_shares, shown),
        ("case", "share of the limit, %", "ceiling that binds"),
        [(row.run.case, 100 * row.share, row.binds) for row in shown],
        _tips(shown),
        narrow=True,
    )


def _plot_shares(rows: Sequence[LimitRow], narrow: bool):
    palette, shares = plotting.colours(), [100 * row.share for row in rows]
    bars = [
        Bar(row.run.short, [(share, palette[COLOURS[row.least.binds]])], f"{significant(share, 3)} %", row.run.number)
        for row, share in zip(rows, shares, strict=True)
    ]
    plot, axes = plotting.bars(bars, "% of the machine's limit that was reached", narrow)
    if max(shares) > LIMIT_IN_VIEW:
        axes.axvline(100, color=INK, linestyle=":", linewidth=1.2)
        axes.set_xlim(right=max(110.0, axes.get_xlim()[1]))
    _name_ceilings(plot, rows, palette, "s", "outside lower left")
    return plot


def _name_ceilings(plot, rows: Sequence[LimitRow], palette: Sequence[str], mark: str, place: str) -> None:
    kinds = [
        line(name, linestyle="", marker=mark, markersize=7, color=palette[COLOURS[kind]])
        for kind, name in sorted({(row.least.binds, row.binds) for row in rows})
    ]
    plot.legend(handles=kinds, title="what binds a run", loc=place, alignment="left", fontsize=8.5)


def _tips(rows: Sequence[LimitRow]) -> dict[int, str]:
    return {
        row.run.number: f"{row.run.case}: {significant(row.run.computed_rate / 1e9)} · 10⁹ edges/s, "
        f"{significant(100 * row.share, 3)} % of its limit ({row.binds})"
        for row in rows
    }
