"""`spdnn report`: records as a page, one of its figures for a paper, or the tables of a section on the terminal."""

import re
from argparse import ArgumentTypeError
from pathlib import Path

from spdnn.cli.terminal import say, show
from spdnn.core.errors import InputError
from spdnn.core.shown import plural
from spdnn.core.table import Rows
from spdnn.runs.records.cases import record_files

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
WIDTHS = 1.0, 40.0  # inches


def add(page) -> None:
    page.description = (
        "Render run records as one self-contained HTML page next to the published baselines. Folders of several "
        "machines are merged. A case that failed verification in a folder has no number from that folder. With\n"
        "--figure, write one figure as PDF, SVG or PNG instead; with --print, print the tables of a section."
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
        "-o", "--output", default="report.html", metavar="report.html", type=Path,
        help="page to write (default: report.html); with --figure, its file: .pdf, .svg or .png",
    )  # fmt: skip
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
        help="also write every figure as SVG and CSV, and every table as CSV, to FOLDER/SECTION/, in place of those of "
        "an earlier page",
    )
    page.add_argument(
        "--print", metavar="SECTION", help="print the tables of a section, such as limits; an unknown name lists all"
    )
    one = page.add_argument_group("one figure for a paper")
    one.add_argument(
        "--figure", metavar="NAME", help="write this figure alone, as --figures names its files; an unknown name lists "
        "those that the records have: overview, times-whole, limit-shares, reductions-edges, ..."
    )  # fmt: skip
    one.add_argument(
        "--width", type=_inches, default=3.3, metavar="W", help="width of the figure, such as 84mm (default: 3.3in)"
    )
    one.add_argument(
        "--style", choices=("paper", "page"), default="paper",
        help="paper (small letters, no grid) or page (default: paper)",
    )  # fmt: skip
    page.set_defaults(run=_report, reads=("records", "other_records"), writes=("output", "csv", "figures/*/*"))


def _report(args) -> None:
    from spdnn.report import rendering

    folders = [record_files(name) for name in args.records]
    files = [path for folder in folders for path in (*folder.records, *folder.verdicts)]
    if not any(path.stat().st_size for path in files) and not any(folder.expected for folder in folders):
        raise InputError(f"{', '.join(args.records)}: no records there")
    only = "--figure" if args.figure else "--print" if args.print else None
    for option in ("figure", "print", "csv", "figures", "other_records"):
        if only and only != f"--{option}" and getattr(args, option):
            raise InputError(f"{only} writes no page, so --{option.replace('_', '-')} has nothing to do: leave one out")
    if args.figure:
        rendering.plot(args.figure, folders, args.output, args.width, args.style)
        print(args.output)
    elif args.print:
        tables = list(rendering.section(args.print, folders).every(Rows))
        for rows in tables:
            say(["", rows.title or rows.table.title])
            show(rows.table, rows.rows)
        if not tables:
            print(f"section {args.print} has no tables")
    else:
        others = {name: record_files(name) for name in args.other_records}
        count = rendering.render(folders, args.output, figures=args.figures, table=args.csv, others=others)
        print(f"{args.output}: {plural(count, 'record')}")


def _inches(text: str) -> float:
    """A width with its unit, in inches."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(in|cm|mm|pt)", text.strip())
    width = float(match[1]) * INCHES[match[2]] if match else 0.0
    if not WIDTHS[0] <= width <= WIDTHS[1]:
        raise ArgumentTypeError(f"{text!r} must be a width from 1in to 40in, with its unit: in, cm, mm or pt")
    return width
