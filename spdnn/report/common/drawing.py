"""A figure of the report: a section plots it as a `Figure`, and the page saves it as a `Drawing`.

All figures share one style and one width. The same values give the same bytes of SVG and CSV.
"""

import contextlib
import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spdnn.core.errors import Unavailable, install
from spdnn.core.shown import printable
from spdnn.core.table import LONGEST, csv_text

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
    "legend.frameon": False,
}
FONT = "style=\"font-family: 'DejaVu Sans', sans-serif\""  # of all letters of a figure
RECORD = "record-"  # begins the id, inside an SVG, of what shows one record; its number in the page's table follows
MOST_DRAWN = 5  # figures of one kind on a page, and curves in one; the data of more are in its tables
MOST_BARS = 12  # cases in one figure
WIDTHS: ContextVar[tuple[float, float]] = ContextVar("WIDTHS", default=(8.4, 4.3))  # inches: of a page, a telephone
FORMATS = (".pdf", ".svg", ".png")
STYLES = {  # (seaborn's style, further settings)
    "page": ("whitegrid", {}),
    "paper": ("ticks", {"font.size": 8, "axes.linewidth": 0.6, "lines.linewidth": 1.0, "pdf.fonttype": 42}),
}


@dataclass(frozen=True)
class Figure:
    """One figure of a section, as its drawing function returns it: plotted, and not yet saved.

    Attributes:
        name: of its files, and the start of the ids inside its SVG; no two figures of a page have the same.
        title: what it shows, in one line: its alternative text, read to those who do not see it.
        caption: what a reader must know: axes, marks, and the configuration behind the numbers.
        plot: a function (narrow) that plots it, of matplotlib; called under `style`.
        columns, rows: the numbers plotted, as a table.
        tips: by the number of a record, the text at a pointer that rests on its part of the plot, which has the gid
            RECORD and that number.
        narrow: whether it plots itself as wide as a telephone too, which the page shows there; else one is scaled.
    """

    name: str
    title: str
    caption: str
    plot: Callable[[bool], Any]
    columns: Sequence[str]
    rows: Iterable[Sequence]
    tips: Mapping[int, str] = field(default_factory=dict)
    narrow: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure as files hold it.

    Attributes:
        name, title, caption: as `Figure`'s.
        category: the name of its section; figures of `snakemake --report` are in folders by it.
        svg: one <svg> element.
        csv: the numbers plotted, as a table with a line of names.
        narrow: an <svg> element for a telephone, or empty.
    """

    name: str
    category: str
    title: str
    caption: str
    svg: str
    csv: str
    narrow: str = ""


def libraries() -> tuple:
    """(seaborn, matplotlib's Figure); raises Unavailable where they are absent."""
    try:
        import seaborn
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unavailable(f"the report needs seaborn and matplotlib: {install('report')}") from error
    return seaborn, Figure


@contextlib.contextmanager
def style(name: str = "page", width: float | None = None) -> Iterator[None]:
    """The settings under which figures are plotted and saved.

    Args:
        name: one of STYLES.
        width: inches, of every figure; by default those of the page and of a telephone.
    """
    seaborn, _ = libraries()
    import matplotlib

    token = WIDTHS.set((width, width) if width else WIDTHS.get())
    try:
        with matplotlib.rc_context({**seaborn.axes_style(STYLES[name][0]), **SETTINGS, **STYLES[name][1]}):
            yield
    finally:
        WIDTHS.reset(token)


def write(plot: Any, path: str | Path, kind: str) -> None:
    """Write a plot to a file, the same bytes for the same plot; `kind`: pdf, svg or png. Called under `style`."""
    _lay_out(plot)
    metadata = {"pdf": ("Creator", "Producer", "CreationDate"), "svg": ("Creator", "Date"), "png": ("Software",)}[kind]
    plot.savefig(path, format=kind, dpi=300, metadata=dict.fromkeys(metadata))


def save(figure: Figure, category: str) -> Drawing:
    """The figure as files hold it; called under `style`."""
    svg, narrow = (
        _svg(figure, figure.plot(kind), f"{figure.name}{'-narrow' * kind}") if kind <= figure.narrow else ""
        for kind in (False, True)
    )
    data = csv_text(figure.columns, figure.rows)
    return Drawing(figure.name, category, figure.title, figure.caption, svg, data, narrow)


def _lay_out(plot) -> None:
    """Place the axes, once. The last bits of the solver's result differ from run to run, and ids in SVG hold them."""
    plot.get_layout_engine().execute(plot)
    plot.set_layout_engine(None)  # "none" would leave an engine that makes each `savefig` draw once more
    for axes in plot.axes:
        axes.set_position([round(part, 6) for part in axes.get_position(original=True).bounds])


def _svg(figure: Figure, plot: Any, name: str) -> str:
    """One <svg> element with its own ids, a title, a description, and no date, program or document type."""
    _lay_out(plot)
    stream = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    plot.savefig(stream, format="svg", metadata={**nothing, "Title": figure.title})
    text = stream.getvalue().decode("utf-8")
    text = _shortened(text[text.index("<svg") :])
    description = f"<desc>{html.escape(printable(figure.caption, LONGEST))}</desc>"
    text = re.sub(r"<metadata>.*?</metadata>", lambda _: description, text, count=1, flags=re.DOTALL)
    for number, tip in figure.tips.items():
        here = f'<g id="{RECORD}{number}">'
        text = text.replace(here, f"{here}<title>{html.escape(printable(tip, LONGEST))}</title>")
    text = re.sub(r'(?<=[\s"])(id="|xlink:href="#)', rf"\1{name}-", text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    label = html.escape(printable(figure.title, LONGEST))
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" {FONT} ', 1)


def _shortened(svg: str) -> str:
    """The same drawing in fewer bytes: hundredths of a point, one font, no ids that nothing refers to, no blanks."""
    svg = re.sub(
        r' (d|x|y|transform|x1|x2|y1|y2)="([^"]*)"',
        lambda found: f' {found[1]}="' + re.sub(r"-?\d+\.\d{3,}", _hundredths, " ".join(found[2].split())) + '"',
        svg,
    )
    svg = re.sub(r' transform="rotate\(-?0 [^"]*"|font-family: [^;"]*; |(?<=>)\s+(?=<)', "", svg)
    return re.sub(rf' id="(?!{RECORD}|roof-|[mp][0-9a-f]{{10}})[^"]*"|<g(?: id="[^"]*")?/>', "", svg).strip()


def _hundredths(number: re.Match) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
