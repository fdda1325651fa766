"""`spdnn report`: render the page from records."""

from pathlib import Path

from spdnn.records.record_files import record_files


def add(page) -> None:
    page.description = (
        "Render run records as one self-contained HTML page, with the published baselines. Several "
        "folders, of several machines, are merged; a failed verdict removes a case of its own folder."
    )
    page.add_argument(
        "records",
        nargs="*",
        default=["results"],
        metavar="RECORDS",
        help="record files (.json, or .jsonl: one on each line), folders of them, or a workflow's results/ (default: "
        "results, of which the cases of its last configuration are shown)",
    )
    page.add_argument("-o", "--output", default="report.html", metavar="report.html", help="default: report.html")
    page.add_argument("--csv", type=Path, metavar="all.csv", help="all records as a table too, a line each")
    page.add_argument(
        "--other-records",
        nargs="+",
        default=[],
        metavar="RECORDS",
        help="records of other runs, which the page shows as a group of their own and in no other number",
    )
    page.add_argument(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="every figure as SVG, PNG and CSV too, in FOLDER/CATEGORY/; what an earlier page left there is replaced",
    )
    page.set_defaults(run=_report, reads=("records", "other_records"), writes=("output", "csv", "figures/*/*"))


def _report(chosen) -> None:
    from spdnn.common.errors import InputError
    from spdnn.report.rendering import render

    folders = [record_files(name) for name in chosen.records]
    named = [path for folder in folders for path in (*folder.records, *folder.verdicts)]
    if not any(path.stat().st_size for path in named) and not any(folder.expected for folder in folders):
        raise InputError(f"{', '.join(chosen.records)}: no record there")
    options = {"figures": chosen.figures, "table": chosen.csv}
    options["others"] = {name: record_files(name) for name in chosen.other_records}
    count = render(folders, Path(chosen.output), **options)
    print(f"{chosen.output}: {count} records")
