"""What the figures of all sections share: a canvas as wide as the page, colours, axes, rows and legends."""

import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from spdnn.report.common.drawing import RECORD, WIDTHS, libraries

INK = "#1f2933"
NO_COLOUR = "#9aa1ab"
MARKS = ("o", "s", "^", "D", "v", "P")  # of points, by what they are of


def canvas(height: float, *shape: int, narrow: bool = False, **settings) -> tuple:
    """(a matplotlib figure `height` inches high, as wide as the page or a telephone, its axes as of `subplots`)."""
    plot = libraries()[1](figsize=(WIDTHS.get()[narrow], height), layout="constrained")
    return plot, plot.subplots(*shape, **settings)


def colours(count: int = 10) -> list[str]:
    """Colours of seaborn's palette that the colour-blind tell apart."""
    return libraries()[0].color_palette("colorblind", count).as_hex()


def despine(plot, left: bool = False) -> None:
    """Take the frame off the plot's axes, but for the axes below and, unless `left`, on the left."""
    libraries()[0].despine(fig=plot, left=left)


def name_rows(plot, axes, labels: Sequence[str], **settings) -> None:
    """Give the axes a row for each label, the first on top, and no frame; settings are of the labels' text."""
    axes.set_yticks(range(len(labels)), labels, **settings)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    despine(plot, left=True)


class Bar(NamedTuple):
    """A run's bar: lengths with their colours one after the other, a text after them, the number of its record."""

    name: str
    parts: Sequence[tuple[float, str]]
    text: str
    record: int | None


def bars(rows: Sequence[Bar], label: str, narrow: bool, lines: int = 1) -> tuple:
    """(plot, axes) of horizontal bars, the first on top; `lines`: of the legend."""
    plot, axes = canvas(0.8 + 0.2 * lines + 0.3 * len(rows), narrow=narrow)
    for place, row in enumerate(rows):
        ends = list(accumulate(length for length, _ in row.parts))
        spans = [(end - length, length) for end, (length, _) in zip(ends, row.parts, strict=True)]
        axes.broken_barh(spans, (place - 0.31, 0.62), facecolors=[colour for _, colour in row.parts],
                         edgecolors=NO_COLOUR, linewidth=0.4, gid=f"{RECORD}{row.record}", zorder=2)  # fmt: skip
        write_after(axes, row.text, ends[-1], place)
    longest = max(sum(length for length, _ in row.parts) for row in rows) or 1.0
    axes.set_xlim(0, (1.35 if narrow else 1.2) * longest)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest * 1.001])
    axes.set_xlabel(label, loc="left")
    name_rows(plot, axes, [fold(row.name, 30) for row in rows], fontsize=9)
    return plot, axes


def logarithmic(axes, letters: str) -> None:
    """Make the axes of these letters (of "xy") logarithmic, with plain numbers at their main ticks alone."""
    for letter in letters:
        axes.set(**{f"{letter}scale": "log"})
        axis = getattr(axes, f"{letter}axis")
        axis.set_major_formatter(plain)
        axis.set_minor_formatter("")


def set_ticks(axis, numbers: Sequence[float]) -> None:
    """Give a logarithmic axis ticks at 1, 2 and 5 times powers of ten, where powers alone would leave one or two."""
    from matplotlib.ticker import FixedLocator

    low, high = min(number for number in numbers if number > 0), max(numbers)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    shown = [tick for tick in ticks if low / 1.6 <= tick <= high * 1.6]
    if len(shown) <= 9:
        axis.set_major_locator(FixedLocator(shown))


def plot_counts(axes, counts: Sequence[int], **settings) -> list:
    """Plot counts by layer, from 1, where they are not 0; a single point has a mark. Returns matplotlib's lines."""
    points = [(layer, count) for layer, count in enumerate(counts, 1) if count > 0]
    mark = "o" if len(points) < 2 else None
    return axes.plot([layer for layer, _ in points], [count for _, count in points], marker=mark, **settings)


def changes(counts: Sequence) -> list[tuple[int, Any]]:
    """(layer, count) of the first layer, of each whose count is another than before, and of the last."""
    last = len(counts)
    return [(layer, count) for layer, count in enumerate(counts, 1) if layer in (1, last) or count != counts[layer - 2]]


def write_after(axes, text: str, x: float, y: float, gap: float = 5) -> None:
    """Write a text to the right of a point of the plot, `gap` points from it."""
    axes.annotate(text, (x, y), xytext=(gap, 0), textcoords="offset points", va="center", fontsize=9, color=INK)


def line(label: str, **settings):
    """A line or, without a linestyle, a mark, as a legend shows it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **settings)


def patch(label: str, **settings):
    """A rectangle as a legend shows it."""
    from matplotlib.patches import Patch

    return Patch(label=label, **settings)


def fold(text: str, width: int) -> str:
    """A name on at most two lines, broken after its points and other marks; one that is longer ends in dots."""
    lines = [""]
    for piece in re.findall(r"[^\s.,+-]*[\s.,+-]?", text):
        while piece:
            room = width - len(lines[-1])
            if len(piece) > room and lines[-1]:
                lines.append("")
                continue
            lines[-1] += piece[:room]
            piece = piece[room:]
    if len(lines) > 2:
        lines[1] = lines[1][: width - 1] + "…"
    return "\n".join(lines[:2])


def plain(number: float, _index: int) -> str:
    """A tick's number without an exponent, where a person would write none."""
    return f"{number:,.0f}" if 1 <= number < 1e15 else f"{number:g}"
