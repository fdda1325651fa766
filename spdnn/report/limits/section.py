"""The section on limits: each run compared with the measured best of its own machine, machine by machine.

`spdnn.core.limits` says what bounds a run; here its ceilings are set next to the rates of the run.
Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations.
"""

import math
from collections.abc import Iterator, Sequence

from spdnn.core import limits
from spdnn.report.common import plotting, words
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR
from spdnn.report.common.run_rows import RunRow, group_by
from spdnn.report.common.words import BINDS, DEVICE_BINDS, significant
from spdnn.runs.records.notes import TaskgraphNotes

COLOURS = {limits.LOADS: 0, limits.MEMORY: 1}  # indices into seaborn's "colorblind"
ROOFS = {"loaded_edges": "-", "second_edges": (0, (5, 2)), "copies": "-"}  # how each is drawn; its id is roof-NAME
SECOND = "loads from the second-level cache"
ROOM = 4  # times that the horizontal axis goes beyond what is on it
STRIP = 0.16  # of the axis' width, for runs without a number of bytes moved
HEIGHT, LEGEND = 4.6, 1.5  # inches
LIMIT_IN_VIEW = 40  # per cent: below, an axis to 100 would leave bars too short to compare
LABEL = 9  # points of a label's letters
COLUMNS = (
    "case", "edges per byte moved", "10^9 edges/s", "10^9 edges/s at its own limit", "share of the limit, %",
    "ceiling that binds", "nearest cache, 10^9 edges/s", "second-level cache, 10^9 edges/s", "memory, 10^9 bytes/s",
)  # fmt: skip


@once
def values(collection: Collection) -> dict | None:
    """What the section prints; None where no machine was measured.

    Returns:
        rows: of each run whose machine was measured, nearest to its limit first; panels: of each machine, the rows of
        its runs that can be drawn and the roofs over them; unmeasured: the cases of the other runs; devices,
        processors, several: whether any run is of a GPU, of a processor, of several ranks.
    """
    runs = collection.runs
    rows = sorted(filter(None, map(_row, runs)), key=lambda row: (-row["share"], row["run"].number))
    if not rows:
        return None
    return {
        "rows": rows,
        "panels": _panels(rows),
        "unmeasured": [run.case for run in runs if not run.record.machine],
        "devices": any(row["device"] for row in rows),
        "processors": not all(row["device"] for row in rows),
        "several": any(row["ranks"] > 1 for row in rows),
    }


def _row(run: RunRow) -> dict | None:
    """How far a run is from its machine's limit; None when its machine was not measured.

    Rates are a second, of all ranks together, each taken as a machine of its own.
    """
    record, least = run.record, run.record.limit
    if least is None:
        return None
    machine, ranks, result = record.machine, record.ranks, record.result
    edges, bytes_moved, bytes_loaded = result.edges_computed, result.bytes_moved, result.bytes_loaded
    return {
        "run": run,
        "ranks": ranks,
        "device": machine.on_device,
        "machine": _machine(run, machine),
        "loaded_edges": machine.load_bytes_per_second * ranks / limits.EDGE_BYTES,
        "second_edges": machine.l2_load_bytes_per_second * ranks / limits.EDGE_BYTES,
        "copies": machine.copy_bytes_per_second * ranks,
        "moved": bytes_moved,
        "intensity": edges / bytes_moved if bytes_moved else None,
        "edge_bytes": (edges * limits.EDGE_BYTES if bytes_loaded is None else bytes_loaded) / edges if edges else None,
        "own_rate": edges / least.seconds if least.seconds else None,
        "seconds": least.seconds,
        "ceiling": least.binds,
        "binds": words.binds(least, machine),
        "share": least.seconds / run.inference_seconds,
    }


def _machine(run: RunRow, machine: limits.Machine) -> str:
    """What was measured, in words: runs that share it have one set of roofs."""
    record = run.record
    if machine.on_device:
        each = run.notes(TaskgraphNotes).devices or 1
        workers = words.plural(each, "GPU") if each > 1 else ""
    else:
        workers = words.plural(record.threads, "thread")
    if record.ranks > 1:
        workers = f"{record.ranks:,} ranks" + (f" of {workers}" if workers else "")
    level = words.printable(machine.instruction_set)
    return ", ".join(filter(None, (words.machine(record.environment), level, workers)))


