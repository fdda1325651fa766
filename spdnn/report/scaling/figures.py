"""The figures on scaling: our runs over workers, and published systems over devices, never in one figure."""

import math
from collections.abc import Iterator, Sequence

from spdnn.report.common import words
from spdnn.report.common.drawing import MOST_DRAWN, Figure
from spdnn.report.common.plotting import INK, canvas, colours, despine, line, logarithmic, patch, plain
from spdnn.report.common.predictions import OTHER, RANKS, WEAK

MARKS = {"static": "o", "cyclic": "s", "rebalanced": "^", None: "o"}  # None: not of ranks
BASE_MARK = "D"
WIDE = 4  # seconds that differ by this factor are on a logarithmic scale
FEW = 100  # rates that differ by less have ticks between the powers of ten
SHADE = "#e9ebee"
COLUMNS = ("partition", "inference seconds", "low", "high", "speed-up", "efficiency", "oversubscribed")
OF_RANKS = ("imbalance of edges", "imbalance from the first exchange on", "waiting", "communication")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))


def figures(values: dict) -> Iterator[Figure]:
    """One figure for each of the first groups that compare workers, and one for each published system."""
    for group in values["groups"][:MOST_DRAWN]:
        if group["kind"] != OTHER:
            yield scaling(group)
    yield from map(published_figure, values["published"])


def scaling(group: dict) -> Figure:
    """Time, speed-up and efficiency over workers; of ranks imbalance, waiting and communication too.

    Colour and mark are the partition. The row of one worker, if any, begins the curve of every partition.
    """
    rows, first, over = group["rows"], group["first"], group["over"]
    ranked = over == RANKS
    palette = dict(zip(MARKS, (colours()[k] for k in (0, 3, 2, 0)), strict=True))
    plot, panels = canvas(6.4, 3, 2) if ranked else canvas(4.3, 2, 2)
    time, speedup, efficiency, *others, legend = panels.flat
    partitions = [name for name in MARKS if any(row["partition"] == name and row["workers"] > 1 for row in rows)]
    for name in partitions:
        curve = [row for row in rows if row["partition"] in (None, name)]
        mark = {"color": palette[name], "marker": MARKS[name]}
        for row in curve:
            time.plot([row["workers"]] * 2, [row["low"], row["high"]], color=INK, linewidth=1.2)
        _curve(time, curve, lambda row: row["seconds"], mark)
        _curve(speedup, curve, lambda row: row["speedup"], mark)
        _curve(efficiency, curve, lambda row: _percent(row["efficiency"]), mark)
        if ranked:
            imbalance, shares = others
            _curve(imbalance, curve, lambda row: row["imbalance"]["edges"], mark)
            _curve(imbalance, curve, lambda row: row["imbalance"]["edges_from_exchange"], mark, dashed=True)
            _curve(shares, curve, lambda row: _percent(row["waiting"]), mark)
            _curve(shares, curve, lambda row: _percent(row["communication"]), mark, dashed=True)
    if any(row["speedup"] is not None for row in rows):  # the ideal of more workers
        ends, ideal = [1, max(row["workers"] for row in rows)], {"color": INK, "linestyle": ":", "linewidth": 1.2}
        speedup.plot(ends, ends, zorder=1, **ideal)
        efficiency.plot(ends, [100, 100], zorder=1, **ideal)
    _axes(rows, over, time, speedup, efficiency, *others)
    despine(plot)
    _legend(legend, rows, partitions, palette, over)
    kind = group["kind"].capitalize()
    weak = (
        " With even work for each input the seconds would stay as they are; how many inputs die depends on the inputs."
    )
    each = f"{words.plural(first.record.threads, 'thread')} for each rank" if ranked else "one rank"
    return Figure(
        group["id"],
        f"{kind} scaling, {words.network(first.problem)}: time, speed-up, efficiency{', imbalance' * ranked} by {over}",
        f"{kind} scaling over {over}. Speed-up is on a logarithmic scale, and so are seconds that differ by a "
        f"factor of four; vertical lines are the medians' intervals; dotted: each {over[:-1]} gaining as much as the "
        f"first.{' Colour and mark: the partition.' * ranked}{weak if group['kind'] == WEAK else ''} Engine "
        f"{first.engine}, {each}, reductions: {first.reductions}.",
        plot,
        ("case", over, *COLUMNS, *(OF_RANKS if ranked else ())),
        [_row(row, ranked) for row in rows],
    )


def _row(row: dict, ranked: bool) -> tuple:
    keys, imbalance = ("workers", "partition", "seconds", "low", "high", "speedup", "efficiency"), row["imbalance"]
    of_ranks = imbalance["edges"], imbalance["edges_from_exchange"], row["waiting"], row["communication"]
    common = row["run"].case, *(row[key] for key in keys), row["oversubscribed"]
    return (*common, *of_ranks) if ranked else common


