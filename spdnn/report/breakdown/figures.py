"""The figures on where the time goes: pure functions of plain values. A bar is a case, its lengths are parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spdnn.report.common.drawing import INK, NO_COLOUR, RECORD, About, Drawing, drawn, folded, libraries, style
from spdnn.report.common.words import significant

READ, PREPARE, INFERENCE = "read", "prepare", "inference"
KERNEL, COPY, WAIT, UNTOLD = "kernel", "copy", "wait", "not told apart"
# Places in seaborn's "colorblind"; the same for the same thing as in the timelines of schedules.
COLOURS = {READ: 2, PREPARE: 8, INFERENCE: 0, KERNEL: 0, COPY: 1}
GREYS = {WAIT: "#c3c8cf", UNTOLD: "#f1f3f5"}
ORDER = (READ, PREPARE, INFERENCE, KERNEL, COPY, WAIT, UNTOLD)
ON_DARK = (INFERENCE, KERNEL)
HATCH = "////"
WIDE = 30  # where the longest whole is so many times the shortest, each bar is all of its own case
LEAST_NAMED = 0.09  # of the axis: shorter parts have no number on them


class Bar(NamedTuple):
    """One case.

    Attributes:
        label: the case.
        record: the number of its record on the page.
        parts: seconds by name, in the order in which they are stacked.
        hatched: (name of the part, seconds of it that are hatched, from its end backwards); None: nothing is.
        note: what else stands behind the bar.
    """

    label: str
    record: int
    parts: Mapping[str, float]
    hatched: tuple[str, float] | None = None
    note: str = ""


def whole(row: dict) -> Bar:
    """The bar of a row of `breakdown.section`: its seconds before and in inference."""
    run, copied = row["run"], row["uploaded"]
    seconds = {name: run["seconds"][name] for name in (READ, PREPARE, INFERENCE)}
    return Bar(run["case"], run["number"], seconds, (READ, copied) if copied else None)


def part(row: dict) -> Bar:
    """The bar of a row whose record tells inference apart."""
    run, parts = row["run"], row["parts"]
    seconds = {KERNEL: parts.kernel, COPY: parts.copy, WAIT: parts.wait, UNTOLD: parts.untold}
    known = {name: value for name, value in seconds.items() if value is not None}
    hidden, note = (KERNEL, parts.hidden) if parts.hidden else None, "kernel at most" if parts.joined else ""
    return Bar(run["case"], run["number"], known, hidden, note)


def wholes(bars: Sequence[Bar], about: About) -> Drawing:
    """Seconds of read, prepare and inference; where the wholes differ by WIDE, the shares of each case's own whole."""
    totals = [sum(bar.parts.values()) for bar in bars]
    apart = shared(bars)
    scales = [100 / total if apart and total else 1.0 for total in totals]
    ends = [" + ".join(significant(value, 3) for value in bar.parts.values()) + " s" for bar in bars]
    label = "% of the case's own read + prepare + inference" if apart else "seconds"
    hatched = "of it, copies to a GPU"
    return _stacked(bars, scales, ends, label, hatched, about, ("case", "part", "seconds"), lambda value, _: (value,))


def shared(bars: Sequence[Bar]) -> bool:
    """Whether the wholes differ so much that each bar is drawn as all of its own case."""
    totals = [sum(bar.parts.values()) for bar in bars]
    return max(totals) > WIDE * min(totals)


def shares(bars: Sequence[Bar], about: About) -> Drawing:
    """Percent of inference in each part; each bar is 100."""
    scales = [100 / sum(bar.parts.values()) for bar in bars]
    hidden = [
        f"{significant(bar.hatched[1] * scale, 3)} % copies, hidden" if bar.hatched else ""
        for bar, scale in zip(bars, scales, strict=True)
    ]
    ends = ["; ".join(filter(None, (text, bar.note))) for text, bar in zip(hidden, bars, strict=True)]
    columns = ("case", "part", "seconds", "% of the whole")
    hatched = "copies hidden behind a kernel"
    return _stacked(
        bars, scales, ends, "% of inference", hatched, about, columns, lambda value, scale: (value, value * scale)
    )


