"""A figure of the report: a section plots it as a `Figure`, the page saves it as a `Drawing`, and files hold it.

All figures share one style and one width. The same values give the same bytes of SVG and CSV.
"""

import contextlib
import html
import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spdnn.core.errors import InputError, SpdnnError, Unavailable, install
from spdnn.core.files import replacing_folder
from spdnn.core.shown import printable
from spdnn.core.table import LONGEST_TEXT, csv_text

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
SUFFIXES = (".csv", ".rst", ".svg")  # of the files of a figure
WHITE = '<rect width="100%" height="100%" fill="#ffffff"/>'
STAMP = ".snakemake_timestamp"  # which Snakemake leaves in a folder that is the output of a rule
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
    """A figure as files hold it; a table is one without an SVG.

    Attributes:
        category: the name of its section; figures of `snakemake --report` are in folders by it.
        svg, narrow: one <svg> element, and one for a telephone, or empty.
        csv: the numbers plotted, as a table with a line of names.
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
    """Plot and save under one of STYLES; `width`: inches of every figure, in place of page's and telephone's."""
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
    description = f"<desc>{html.escape(printable(figure.caption, LONGEST_TEXT))}</desc>"
    text = re.sub(r"<metadata>.*?</metadata>", lambda _: description, text, count=1, flags=re.DOTALL)
    for number, tip in figure.tips.items():
        here = f'<g id="{RECORD}{number}">'
        text = text.replace(here, f"{here}<title>{html.escape(printable(tip, LONGEST_TEXT))}</title>")
    text = re.sub(r'((?<=[\s"])id="|(?<=[\s"])xlink:href="#|url\(#)', rf"\1{name}-", text)
    label = html.escape(printable(figure.title, LONGEST_TEXT))
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


def write_figures(drawings: Iterable[Drawing], folder: str | Path) -> None:
    """Write each figure to `folder`/CATEGORY/NAME: .svg, its data as .csv, its title and caption as .rst.

    The folder is replaced whole, so nothing of an earlier page remains in it.

    Args:
        folder: a new one, or one that holds such figures and nothing else.

    Raises:
        InputError: the folder holds something else, or cannot be where it is asked for.
        SpdnnError: it cannot be written.
    """
    check_figures(folder)
    with replacing_folder(folder) as whole:
        for drawing in drawings:
            part = whole / drawing.category
            part.mkdir(exist_ok=True)
            if drawing.svg:
                (part / f"{drawing.name}.svg").write_text(standalone(drawing.svg), "utf-8")
            (part / f"{drawing.name}.csv").write_text(drawing.csv, "utf-8", "backslashreplace")
            (part / f"{drawing.name}.rst").write_text(caption(drawing.title, drawing.caption), "utf-8")


def remove_figures(folder: str | Path) -> None:
    """Remove a folder of figures, if there is one. Raises InputError as `write_figures` does, and SpdnnError."""
    if not check_figures(folder).exists():
        return
    try:
        shutil.rmtree(os.path.realpath(folder))
    except OSError as error:
        raise SpdnnError(f"{folder}: {error.strerror or error}, so its figures were not removed") from error


def check_figures(folder: str | Path) -> Path:
    """The folder itself unless it holds anything that `write_figures` does not leave; InputError names that.

    A figure is recognised by its files together.
    """
    top = Path(folder)
    if top.exists() and not top.is_dir():
        raise InputError(f"{top} is not a folder; figures are written into one of their own")
    for part in sorted(top.iterdir()) if top.is_dir() else ():
        inside = sorted(part.iterdir()) if part.is_dir() and not part.is_symlink() else []
        whole = {file.stem for file in inside if all(file.with_suffix(end).is_file() for end in SUFFIXES[:2])}
        other = [file for file in inside if file.suffix not in SUFFIXES or file.stem not in whole]
        if other or not (inside or part.name == STAMP):
            odd = (other or [part])[0].relative_to(top)
            raise InputError(f"{top}: {odd} is no figure of a report, and would be removed; name a folder of its own")
    return top


def standalone(svg: str) -> str:
    """An <svg> element of a page as a file of its own, white behind it in every viewer."""
    start, rest = svg.split(">", 1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{start}>\n{WHITE}{rest}\n'


def caption(title: str, text: str) -> str:
    """Title and caption as a paragraph of reStructuredText, whatever marks they hold."""
    bold, plain = (re.sub(r"([\\*`|_]|:(?=:))", r"\\\1", " ".join(words.split())) for words in (title, text))
    return f"**{bold}.** {plain}\n"
