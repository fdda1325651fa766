"""The contents of the page: records and verdicts of one or several folders, and the published tables.

A failed verdict takes the numbers of its case off the page here, before any section sees them. The order of the files
does not matter.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from operator import attrgetter
from typing import NamedTuple, TypeVar

from spdnn.core.validation import builtins
from spdnn.report.common import groups, words
from spdnn.report.common.groups import Group
from spdnn.report.common.run_rows import RunRow, name_runs
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import Baseline, OperationBaseline
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.verdict import Verdict

Argument, Entry = TypeVar("Argument"), TypeVar("Entry")


class Part(NamedTuple):
    """What one folder holds, of one machine, say. A case of one is not the case of that name in another.

    Attributes:
        records: checked run records.
        verdicts: (case, checked verdict), passed or failed; of cases that may have no record.
        expected: the cases that were to be run, where a list of them is there.
    """

    records: Sequence[RunRecord] = ()
    verdicts: Sequence[tuple[str, Verdict]] = ()
    expected: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Collection:
    """All parts together, and the published results.

    Attributes:
        records: run records whose case no verdict of their part failed; each once, in an order of their contents.
        judged: (case, verdict) of cases that have no record here, failures first.
        withheld: the cases of records that a failed verdict took away.
        missing: cases that were to be run, and have neither a record nor a verdict.
        operations: operation records, each once, in an order of their contents.
        baselines: the published results.
        operation_baselines: the published figures of operations.
        decided: sentences on what the configurations of workflows left to the machine.
        others: records of other runs, by the name of their group; nothing else here has them.
    """

    records: Sequence[RunRecord]
    judged: Sequence[tuple[str, Verdict]]
    withheld: Sequence[str]
    missing: Sequence[str]
    operations: Sequence[OperationRecord]
    baselines: Sequence[Baseline]
    operation_baselines: Sequence[OperationBaseline]
    decided: Sequence[str] = ()
    others: "Mapping[str, Collection]" = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing was run, and nothing was to be."""
        return not (self.records or self.judged or self.missing or self.operations)

    @cached_property
    def runs(self) -> list[RunRow]:
        """The run records as the page prints them; placed where there are several machines or a GPU."""
        # Code differs from machine to machine, so a record is old by the newest one of its own machine.
        machines = [words.machine(record.environment) for record in self.records]
        order = sorted(zip(self.records, machines, strict=True), key=lambda pair: pair[0].created)
        newest = {machine: record.environment.code for record, machine in order}
        runs = []
        for number, (record, machine) in enumerate(zip(self.records, machines, strict=True)):
            placed = len(newest) > 1 or bool(record.environment.gpu)
            runs.append(RunRow(record, number, placed, older=record.environment.code != newest[machine]))
        name_runs(runs)
        return runs

    @cached_property
    def own(self) -> list[RunRow]:
        """The runs that are of no comparison with other libraries."""
        return [run for run in self.runs if not run.record.comparison]

    @cached_property
    def operation_numbers(self) -> dict[int, int]:
        """By the identity of each operation record, its number on the page: they follow the run records."""
        return {id(record): number for number, record in enumerate(self.operations, len(self.records))}

    @cached_property
    def scaling(self) -> list[Group]:
        """Runs that differ in their ranks, threads or GPUs."""
        return groups.scaling(self.own)


def once(function: Callable[[Argument], Entry]) -> Callable[[Argument], Entry]:
    """A decorator: the function's value for a collection, or a run, is computed once, however many ask for it."""

    @wraps(function)
    def cached(argument: Argument) -> Entry:
        values = vars(argument)  # where cached properties are too
        if function not in values:
            values[function] = function(argument)
        return values[function]

    return cached


def collect(
    parts: Iterable[Part],
    baselines: Sequence[Baseline] = (),
    operations: Iterable[OperationRecord] = (),
    operation_baselines: Sequence[OperationBaseline] = (),
) -> Collection:
    """The parts as one, with checked operation records and the published tables; the same for any order of them."""
    records: dict[str, RunRecord] = {}
    judged: dict[str, tuple[str, Verdict]] = {}
    withheld: dict[str, RunRecord] = {}
    missing: set[str] = set()
    for part in parts:
        # A case name means one case within a part only, so verdicts count for the records of their own part.
        failed = {case for case, verdict in part.verdicts if not verdict.passed}
        cases = {record.case for record in part.records}
        # By content, so that a record that lies in two folders is shown once.
        for record in part.records:
            (withheld if record.case in failed else records)[_text(record)] = record
        # A passed verdict with a record is in that record; only the others say something new.
        for case, verdict in part.verdicts:
            if case in failed or case not in cases:
                judged[_text([case, verdict])] = case, verdict
        # A case that was to be run and left neither file would otherwise vanish without a word.
        missing |= set(part.expected) - cases - {case for case, _ in part.verdicts}
    # A record that one part withholds is shown by no other.
    texts = sorted(records.keys() - withheld.keys())
    order = attrgetter("problem.neurons", "problem.layers", "case", "created")
    shown = sorted((records[text] for text in texts), key=order)
    operation_of = {_text(record): record for record in operations}
    return Collection(
        shown,
        sorted(judged.values(), key=lambda pair: (pair[1].passed, pair[0], _text(pair[1]))),
        sorted({record.case for record in withheld.values()}),
        sorted(missing),
        [operation_of[text] for text in sorted(operation_of)],
        baselines,
        operation_baselines,
    )


def _text(content: object) -> str:
    return json.dumps(builtins(content), sort_keys=True)
