"""The section on limits: each run compared with the measured best of its own machine, machine by machine.

`spdnn.core.limits` says what bounds a run; here its ceilings are set next to the rates of the run.
Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from spdnn.core import limits
from spdnn.core.shown import listed, plural, printable, significant
from spdnn.core.table import BILLIONS, BYTES, NUMBER, PERCENT, SECONDS, Column, Number, Phrase, Table, code
from spdnn.report.common import plotting, words
from spdnn.report.common.blocks import Block, Fold, Paragraph, Section, term
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR, line
from spdnn.report.common.run_rows import RunRow, group_by, run_name
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.result import ResultRecord

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
MEASURED = {  # on what, and whose the ceilings are; True: of a GPU
    False: ("on as many threads", "of all threads together"),
    True: ("on the whole GPU that it used", "of a whole GPU"),
}


class Roofs(NamedTuple):
    """What a machine did at best in a second, for each of its ranks.

    Attributes:
        loads: edges, by the loads from the nearest cache; second: by those from the second-level cache.
        copies: bytes, from memory to memory.
    """

    loads: float
    second: float
    copies: float


@dataclass(frozen=True)
class LimitRow:
    """A run and the limit of its machine; of several ranks, each is taken as a machine of its own.

    Attributes:
        run: whose machine was measured; result: of its record.
        least: the least seconds that its work could take, and what binds them.
    """

    run: RunRow
    machine: limits.Machine
    result: ResultRecord
    least: limits.Limit

    @property
    def share(self) -> float:
        """Of the limit, that the run reached."""
        return self.least.seconds / self.run.inference_seconds

    @property
    def binds(self) -> str:
        """The ceiling that binds, in words."""
        return (words.DEVICE_CEILINGS if self.machine.on_device else words.CEILINGS)[self.least.binds]

    @property
    def roofs(self) -> Roofs:
        """The ceilings."""
        machine, ranks = self.machine, self.run.record.ranks
        loads, second = machine.load_bytes_per_second, machine.l2_load_bytes_per_second
        edges = [rate * ranks / limits.EDGE_BYTES for rate in (loads, second)]
        return Roofs(*edges, machine.copy_bytes_per_second * ranks)

    @property
    def own_rate(self) -> float | None:
        """Edges a second at the run's own limit."""
        return self.result.edges_computed / self.least.seconds if self.least.seconds else None

    @property
    def intensity(self) -> float | None:
        """Edges per byte moved past the caches."""
        return self.result.edges_computed / self.result.bytes_moved if self.result.bytes_moved else None

    @property
    def edge_bytes(self) -> float | None:
        """Bytes that an edge gathered."""
        edges, loaded = self.result.edges_computed, self.result.bytes_loaded
        return (edges * limits.EDGE_BYTES if loaded is None else loaded) / edges if edges else None

    @property
    def place(self) -> str:
        """What was measured, in words: runs that share it have one set of roofs."""
        record, workers = self.run.record, plural(self.run.record.threads, "thread")
        if self.machine.on_device:
            devices = self.run.notes(TaskgraphNotes).devices or 1
            workers = plural(devices, "GPU") if devices > 1 else ""
        if record.ranks > 1:
            workers = f"{record.ranks:,} ranks" + (f" of {workers}" if workers else "")
        level = printable(self.machine.instruction_set)
        return ", ".join(filter(None, (words.machine(record.environment), level, workers)))


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
        Column("Load ceiling, edges a second", lambda row: row.roofs.loads, BILLIONS),
        Column("Second-level cache, edges a second", lambda row: row.roofs.second, BILLIONS),
        Column("Memory ceiling, bytes a second", lambda row: row.roofs.copies, BILLIONS),
        Column("Bytes moved; edges per byte",
               lambda row: "not recorded" if row.result.bytes_moved is None else row.result.bytes_moved, BYTES,
               below=lambda row: row.intensity, csv="bytes_moved"),
        Column("Bytes an edge gathered", lambda row: row.edge_bytes, NUMBER),
    ],
    record=lambda row: row.run.number,
)  # fmt: skip


class Panel(NamedTuple):
    """A machine, and those of its runs that can be drawn, nearest to their limit first; `name`: of its roofline."""

    name: str
    machine: str
    rows: Sequence[LimitRow]

    @property
    def ends(self) -> list[tuple[float, float]]:
        """The lowest and the highest of each of Roofs that was measured with one of the runs."""
        return [(min(rates), max(rates)) for rates in zip(*(row.roofs for row in self.rows), strict=True)]


@once
def limit_rows(collection: Collection) -> list[LimitRow]:
    """The runs whose machine was measured, nearest to its limit first."""
    runs = [(run, run.record) for run in collection.runs]
    rows = [LimitRow(run, one.machine, one.result, one.limit) for run, one in runs if one.machine]
    return sorted(rows, key=lambda row: (-row.share, row.run.number))