def published_figure(system: dict) -> Figure:
    """Published rates and efficiencies over devices: colour is the width, dash and mark the depth."""
    from matplotlib.ticker import LogLocator

    curves, devices = system["curves"], system["devices"]
    plot, (rates, efficiency) = canvas(4.6, 1, 2)
    widths, depths = (list(dict.fromkeys(curve[key] for curve in curves)) for key in ("neurons", "layers"))
    palette = colours(max(10, len(widths)))
    lines = []
    for curve in curves:
        depth = depths.index(curve["layers"])
        mark = {
            "color": palette[widths.index(curve["neurons"])], "linestyle": DASHES[depth % len(DASHES)],
            "marker": "osD^v"[depth % 5], "markersize": 4, "linewidth": 1.3,
        }  # fmt: skip
        points = [point for point in curve["points"] if point["rate"]]
        numbers = [point["devices"] for point in points]
        lines += rates.plot(numbers, [point["rate"] / 1e12 for point in points], **mark)
        if all(point["efficiency"] for point in points):
            efficiency.plot(numbers, [100 * point["efficiency"] for point in points], **mark)
    for axes, label in ((rates, "TeraEdges/s, published"), (efficiency, "efficiency, %, published")):
        _over(axes, devices, system["hardware"])
        axes.set_ylabel(label)
    logarithmic(rates, "y")
    ends = [point["rate"] / 1e12 for curve in curves for point in curve["points"] if point["rate"]]
    rates.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if max(ends) < FEW * min(ends) else (1.0,)))
    efficiency.set_ylim(bottom=0)
    despine(plot)
    labels = [f"{curve['neurons']} × {curve['layers']}" for curve in curves]
    plot.legend(lines, labels, loc="outside lower center", ncols=max(1, len(widths)), frameon=False,
                title="neurons × layers", fontsize=9)  # fmt: skip
    name, hardware = words.printable(system["system"]), words.printable(system["hardware"])
    return Figure(
        system["id"],
        f"Published scaling of {name} on {hardware}: TeraEdges/s and efficiency by devices",
        f"Published, not measured here: TeraEdges/s of {name} (logarithmic), and its efficiency (rate ÷ devices "
        f"÷ the published rate of one device), over {devices[0]} to {devices[-1]} of {hardware}. "
        f"{words.printable(system['source'])}.",
        plot,
        ("neurons", "layers", "devices", "edges per second", "efficiency"),
        [
            (curve["neurons"], curve["layers"], point["devices"], point["rate"], point["efficiency"])
            for curve in curves for point in curve["points"]
        ],
    )  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _curve(axes, rows: Sequence[dict], value, mark: dict, dashed: bool = False) -> None:
    """One partition's figures over workers; one has its own mark, and oversubscribed runs are hollow."""
    points = [(row, number) for row in rows if (number := value(row)) is not None]
    if not points:
        return
    counts = [row["workers"] for row, _ in points]
    numbers, line_style = [number for _, number in points], "--" if dashed else "-"
    axes.plot(counts, numbers, color=mark["color"], linestyle=line_style, linewidth=1.4, zorder=2)
    for row, number in points:
        single = row["workers"] == 1
        edge = INK if single else mark["color"]
        axes.plot(
            [row["workers"]], [number], linestyle="", marker=BASE_MARK if single else mark["marker"], markersize=6,
            markeredgecolor=edge, markerfacecolor="white" if row["oversubscribed"] else edge, zorder=3,
        )  # fmt: skip


def _axes(rows: Sequence[dict], over: str, time, speedup, efficiency, *others) -> None:
    numbers = sorted({row["workers"] for row in rows})
    start = shade_start(rows)
    labels = ("inference seconds", "speed-up", "efficiency, %", "imbalance of edges,\nmaximum / mean", "% of inference")
    for axes, label in zip((time, speedup, efficiency, *others), labels, strict=False):
        _over(axes, numbers, over)
        axes.set_ylabel(label)
        if start is not None and axes.has_data():
            axes.axvspan(max(start, axes.get_xlim()[0]), axes.get_xlim()[1], color=SHADE, zorder=0)
    seconds = [row["seconds"] for row in rows]
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


def shade_start(rows: Sequence[dict]) -> float | None:
    """Where, between two numbers of workers, the oversubscribed runs begin; None unless all from there on are."""
    over = {row["workers"] for row in rows if row["oversubscribed"]}
    fits = [row["workers"] for row in rows if not row["oversubscribed"]]
    first = min((count for count in over if count > max(fits, default=0)), default=None)
    if first is None:
        return None
    return math.sqrt(first * max(fits)) if fits else 0.0


def _legend(axes, rows: Sequence[dict], partitions: Sequence, palette: dict, over: str) -> None:
    """The meaning of marks, lines and shade, instead of a last panel."""
    axes.set_axis_off()
    handles = [line(name, color=palette[name], marker=MARKS[name]) for name in partitions if name]
    if any(row["workers"] == 1 for row in rows):
        handles.append(line(f"one {over[:-1]}, the base", color=INK, linestyle="", marker=BASE_MARK))
        handles.append(line("ideal", color=INK, linestyle=":"))
    grey = "#7b8794"
    if any(row["imbalance"]["edges_from_exchange"] is not None for row in rows):
        handles.append(line("imbalance: from the first exchange on", color=grey, linestyle="--"))
    if over == RANKS:
        handles.append(line("% of inference: waiting", color=grey))
        handles.append(line("% of inference: communication", color=grey, linestyle="--"))
    if any(row["oversubscribed"] for row in rows):
        handles.append(patch("more threads than cores (hollow marks)", color=SHADE))
    title = "partition" if over == RANKS else None
    axes.legend(handles=handles, loc="center left", frameon=False, fontsize=9, alignment="left", title=title)
