"""The figure of the first screen: every network, ours and the best published."""

from collections.abc import Iterator, Sequence

from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, line, logarithmic, name_rows, ticked
from spdnn.report.networks.values import SERIES

# (name of a series, label, mark, index into "colorblind"); ours are filled, published ones hollow.
WIDEST_LEGEND = 4  # entries in one line of it
MARKS = (
    ("reduced", "ours, with reductions", "*", 0),
    ("like", "ours, like for like", "D", 1),
    ("plain", "ours, no reductions", "P", 4),
    ("one", "best published, one device", "o", 2),
    ("any", "best published, any", "^", 3),
)


def figures(values: dict) -> Iterator[Figure]:
    """One row for each of the twelve networks that was run; nothing without one."""
    rows = values["rows"]
    if not rows:
        return
    points = [point for row in rows for point in _points(row)]
    yield Figure(
        "overview",
        "Every network: TeraEdges/s of ours and of the best published",
        "TeraEdges/s, logarithmic. Like for like: official inputs, only dead inputs left out, as published systems do. "
        "Pale: other inputs than the challenge's.",
        _plot(rows, points),
        ("network", "who", "TeraEdges/s", "label", "comparable"),
        [(row["key"], label, rate / 1e12, text, same) for row, _, label, rate, text, same, _ in points],
        {f"{RECORD}{number}": text for *_, text, _, number in points if number is not None},
        _plot(rows, points, True),
    )


def _points(row: dict) -> Iterator[tuple]:
    """(row, series, label, rate, text, whether on the challenge's inputs, number of a record)."""
    for name, label, _, _ in MARKS:
        if name in SERIES and (run := row[name]):
            rate = run["rate"].median
            text = f"{run['case']}: {rate / 1e12:.4g} TeraEdges/s"
            yield row, name, label, rate, text, run["comparable"], run["number"]
        elif name not in SERIES and (best := row["best"][name]):
            yield row, name, label, best.edges_per_second, row["label"][name], True, None


def _plot(rows: Sequence[dict], points: Sequence[tuple], narrow: bool = False):
    used = {name for _, name, *_ in points}
    columns = 2 if narrow else (len(used) if len(used) <= WIDEST_LEGEND else 3)
    plot, axes = canvas(1.2 + 0.24 * len(rows) + 0.3 * (columns < len(used)), narrow=narrow)
    keys, palette = [row["key"] for row in rows], colours()
    marks = {name: (mark, palette[hue]) for name, _, mark, hue in MARKS}
    for row in rows:
        rates = [rate / 1e12 for one, _, _, rate, *_ in points if one is row]
        axes.plot([min(rates), max(rates)], [keys.index(row["key"])] * 2, color="#9aa1ab", linewidth=1, zorder=1)
    for row, name, _, rate, _, same, number in points:
        mark, colour = marks[name]
        ours = name in SERIES
        axes.scatter(
            [rate / 1e12], [keys.index(row["key"])], marker=mark, s={"*": 120, "P": 60}.get(mark, 46),
            facecolors=colour if ours else "#ffffff", edgecolors=INK if ours else colour,
            linewidths=0.6 if ours else 1.6, alpha=None if same else 0.45, zorder=3,
            gid=None if number is None else f"{RECORD}{number}",
        )  # fmt: skip
    logarithmic(axes, "x")
    ticked(axes.xaxis, [rate / 1e12 for _, _, _, rate, *_ in points])
    axes.set_xlabel("TeraEdges/s", loc="left")
    name_rows(plot, axes, [f"{row['neurons']:,} × {row['layers']:,}" for row in rows])
    handles = [
        line(
            label.replace("best ", "") if narrow else label, linestyle="", marker=mark, markersize=8,
            markeredgecolor=INK if name in SERIES else palette[hue],
            markerfacecolor=palette[hue] if name in SERIES else "#ffffff",
        )
        for name, label, mark, hue in MARKS if name in used
    ]  # fmt: skip
    plot.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False,
                columnspacing=0.8, handletextpad=0.1, fontsize=8 if narrow else 10)  # fmt: skip
    return plot
