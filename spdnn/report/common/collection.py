"""What the page is made of: the records and verdicts of one or several folders, and what each was to hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from spdnn.common.validation import builtins
from spdnn.records.run_record import RunRecord

Entry = TypeVar("Entry")


class Plain(dict):
    """A run record as the dictionary that a file holds, with the object that it is as `typed`."""

    def __init__(self, record: RunRecord):
        super().__init__(builtins(record))
        self.typed = record


def typed(record: dict) -> RunRecord:
    """The object that a run record in a dictionary is."""
    return record.typed if isinstance(record, Plain) else msgspec.convert(record, RunRecord)


class Part(NamedTuple):
    """What one folder holds, of one machine, say. A case of one is not the case of that name in another.

    Attributes:
        records: checked run records.
        verdicts: (case, checked verdict), passed or failed; of cases that may have no record.
        expected: the cases that were to be run, where that is known.
    """

    records: Sequence[dict] = ()
    verdicts: Sequence[tuple[str, dict]] = ()
    expected: Sequence[str] = ()


class Collected(NamedTuple):
    """All parts together.

    Attributes:
        records: those whose case no verdict of their part failed; each once, in an order of their contents.
        judged: (case, verdict) of cases that have no record here, failures first.
        withheld: the cases of records that a failed verdict took away.
        missing: cases that were to be run, and have neither a record nor a verdict.
    """

    records: list[dict]
    judged: list[tuple[str, dict]]
    withheld: list[str]
    missing: list[str]


def collect(parts: Iterable[Part]) -> Collected:
    """The parts as one, the same for any order of them and of what they hold."""
    records: dict[str, dict] = {}
    judged: dict[str, tuple[str, dict]] = {}
    withheld: dict[str, str] = {}
    missing: set[str] = set()
    for part in parts:
        failed = {case for case, verdict in part.verdicts if not verdict["passed"]}
        timed = {record["case"] for record in part.records}
        for record in part.records:
            (withheld if record["case"] in failed else records)[_text(record)] = record
        for case, verdict in part.verdicts:
            if case in failed or case not in timed:
                judged[_text([case, verdict])] = case, verdict
        missing |= set(part.expected) - timed - {case for case, _ in part.verdicts}
    # A record that one part withholds is shown by no other.
    shown = [record for text, record in records.items() if text not in withheld]
    return Collected(
        sorted(shown, key=_order),
        sorted(judged.values(), key=lambda one: (one[1]["passed"], one[0], _text(one[1]))),
        sorted({record["case"] for record in withheld.values()}),
        sorted(missing),
    )


def distinct(contents: Iterable[dict]) -> list[dict]:
    """The contents without repeats of what is the same to the last value, in an order of their own."""
    found = {_text(content): content for content in contents}
    return [found[text] for text in sorted(found)]


def fair(entries: Sequence[Entry], most: int, setting, age) -> list[Entry]:
    """At most `most` of the entries, in their order: of every setting the latest, before the second of any.

    Args:
        setting: of an entry: what it is one more of.
        age: of an entry: what orders those of one setting, the latest last.
    """
    if len(entries) <= most:
        return list(entries)
    groups: dict[object, list[int]] = {}
    for place, entry in enumerate(entries):
        groups.setdefault(setting(entry), []).append(place)
    turns = []
    for members in groups.values():
        members.sort(key=lambda place: (age(entries[place]), place), reverse=True)
        turns += [(turn, place) for turn, place in enumerate(members)]
    return [entries[place] for place in sorted(place for _, place in sorted(turns)[:most])]


def fair_runs(runs: Sequence[dict], most: int) -> list[dict]:
    """At most that many runs of `model.page`, of every setting the latest."""
    return fair(runs, most, lambda run: (run["case"], run["told"]), lambda run: run["record"]["created"])


def _order(record: dict) -> tuple:
    problem = record["problem"]
    return problem["neurons"], problem["layers"], record["case"], record["created"], _text(record)


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True)
