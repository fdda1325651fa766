"""The first section: what was run and how it ended, and in one sentence who is fastest."""

from __future__ import annotations

from collections.abc import Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collected
from spdnn.report.networks import values as networks


def section(collected: Collected, runs: Sequence[dict], twelve: Sequence[dict], products: Sequence[dict]) -> dict:
    """What the section prints.

    Args:
        collected: the records and verdicts.
        runs: of its records, as `model.page` makes them.
        twelve: the rows of `networks.twelve`.
        products: checked operation records.
    """
    cases = _cases(collected)
    failed = [row["case"] for row in cases if not row["passed"]]
    places = [record["environment"] for record in (*collected.records, *products)]
    created = sorted(record["created"] for record in (*collected.records, *products))
    return {
        "headline": _headline(cases, failed, collected.missing, len(products)),
        "state": "failed" if failed else "missing" if collected.missing else "passed" if cases or products else "empty",
        "lead": _lead(twelve),
        "cases": cases,
        "passed": len(cases) - len(failed),
        "failed": len(failed),
        "missing": [words.printable(case) for case in collected.missing],
        "withheld": [words.printable(case) for case in collected.withheld],
        "operations": len(products),
        "networks_run": sum(bool(row["plain"] or row["reduced"]) for row in twelve),
        "timed": len(runs),
        "machines": sorted({words.machine(place) for place in places}),
        "dates": [created[0][:10], created[-1][:10]] if created else [],
        "commits": sorted({words.printable(place["commit"] or "not known", 40) for place in places}),
    }


def _cases(collected: Collected) -> list[dict]:
    """A row for each case: failures first, then those that were timed, then the others."""
    judged = collected.judged
    rows = [_case(case, verdict, None) for case, verdict in judged if not verdict["passed"]]
    rows += [_case(record["case"], record["verdict"], number) for number, record in enumerate(collected.records)]
    return rows + [_case(case, verdict, None) for case, verdict in judged if verdict["passed"]]


def _case(case: str, verdict: dict, number: int | None) -> dict:
    return {
        "case": words.printable(case),
        "passed": verdict["passed"],
        "number": number,
        "truth": words.truth(verdict),
        "found": verdict["categories"],
        "expected": verdict["expected"],
        "borderline": verdict["borderline"]["count"],
        "values": words.printable(verdict["values"]["rule"]),
        "reasons": [words.printable(reason, 400) for reason in verdict["reasons"]],
    }


def _headline(cases: Sequence[dict], failed: Sequence[str], missing: Sequence[str], products: int) -> str:
    count = words.plural(len(cases), "case")
    if not cases and products:
        records = words.plural(products, "operation record")
        text = f"{records}, and {'it' if products == 1 else 'all'} passed verification"
    elif not cases:
        text = "Nothing was run: there are no records and no verdicts"
    elif failed:
        text = f"{count} run, and {len(failed):,} failed verification: {words.listed(failed)}"
    else:
        text = f"{count} run, and {'it' if len(cases) == 1 else 'all'} passed verification"
    return f"{text}; {words.plural(len(missing), 'case')} missing that should have run." if missing else f"{text}."


def _lead(twelve: Sequence[dict]) -> str | None:
    """The fastest of ours with reductions and without, each beside the best published on that network."""
    told = []
    for key, how in (("reduced", "with exact reductions on"), ("plain", "with no reductions")):
        known = [row for row in twelve if row[key]]
        if known:
            row = max(known, key=lambda row: (row[key]["comparable"], row[key]["rate"]))
            told.append(_compared(row, row[key], how))
    return f"Fastest here {'; '.join(told)}." if told else None


def _compared(row: dict, ours: dict, how: str) -> str:
    inputs = "" if ours["comparable"] else " (not on the official inputs)"
    text = f"{how}: {words.tera(ours['rate'])} TeraEdges/s on {row['neurons']:,} × {row['layers']:,}{inputs}"
    one, best = row["best"]["one"], row["best"]["any"]
    if best is None:
        return text
    told, times = networks.told(best), words.significant(ours["rate"] / best.edges_per_second, 3)
    if one in (None, best):
        return f"{text}, {times} times the best published there ({told})"
    alone = words.significant(ours["rate"] / one.edges_per_second, 3)
    return f"{text}, {alone} times the best published on one device and {times} times that on any ({told})"
