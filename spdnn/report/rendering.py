"""The report: one self-contained page from run records, verdicts and published results, and from nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spdnn.common.errors import InputError, Unavailable
from spdnn.common.files import check_target, write_text
from spdnn.common.validation import builtins
from spdnn.records.files import read_all, read_verdict
from spdnn.records.published import read_baselines
from spdnn.records.published_operations import read_operation_baselines
from spdnn.report import gallery
from spdnn.report import page as model
from spdnn.report.common import collection, embedded, figure_files, series, words
from spdnn.report.common.drawing import Drawing
from spdnn.report.networks import values as networks
from spdnn.report.operations import values as operations
from spdnn.report.reductions import values as reductions

HERE = Path(__file__).resolve().parent


class Most(NamedTuple):
    """Rows of the page's tables at most, so that it stays small enough to send; all records are in its downloads."""

    runs: int = 150
    rows: int = 100
    details: int = 60
    groups: int = 8
    lines: int = 20


class Folder(NamedTuple):
    """The files of one folder of records.

    Attributes:
        records: of run records and of operation records (.json: one; .jsonl: one on each line); each holds the
            verdict that allowed it.
        verdicts: passed or failed; the case of each is the name of its folder. A failed verdict is shown as a
            failure, and takes every number of its case, in this folder, off the page.
        expected: names of cases that were to be run.
    """

    records: Sequence[Path]
    verdicts: Sequence[Path] = ()
    expected: Sequence[str] = ()


def render(
    record_paths: Sequence[Path],
    verdict_paths: Sequence[Path],
    output: Path,
    baselines_path: Path | None = None,
    *,
    expected: Sequence[str] = (),
    figures: Path | None = None,
) -> int:
    """Write the page of one folder; as `render_all`."""
    return render_all([Folder(record_paths, verdict_paths, expected)], output, baselines_path, figures=figures)


def render_all(
    folders: Sequence[Folder], output: Path, baselines_path: Path | None = None, *, figures: Path | None = None
) -> int:
    """Write the page to `output`; the same records give the same bytes. The number of records is returned.

    Args:
        folders: of one machine or several; their records are merged.
        output: an .html file in a folder that exists.
        baselines_path: the table of published results; by default, the project's.
        figures: a folder for every figure as a file too (`files.write_figures`).

    Raises:
        InputError: a record, verdict or table that is not sound, an output that is one of them, or a folder of
            figures that holds something else. Nothing is written then.
        Unavailable: a package the report needs is absent.
    """
    _check_places(folders, output, figures)
    parts, products = [], []
    for folder in folders:
        records, found = read_all(folder.records)
        verdicts = [(Path(path).resolve().parent.name, builtins(read_verdict(path))) for path in folder.verdicts]
        parts.append(collection.Part([collection.Plain(one) for one in records], verdicts, folder.expected))
        products += map(builtins, found)
    page = _page(parts, products, baselines_path)
    drawings = gallery.drawings(page, png=figures is not None)
    text = _text(page, drawings)
    if figures is not None:
        figure_files.write_figures(drawings.values(), figures)
    write_text(output, text)
    return sum(len(part.records) for part in parts) + len(products)


def _check_places(folders: Sequence[Folder], output: Path, figures: Path | None) -> None:
    """Raise InputError where the page or its figures would replace what they must not, before anything is written."""
    target = check_target(output)
    read = {os.path.realpath(path) for folder in folders for path in (*folder.records, *folder.verdicts)}
    if str(target) in read:
        raise InputError(f"{output} is one of the records; name another file for the page")
    if figures is not None and Path(os.path.realpath(figure_files.check_figures(figures))) in (target, *target.parents):
        raise InputError(f"{output} is within {figures}, which is replaced whole; name another place for the figures")


def _page(parts: Sequence[collection.Part], products: Sequence[dict], baselines_path: Path | None) -> dict:
    """The values of every section, and the records to take along."""
    products = collection.distinct(products)
    page = model.page(parts, read_baselines(baselines_path), products)
    page["operations"] = operations.section(products, read_operation_baselines() if products else ())
    page["reductions"] = reductions.section(page["own"])
    numbers = {id(record): number for number, record in enumerate(products, len(page["runs"]))}
    page["number_of"] = lambda record: numbers[id(record)]  # its place among the page's records
    table = embedded.link("records.csv", embedded.records_table(page["runs"], products), "text/csv")
    link, told = embedded.records_link([*(run["record"] for run in page["runs"]), *products], len(table["href"]))
    page["records"] = {"count": len(page["runs"]) + len(products), "csv": table, "json": link, "told": told}
    return page


def _text(page: dict, drawings: dict[str, Drawing]) -> str:
    script = (HERE / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _template().render(
        **page,
        figures=drawings,
        script={"text": script, "digest": f"sha256-{digest}"},
        style=(HERE / "style.css").read_text("utf-8"),
        most=Most(),
        words=words,
        series=series,
        fair=collection.fair_runs,
        link=embedded.link,
        networks_told=networks.told,
    )


def _template():
    try:
        import jinja2
    except ImportError as error:
        raise Unavailable("the report needs jinja2: pip install 'spdnn[report]'") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        significant=words.significant, tera=words.tera, plural=words.plural, printable=words.printable
    )
    return environment.get_template("page.html.j2")
