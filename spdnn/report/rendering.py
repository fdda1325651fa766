"""From files to the page or a pandas frame: records, verdicts and published results are read, checked and rendered.

The page depends on these files alone. Nothing is written unless all of it can be.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spdnn.core.errors import InputError, Unavailable, install, unknown
from spdnn.core.files import check_outputs, check_target, replacing, together, write_text
from spdnn.report import page
from spdnn.report.common import drawing
from spdnn.report.common.blocks import Section
from spdnn.report.common.collection import Collection, Part, collect
from spdnn.report.common.drawing import Figure
from spdnn.report.provenance import records_table
from spdnn.runs.records.cases import RecordFolder, record_files
from spdnn.runs.records.files import read_all, read_verdict
from spdnn.runs.records.published import read_baselines, read_operation_baselines

if TYPE_CHECKING:
    import pandas

NARROW_INCHES = 5.5  # inches


def render(
    folders: Sequence[RecordFolder],
    output: Path,
    baselines_path: Path | None = None,
    *,
    figures: Path | None = None,
    table: Path | None = None,
    others: Mapping[str, RecordFolder] | None = None,
    summary: Path | None = None,
    processes: int = 1,
) -> int:
    """Write the page to `output`: the same bytes for the same records; the number of records.

    Args:
        folders: of one machine or several; their records are merged. A failed verdict is shown as a failure, and takes
            every number of its case, in its folder, off the page.
        output: an .html file in a folder that exists.
        baselines_path: the table of published results; by default, the project's.
        figures: a folder for every figure and table as files too (`drawing.write_figures`).
        table: a file for all records as CSV, a line each.
        summary: a file for what the page says first, in two lines, and where it is, in a third.
        processes: that draw figures at a time.
        others: records that are shown as a group of their own, by its name, and are in no other number of the page.

    Raises:
        InputError: a record, verdict or table that is not sound, an output that is one of them, or a folder of
            figures that holds something else. Nothing is written then.
        Unavailable: a package the report needs is absent.
    """
    others = others or {}
    _check_targets([*folders, *others.values()], output, table, figures)
    everything = contents(folders, baselines_path)
    other_contents = {name: contents([folder], baselines_path) for name, folder in others.items()}
    everything = replace(everything, others=other_contents)
    shown = page.sections(everything)
    drawings = page.drawings(shown, processes)
    text = page.text(everything, shown, drawings)
    with together():
        if figures is not None:
            drawing.write_figures([*drawings.values(), *page.tables(shown)], figures)
        if table is not None:
            write_text(table, records_table(everything.runs, everything.operations))
        if summary is not None:
            write_text(summary, "\n".join([*page.summary(everything), f"report: {output}\n"]))
        write_text(output, text)
    return len(everything.records) + len(everything.operations)


def contents(folders: Sequence[RecordFolder], baselines_path: Path | None = None) -> Collection:
    """What a page of these folders has, read and checked; as `render`."""
    parts, operations = [], []
    for folder in folders:
        records, others = read_all(folder.records)
        verdicts = [(Path(path).resolve().parent.name, read_verdict(path)) for path in folder.verdicts]
        parts.append(Part(records, verdicts, folder.expected))
        operations += others
    published = read_operation_baselines() if operations else ()
    decided = list(dict.fromkeys(text for folder in folders for text in folder.decided))
    return replace(collect(parts, read_baselines(baselines_path), operations, published), decided=decided)


def load_records(*paths: str | Path) -> "pandas.DataFrame":
    """A pandas frame of run and operation records, a row each; its columns name their units.

    Args:
        paths: record files (.json, .jsonl), folders of them, or a workflow's results/; by default results/.

    Raises:
        InputError: nothing is there, or a record that is not sound. Unavailable: pandas is absent.

    Example:
        >>> import spdnn
        >>> frame = spdnn.load_records("results/measured/two-cores-zen4/twelve.jsonl")
        >>> len(frame)
        12
    """
    try:
        import pandas
    except ImportError as error:
        raise Unavailable(f"load_records needs pandas: {install('report')}") from error
    everything = contents([record_files(path) for path in paths or ("results",)])
    return pandas.read_csv(io.StringIO(records_table(everything.runs, everything.operations)))


def plot(kind: str, folders: Sequence[RecordFolder], output: Path, width: float, style: str) -> None:
    """Write the figure `kind` of the page of these folders to `output`: .pdf, .svg or .png.

    Args:
        width: inches; figures that have a layout for a telephone use it below NARROW_INCHES.
        style: one of drawing.STYLES.

    Raises:
        InputError: no figure of that name is on the page of these records; or as `render`.
    """
    target = check_target(output)
    figures = {figure.name: figure for section in page.sections(contents(folders)) for figure in section.every(Figure)}
    if kind not in figures:
        raise unknown("figure", kind, figures) if figures else InputError("these records have no figures")
    if target.suffix not in drawing.FORMATS:
        raise InputError(f"{output}: the name of a figure ends in {', '.join(drawing.FORMATS)}")
    figure = figures[kind]
    with drawing.style(style, width), replacing(target) as part:
        drawing.write(figure.plot(figure.narrow and width < NARROW_INCHES), part, target.suffix[1:])


def section(name: str, folders: Sequence[RecordFolder]) -> Section:
    """A section of the page of these folders; InputError where the page has none of that name, or as `render`."""
    sections = {section.name: section for section in page.sections(contents(folders))}
    if name not in sections:
        raise unknown("section", name, sections)
    return sections[name]


def _check_targets(folders: Sequence[RecordFolder], output: Path, table: Path | None, figures: Path | None) -> None:
    """Raise InputError where page, table or figures would replace what they must not, before anything is written."""
    outputs = [output] if table is None else [output, table]
    check_outputs(outputs, (path for folder in folders for path in (*folder.records, *folder.verdicts)))
    target = check_target(output)
    if figures is not None and Path(os.path.realpath(drawing.check_figures(figures))) in (target, *target.parents):
        raise InputError(f"{output} is within {figures}, which is replaced whole; name another place for the figures")
