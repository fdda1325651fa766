"""The figures on throughput, survivors and ladders: pure functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spdnn.records.published import SPANS
from spdnn.report.common.drawing import INK, NO_COLOUR, RECORD, About, Drawing, drawn, folded, libraries, plain, style
from spdnn.report.common.words import STREAMED

OURS, OURS_REDUCED, OURS_RANKS = (
    "this project, no reductions", "this project, reductions on", "this project, several ranks",
)  # fmt: skip
ALL_OURS = (OURS, OURS_REDUCED, OURS_RANKS)
MARKS = {
    "one device": "o",
    "several devices": "^",
    "devices not stated": "s",
    OURS: "D",
    OURS_REDUCED: "*",
    OURS_RANKS: "P",
}


class Point(NamedTuple):
    """One rate of the throughput figure.

    Attributes:
        row: the network's label.
        rate, low, high: edges per second, and the ends of its interval (the rate itself when there is none).
        span: what the time includes.
        who: a key of MARKS.
        same: whether it is the same computation as the challenge's: exact, on the official inputs.
        told: who it is, in words.
        record: the number of its record on the page; None for a published figure.
    """

    row: str
    rate: float
    low: float
    high: float
    span: str
    who: str
    same: bool
    told: str
    record: int | None = None


class Curve(NamedTuple):
    """The survivors of one network and inputs after each layer."""

    label: str
    survivors: Sequence[int]


class Rung(NamedTuple):
    """One setting of a ladder: its name, and the median seconds of a run with the ends of its interval."""

    label: str
    seconds: float
    low: float
    high: float


def throughput(points: Sequence[Point], about: About) -> Drawing:
    """Rates by network on a log scale: colour is the span, shape who ran it, hollow not the same computation."""
    seaborn, figure_class = libraries()
    rows = list(dict.fromkeys(point.row for point in points))
    spans = [span for span in (*SPANS, STREAMED) if any(point.span == span for point in points)]
    colours = _colours(seaborn)
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 2.6 + 0.62 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for point in points:
            ours = point.who in ALL_OURS
            height = rows.index(point.row) + (-0.2 if ours else 0.14)
            colour = colours[point.span]
            if point.high > point.low:
                ends = [point.low / 1e12, point.high / 1e12]
                axes.plot(ends, [height, height], color=INK, linewidth=1.2, zorder=2)
            axes.scatter(
                [point.rate / 1e12], [height], marker=MARKS[point.who], s=_area(point.who), linewidths=1.3,
                facecolors=colour if point.same else "white", edgecolors=INK if ours else colour, zorder=3,
                gid=_gid(point),
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(plain)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("TeraEdges/s")
        axes.grid(visible=False, axis="y")
        for between in range(1, len(rows)):
            axes.axhline(between - 0.5, color="#c9ced6", linewidth=0.8)
        seaborn.despine(fig=figure, ax=axes, left=True)
        _legend(figure, points, spans, colours)
        columns = ("network", "who", "TeraEdges/s", "low", "high", "time includes", "kind", "comparable")
        rows = [
            (one.row, one.told, one.rate / 1e12, one.low / 1e12, one.high / 1e12, one.span, one.who, one.same)
            for one in points
        ]
        tips = {_gid(one): f"{one.told}: {one.rate / 1e12:.4g} TeraEdges/s" for one in points if _gid(one)}
        return drawn(figure, about, columns, rows, tips)


def _gid(point: Point) -> str | None:
    return None if point.record is None else f"{RECORD}{point.record}"


def survivors(curves: Sequence[Curve], about: About) -> Drawing:
    """Inputs with a nonzero row after each layer, both axes logarithmic; a curve that falls to 0 ends there."""
    seaborn, figure_class = libraries()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 3.6 + 0.2 * len(curves)), layout="constrained")
        axes = figure.add_subplot()
        colours = seaborn.color_palette("colorblind" if len(curves) <= 10 else "husl", len(curves)).as_hex()
        dashes = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))
        lines = []
        for place, curve in enumerate(curves):
            living = [(layer, count) for layer, count in enumerate(curve.survivors, 1) if count > 0]
            lines += axes.plot(
                [layer for layer, _ in living], [count for _, count in living], color=colours[place],
                linestyle=dashes[place % len(dashes)], linewidth=1.8,
                marker="o" if len(living) < 2 else None,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(plain)
            axis.set_minor_formatter("")
        axes.set_xlabel("layer")
        axes.set_ylabel("inputs with a nonzero row")
        seaborn.despine(fig=figure, ax=axes)
        labels = [folded(curve.label, 80) for curve in curves]  # two long ones would leave the axes no room
        figure.legend(lines, labels, loc="outside lower left", frameon=False)
        rows = [(curve.label, layer, count) for curve in curves for layer, count in enumerate(curve.survivors, 1)]
        return drawn(figure, about, ("network and inputs", "layer", "survivors"), rows)


def ladder(rungs: Sequence[Rung], about: About) -> Drawing:
    """Seconds of each rung on a log scale, the slowest first; beside each bar, how many times faster than the first."""
    seaborn, figure_class = libraries()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 1.2 + 0.42 * len(rungs)), layout="constrained")
        axes = figure.add_subplot()
        colour = seaborn.color_palette("colorblind", 10).as_hex()[0]
        floor = min(rung.low for rung in rungs) / 3
        for place, rung in enumerate(rungs):
            axes.barh(place, rung.seconds - floor, left=floor, color=colour, height=0.62)
            axes.plot([rung.low, rung.high], [place, place], color=INK, linewidth=1.2)
            times = rungs[0].seconds / rung.seconds
            axes.annotate(
                f"{rung.seconds:.3g} s" + (f", {times:,.3g} times as fast" if place else ""),
                (rung.high, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9, color=INK,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(floor, rungs[0].high * 12)
        axes.xaxis.set_major_formatter(plain)
        axes.set_yticks(range(len(rungs)), [folded(rung.label, 56) for rung in rungs], fontsize=8)
        axes.set_ylim(len(rungs) - 0.5, -0.5)
        axes.set_xlabel("inference seconds")
        axes.grid(visible=False, axis="y")
        seaborn.despine(fig=figure, ax=axes, left=True)
        return drawn(figure, about, ("setting", "inference seconds", "low", "high"), rungs)


def peers(rows: Sequence[tuple[str, dict]], about: About) -> Drawing:
    """Times as long as ours, by library: a point for each with its interval, in a panel of its problem.

    Args:
        rows: (problem, row of `model.page`'s comparisons) each.
    """
    seaborn, figure_class = libraries()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 1.4 + 0.32 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        colours = dict(
            zip(
                dict.fromkeys(label for label, _ in rows),
                seaborn.color_palette("colorblind", 12).as_hex(),
                strict=False,
            )
        )
        for place, (label, row) in enumerate(rows):
            ratio, colour = row["ratio"], colours[label]
            axes.plot([ratio.low, ratio.high], [place, place], color=INK, linewidth=1.2, zorder=2)
            axes.scatter([ratio.median], [place], color=colour, s=44, zorder=3, gid=f"{RECORD}{row['number']}")
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(plain)
        axes.set_yticks(range(len(rows)), [f"{row['engine']}, {label}" for label, row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel("times as long as ours")
        seaborn.despine(fig=figure, ax=axes, left=True)
        columns = ("problem", "engine", "times as long as ours", "low", "high")
        data = [(label, row["engine"], *row["ratio"][:3]) for label, row in rows]
        tips = {f"{RECORD}{row['number']}": f"{row['case']}: {row['ratio'].median:.3g}" for _, row in rows}
        return drawn(figure, about, columns, data, tips)


def _colours(seaborn) -> dict[str, str]:
    """A colour for each span, told apart by the colour-blind too."""
    palette = seaborn.color_palette("colorblind", 10).as_hex()
    return dict(
        zip((*SPANS, STREAMED), (*(palette[k] for k in (0, 9, 2, 1, 4, 3)), NO_COLOUR, palette[5]), strict=True)
    )


def _legend(figure, points: Sequence[Point], spans: Sequence[str], colours: dict[str, str]) -> None:
    """Colours (spans) and shapes (who), each in its own column below the axes."""
    from matplotlib.lines import Line2D

    def mark(shape: str, label: str, face: str, edge: str) -> Line2D:
        return Line2D([], [], linestyle="", marker=shape, markersize=8, markerfacecolor=face, markeredgecolor=edge,
                      label=label)  # fmt: skip

    used = [who for who in MARKS if any(point.who == who for point in points)]
    shapes = [mark(MARKS[who], who if who in ALL_OURS else f"published, {who}", "#7b8794", INK if
                   who in ALL_OURS else "#7b8794") for who in used]  # fmt: skip
    if not all(point.same for point in points):
        shapes.append(mark("o", "hollow: lossy, or other inputs", "white", INK))
    hues = [mark("s", span, colours[span], colours[span]) for span in spans]
    figure.legend(
        handles=hues, title="what the time includes", loc="outside lower left", frameon=False, alignment="left"
    )
    figure.legend(handles=shapes, title="who", loc="outside lower right", frameon=False, alignment="left")


def _area(who: str) -> float:
    return {OURS: 62, OURS_REDUCED: 130, OURS_RANKS: 80}.get(who, 40)
