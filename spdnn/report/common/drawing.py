"""A figure of the report: its SVG and PNG, its caption and its data, the same bytes for the same values."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spdnn.common.errors import Unavailable

SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "spdnn",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,
    "text.usetex": False,
    "axes.edgecolor": "#8a8f98",
    "grid.color": "#e3e6ea",
}
INK = "#1f2933"
NO_COLOUR = "#9aa1ab"
RECORD = "record-"  # begins the id, inside an SVG, of what shows one record; its number in the page's table follows
MOST_DRAWN = 5  # figures of one kind on a page, and curves in one; the data of more are in its tables
MOST_BARS = 16  # cases in one figure


@dataclass(frozen=True)
class About:
    """What a figure is, said before it is drawn.

    Attributes:
        name: of its files, and the start of the ids inside its SVG.
        category: the part of the page it belongs to; figures of `snakemake --report` are in folders by it.
        title: what it shows, in one line; read to those who do not see it.
        caption: what a reader must know: axes, marks, and the configuration behind the numbers.
        png: whether a PNG is wanted too.
    """

    name: str
    category: str
    title: str
    caption: str
    png: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure that was drawn.

    Attributes:
        about: what it is.
        svg: one <svg> element.
        png: the bytes of a PNG at 144 dots an inch; None unless asked for.
        csv: the numbers drawn, as a table with a line of names.
    """

    about: About
    svg: str
    png: bytes | None
    csv: str


def libraries() -> tuple:
    """(seaborn, matplotlib's Figure)."""
    try:
        import seaborn
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unavailable("the report needs seaborn and matplotlib: pip install 'spdnn[report]'") from error
    return seaborn, Figure


def style(seaborn):
    """The settings under which every figure is made and drawn."""
    import matplotlib

    return matplotlib.rc_context({**seaborn.axes_style("whitegrid"), **SETTINGS})


def drawn(
    figure, about: About, columns: Sequence[str], rows: Iterable[Sequence], tips: Mapping[str, str] | None = None
) -> Drawing:
    """The figure as files hold it; called under `style`.

    Args:
        columns, rows: its data.
        tips: by the gid of a part of it, what a pointer that rests there is told.
    """
    _lay_out(figure)
    png = _png(figure) if about.png else None
    return Drawing(about, _svg(figure, about, tips or {}), png, table(columns, rows))


def table(columns: Sequence[str], rows: Iterable[Sequence]) -> str:
    """A CSV table. Texts that a spreadsheet would run as a formula are set off by an apostrophe."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _lay_out(figure) -> None:
    """Place the axes, once. The last bits of what the solver finds differ from run to run, and ids in SVG hold them."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(part, 6) for part in axes.get_position(original=True).bounds])


def _png(figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=144, metadata={"Software": None})
    return stream.getvalue()


def _svg(figure, about: About, tips: Mapping[str, str]) -> str:
    """One <svg> element with its own ids, a title, a description, and no date, program or document type."""
    stream = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata={**nothing, "Title": about.title})
    text = stream.getvalue().decode("utf-8")
    text = text[text.index("<svg") :]
    told = f"<desc>{html.escape(about.caption)}</desc>\n"
    text = re.sub(r"<metadata>.*?</metadata>\s*", lambda _: told, text, count=1, flags=re.DOTALL)
    for gid, tip in tips.items():
        here = f'<g id="{gid}">'
        text = text.replace(here, f"{here}<title>{html.escape(tip)}</title>")
    text = re.sub(r'(?<=[\s"])(id="|xlink:href="#)', rf"\1{about.name}-", text)
    text = re.sub(r"url\(#", f"url(#{about.name}-", text)
    label = html.escape(about.title)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).strip()


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
