"""The figure on peers: how many times as long as ours each library took, by problem."""

from collections.abc import Iterator

from spdnn.report.common import words
from spdnn.report.common.drawing import MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, logarithmic, name_rows


def figures(values: dict) -> Iterator[Figure]:
    """Times as long as ours, by library: a point for each with its interval, in a colour of its problem."""
    shown = values["comparisons"][:MOST_DRAWN]
    rows = [(comparison["label"], row) for comparison in shown for row in comparison["rows"] if not row["is_ours"]]
    if not rows:
        return
    settings = sorted({comparison["ours"].setting for comparison in shown})
    plot, axes = canvas(1.4 + 0.32 * len(rows))
    palette = dict(zip(dict.fromkeys(label for label, _ in rows), colours(12), strict=False))
    for index, (label, row) in enumerate(rows):
        ratio = row["ratio"]
        axes.plot([ratio.low, ratio.high], [index, index], color=INK, linewidth=1.2, zorder=2)
        axes.scatter([ratio.median], [index], color=palette[label], s=44, zorder=3, gid=f"{RECORD}{row['run'].number}")
    axes.axvline(1, color=INK, linewidth=1)
    logarithmic(axes, "x")
    axes.set_xlabel("times as long as ours")
    name_rows(plot, axes, [f"{row['run'].engine}, {label}" for label, row in rows])
    yield Figure(
        "peers",
        "Times as long as ours, by library and problem",
        "How many times as long as ours each library took, on a logarithmic scale: median over pairs of samples "
        "taken alternately, with the interval of that median. Right of the line, ours is faster. Ours: "
        f"{words.listed(settings, between='; ')}.",
        plot,
        ("problem", "engine", "times as long as ours", "low", "high"),
        [(label, row["run"].engine, *row["ratio"][:3]) for label, row in rows],
        {f"{RECORD}{row['run'].number}": f"{row['run'].case}: {row['ratio'].median:.3g}" for _, row in rows},
    )