def _panels(rows: Sequence[dict]) -> list[dict]:
    """Of each machine, that of most runs first: its rows, nearest to their limit first, and the ends of each roof."""
    panels = []
    drawable = [row for row in rows if row["run"].computed_rate and row["own_rate"]]
    machines = group_by(drawable, lambda row: (row["device"], row["ranks"], row["machine"]))
    for key in sorted(machines, key=lambda key: (-len(machines[key]), key)):
        (device, _, name), members = key, machines[key]
        roofs = {roof: [row[roof] for row in members] for roof in ("loaded_edges", "second_edges", "copies")}
        ends = {roof: (min(rates), max(rates)) for roof, rates in roofs.items()}
        panels.append({"id": f"roofline-{len(panels) + 1}", "name": name, "device": device, "rows": members,
                       "roofs": ends})  # fmt: skip
    return panels


def figures(values: dict) -> Iterator[Figure]:
    """A roofline for each of the first machines, and the shares of the runs nearest to their limit."""
    if len(values["rows"]) > 1:  # a bar alone says no more than the sentence
        yield distances(values["rows"])
    yield from map(roofline, values["panels"][:MOST_DRAWN])


def roofline(panel: dict) -> Figure:
    """Edges a second over edges per byte moved, both logarithmic, under the roofs of one machine.

    Roofs are the highest that was measured with one of the runs, shaded down to the lowest; a dash above a run is its
    own limit.
    """
    palette = plotting.colours()
    rows, roofs = panel["rows"], panel["roofs"]
    low, high, past_end = _across(rows, roofs)
    plot, axes = plotting.canvas(HEIGHT + LEGEND)
    plotting.logarithmic(axes, "xy")
    axes.set_xlim(low, max([high, *past_end.values()]) * (1.15 if past_end else 1.0))
    rates = [rate / 1e9 for row in rows for rate in (row["run"].computed_rate, row["own_rate"])]
    axes.set_ylim(min(rates) / 2, 2 * max(*rates, roofs["loaded_edges"][1] / 1e9))
    _roofs(axes, roofs, low, high, bool(past_end))
    for row in rows:
        _run(axes, row, row["intensity"] or past_end[row["run"].number], palette[COLOURS[row["ceiling"]]])
    _labels(axes, rows[:MOST_DRAWN], past_end)
    _axes(axes, low, high)
    plotting.despine(plot)
    _legend(plot, panel, palette)
    caption = [
        f"Measured ceilings of {panel['name']}, both axes logarithmic.",
        f"The highest that was measured with any of {len(rows)} runs, shaded down to the lowest."
        if len(rows) > 1
        else "",
        "A flat roof is a quarter of the bytes loaded a second: an edge gathers 4 bytes. A dotted line leads "
        "from a run to its limit.",
        "Short lines on the right: runs that moved no bytes past the caches, or did not record it." if past_end else "",
        f"The {MOST_DRAWN} nearest to their limit have their names." if len(rows) > MOST_DRAWN else "",
    ]
    return Figure(
        panel["id"],
        f"Roofline of {panel['name']}: edges a second over edges per byte moved",
        " ".join(filter(None, caption)),
        plot,
        COLUMNS,
        [
            (
                row["run"].case, row["intensity"], row["run"].computed_rate / 1e9, row["own_rate"] / 1e9,
                100 * row["share"], row["binds"], row["loaded_edges"] / 1e9, row["second_edges"] / 1e9,
                row["copies"] / 1e9,
            )
            for row in rows
        ],
        _tips(rows),
    )  # fmt: skip


