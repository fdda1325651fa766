"""`spdnn plot`: one figure of the report for a paper."""

import re
from argparse import ArgumentTypeError
from pathlib import Path

from spdnn.runs.records.cases import record_files

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
WIDTHS = 1.0, 40.0  # inches
STYLES = ("paper", "page")


def add(plot) -> None:
    plot.description = (
        "Write one figure of the report as PDF, SVG or PNG, as wide as a column. An unknown KIND lists those that the "
        "records have: overview, times-whole, limit-shares, reductions-edges, ..."
    )
    plot.add_argument("kind", metavar="KIND", help="name of the figure, as `spdnn report --figures` names its files")
    plot.add_argument("records", nargs="+", metavar="RECORDS", help="records, as `spdnn report` takes them")
    plot.add_argument(
        "-o", "--output", required=True, metavar="fig.pdf", type=Path, help="file to write: .pdf, .svg or .png"
    )
    plot.add_argument(
        "--width", type=inches, default=3.3, metavar="W", help="width of the figure, such as 84mm (default: 3.3in)"
    )
    plot.add_argument(
        "--style", choices=STYLES, default="paper", help="paper (small letters, no grid) or page (default: paper)"
    )
    plot.set_defaults(run=_plot, reads=("records",), writes=("output",))


def inches(text: str) -> float:
    """A width with its unit, in inches."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(in|cm|mm|pt)", text.strip())
    width = float(match[1]) * INCHES[match[2]] if match else 0.0
    if not WIDTHS[0] <= width <= WIDTHS[1]:
        raise ArgumentTypeError(f"{text!r} must be a width from 1in to 40in, with its unit: in, cm, mm or pt")
    return width


def _plot(args) -> None:
    from spdnn.report.rendering import plot

    plot(args.kind, list(map(record_files, args.records)), args.output, args.width, args.style)
    print(args.output)
