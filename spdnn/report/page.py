"""One HTML page from a collection: its sections, their figures, and the frame around them (page.html).

The page goes through the list of sections, and a section alone says what it has to show. The page makes no request,
and its one script is allowed by its digest.
"""

import base64
import hashlib
import html
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from string import Template

from spdnn.core.resources import use_all_cores
from spdnn.core.shown import RATES, unit_of_rate
from spdnn.core.table import Rows, plain
from spdnn.report import overview
from spdnn.report.common.blocks import Section, Writer, anchor
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Drawing, Figure, libraries, save, style
from spdnn.report.sections import modules

HERE = Path(__file__).resolve().parent
MOST_LETTERS = 60  # of the name of a table's file
EMPTY = (
    "This page shows only what was verified. Run some cases, then make the report again; "
    "<code>spdnn challenge --help</code> says how."
)


def sections(contents: Collection) -> list[Section]:
    """The sections that have something to show, in the order of the page."""
    return [section for module in modules() if (section := module.section(contents))]


def drawings(shown: Sequence[Section], processes: int = 1) -> dict[str, Drawing]:
    """The figures of these sections by name.

    Args:
        processes: that draw at a time, a figure each.

    Raises:
        ValueError: two figures have one name.
        Unavailable: seaborn is absent.
    """
    global _figures
    _figures = [(figure, section.name) for section in shown for figure in section.every(Figure)]
    names = [figure.name for figure, _ in _figures]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ValueError(f"section {_figures[place][1]}: a figure {name!r} is on the page already")
    pool = _pool(processes) if processes > 1 and len(names) > 1 else None
    if pool is None:
        return dict(zip(names, map(_draw, range(len(names))), strict=True))
    libraries()  # once, before the processes begin, which have all of this one's memory
    with pool:
        return dict(zip(names, pool.map(_draw, range(len(names))), strict=True))


def _pool(processes: int) -> ProcessPoolExecutor | None:
    """Processes that draw; None where they can have no locks, as where /dev/shm cannot be written."""
    try:
        return ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=use_all_cores)
    except (OSError, ImportError, NotImplementedError):
        return None


def tables(shown: Sequence[Section]) -> list[Drawing]:
    """The tables of these sections with all their rows, as files hold them."""
    found = []
    for section in shown:
        names: dict[str, int] = {}
        for rows in section.every(Rows):
            title = plain(rows.title or rows.table.title)
            name = rows.name or rows.table.name or anchor(title)[:MOST_LETTERS]
            names[name] = count = names.get(name, 0) + 1
            name, caption = f"{name}-{count}" if count > 1 else name, plain(rows.caption or rows.table.caption)
            found.append(Drawing(f"table-{name}", section.name, title, caption, "", rows.table.csv(rows.rows)))
    return found


def _draw(place: int) -> Drawing:
    """One of the figures that `drawings` draws."""
    with style():
        return save(*_figures[place])


def summary(contents: Collection) -> list[str]:
    """What ran and how it ended, and the fastest compared with published results."""
    first = overview.header(contents)
    return [first.short, *first.speed[-1:]]


def text(contents: Collection, shown: Sequence[Section], figures: Mapping[str, Drawing]) -> str:
    """The page."""
    script = (HERE / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    # The unit of rates: the challenge's, or on a page of other networks the largest that their rates reach.
    most = max((run.rate.median for run in contents.runs), default=0.0)
    rates = RATES[0] if any(run.official_size for run in contents.runs) else unit_of_rate(most)
    writer, first = Writer(rates, figures), overview.header(contents)
    return Template((HERE / "page.html").read_text("utf-8")).substitute(
        digest=f"sha256-{digest}",
        style=(HERE / "style.css").read_text("utf-8"),
        ran=f'<p class="ran">{writer.phrase(first.ran)}</p>\n' if first.ran else "",
        title=writer.phrase(first.title),
        state=first.state,
        verdict=writer.phrase(first.verdict),
        speed="".join(f'<p class="speed">{writer.phrase(sentence)}</p>\n' for sentence in first.speed),
        main=f"<p>{EMPTY}</p>\n" if first.state == "empty" else _main(contents, shown, writer),
        script=script,
    )


def _main(contents: Collection, shown: Sequence[Section], writer: Writer) -> str:
    """The first screen, the links to the sections, the sections, and what is not shown."""
    parts, links = {}, ""
    for section in shown:
        parts[section.name] = writer.blocks(section.blocks)
        if section.name != overview.NAME:  # the first screen has no heading of its own
            heading = html.escape(section.heading or section.title)
            links += f'<li><a href="#{section.name}">{html.escape(section.title)}</a></li>\n'
            parts[section.name] = (
                f'<section aria-labelledby="{section.name}">\n<h2 id="{section.name}">{heading}</h2>\n'
                f"{parts[section.name]}</section>\n\n"
            )
    first = parts.pop(overview.NAME, "")
    first = f'<section aria-label="Overview">\n{first}</section>\n' if first else ""
    nav = f'<nav aria-label="Sections"><ul>\n{links}</ul>\n{_units(writer.rates[1])}</nav>\n\n'
    return first + nav + "".join(parts.values()) + _absent(contents, shown, writer)


def _units(rate: str) -> str:
    """The form in which a reader chooses units."""
    options = {"rate": [(int(scale), name, name == rate) for scale, name in RATES]}
    options["seconds"] = [(1, "seconds", True), ("1e-3", "milliseconds", False), ("1e-6", "microseconds", False)]
    selects = "".join(
        f'<label>{label}<select name="{name}">'
        + "".join(
            f'<option value="{value}"{" selected" * chosen}>{text}</option>' for value, text, chosen in options[name]
        )
        + "</select></label>\n"
        for name, label in (("rate", "Rates in"), ("seconds", "Times in"))
    )
    return f'<form id="units" class="scripted" hidden aria-label="Units">\n{selects}</form>\n'


def _absent(contents: Collection, shown: Sequence[Section], writer: Writer) -> str:
    """The sentences of the sections that have nothing to show, on a page that has runs."""
    names = {section.name for section in shown}
    sentences = [module.ABSENT for module in modules() if getattr(module, "ABSENT", "") and module.NAME not in names]
    if not (sentences and contents.runs):
        return ""
    paragraphs = "".join(f"<p>{writer.phrase(sentence)}</p>\n" for sentence in sentences)
    summary = "<summary>What this page does not show, and what would make it</summary>"
    return f'<details class="absent">{summary}\n{paragraphs}</details>\n'
