"""The figure of the twelve networks: rates of this project and published rates, by network."""

from collections.abc import Iterator, Sequence

from spdnn.records.published import SPANS
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR, canvas, colours, line, name_rows, plain
from spdnn.report.common.words import STREAMED
from spdnn.report.networks.values import OURS, OURS_RANKS, OURS_REDUCED, Point

ALL_OURS = (OURS, OURS_REDUCED, OURS_RANKS)
MARKS = {
    "one device": "o", "several devices": "^", "devices not stated": "s", OURS: "D", OURS_REDUCED: "*", OURS_RANKS: "P",
}  # fmt: skip


def figures(values: dict) -> Iterator[Figure]:
    """Rates by network on a log scale: colour is the span, shape who ran it, hollow not the same computation."""
    points = values["points"]
    if not points:
        return
    rows = list(dict.fromkeys(point.row for point in points))
    spans = [span for span in (*SPANS, STREAMED) if any(point.span == span for point in points)]
    palette = _palette()
    plot, axes = canvas(2.6 + 0.62 * len(rows))
    for point in points:
        ours = point.who in ALL_OURS
        height = rows.index(point.row) + (-0.2 if ours else 0.14)
        colour = palette[point.span]
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
    axes.set_xlabel("TeraEdges/s")
    name_rows(plot, axes, rows)
    for between in range(1, len(rows)):
        axes.axhline(between - 0.5, color="#c9ced6", linewidth=0.8)
    _legend(plot, points, spans, palette)
    yield Figure(
        "throughput",
        "TeraEdges/s of this project and of published results",
        "TeraEdges/s on a logarithmic scale by official network (neurons × layers). Colour: what the time "
        "includes. Shape: who ran it, the best published figure of each span on one and on several devices. "
        "Hollow: a lossy method, or not the challenge's 60,000 inputs. Lines: the intervals of our medians. "
        f"Our settings: {values['configurations']}.",
        plot,
        ("network", "who", "TeraEdges/s", "low", "high", "time includes", "kind", "comparable"),
        [
            (one.row, one.label, one.rate / 1e12, one.low / 1e12, one.high / 1e12, one.span, one.who, one.same)
            for one in points
        ],
        {_gid(one): f"{one.label}: {one.rate / 1e12:.4g} TeraEdges/s" for one in points if _gid(one)},
    )


def _gid(point: Point) -> str | None:
    return None if point.record is None else f"{RECORD}{point.record}"


def _palette() -> dict[str, str]:
    """A colour for each span, distinct to the colour-blind too."""
    palette = colours()
    return dict(
        zip((*SPANS, STREAMED), (*(palette[k] for k in (0, 9, 2, 1, 4, 3)), NO_COLOUR, palette[5]), strict=True)
    )


def _legend(plot, points: Sequence[Point], spans: Sequence[str], palette: dict[str, str]) -> None:
    """Colours (spans) and shapes (who), each in its own column below the axes."""

    def mark(shape: str, label: str, face: str, edge: str):
        return line(label, linestyle="", marker=shape, markersize=8, markerfacecolor=face, markeredgecolor=edge)

    used = [who for who in MARKS if any(point.who == who for point in points)]
    shapes = [mark(MARKS[who], who if who in ALL_OURS else f"published, {who}", "#7b8794", INK if
                   who in ALL_OURS else "#7b8794") for who in used]  # fmt: skip
    if not all(point.same for point in points):
        shapes.append(mark("o", "hollow: lossy, or other inputs", "white", INK))
    hues = [mark("s", span, palette[span], palette[span]) for span in spans]
    plot.legend(handles=hues, title="what the time includes", loc="outside lower left", frameon=False, alignment="left")
    plot.legend(handles=shapes, title="who", loc="outside lower right", frameon=False, alignment="left")


def _area(who: str) -> float:
    return {OURS: 62, OURS_REDUCED: 130, OURS_RANKS: 80}.get(who, 40)
