"""Texts inside the links of the page, so that it needs no other file; all records among them, as a table and as JSON.

Records that would make the page too large are thinned. Links work without JavaScript.
"""

import json
import statistics
from collections.abc import Iterable, Sequence

from spdnn.core.table import csv_text
from spdnn.core.validation import builtins
from spdnn.report.common import words
from spdnn.report.common.blocks import link
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.columns import columns
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord

MOST_CHARACTERS = 1_000_000  # of a link that holds records; browsers take addresses of 2 MB
BOTH_CHARACTERS, LEAST_CHARACTERS = 1_500_000, 100_000  # of the table and the records together; of the records at least
RATIO = 60  # more than gzip makes of records: texts that it could not bring under the limit are not tried
LONG_LIST, SHORT_LIST = 64, 8  # entries of a list that are kept where records are thinned
WORDS = (  # columns that are the page's own words and figures; the others are fields of records
    "number", "kind", "verdict", "truth", "network", "inputs", "reductions", "time_includes", "inference_seconds",
    "fastest_seconds", "repeats", "read_seconds", "prepare_seconds", "from_cache",
)  # fmt: skip


def records_table(runs: Sequence[RunRow], products: Sequence[OperationRecord]) -> str:
    """A CSV table of all records: rows of `runs`, then operation records; columns of the other kind are empty."""
    fields = dict(columns(RunRecord))
    rows = [_words_of_run(run) | _values(fields, run.record) for run in runs]
    of_operations = dict(columns(OperationRecord))
    for number, record in enumerate(products, len(runs)):
        rows.append(_values(of_operations, record) | _words_of_product(number, record))
    names = list(dict.fromkeys([*WORDS, *fields]))
    return csv_text(names, [[row.get(name) for name in names] for row in rows])


def _values(fields: dict[str, tuple[str, ...]], record: RunRecord | OperationRecord) -> dict:
    """The columns that are fields of a record."""
    values = {}
    for name, path in fields.items():
        value = record
        for part in path:
            value = getattr(value, part, None)
        values[name] = value
    return values


def _words_of_run(run: RunRow) -> dict:
    return {
        "number": run.number,
        "kind": "run",
        "verdict": "pass",
        "truth": words.truth(run.record.verdict),
        "network": run.network_text,
        "inputs": words.described(run.problem.inputs),
        "reductions": run.reductions,
        "time_includes": run.includes,
        "inference_seconds": run.inference_seconds,
        "fastest_seconds": min(run.record.seconds),
        "repeats": run.repeats,
        "read_seconds": run.read_seconds,
        "prepare_seconds": run.prepare_seconds,
        "from_cache": " ".join(run.solution.cached) if run.solution else None,
    }


def _words_of_product(number: int, record: OperationRecord) -> dict:
    return {
        "number": number,
        "kind": record.operation,
        "verdict": "pass",
        "truth": "float64 reference",
        "time_includes": record.span,
        "inference_seconds": statistics.median(record.seconds),
        "fastest_seconds": min(record.seconds),
        "repeats": len(record.seconds),
    }


def records_link(records: Sequence[RunRecord | OperationRecord], table_size: int = 0) -> tuple[dict[str, str], str]:
    """(link, what was left out of it) of records as a list in JSON, in their order.

    Where all of it would be too large, long lists are thinned; then records become null, the last first.

    Args:
        table_size: characters of the link that has their table.
    """
    room = min(MOST_CHARACTERS, max(LEAST_CHARACTERS, BOTH_CHARACTERS - table_size))
    if whole := _fitting(map(builtins, records), room):
        return whole, ""
    for most in (LONG_LIST, SHORT_LIST):
        note = f"lists of more than {most} entries, samples among them, are thinned to that many"
        if part := _fitting((_thin(builtins(record), most) for record in records), room):
            return part, note
    count = len(records)
    while count:
        count //= 2
        first = [_thin(builtins(record), SHORT_LIST) for record in records[:count]]
        if part := _fitting([*first, *[None] * (len(records) - count)], room):
            return part, f"{note}, and of the others than the first {count:,} there is the table alone"
    return link("records.json", "[]", "application/json"), "empty, for no record fits; all are in the table"


def _fitting(records: Iterable[object], room: int) -> dict[str, str] | None:
    """The link of these, if it has no more than `room` characters."""
    texts, budget = [], RATIO * room
    for record in records:
        texts.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False, sort_keys=True))
        budget -= len(texts[-1]) + 1
        if budget < 0:
            return None
    whole = link("records.json", f"[{','.join(texts)}]", "application/json")
    return whole if len(whole["href"]) <= room else None


def _thin(content: object, most: int) -> object:
    """The content with every list of more than `most` entries cut to that many, evenly spaced, ends included."""
    if isinstance(content, dict):
        return {key: _thin(value, most) for key, value in content.items()}
    if isinstance(content, list):
        if len(content) > most:
            content = [content[index * (len(content) - 1) // (most - 1)] for index in range(most)]
        return [_thin(value, most) for value in content]
    return content
