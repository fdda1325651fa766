"""From files to the page: records, verdicts and published results are read, checked and rendered.

The page depends on these files alone. Nothing is written unless all of it can be.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spdnn.common.errors import InputError
from spdnn.common.files import check_target, together, write_text
from spdnn.records import ledger
from spdnn.records.files import read_all, read_verdict
from spdnn.records.published import read_baselines
from spdnn.records.published_operations import read_operation_baselines
from spdnn.report import page
from spdnn.report.common import figure_files
from spdnn.report.common.collection import Part, collect


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
    folders: Sequence[Folder], output: Path, baselines_path: Path | None = None, *, figures: Path | None = None
) -> int:
    """Write the page to `output`: the same bytes for the same records of the same origins; the number of records.

    Args:
        folders: of one machine or several; their records are merged.
        output: an .html file in a folder that exists.
        baselines_path: the table of published results; by default, the project's.
        figures: a folder for every figure as a file too (`figure_files.write_figures`).

    Raises:
        InputError: a record, verdict or table that is not sound, an output that is one of them, or a folder of
            figures that holds something else. Nothing is written then.
        Unavailable: a package the report needs is absent.
    """
    _check_targets(folders, output, figures)
    parts, operations = [], []
    for folder in folders:
        records, others = read_all(folder.records)
        verdicts = [(Path(path).resolve().parent.name, read_verdict(path)) for path in folder.verdicts]
        parts.append(Part(records, verdicts, folder.expected))
        operations += others
    published = read_operation_baselines() if operations else ()
    contents = collect(parts, read_baselines(baselines_path), operations, published, ledger.origins())
    shown = page.values(contents)
    drawings = page.drawings(shown, png=figures is not None)
    text = page.text(contents, shown, drawings)
    with together():
        if figures is not None:
            figure_files.write_figures(drawings.values(), figures)
        write_text(output, text)
    return sum(len(part.records) for part in parts) + len(operations)


def _check_targets(folders: Sequence[Folder], output: Path, figures: Path | None) -> None:
    """Raise InputError where the page or its figures would replace what they must not, before anything is written."""
    target = check_target(output)
    read = {os.path.realpath(path) for folder in folders for path in (*folder.records, *folder.verdicts)}
    if str(target) in read:
        raise InputError(f"{output} is one of the records; name another file for the page")
    if figures is not None and Path(os.path.realpath(figure_files.check_figures(figures))) in (target, *target.parents):
        raise InputError(f"{output} is within {figures}, which is replaced whole; name another place for the figures")