def distances(rows: Sequence[dict]) -> Figure:
    """The share of its limit that each of the first rows reached; colour is the ceiling that binds."""
    shown, palette = rows[:MOST_BARS], plotting.colours()
    longest = 100 * max(row["share"] for row in shown)

    def plot(narrow: bool = False):
        plot, axes = plotting.canvas(1.1 + 0.28 * len(shown), narrow=narrow)
        for index, row in enumerate(shown):
            share = 100 * row["share"]
            axes.broken_barh([(0, share)], (index - 0.31, 0.62), facecolors=palette[COLOURS[row["ceiling"]]],
                             gid=f"{RECORD}{row['run'].number}")  # fmt: skip
            plotting.write_after(axes, f"{significant(share, 3)} %", share, index, size=9)
        if longest > LIMIT_IN_VIEW:
            axes.axvline(100, color=INK, linestyle=":", linewidth=1.2)
        axes.set_xlim(0, max(110.0, 1.18 * longest) if longest > LIMIT_IN_VIEW else 1.25 * longest or 1.0)
        axes.set_xlabel("% of the machine's limit that was reached", loc="left")
        plotting.name_rows(plot, axes, [plotting.fold(row["run"].short, 30) for row in shown], fontsize=9)
        _ceilings(plot, shown, palette)
        return plot

    more = len(rows) > len(shown)
    return Figure(
        "limit-shares",
        "Share of its machine's limit that each run reached",
        "Machine's limit ÷ median inference seconds, the nearest first."
        + (f" The first {len(shown)} of {len(rows):,} cases; the table has all." if more else ""),
        plot(),
        ("case", "share of the limit, %", "ceiling that binds"),
        [(row["run"].case, 100 * row["share"], row["binds"]) for row in shown],
        _tips(shown),
        plot(True),
    )


def _across(rows: Sequence[dict], roofs: dict) -> tuple[float, float, dict[int, float]]:
    """(start of the horizontal axis, end of its numbers, positions past that end of runs without bytes moved)."""
    intensities = [row["intensity"] for row in rows if row["intensity"]]
    ridge = roofs["loaded_edges"][1] / roofs["copies"][1]
    low, high = min([ridge, *intensities]) / ROOM, max([ridge, *intensities]) * ROOM
    others = [row["run"].number for row in rows if not row["intensity"]]
    wide = math.log(high / low) * STRIP
    return low, high, {number: high * math.exp(wide * (i + 1) / len(others)) for i, number in enumerate(others)}


def _roofs(axes, roofs: dict, low: float, high: float, beyond: bool) -> None:
    """Flat from where the slope of the memory reaches them; the slope ends at the highest."""
    from matplotlib.transforms import blended_transform_factory

    right = axes.get_xlim()[1]
    least, most = roofs["copies"]
    for name in ("second_edges", "loaded_edges"):
        bottom, top = roofs[name]
        axes.plot([top / most, right], [top / 1e9] * 2, color=INK, linestyle=ROOFS[name], linewidth=1.3, zorder=2,
                  gid=f"roof-{name}")  # fmt: skip
        axes.fill_between([top / most, right], bottom / 1e9, top / 1e9, color=NO_COLOUR, alpha=0.25, linewidth=0)
    ends = [low, roofs["loaded_edges"][1] / most]
    slope = [most * x / 1e9 for x in ends]
    axes.plot(ends, slope, color=NO_COLOUR, linewidth=1.8, zorder=2, gid="roof-copies")
    axes.fill_between(ends, [least * x / 1e9 for x in ends], slope, color=NO_COLOUR, alpha=0.25, linewidth=0)
    if beyond:
        axes.axvspan(high, right, color="#f1f3f5", zorder=0)
        below = blended_transform_factory(axes.transData, axes.transAxes)
        axes.text(math.sqrt(high * right), -0.02, "none, or not\nrecorded", fontsize=8, color=INK, ha="center",
                  va="top", transform=below)  # fmt: skip


def _run(axes, row: dict, x: float, colour: str) -> None:
    """A run, and a thin line to its own limit."""
    has_bytes, rate, own = bool(row["intensity"]), row["run"].computed_rate / 1e9, row["own_rate"] / 1e9
    axes.plot([x, x], [rate, own], color=colour, linestyle=":", linewidth=0.9, zorder=2)
    axes.plot([x], [own], linestyle="", marker="_", markersize=7, color=colour, zorder=3)
    mark = {"marker": "o", "s": 34, "edgecolors": INK} if has_bytes else {"marker": "_", "s": 130}
    axes.scatter([x], [rate], color=colour, linewidths=0.6 if has_bytes else 2.4, zorder=4,
                 gid=f"{RECORD}{row['run'].number}", **mark)  # fmt: skip