def _stacked(
    bars: Sequence[Bar], scales: Sequence[float], ends: Sequence[str], label: str, hatched: str, about: About,
    columns: Sequence[str], cells,
) -> Drawing:  # fmt: skip
    """One bar a case, as long as its parts times its scale, with a text behind its end."""
    seaborn, figure_class = libraries()
    palette = seaborn.color_palette("colorblind", 10).as_hex()
    colours = {name: palette[place] for name, place in COLOURS.items()} | GREYS
    longest = max(scale * sum(bar.parts.values()) for bar, scale in zip(bars, scales, strict=True)) or 1.0
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 1.4 + 0.42 * len(bars)), layout="constrained")
        axes = figure.add_subplot()
        for place, (bar, scale, end) in enumerate(zip(bars, scales, ends, strict=True)):
            reached = _bar(axes, place, bar, scale, colours, longest)
            axes.annotate(end, (reached, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8,
                          color=INK)  # fmt: skip
        axes.set_yticks(range(len(bars)), [folded(bar.label) for bar in bars], fontsize=8)
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlim(0, longest * (1.0 + 0.016 * max(map(len, ends))))
        axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest * 1.001])
        axes.set_xlabel(label, loc="left")
        axes.grid(visible=False, axis="y")
        seaborn.despine(fig=figure, ax=axes, left=True)
        _legend(figure, bars, colours, hatched)
        rows = [
            (bar.label, name, *cells(value, scale)) for bar, scale in zip(bars, scales, strict=True)
            for name, value in _listed(bar, hatched)
        ]  # fmt: skip
        tips = {f"{RECORD}{bar.record}": _tip(bar, hatched) for bar in bars}
        return drawn(figure, about, columns, rows, tips)


def _bar(axes, place: int, bar: Bar, scale: float, colours: Mapping[str, str], longest: float) -> float:
    """Draw one case; where its bar ends."""
    at, ranges, faces = 0.0, [], []
    for name, value in bar.parts.items():
        length = value * scale
        if value:
            ranges.append((at, length))
            faces.append(colours[name])
        if length > LEAST_NAMED * longest:
            share = 100 * value / sum(bar.parts.values())
            colour = "white" if name in ON_DARK else "black"
            axes.annotate(f"{share:.0f} %", (at + length / 2, place), va="center", ha="center", fontsize=8,
                          color=colour, zorder=4)  # fmt: skip
        at += length
        if bar.hatched and bar.hatched[0] == name:
            part = bar.hatched[1] * scale
            axes.broken_barh([(at - part, part)], (place - 0.31, 0.62), facecolors="none", edgecolors=INK,
                             linewidth=0, hatch=HATCH, zorder=3)  # fmt: skip
    axes.broken_barh(ranges, (place - 0.31, 0.62), facecolors=faces, edgecolors=NO_COLOUR, linewidth=0.4,
                     gid=f"{RECORD}{bar.record}", zorder=2)  # fmt: skip
    return at


def _listed(bar: Bar, hatched: str) -> list[tuple[str, float]]:
    return [*bar.parts.items(), *([(hatched, bar.hatched[1])] if bar.hatched else [])]


def _tip(bar: Bar, hatched: str) -> str:
    return f"{bar.label}: " + ", ".join(f"{name} {significant(value)} s" for name, value in _listed(bar, hatched))


def _legend(figure, bars: Sequence[Bar], colours: Mapping[str, str], hatched: str) -> None:
    from matplotlib.patches import Patch

    names = [name for name in ORDER if any(bar.parts.get(name) for bar in bars)]
    handles = [Patch(facecolor=colours[name], edgecolor=NO_COLOUR, linewidth=0.4, label=name) for name in names]
    if any(bar.hatched for bar in bars):
        handles.append(Patch(facecolor="none", edgecolor=INK, linewidth=0, hatch=HATCH, label=hatched))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), frameon=False)
