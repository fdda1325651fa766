"""The cases and their verdicts: the first section, and the first sentences of the page.

Every case has a row, whether it passed, failed or was only verified. One sentence names the fastest run.
"""

from collections.abc import Sequence

from spdnn.records.run_record import Verdict
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once
from spdnn.report.networks import values as networks


def values(collection: Collection) -> dict | None:
    """What the section prints; None where nothing was run, and nothing was to be."""
    if collection.empty:
        return None
    cases = _cases(collection)
    failed = sum(not row["passed"] for row in cases)
    records = [*collection.records, *collection.operations]
    created = sorted(record.created for record in records)
    return {
        "cases": cases,
        "passed": len(cases) - failed,
        "failed": failed,
        "missing": [words.printable(case) for case in collection.missing],
        "withheld": [words.printable(case) for case in collection.withheld],
        "operations": len(collection.operations),
        "networks_run": sum(bool(row["plain"] or row["reduced"]) for row in networks.twelve(collection)),
        "machines": sorted({words.machine(record.environment) for record in records}),
        "dates": [created[0][:10], created[-1][:10]] if created else [],
        "commits": sorted({words.printable(record.environment.commit or "unknown", 40) for record in records}),
    }


def headline(collection: Collection) -> dict:
    """The page's first sentences: how it ended (`text`, `state` in a word), and who is fastest (`lead`, or None)."""
    cases, missing, operations = _cases(collection), collection.missing, len(collection.operations)
    failed = [row["case"] for row in cases if not row["passed"]]
    return {
        "text": _ending(cases, failed, missing, operations),
        "state": "failed" if failed else "missing" if missing else "empty" if collection.empty else "passed",
        "lead": _lead(networks.twelve(collection)),
    }


@once
def _cases(collection: Collection) -> list[dict]:
    """A row for each case: failures first, then those that were timed, then the others."""
    judged = collection.judged
    rows = [_case(case, verdict, None) for case, verdict in judged if not verdict.passed]
    rows += [_case(record.case, record.verdict, number) for number, record in enumerate(collection.records)]
    return rows + [_case(case, verdict, None) for case, verdict in judged if verdict.passed]


def _case(case: str, verdict: Verdict, number: int | None) -> dict:
    return {"case": words.printable(case), "passed": verdict.passed, "number": number, "verdict": verdict}


def _ending(cases: Sequence[dict], failed: Sequence[str], missing: Sequence[str], operations: int) -> str:
    count = words.plural(len(cases), "case")
    if not cases and operations:
        records = words.plural(operations, "operation record")
        text = f"{records}, and {'it' if operations == 1 else 'all'} passed verification"
    elif not cases:
        text = "Nothing was run: there are no records and no verdicts"
    elif failed:
        text = f"{count} run, and {len(failed):,} failed verification: {words.listed(failed)}"
    else:
        text = f"{count} run, and {'it' if len(cases) == 1 else 'all'} passed verification"
    return f"{text}; {words.plural(len(missing), 'case')} missing that should have run." if missing else f"{text}."


def _lead(twelve: Sequence[dict]) -> str | None:
    """The fastest of ours with reductions and without, each compared with the best published on that network."""
    parts = []
    for key, how in (("reduced", "with exact reductions on"), ("plain", "with no reductions")):
        if rows := [row for row in twelve if row[key]]:
            row = max(rows, key=lambda row: (row[key]["comparable"], row[key]["rate"].median))
            parts.append(_compared(row, row[key], how))
    return f"Fastest here {'; '.join(parts)}." if parts else None


def _compared(row: dict, ours: dict, how: str) -> str:
    inputs = "" if ours["comparable"] else " (not on the official inputs)"
    rate = ours["rate"].median
    text = f"{how}: {words.tera(rate)} TeraEdges/s on {row['neurons']:,} × {row['layers']:,}{inputs}"
    one, best = row["best"]["one"], row["best"]["any"]
    if best is None:
        return text
    label, times = networks.label(best), words.significant(rate / best.edges_per_second, 3)
    if one in (None, best):
        return f"{text}, {times} times the best published there ({label})"
    alone = words.significant(rate / one.edges_per_second, 3)
    return f"{text}, {alone} times the best published on one device and {times} times that on any ({label})"
