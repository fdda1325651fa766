"""The files behind an argument RECORDS of `spdnn report` and `spdnn compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spdnn.core.errors import InputError
from spdnn.core.files import check_no_url
from spdnn.runs.records.cases import read_cases


class RecordFolder(NamedTuple):
    """The files of one folder of records.

    Attributes:
        records: of run records and of operation records (.json: one; .jsonl: one on each line); each holds the
            verdict that allowed it.
        verdicts: passed or failed; the case of each is the name of its folder.
        expected: names of cases that were to be run, where a workflow wrote them down.
        decided: sentences on what its configuration left to the machine.
    """

    records: Sequence[Path]
    verdicts: Sequence[Path] = ()
    expected: Sequence[str] = ()
    decided: Sequence[str] = ()


def record_files(name: str | Path) -> RecordFolder:
    """The files at `name`: a file, a folder of files, or a workflow's results/ (with cases.json in it).

    Of a workflow's results/ these are the files of its last configuration: what earlier ones left there, and what was
    put there by hand, has to be named by itself (results/records).

    Raises:
        InputError: neither a record nor a verdict is there, or a list of cases that is not sound.
    """
    named, name = name, Path(name)
    verdicts, expected, decided = [], [], []
    if (name / "cases.json").is_file():
        configured = read_cases(name / "cases.json")
        expected, decided = configured.cases, configured.decided
        records = [path for case in expected if (path := name / "records" / f"{case}.json").is_file()]
        verdicts = [path for case in expected if (path := name / "runs" / case / "verdict.json").is_file()]
        records += sorted(name.glob("peers/*.json")) if configured.peers else []
        records += sorted(name.glob("ops/*.jsonl")) if configured.ops else []
    else:
        records = sorted([*name.glob("*.json"), *name.glob("*.jsonl")]) if name.is_dir() else [name]
    if name.is_dir():
        records = [path for path in records if not path.name.startswith(".")]  # a Mac's ._ files, among others
    if not (records or verdicts) or not all(path.is_file() for path in records):
        check_no_url(named)
        raise InputError(f"{name}: {'no records there' if name.exists() else 'there is no such file or folder'}")
    return RecordFolder(records, verdicts, expected, decided)
