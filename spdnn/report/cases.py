"""The cases and their verdicts: a section, and the line on the page's first screen.

Every case has a row, whether it passed, failed or was only verified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spdnn.core.shown import listed, plural
from spdnn.core.table import NUMBER, Column, Number, Phrase, Table, bad, good, mark
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Section
from spdnn.report.common.collection import Collection, once
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.verdict import Verdict

NAME, TITLE = "cases", "Verification"
# With what outputs were compared, by the kind of truth.
COMPARED = {"official": "the official categories", "oracle": "a float64 reference", "file": "a file of categories"}
MOST_WITHHELD = 20  # sentences
RULE = "A case passes when its categories and every value checked are right; otherwise no number of it is shown."
SAMPLE = (
    "A sample has three groups of inputs. Value by value: active inputs drawn before the run. By category, sum, "
    "projection, smallest and largest value: the rest of the sample. Not compared: inputs outside the sample."
)


@dataclass(frozen=True)
class Case:
    """A case: its verdict, and the number of its record on the page and what the record lacks; None without one."""

    name: str
    verdict: Verdict
    number: int | None = None
    lacks: Sequence[str] | None = None


def _inputs(case: Case) -> Phrase:
    """How many were compared value by value, by category, sums and extremes, and not at all."""
    truth, every = case.verdict.truth, case.verdict.values.every
    return Number(every), "; ", Number(truth.checked - every), "; ", Number(truth.inputs - truth.checked)


def _record(case: Case) -> Phrase:
    return "none" if case.lacks is None else mark(f"lacks: {'; '.join(case.lacks)}") if case.lacks else "whole"


CASES = Table(
    "Cases and their verification",
    [
        Column("Case", lambda case: case.name),
        Column(
            "Result",
            lambda case: good("passed") if case.verdict.passed else bad("failed"),
            below=lambda case: mark("not timed") if case.verdict.passed and case.number is None else None,
        ),
        Column("Record", _record),
        Column("Compared with", lambda case: words.truth(case.verdict)),
        Column("Inputs compared value by value; by category, sums and extremes; not", _inputs, NUMBER),
        Column("Categories, of the inputs compared", lambda case: case.verdict.categories, NUMBER),
        Column("Expected", lambda case: case.verdict.expected, NUMBER),
        Column("Borderline", lambda case: case.verdict.borderline.count, NUMBER),
        Column(
            "Values",
            lambda case: case.verdict.values.rule,
            below=lambda case: bad("; ".join(case.verdict.reasons)) if case.verdict.reasons else None,
        ),
    ],
    "Cases and their verification, failures first",
    record=lambda case: case.number,
    kind=lambda case: "" if case.verdict.passed else "failed",
)


def section(collection: Collection) -> Section | None:
    """The section; None where nothing was run, and nothing was to be."""
    if collection.empty:
        return None
    cases, operations = every_case(collection), _operations(len(collection.operations))
    failed = sum(not case.verdict.passed for case in cases)
    blocks: list[Block] = [Paragraph(f"{operations.capitalize()} passed verification.")]
    if cases or collection.missing:
        count = [f"{len(cases) - failed:,} passed"]
        count += [bad(f"{failed:,} failed")] if failed else []
        count += [f"{len(collection.missing):,} missing"] if collection.missing else []
        joined = [part for text in count for part in (text, ", ")][:-1]
        blocks = [Paragraph([*joined, f"; {operations} passed. " if operations else ". ", RULE])]
    if any(case.verdict.truth.checked < case.verdict.truth.inputs for case in cases):
        blocks.append(Paragraph(SAMPLE))
    if ran := ran_on(collection):
        blocks.append(Paragraph(ran, "soft"))
    for case in collection.withheld[:MOST_WITHHELD]:
        sentence = "a record exists, but another run of this case failed verification, so its numbers are left out."
        blocks.append(Paragraph(f"{case}: {sentence}", "note"))
    if collection.missing:
        sentence = f"Configured, but neither passed nor failed: {listed(collection.missing, 40)}."
        blocks.append(Paragraph(sentence, "note"))
    if cases:
        blocks.append(CASES.of(cases, opened=bool(failed)))
    return Section(NAME, TITLE, blocks)


def ran_on(collection: Collection) -> str:
    """Machines, days and commits of the records, in a sentence; empty without one."""
    records = [*collection.records, *collection.operations]
    if not records:
        return ""
    machines = sorted({words.machine(record.environment) for record in records})
    days = sorted({record.created[:10] for record in records})
    commits = sorted({record.environment.commit or "unknown" for record in records})
    when = f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"
    what = "commit" if len(commits) == 1 else "commits"
    return (
        f"{plural(len(machines), 'machine')}: {listed(machines, between='; ')}. Run {when}, {what} {listed(commits)}."
    )


class Outcome(NamedTuple):
    """How it ended: in a sentence, in a few words and in a word (passed, failed, missing, empty); what was compared."""

    ending: str
    short: str
    state: str
    compared: str


def outcome(collection: Collection) -> Outcome:
    """How all of it ended."""
    cases, missing, operations = every_case(collection), collection.missing, collection.operations
    verdicts, failed = [case.verdict for case in cases], [case.name for case in cases if not case.verdict.passed]
    count, state, compared = plural(len(cases), "case"), "passed", _comparison_text(verdicts)
    if failed:
        state, short = "failed", f"{len(failed):,} of {count} failed"
        ending = f"{count} run, and {len(failed):,} failed verification: {listed(failed)}"
    elif cases:
        passed = f"passed{_sample(verdicts) or ' verification'}"
        short = passed if len(cases) == 1 else f"all {count} {passed}"
        ending = f"{count} run, and {'it' if len(cases) == 1 else 'all'} {passed}"
    elif operations:
        short, compared = f"{_operations(len(operations))} passed verification", _entries(operations)
        ending = short.capitalize()
    else:
        state, short = "empty", ""
        ending = "Nothing was run: there are no records and no verification results"
    if missing:
        absent = f"{plural(len(missing), 'case')} missing"
        ending = f"{ending}; {absent} that should have run"
        state, short = (state, short) if failed else ("missing", absent)
    return Outcome(f"{ending}.", short, state, compared)


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
def every_case(collection: Collection) -> list[Case]:
    """A row for each case: failures first, then those that were timed, then the others."""
    failed = [Case(case, verdict) for case, verdict in collection.judged if not verdict.passed]
    timed = [
        Case(record.case, record.verdict, number, list(record.missing_evidence()))
        for number, record in enumerate(collection.records)
    ]
    return failed + timed + [Case(case, verdict) for case, verdict in collection.judged if verdict.passed]


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
        parts.append(f"{count} with {truth} ({plural(len(several), 'case')})")
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
    return f"Compared: {count} output values with {reference}."