def panels(rows: Sequence[LimitRow]) -> list[Panel]:
    """The machines, that of most runs first."""
    drawable = [row for row in rows if row.run.computed_rate and row.own_rate]
    machines = group_by(drawable, lambda row: (row.machine.on_device, row.run.record.ranks, row.place))
    order = sorted(machines.items(), key=lambda item: (-len(item[1]), item[0]))
    return [Panel(f"roofline-{k}", place, members) for k, ((*_, place), members) in enumerate(order, 1)]


def section(collection: Collection) -> Section | None:
    """The section; None where no machine was measured."""
    rows = limit_rows(collection)
    if not rows:
        return None
    machines, best = panels(rows), rows[0]
    kinds = sorted({row.machine.on_device for row in rows})
    measured, ceilings = (" or ".join(texts) for texts in zip(*(MEASURED[kind] for kind in kinds), strict=True))
    unmeasured = [run.case for run in collection.runs if not run.record.machine]
    nearest: Phrase = (
        f"{best.run.name} came nearest: ", Number(best.share, PERCENT), " of the ",
        term("machine's limit"), f", which is set by {best.binds}. The limits were measured right after each run, "
        f"{measured}.",
    )  # fmt: skip
    blocks: list[Block] = [Paragraph(nearest), *map(roofline, machines[:1])]
    if unmeasured:
        which = f"{plural(len(unmeasured), 'run')}: {listed(list(dict.fromkeys(unmeasured)))}"
        blocks.append(Paragraph(f"The machine was not measured with {which}.", "note"))
    folded: list[Block] = [distances(rows)] if len(rows) > 1 else []  # a bar alone says no more than the sentence
    folded += map(roofline, machines[1:MOST_DRAWN])
    if more := len(machines[MOST_DRAWN:]):
        left = f"{plural(more, 'machine')} more {'is' if more == 1 else 'are'} in the table, without a figure."
        folded.append(Paragraph(left, "soft"))
    if folded:
        others = ", and rooflines of the other machines" if machines[1:] else ""
        blocks.append(Fold(f"Share of its machine's limit that each run reached{others}", folded))
    blocks.append(LIMITS.of(rows, caption=f"The nearest to its limit first; the ceilings are {ceilings}"))
    if any(row.run.record.ranks > 1 for row in rows):
        blocks.append(
            Paragraph(
                "Of several ranks, the loads are those that the busiest rank had at least, and every rank has the "
                "ceilings of a machine of its own: ranks that share a node's memory, or its cores, reach less.",
                "soft",
            )
        )
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
    rows, beside = panel.rows, not all(row.intensity for row in panel.rows)
    caption = [
        f"Measured ceilings of {panel.machine}, both axes logarithmic.",
        f"The highest that was measured with any of {len(rows)} runs, shaded down to the lowest."
        if len(rows) > 1
        else "",
        "A flat roof is a quarter of the bytes loaded a second: an edge gathers 4 bytes. A dotted line leads "
        "from a run to its limit.",
        "Short lines on the right: runs that moved no bytes past the caches, or did not record it." if beside else "",
        f"The {MOST_DRAWN} nearest to their limit have their names." if len(rows) > MOST_DRAWN else "",
    ]
    return Figure(
        panel.name,
        f"Roofline of {panel.machine}: edges a second over edges per byte moved",
        " ".join(filter(None, caption)),
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
    (_, loads), _, (_, copies) = panel.ends
    # The horizontal axis: numbers, and past their end a strip for runs without a number of bytes moved.
    numbers = [loads / copies, *(row.intensity for row in rows if row.intensity)]
    low, high = min(numbers) / ROOM, max(numbers) * ROOM
    others = [row.run.number for row in rows if not row.intensity]
    wide = math.log(high / low) * STRIP
    past_end = {number: high * math.exp(wide * (i + 1) / len(others)) for i, number in enumerate(others)}
    plot, axes = plotting.canvas(HEIGHT + LEGEND, narrow=narrow)
    plotting.logarithmic(axes, "xy")
    axes.set_xlim(low, max([high, *past_end.values()]) * (1.15 if past_end else 1.0))
    rates = [rate / 1e9 for row in rows for rate in (row.run.computed_rate, row.own_rate)]
    axes.set_ylim(min(rates) / 2, 2 * max(*rates, loads / 1e9))
    _plot_roofs(axes, panel.ends, low, high, bool(past_end))
    # Each run, and a thin line to its own limit.
    places = [row.intensity or past_end[row.run.number] for row in rows]
    for row, x in zip(rows, places, strict=True):
        colour, rate, own = palette[COLOURS[row.least.binds]], row.run.computed_rate / 1e9, row.own_rate / 1e9
        axes.plot([x, x], [rate, own], color=colour, linestyle=":", linewidth=0.9, zorder=2)
        axes.plot([x], [own], linestyle="", marker="_", markersize=7, color=colour, zorder=3)
        mark = {"marker": "o", "s": 34, "edgecolors": INK} if row.intensity else {"marker": "_", "s": 130}
        axes.scatter([x], [rate], color=colour, linewidths=0.6 if row.intensity else 2.4, zorder=4,
                     gid=f"{RECORD}{row.run.number}", **mark)  # fmt: skip
    _label(axes, rows[:MOST_DRAWN], places)
    tens = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    axes.set_xticks([10.0**power for power in tens])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("edges really computed per byte moved past the caches")
    axes.set_ylabel("10⁹ edges really computed a second")
    plotting.despine(plot)
    # What lines and marks are, the roofs with their numbers.
    names = words.DEVICE_CEILINGS if rows[0].machine.on_device else words.CEILINGS
    kinds = (
        (names[limits.LOADS], "edges", INK, "-"),
        ("loads from the second-level cache", "edges", INK, DASHED),
        (names[limits.MEMORY], "bytes", NO_COLOUR, "-"),
    )
    lines = []
    for ends, (name, of, colour, dashes) in zip(panel.ends, kinds, strict=True):
        numbers = dict.fromkeys(significant(rate / 1e9, 3) for rate in ends)
        lines.append(line(f"{name}: {' to '.join(numbers)} · 10⁹ {of}/s", color=colour, linestyle=dashes))
    plot.legend(handles=lines, title="measured ceilings", loc="outside lower left", frameon=False, alignment="left",
                fontsize=8.5)  # fmt: skip
    _name_ceilings(plot, rows, palette, "o", "outside lower right")
    return plot


def _plot_roofs(axes, roofs: Sequence[tuple[float, float]], low: float, high: float, beyond: bool) -> None:
    """Flat from where the slope of the memory reaches them; the slope ends at the highest."""
    from matplotlib.transforms import blended_transform_factory

    right, (loads, second, (least, most)) = axes.get_xlim()[1], roofs
    for name, (bottom, top), dashes in (("second", second, DASHED), ("loads", loads, "-")):
        axes.plot([top / most, right], [top / 1e9] * 2, color=INK, linestyle=dashes, linewidth=1.3, zorder=2,
                  gid=f"roof-{name}")  # fmt: skip
        axes.fill_between([top / most, right], bottom / 1e9, top / 1e9, color=NO_COLOUR, alpha=0.25, linewidth=0)
    ends = [low, loads[1] / most]
    slope = [most * x / 1e9 for x in ends]
    axes.plot(ends, slope, color=NO_COLOUR, linewidth=1.8, zorder=2, gid="roof-copies")
    axes.fill_between(ends, [least * x / 1e9 for x in ends], slope, color=NO_COLOUR, alpha=0.25, linewidth=0)
    if beyond:
        axes.axvspan(high, right, color="#f1f3f5", zorder=0)
        below = blended_transform_factory(axes.transData, axes.transAxes)
        axes.text(math.sqrt(high * right), -0.02, "none, or not\nrecorded", fontsize=8, color=INK, ha="center",
                  va="top", transform=below)  # fmt: skip


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
    shown, more = rows[:MOST_BARS], len(rows) > MOST_BARS
    return Figure(
        "limit-shares",
        "Share of its machine's limit that each run reached",
        "Machine's limit ÷ median inference seconds, the nearest first."
        + (f" The first {len(shown)} of {len(rows):,} cases; the table has all." if more else ""),
        partial(_plot_shares, shown),
        ("case", "share of the limit, %", "ceiling that binds"),
        [(row.run.case, 100 * row.share, row.binds) for row in shown],
        _tips(shown),
        narrow=True,
    )


def _plot_shares(rows: Sequence[LimitRow], narrow: bool):
    palette, shares = plotting.colours(), [100 * row.share for row in rows]
    bars = [
        plotting.Bar(
            row.run.short, [(share, palette[COLOURS[row.least.binds]])], f"{significant(share, 3)} %", row.run.number
        )
        for row, share in zip(rows, shares, strict=True)
    ]
    plot, axes = plotting.bars(bars, "% of the machine's limit that was reached", narrow)
    if max(shares) > LIMIT_IN_VIEW:
        axes.axvline(100, color=INK, linestyle=":", linewidth=1.2)
        axes.set_xlim(right=max(110.0, axes.get_xlim()[1]))
    _name_ceilings(plot, rows, palette, "s", "outside lower left")
    return plot


def _name_ceilings(plot, rows: Sequence[LimitRow], palette: Sequence[str], mark: str, place: str) -> None:
    """Which colour is which ceiling."""
    kinds = [
        line(name, linestyle="", marker=mark, markersize=7, color=palette[COLOURS[kind]])
        for kind, name in sorted({(row.least.binds, row.binds) for row in rows})
    ]
    plot.legend(handles=kinds, title="what binds a run", loc=place, frameon=False, alignment="left", fontsize=8.5)


def _tips(rows: Sequence[LimitRow]) -> dict[int, str]:
    return {
        row.run.number: f"{row.run.case}: {significant(row.run.computed_rate / 1e9)} · 10⁹ edges/s, "
        f"{significant(100 * row.share, 3)} % of its limit ({row.binds})"
        for row in rows
    }
