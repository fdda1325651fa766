"""The figure of the first screen: every network, ours and the best published."""

import math
from collections.abc import Iterator, Mapping, Sequence

from spdnn.report.common import words
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, line, logarithmic, name_rows, set_ticks
from spdnn.report.networks.section import SERIES

# (name of a series, label, mark, index into "colorblind"); ours are filled, published ones hollow, with their hardware.
WIDEST_LEGEND = 3  # entries in one line of it
MARKS = (
    ("reduced", "ours, work avoided exactly", "*", 0),
    ("like", "ours, same work", "D", 1),
    ("plain", "ours, no reductions", "P", 4),
    ("one", "best published, exact, {}", "o", 2),
    ("any", "best published, exact, {}", "^", 3),
    ("lossy", "best published, lossy, {}", "v", 5),
)


def figures(values: dict) -> Iterator[Figure]:
    """One row for each of the twelve networks that was run; nothing without one."""
    rows = values["rows"]
    if not rows:
        return
    labels = {name: label.format(values["hardware"].get(name)) for name, label, _, _ in MARKS}
    points = [point for row in rows for point in _points(row, labels)]
    once = any(point[1] in SERIES and point[7] is None for point in points)
    yield Figure(
        "overview",
        "Every network: TeraEdges/s of ours and of the best published",
        "Networks by neurons × layers. TeraEdges/s: inputs × nonzeros ÷ inference seconds, skipped work included. "
        f"Ours on {values['machines']}: medians, 95 % intervals{'; 1×: measured once' if once else ''}. "
        + (
            "Pale: other inputs than the challenge's, so no published rates."
            if not all(point[5] for point in points)
            else "Same work: only dead inputs left out, as the fastest exact published systems do. "
            "What published times include is in the table of these networks."
        ),
        _plot(values, labels, points),
        ("network", "who", "TeraEdges/s", "low", "high", "label", "comparable"),
        [
            (row["key"], label, rate / 1e12, *(end / 1e12 for end in ends or (rate, rate)), text, same)
            for row, _, label, rate, text, same, _, ends in points
        ],
        {number: text for *_, text, _, number, _ in points if number is not None},
        _plot(values, labels, points, True),
    )


def _points(row: dict, labels: Mapping[str, str]) -> Iterator[tuple]:
    """(row, series, label, rate, text, whether on the challenge's inputs, number of a record, interval or None)."""
    for name, label in labels.items():
        if name in SERIES and (run := row[name]):
            rate = run.rate.median
            text = f"{run.case}: {rate / 1e12:.4g} TeraEdges/s"
            ends = (run.rate.low, run.rate.high) if run.repeats > 1 else None
            yield row, name, label, rate, text, run.comparable, run.number, ends
        elif (
            name not in SERIES
            and (best := row["best"][name])
            and any(row[own] and row[own].comparable for own in SERIES)
        ):
            yield row, name, label, best.edges_per_second, row["label"][name], True, None, None


def _plot(values: dict, labels: Mapping[str, str], points: Sequence[tuple], narrow: bool = False):
    rows, machines = values["rows"], values["machines"]
    names = {name for _, name, *_ in points}
    columns = 1 if narrow else (len(names) if len(names) <= WIDEST_LEGEND else 3)
    lines = math.ceil(len(names) / columns) - 1
    plot, axes = canvas(1.2 + 0.24 * len(rows) + (0.2 if narrow else 0.3) * lines, narrow=narrow)
    keys, palette = [row["key"] for row in rows], colours()
    marks = {name: (mark, palette[hue]) for name, _, mark, hue in MARKS}
    for row in rows:
        rates = [rate / 1e12 for point, _, _, rate, *_ in points if point is row]
        axes.plot([min(rates), max(rates)], [keys.index(row["key"])] * 2, color="#9aa1ab", linewidth=1, zorder=1)
    for row, name, _, rate, _, same, number, ends in points:
        mark, colour = marks[name]
        ours = name in SERIES
        axes.scatter(
            [rate / 1e12], [keys.index(row["key"])], marker=mark, s={"*": 120, "P": 60}.get(mark, 46),
            facecolors=colour if ours else "#ffffff", edgecolors=INK if ours else colour,
            linewidths=0.6 if ours else 1.6, alpha=None if same else 0.45, zorder=3,
            gid=None if number is None else f"{RECORD}{number}",
        )  # fmt: skip
        if ends:
            axes.plot([end / 1e12 for end in ends], [keys.index(row["key"])] * 2, color=INK, linewidth=2.2, zorder=2)
        elif ours:
            at = rate / 1e12, keys.index(row["key"])
            axes.annotate("1×", at, (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)
    logarithmic(axes, "x")
    set_ticks(axes.xaxis, [rate / 1e12 for _, _, _, rate, *_ in points])
    axes.set_xlabel(f"TeraEdges/s{chr(10) if narrow else '; '}ours: {words.printable(machines, 60)}", loc="left")
    name_rows(plot, axes, [f"{row['neurons']:,} × {row['layers']:,}" for row in rows])
    handles = [
        line(
            labels[name].replace("best ", "") if narrow else labels[name], linestyle="", marker=mark, markersize=8,
            markeredgecolor=INK if name in SERIES else palette[hue],
            markerfacecolor=palette[hue] if name in SERIES else "#ffffff",
        )
        for name, _, mark, hue in MARKS if name in names
    ]  # fmt: skip
    plot.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                columnspacing=0.8, handletextpad=0.1, fontsize=8 if narrow else 10)  # fmt: skip
    return plot
