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
    page.add_argument(
        "records",
        nargs="+",
        metavar="RECORDS",
        help="record files (.json, or .jsonl: one on each line), folders of them, or a workflow's results/",
    )
    page.add_argument("-o", "--output", required=True, metavar="report.html")
    page.set_defaults(run=_report)


def _report(chosen) -> None:
    from spdnn.report import render

    records, verdicts = [], []
    for name in map(Path, chosen.records):
        if (name / "records").is_dir():
            found, judged = sorted((name / "records").glob("*.json")), sorted(name.glob("runs/*/verdict.json"))
            found += sorted(name.glob("measured/*/*.jsonl"))
        else:
            found, judged = sorted([*name.glob("*.json"), *name.glob("*.jsonl")]) if name.is_dir() else [name], []
        if not (found or judged) or not all(path.is_file() for path in found):
            raise InputError(f"{name}: no record there")
        records += found
        verdicts += judged
    count = render(records, verdicts, Path(chosen.output))
    print(f"{chosen.output}: {count} records")
