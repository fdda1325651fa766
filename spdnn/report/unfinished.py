"""The page of a workflow that failed: the cases that it verified before it ended, and those that are missing.

This page must not pass for the page of a whole run.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from spdnn.core.endings import say
from spdnn.core.errors import SpdnnError
from spdnn.report.common.drawing import remove_figures
from spdnn.report.rendering import RecordFolder, render
from spdnn.runs.records.files import read_verdict

RESULTS = Path("results")


def report_unfinished(*arguments) -> None:
    """As `render_unfinished`, of RESULTS, with its sentence on standard error.

    It raises nothing, which would hide the failure.
    """
    try:
        sentence = render_unfinished(RESULTS, *arguments)
    except (SpdnnError, OSError) as error:
        sentence = f"there is no page of this run, which failed: {error}"
    say(f"spdnn: {sentence}", "stderr")


def render_unfinished(
    results: Path,
    cases: Sequence[str],
    stale: Collection[str],
    comparisons: Iterable[str | Path],
    others: Mapping[str, RecordFolder],
    baselines: str | Path,
    decided: Sequence[str] = (),
) -> str:
    """Render `results`/report.html, remove the figures and the summary, and return a sentence on what the page holds.

    What is left must not pass for the outputs of the page's rule: the others are outputs as well and are gone, and the
    page is given a time before that of `baselines`, one of its inputs.

    Args:
        cases: that the configuration asks for.
        stale: outputs that the run was to make and did not: what is there under such a name is of an earlier run.
        comparisons: files and folders of records that the run makes besides its cases; they need not be there.
        others: records of other runs by the name of their group, as `render` takes them.
        baselines: the table of published results.
        decided: sentences on what the configuration left to the machine.

    Raises:
        InputError: a record or verdict that is not sound, or a folder of figures that holds something else.
        SpdnnError: what cannot be written or removed, or a package that the report needs and is absent.
    """

    def files_of(paths: Iterable[Path]) -> list[Path]:
        fresh = [path for path in paths if str(path) not in stale and path.exists()]
        return [file for path in fresh for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]

    verdicts = files_of(results / "runs" / case / "verdict.json" for case in cases)
    records = files_of(results / "records" / f"{case}.json" for case in cases)
    page, failed = results / "report.html", [path.parent.name for path in verdicts if not read_verdict(path).passed]
    records += files_of(map(Path, comparisons))
    remove_figures(results / "figures")
    (results / "summary.txt").unlink(missing_ok=True)
    render([RecordFolder(records, verdicts, cases, decided)], page, Path(baselines), others=others)
    before = os.stat(baselines).st_mtime - 1
    os.utime(page, (before, before))
    counts = [f"{len(verdicts) - len(failed)} of {len(cases)} cases passed verification"]
    counts += [f"{len(failed)} failed ({', '.join(failed)})"] if failed else []
    counts += [f"{missing} missing"] if (missing := len(cases) - len(verdicts)) else []
    return f"{page} is of a run that failed: {', '.join(counts)}"
