"""`spdnn report`: render the page from records."""

from pathlib import Path

from spdnn.runs.records.cases import record_files


def add(page) -> None:
    page.description = (
        "Render run records as one self-contained HTML page next to the published baselines. Folders of several "
        "machines are merged. A case that failed verification in a folder has no number from that folder."
    )
    page.add_argument(
        "records",
        nargs="*",
        default=["results"],
        metavar="RECORDS",
        help="record files (.json, or .jsonl with one per line), folders of them, or results/ of a workflow, which "
        "stands for the cases of its last configuration (default: results)",
    )
    page.add_argument(
        "-o", "--output", default="report.html", metavar="report.html", help="page to write (default: report.html)"
    )
    page.add_argument("--csv", type=Path, metavar="all.csv", help="also write all records as a table, one per line")
    page.add_argument(
        "--other-records",
        nargs="+",
        default=[],
        metavar="RECORDS",
        help="records of other runs, shown as a separate group and in no other number of the page",
    )
    page.add_argument(
        "--figures",
        type=Path,
        metavar="FOLDER",
        help="also write every figure as SVG and CSV to FOLDER/CATEGORY/, in place of those of an earlier page",
    )
    page.set_defaults(run=_report, reads=("records", "other_records"), writes=("output", "csv", "figures/*/*"))


def _report(args) -> None:
    from spdnn.core.errors import InputError
    from spdnn.core.shown import with_unit
    from spdnn.report.rendering import render

    folders = [record_files(name) for name in args.records]
    named = [path for folder in folders for path in (*folder.records, *folder.verdicts)]
    if not any(path.stat().st_size for path in named) and not any(folder.expected for folder in folders):
        raise InputError(f"{', '.join(args.records)}: no records there")
    options = {"figures": args.figures, "table": args.csv}
    options["others"] = {name: record_files(name) for name in args.other_records}
    count = render(folders, Path(args.output), **options)
    print(f"{args.output}: {with_unit(count, 'records')}")
