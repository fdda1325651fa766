"""`spdnn report`: render the page from records."""

from pathlib import Path

from spdnn.cli.record_files import record_files


def add(page) -> None:
    page.description = (
        "Render run records as one self-contained HTML page, with the published baselines. Several "
        "folders, of several machines, are merged; a failed verdict removes a case of its own folder."
    )
    page.add_argument(
        "records",
        nargs="+",
        metavar="RECORDS",
        help="record files (.json, or .jsonl: one on each line), folders of them, or a workflow's results/",
    )
    page.add_argument("-o", "--output", required=True, metavar="report.html")
    page.add_argument(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="every figure as SVG, PNG and CSV too, in FOLDER/CATEGORY/; what an earlier page left there is replaced",
    )
    page.set_defaults(run=_report)


def _report(chosen) -> None:
    from spdnn.common.errors import InputError
    from spdnn.report.common.cases import read_cases
    from spdnn.report.rendering import Folder, render

    folders = []
    for name in chosen.records:
        files, cases = record_files(name), Path(name, "cases.json")
        folders.append(Folder(files.records, files.verdicts, read_cases(cases) if cases.is_file() else ()))
    named = [path for folder in folders for path in (*folder.records, *folder.verdicts)]
    if not any(path.stat().st_size for path in named) and not any(folder.expected for folder in folders):
        raise InputError(f"{', '.join(chosen.records)}: no record there")
    count = render(folders, Path(chosen.output), figures=chosen.figures)
    print(f"{chosen.output}: {count} records")
