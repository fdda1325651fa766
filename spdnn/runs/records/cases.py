"""What a workflow is to run, in a file that it writes first; and the files behind an argument RECORDS of a command."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from spdnn.core import safe_open
from spdnn.core.addresses import hide_secrets
from spdnn.core.errors import InputError
from spdnn.core.fields import Record, Unique, check_unique
from spdnn.core.files import write_text
from spdnn.core.safe_open import check_no_url
from spdnn.core.validation import parse
from spdnn.runs.records.files import as_text


class Cases(Record):
    """Which cases the configuration of a workflow asks for, whether they ran or not.

    Attributes:
        cases: their names, in the order of the configuration.
        configfiles: as they were given, the last one wins; empty for the default.
        command: that started the workflow.
        peers, ops: whether it measures other libraries, and sparse operations.
        decided: sentences on what the configuration left to the machine.
    """

    schema: Literal["spdnn-cases"]
    version: Literal[1]
    cases: Annotated[list[Annotated[str, Meta(min_length=1)]], Unique]
    configfiles: list[str]
    command: str
    peers: bool
    ops: bool
    decided: list[str]

    def __post_init__(self) -> None:
        check_unique("cases", self.cases)


def write_cases(
    path: str | Path,
    cases: Iterable[str],
    configfiles: Iterable[str | Path],
    command: Sequence[str],
    peers: bool = False,
    ops: bool = False,
    decided: Sequence[str] = (),
) -> None:
    """Write a file of Cases to `path`, in a folder that is made where there is none.

    Args:
        configfiles: of the configuration that asks for them, the last one wins; none: the default.
        command: the words that started the workflow; the file has no secret of an address in them.

    Raises:
        InputError: two cases of one name, or a `path` that cannot be written to.
    """
    content = {
        "schema": "spdnn-cases",
        "version": 1,
        "cases": list(cases),
        "configfiles": [str(file) for file in configfiles],
        "command": shlex.join(map(hide_secrets, command)),
        "peers": peers,
        "ops": ops,
        "decided": list(decided),
    }
    text = as_text(content, str(path), indent=1)
    parse(Cases, text, str(path), "list of cases")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def read_cases(path: str | Path) -> Cases:
    """The content of the file `path`; InputError when it is not sound."""
    return parse(Cases, safe_open.text(path, "list of cases"), str(path), "list of cases")


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
        if name.is_dir() and (other := next((path for path in records if not path.is_file()), None)):
            raise InputError(f"{other}: it is named as a record is, and is no file")
        raise InputError(f"{name}: {'no records there' if name.exists() else 'there is no such file or folder'}")
    return RecordFolder(records, verdicts, expected, decided)