def _labels(axes, rows: Sequence[dict], past_end: dict[int, float]) -> None:
    """The cases in a column on the right, as high as their marks where there is room, each tied to its mark."""
    bottom, top = axes.get_ylim()
    texts = [plotting.fold(row["run"].short, 26) for row in rows]
    heights = [math.log(row["run"].computed_rate / 1e9 / bottom) / math.log(top / bottom) for row in rows]
    height_of_line = 1.25 * LABEL / (72 * HEIGHT * 0.86)
    order = sorted(range(len(rows)), key=lambda i: (heights[i], i))
    for i, height in zip(order, _spread([heights[i] for i in order], [height_of_line * (1.2 + texts[i].count("\n"))
                                                                      for i in order]), strict=True):  # fmt: skip
        row, run = rows[i], rows[i]["run"]
        axes.annotate(
            texts[i], (row["intensity"] or past_end[run.number], run.computed_rate / 1e9), xytext=(1.03, height),
            textcoords="axes fraction", fontsize=LABEL, color=INK, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": NO_COLOUR, "linewidth": 0.5, "relpos": (0, 0.5), "shrinkB": 3},
        )  # fmt: skip


def _spread(heights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """The ascending heights moved as little as two sweeps can so that texts of these sizes do not overlap."""
    positions = list(heights)
    for i in range(1, len(positions)):
        positions[i] = max(positions[i], positions[i - 1] + (sizes[i - 1] + sizes[i]) / 2)
    above = 1.0
    for i in reversed(range(len(positions))):
        positions[i] = min(positions[i], above - sizes[i] / 2)
        above = positions[i] - sizes[i] / 2
    return positions


def _axes(axes, low: float, high: float) -> None:
    tens = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    axes.set_xticks([10.0**power for power in tens])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("edges really computed per byte moved past the caches")
    axes.set_ylabel("10⁹ edges really computed a second")


def _legend(plot, panel: dict, palette: Sequence[str]) -> None:
    """What lines and marks are, the roofs with their numbers."""
    names, roofs = DEVICE_BINDS if panel["device"] else BINDS, panel["roofs"]
    labels = {
        "loaded_edges": f"{names[limits.LOADS]}: {_ends(roofs['loaded_edges'])} · 10⁹ edges/s",
        "second_edges": f"{SECOND}: {_ends(roofs['second_edges'])} · 10⁹ edges/s",
        "copies": f"{names[limits.MEMORY]}: {_ends(roofs['copies'])} · 10⁹ bytes/s",
    }
    lines = [
        plotting.line(label, color=NO_COLOUR if name == "copies" else INK, linestyle=ROOFS[name])
        for name, label in labels.items()
    ]
    plot.legend(handles=lines, title="measured ceilings", loc="outside lower left", frameon=False, alignment="left",
                fontsize=8.5)  # fmt: skip
    _ceilings(plot, panel["rows"], palette, "o", "outside lower right")


def _ends(roof: tuple[float, float]) -> str:
    low, high = (significant(rate / 1e9, 3) for rate in roof)
    return high if low == high else f"{low} to {high}"


def _ceilings(plot, rows: Sequence[dict], palette, mark: str = "s", where: str = "outside lower left") -> None:
    """Which colour is which ceiling."""
    names = {(row["ceiling"], row["binds"]) for row in rows}
    kinds = [
        plotting.line(name, linestyle="", marker=mark, markersize=7, color=palette[COLOURS[kind]])
        for kind, name in sorted(names)
    ]
    plot.legend(handles=kinds, title="what binds a run", loc=where, frameon=False, alignment="left", fontsize=8.5)


def _tips(rows: Sequence[dict]) -> dict[int, str]:
    return {
        run.number: f"{run.case}: {significant(run.computed_rate / 1e9)} · 10⁹ edges/s, "
        f"{significant(100 * row['share'], 3)} % of its limit ({row['binds']})"
        for row in rows
        for run in [row["run"]]
    }
