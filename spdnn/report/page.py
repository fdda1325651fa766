"""One HTML page from a collection: the values of every section, its figures, then the templates.

The page goes through the list of sections, and a section alone says what it has to show. The page makes no request,
and its one script is allowed by its digest.
"""

import base64
import hashlib
import multiprocessing
import re
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from spdnn.core.errors import Unavailable, install
from spdnn.core.shown import RATES, unit_of_rate
from spdnn.report.cases.values import headline
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, fair
from spdnn.report.common.drawing import Drawing, libraries
from spdnn.report.provenance.records import link
from spdnn.report.sections import SECTIONS, TEMPLATE

HERE = Path(__file__).resolve().parent
# Rows of the page's tables at most, so that it stays small enough to send; all records are in its downloads.
MOST = {"runs": 150, "rows": 100, "details": 60, "groups": 8, "lines": 20}
# Every template has these besides the values of its section, the drawn `figures` by name, and the names `shown` of the
# sections that have something to show.
HELPERS = {
    "most": MOST,
    "words": words,
    "fair": lambda runs, most: fair(runs, most, lambda run: (run.case, run.setting), lambda run: run.record.created),
    "link": link,
}
# Colours of figures, as they are in files, and the variables of the page's style that stand for them.
THEME = {
    "#1f2933": "ink", "#262626": "ink", "#ffffff": "card", "#e3e6ea": "grid", "#8a8f98": "edge", "#9aa1ab": "edge",
    "#f1f3f5": "tint", "#c9ced6": "line", "#c3c8cf": "rest", "#7b8794": "edge",
}  # fmt: skip
FILTERS = {
    "themed": lambda svg: re.sub("|".join(THEME), lambda colour: f"var(--{THEME[colour[0]]})", svg),
    "significant": words.significant,
    "plural": words.plural,
    "printable": words.printable,
}


def values(contents: Collection) -> dict[str, dict]:
    """The values of each section that has something to show, by its name."""
    pairs = ((section.name, section.values(contents)) for section in SECTIONS)
    return {name: value for name, value in pairs if value is not None}


def summary(contents: Collection, shown: Mapping[str, dict]) -> list[str]:
    """What ran and how it ended, and the fastest compared with published results; `shown` as `values` makes it."""
    first = shown.get("overview")
    sentences = [f"{first['what']}: {headline(contents)['short']}", *first["speed"][-1:]] if first else []
    return sentences or [headline(contents)["ending"]]


def drawings(shown: Mapping[str, dict], processes: int = 1) -> dict[str, Drawing]:
    """The figures by name of the sections with values; `shown` as `values` makes it.

    Args:
        processes: that draw at a time, a section each.

    Raises:
        ValueError: two figures have one name.
    """
    figures: dict[str, Drawing] = {}
    sections = [section for section in SECTIONS if section.name in shown]
    if processes == 1:
        groups = [section.drawings(shown[section.name]) for section in sections]
    else:
        libraries()  # once, before the processes begin
        with ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _keep, (shown,)) as pool:
            groups = list(pool.map(_draw, (section.name for section in sections)))
    for section, several in zip(sections, groups, strict=True):
        for drawing in several:
            if drawing.name in figures:
                raise ValueError(f"section {section.name}: a figure {drawing.name!r} is on the page already")
            figures[drawing.name] = drawing
    return figures


def _keep(shown: Mapping[str, dict]) -> None:
    """In a process of its own: what the one that made it has."""
    global _shown
    _shown = shown


def _draw(name: str) -> list[Drawing]:
    return next(section for section in SECTIONS if section.name == name).drawings(_shown[name])


def text(contents: Collection, shown: Mapping[str, dict], figures: Mapping[str, Drawing]) -> str:
    """The page; Unavailable without jinja2."""
    script = (HERE / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    # The unit of rates: the challenge's, or on a page of other networks the largest that their rates reach.
    most = max((run.rate.median for run in contents.runs), default=0.0)
    scale, unit = RATES[0] if any(run.official_size for run in contents.runs) else unit_of_rate(most)
    return _template().render(
        HELPERS,
        sections=[(section, f"{section.name}/{TEMPLATE}", shown.get(section.name)) for section in SECTIONS],
        shown=shown,
        figures=figures,
        headline=headline(contents),
        runs=len(contents.runs),
        rates={"scale": scale, "name": unit, "all": RATES},
        script={"text": script, "digest": f"sha256-{digest}"},
        style=(HERE / "style.css").read_text("utf-8"),
    )


def _template():
    """The page's template, which finds that of a section as NAME/TEMPLATE."""
    try:
        import jinja2
    except ImportError as error:
        raise Unavailable(f"the report needs jinja2: {install('report')}") from error
    folders = {section.name: jinja2.FileSystemLoader(section.folder) for section in SECTIONS}
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PrefixLoader(folders), jinja2.FileSystemLoader(HERE)]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    return environment.get_template("page.html.j2")
