"""The files behind an argument RECORDS of `spdnn report` and `spdnn compare`."""

from pathlib import Path
from typing import NamedTuple

from spdnn.common.errors import InputError
from spdnn.common.files import check_no_url


class RecordFiles(NamedTuple):
    """Paths of run and operation records, and of verdicts, each in the folder that is named as its case."""

    records: list[Path]
    verdicts: list[Path]


def record_files(name: str | Path) -> RecordFiles:
    """The files at `name`: a file, a folder of files, or a workflow's results/ (with `records` or cases.json in it).

    Raises:
        InputError: neither a record nor a verdict is there.
    """
    named, name = name, Path(name)
    if (name / "records").is_dir() or (name / "cases.json").is_file():
        records, verdicts = sorted((name / "records").glob("*.json")), sorted(name.glob("runs/*/verdict.json"))
        records += sorted([*name.glob("measured/*/*.jsonl"), *name.glob("peers/*.json"), *name.glob("ops/*.jsonl")])
    else:
        records = sorted([*name.glob("*.json"), *name.glob("*.jsonl")]) if name.is_dir() else [name]
        verdicts = []
    if name.is_dir():
        records = [path for path in records if not path.name.startswith(".")]  # a Mac's ._ files, among others
    if not (records or verdicts) or not all(path.is_file() for path in records):
        check_no_url(named)
        raise InputError(f"{name}: no record there")
    return RecordFiles(records, verdicts)
