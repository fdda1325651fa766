"""`spdnn report`: the page, from records."""

from __future__ import annotations

from pathlib import Path

from spdnn.errors import InputError


def add(commands, formatter) -> None:
    page = commands.add_parser(
        "report",
        help="render records as one HTML page",
        formatter_class=formatter,
        description="Render run records as one self-contained HTML page, beside the published baselines.",
    )
    page.add_argument("records", nargs="+", metavar="RECORDS", help="record files (.json), or folders of them")
    page.add_argument("-o", "--output", required=True, metavar="report.html")
    page.set_defaults(run=_report)


def _report(chosen) -> None:
    from spdnn.report import render

    paths = []
    for name in map(Path, chosen.records):
        found = sorted(name.glob("*.json")) if name.is_dir() else [name]
        if not found or not found[0].exists():
            raise InputError(f"{name}: no record there")
        paths += found
    render(paths, [], Path(chosen.output))
    print(f"{chosen.output}: {len(paths)} records")
