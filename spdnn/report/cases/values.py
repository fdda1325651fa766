"""The cases and their verdicts: a section, and the line on the page's first screen.

Every case has a row, whether it passed, failed or was only verified.
"""

from collections.abc import Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.verdict import Verdict

COMPARED = {
    "official": "the official categories",
    "oracle": "a float64 reference",
    "file": "a file of categories",
}  # with what, by the kind of truth


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
        "sampled": sum(row["verdict"].truth.checked < row["verdict"].truth.inputs for row in cases),
        "operations": _operations(len(collection.operations)),
        "machines": sorted({words.machine(record.environment) for record in records}),
        "dates": [created[0][:10], created[-1][:10]] if created else [],
        "commits": sorted({words.printable(record.environment.commit or "unknown", 40) for record in records}),
    }


def headline(collection: Collection) -> dict:
    """How it ended, in a sentence (`ending`), in `short` and in a word (`state`), and what was `compared`."""
    cases, missing, operations = _cases(collection), collection.missing, collection.operations
    failed = [row["case"] for row in cases if not row["passed"]]
    sample = _sample([row["verdict"] for row in cases])
    return {
        "ending": _ending(cases, failed, missing, len(operations), sample),
        "compared": _comparison_text([row["verdict"] for row in cases]) if cases else _entries(operations),
        "short": _short(len(cases), len(failed), len(missing), len(operations), sample),
        "state": "failed" if failed else "missing" if missing else "empty" if collection.empty else "passed",
    }


def _short(cases: int, failed: int, missing: int, operations: int, sample: str) -> str:
    """How it ended, in a few words."""
    if failed:
        return f"{failed:,} of {words.plural(cases, 'case')} failed"
    if missing:
        return f"{words.plural(missing, 'case')} missing"
    if operations and not cases:
        return f"{_operations(operations)} passed verification"
    return f"{f'all {cases:,} cases ' if cases > 1 else ''}passed{sample or ' verification'}"


def _operations(count: int) -> str:
    """Operation records in words, each of a program; empty for none."""
    return f"all {count:,} timed programs" if count > 1 else "the one timed program" if count else ""


def _sample(verdicts: Sequence[Verdict]) -> str:
    """How many cases were compared on a sample alone, to follow "passed"; empty where none was."""
    count = sum(verdict.truth.checked < verdict.truth.inputs for verdict in verdicts)
    if not count:
        return ""
    if count == len(verdicts):
        return " on a sample" if count == 1 else ", each on a sample"
    return f", {count:,} on a sample"


@once
def _cases(collection: Collection) -> list[dict]:
    """A row for each case: failures first, then those that were timed, then the others."""
    judged = collection.judged
    rows = [_case(case, verdict, None) for case, verdict in judged if not verdict.passed]
    for number, record in enumerate(collection.records):
        rows.append(_case(record.case, record.verdict, number) | {"lacks": list(record.missing_evidence())})
    return rows + [_case(case, verdict, None) for case, verdict in judged if verdict.passed]


def _case(case: str, verdict: Verdict, number: int | None) -> dict:
    return {
        "case": words.printable(case),
        "passed": verdict.passed,
        "number": number,
        "verdict": verdict,
        "lacks": None,
    }


def _comparison_text(verdicts: Sequence[Verdict]) -> str:
    """How many inputs were compared, and with what; where cases differ, of the one with the smallest share."""
    parts = []
    for kind, truth in COMPARED.items():
        several = [verdict.truth for verdict in verdicts if verdict.truth.kind == kind]
        if not several:
            continue
        least = min(several, key=lambda verdict: (verdict.checked / max(verdict.inputs, 1), verdict.inputs))
        same = len({(verdict.checked, verdict.inputs) for verdict in several}) == 1
        if least.checked == least.inputs:
            count = f"all {least.inputs:,} inputs" if same else "all inputs"
        else:
            count = f"{'' if same else 'at least '}{least.checked:,} of {least.inputs:,} inputs"
        parts.append(f"{count} with {truth} ({words.plural(len(several), 'case')})")
    return f"Compared: {'; '.join(parts)}." if parts else ""


def _entries(operations: Sequence[OperationRecord]) -> str:
    """How many outputs of operations were compared."""
    checked, entries = (
        sum(getattr(operation.verification, name) for operation in operations) for name in ("checked", "entries")
    )
    count = "all" if checked == entries else f"{checked:,} of {entries:,}"
    reference = "a float64 reference"
    if any("ONNX Runtime" in operation.verification.rule for operation in operations):
        reference += " or ONNX Runtime"
    return f"Compared: {count} output values with {reference}." if operations else ""


def _ending(cases: Sequence[dict], failed: Sequence[str], missing: Sequence[str], operations: int, sample: str) -> str:
    """How it ended, in a sentence."""
    count = words.plural(len(cases), "case")
    if not cases and operations:
        text = f"{_operations(operations).capitalize()} passed verification"
    elif not cases:
        text = "Nothing was run: there are no records and no verification results"
    elif failed:
        text = f"{count} run, and {len(failed):,} failed verification: {words.listed(failed)}"
    else:
        text = f"{count} run, and {'it' if len(cases) == 1 else 'all'} passed{sample or ' verification'}"
    return f"{text}; {words.plural(len(missing), 'case')} missing that should have run." if missing else f"{text}."
