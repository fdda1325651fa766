"""What drawing functions share: a canvas as wide as the page, colours, rows, legends. None of it knows a section."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spdnn.report.common.drawing import libraries

INK = "#1f2933"
NO_COLOUR = "#9aa1ab"


def canvas(height: float, *shape: int, **settings) -> tuple:
    """(a matplotlib figure as wide as the page and `height` inches high, its axes as `subplots` returns them)."""
    plot = libraries()[1](figsize=(8.4, height), layout="constrained")
    return plot, plot.subplots(*shape, **settings)


def colours(count: int = 10, palette: str = "colorblind") -> list[str]:
    """Colours by a palette of seaborn; those of the default are distinct to the colour-blind."""
    return libraries()[0].color_palette(palette, count).as_hex()


def despine(plot, left: bool = False) -> None:
    """Take the frame off the plot's axes, but for the axes below and, unless `left`, on the left."""
    libraries()[0].despine(fig=plot, left=left)


def name_rows(plot, axes, labels: Sequence[str], **settings) -> None:
    """Give the axes a row for each label, the first on top, and no frame; settings are of the labels' text."""
    axes.set_yticks(range(len(labels)), labels, **settings)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    despine(plot, left=True)


def line(label: str, **settings):
    """A line or, without a linestyle, a mark, as a legend shows it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **settings)


def patch(label: str, **settings):
    """A rectangle as a legend shows it."""
    from matplotlib.patches import Patch

    return Patch(label=label, **settings)


def folded(text: str, width: int = 36, most: int = 2) -> str:
    """A name on at most so many lines, broken after its points and other marks; one that is longer ends in dots."""
    lines = [""]
    for piece in re.findall(r"[^\s.,+-]*[\s.,+-]?", text):
        while piece:
            room = width - len(lines[-1])
            if len(piece) > room and lines[-1]:
                lines.append("")
                continue
            lines[-1] += piece[:room]
            piece = piece[room:]
    kept = lines[:most]
    if len(lines) > most:
        kept[-1] = kept[-1][: width - 1] + "…"
    return "\n".join(kept)


def plain(number: float, _place: int) -> str:
    """A tick's number without an exponent, where a person would write none."""
    return f"{number:,.0f}" if 1 <= number < 1e15 else f"{number:g}"
