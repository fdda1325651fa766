"""All records inside the page: as one table, and whole as JSON.

What would make the page too large is thinned, and the page says so.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence

from spdnn.report.common.drawing import table
from spdnn.report.common.embedded import link

MOST_CHARACTERS = 1_000_000  # of a link that holds records; browsers take addresses of 2 MB
BOTH_CHARACTERS, LEAST_CHARACTERS = 1_500_000, 100_000  # of the table and the records together; of the records at least
RATIO = 60  # more than gzip makes of records: texts that it could not bring under the limit are not tried
LONG_LIST, SHORT_LIST = 64, 8  # entries of a list that are kept where records are thinned
COLUMNS = (
    "number", "kind", "case", "verdict", "truth", "official", "network", "neurons", "layers", "edges", "inputs",
    "input_count", "network_identity", "inputs_sha256", "engine", "reductions", "threads", "ranks", "partition",
    "time_includes", "edges_per_second", "low", "high", "inference_seconds", "fastest_seconds", "repeats",
    "read_seconds", "prepare_seconds", "time_to_solution", "from_cache", "edges_computed", "bytes_moved",
    "peak_memory_bytes", "categories", "categories_sha256", "cpu", "cores", "gpu", "created", "commit", "command",
)  # fmt: skip


def records_table(runs: Sequence[dict], operations: Sequence[dict]) -> str:
    """A CSV table of all records: rows of runs, then operation records."""
    rows = (_operation_row(number, record) for number, record in enumerate(operations, len(runs)))
    return table(COLUMNS, [*map(_run_row, runs), *rows])


def _run_row(run: dict) -> tuple:
    record = run["record"]
    problem, result, place = record["problem"], record["result"], record["environment"]
    rate, samples = record["edges_per_second"], record["samples"]["inference_seconds"]
    return (
        run["number"], "run", record["case"], "pass", run["truth"], problem["official"], run["network_text"],
        problem["neurons"], problem["layers"], problem["edges"], run["inputs_text"], problem["input_count"],
        problem["network_identity"], problem["inputs_sha256"], record["engine"]["name"], run["reductions"],
        record["threads"], record["ranks"], run["partition"], run["includes"], rate["median"], rate["low"],
        rate["high"], run["seconds"]["inference"], min(samples), len(samples), run["seconds"]["read"],
        run["seconds"]["prepare"], *_solved(run["solution"]), result["edges_computed"], result.get("bytes_moved"),
        record["peak_memory_bytes"], result["categories"], result["categories_sha256"], place["cpu"], place["cores"],
        place.get("gpu"), record["created"], place.get("commit"), place["command"],
    )  # fmt: skip


def _solved(solution: dict | None) -> tuple:
    return (solution["seconds"], " ".join(solution["cached"])) if solution else (None, None)


def _operation_row(number: int, record: dict) -> tuple:
    """An operation record's part of the table; what only runs have is empty."""
    place, seconds = record["environment"], record["samples"]["seconds"]
    cells = {
        "number": number, "kind": record["operation"], "case": record["case"], "verdict": "pass",
        "truth": "float64 oracle", "network": record["problem"]["network"], "engine": record["program"]["name"],
        "threads": record["threads"], "time_includes": record["span"], "inference_seconds": statistics.median(seconds),
        "fastest_seconds": min(seconds), "repeats": len(seconds), "cpu": place["cpu"], "cores": place["cores"],
        "gpu": place.get("gpu"), "created": record["created"], "commit": place.get("commit"),
        "command": place["command"],
    }  # fmt: skip
    return tuple(cells.get(name) for name in COLUMNS)


def records_link(records: Sequence[dict], beside: int = 0) -> tuple[dict[str, str], str]:
    """(link, what was left out of it) of records as a list in JSON, in their order.

    Where all of it would be too large, long lists are thinned; then records become null, the last first.

    Args:
        beside: characters of the link that has their table.
    """
    room = min(MOST_CHARACTERS, max(LEAST_CHARACTERS, BOTH_CHARACTERS - beside))
    if whole := _fitting(records, room):
        return whole, ""
    for most in (LONG_LIST, SHORT_LIST):
        thinned = f"lists of more than {most} entries, samples among them, are thinned to that many"
        if part := _fitting((_thinned(record, most) for record in records), room):
            return part, thinned
    count = len(records)
    while count:
        count //= 2
        kept = (_thinned(record, SHORT_LIST) if place < count else None for place, record in enumerate(records))
        if part := _fitting(kept, room):
            return part, f"{thinned}, and of the others than the first {count:,} there is the table alone"
    return link("records.json", "[]", "application/json"), "empty, for no record fits; all are in the table"


def _fitting(records: Iterable[object], room: int) -> dict[str, str] | None:
    """The link of these, if it has no more than `room` characters."""
    texts, left = [], RATIO * room
    for record in records:
        texts.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False, sort_keys=True))
        left -= len(texts[-1]) + 1
        if left < 0:
            return None
    whole = link("records.json", f"[{','.join(texts)}]", "application/json")
    return whole if len(whole["href"]) <= room else None


def _thinned(content: object, most: int) -> object:
    """The content with every list of more than `most` entries cut to that many, evenly spaced, ends included."""
    if isinstance(content, dict):
        return {key: _thinned(value, most) for key, value in content.items()}
    if isinstance(content, list):
        if len(content) > most:
            content = [content[place * (len(content) - 1) // (most - 1)] for place in range(most)]
        return [_thinned(value, most) for value in content]
    return content
