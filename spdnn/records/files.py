"""Run records, operation records and verdicts in files: read, checked and written."""

import contextlib
import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from spdnn.common.errors import InputError
from spdnn.common.files import existing, write_text
from spdnn.common.validation import UNREADABLE, builtins, check_numbers, parsed, shortened
from spdnn.records import operation_record
from spdnn.records.operation_record import OperationRecord
from spdnn.records.run_record import RunRecord, Verdict

Checked = TypeVar("Checked", RunRecord, OperationRecord, Verdict)


class _Kind(msgspec.Struct):
    schema: Any = None


def read_record(path: str | Path) -> RunRecord:
    """The run record in the file `path`; InputError when there is none that is sound."""
    return parsed_record(RunRecord, text_of(path, "run record"), str(path))


def read_records(path: str | Path) -> list[RunRecord]:
    """The run records in the file `path`: one, or one on each line of a .jsonl file; InputError as of read_record."""
    return [parsed_record(RunRecord, text, where) for text, where in _texts(path)]


def read_operations(path: str | Path) -> list[OperationRecord]:
    """The operation records in the file `path`. Raises InputError as of read_all, and where one is of another kind."""
    return [parsed_record(OperationRecord, text, where) for text, where in _texts(path)]


def read_verdict(path: str | Path) -> Verdict:
    """The verdict in the file `path`, passed or failed; InputError when there is none that is sound."""
    return parsed_record(Verdict, text_of(path, "verdict"), str(path))


def read_all(paths: Iterable[str | Path]) -> tuple[list[RunRecord], list[OperationRecord]]:
    """(run records, operation records) in these files, of either kind, .json or .jsonl.

    Raises:
        InputError: a file that is absent, no JSON, or holds a record that is not sound.
    """
    runs, operations = [], []
    with _nothing_collected():
        for path in paths:
            for text, where in _texts(path):
                if _is_operation(text):
                    operations.append(parsed_record(OperationRecord, text, where))
                else:
                    runs.append(parsed_record(RunRecord, text, where))
    return runs, operations


def write_record(path: str | Path, record: RunRecord | dict) -> None:
    """Check the record and write it to `path`, whole or not at all."""
    write_text(path, checked(RunRecord, record, str(path), indent=1)[1])


def write_verdict(path: str | Path, verdict: Verdict | dict) -> None:
    """Check the verdict and write it to `path`, whole or not at all."""
    write_text(path, checked(Verdict, verdict, str(path), indent=1)[1])


def write_operations(path: str | Path, records: Sequence[OperationRecord | dict]) -> None:
    """Check the records and write them to `path`, one on each line, whole or not at all."""
    where = (f"{path}, line {number}" for number in range(1, len(records) + 1))
    lines = [checked(OperationRecord, record, line)[1] for record, line in zip(records, where, strict=True)]
    write_text(path, "".join(lines))


def check_record(record: RunRecord | dict, where: str) -> RunRecord:
    """The record, as it is read from a file, when its verdict passed and its numbers agree.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    return checked(RunRecord, record, where)[0]


def check_operation(record: OperationRecord | dict, where: str) -> OperationRecord:
    """The record, as it is read from a file, when its output was verified and its numbers agree; else InputError."""
    return checked(OperationRecord, record, where)[0]


def check_verdict(verdict: Verdict | dict, where: str) -> Verdict:
    """The verdict, as it is read from a file, when its counts agree and it passes exactly when nothing is wrong."""
    return checked(Verdict, verdict, where)[0]


def checked(kind: type[Checked], content: Checked | dict, where: str, indent: int | None = None) -> tuple[Checked, str]:
    """(the sound object of class `kind` that `content` is, its text in a file); InputError when it is none."""
    text = as_text(content, where, indent)
    return parsed_record(kind, text, where), text


def as_text(content: Any, where: str, indent: int | None = None) -> str:
    """An object of typed classes, or a dictionary, in JSON: the text of a file, or a line of it.

    Raises:
        InputError: it holds something that JSON does not know.
    """
    check_numbers(content, where)
    try:
        content = builtins(content) if isinstance(content, msgspec.Struct) else content
        check_numbers(content, where)
        text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"
        text.encode()
    except UnicodeEncodeError:  # a command that names a file in another encoding: escaped, it can be written
        return json.dumps(content, indent=indent) + "\n"
    except UNREADABLE as error:
        raise InputError(f"{where}: it cannot be written as JSON ({shortened(str(error))})") from error
    return text


def parsed_record(kind: type[Checked], text: str, where: str) -> Checked:
    """The object of class `kind` that a text in JSON holds, when its claims hold; InputError when it is not sound."""
    value = parsed(kind, text, where, {Verdict: "verdict"}.get(kind, "run record"))
    for holds, wrong in value.claims():
        if not holds:
            raise InputError(f"{where}: {wrong}")
    return value


def text_of(path: str | Path, what: str) -> str:
    """The text of the file `path`; InputError when it is absent or no text; `what` it should be."""
    try:
        return existing(path, what).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it is not a {what} in JSON ({shortened(str(error))})") from error


def _texts(path: str | Path) -> list[tuple[str, str]]:
    """(text, where it is) of the records in the file `path`: one, or one on each line of a .jsonl file."""
    if Path(path).suffix != ".jsonl":
        return [(text_of(path, "run record"), str(path))]
    lines = text_of(path, "file of run records").removesuffix("\n").split("\n")  # texts hold other ends of lines
    return [(line, f"{path}, line {number}") for number, line in enumerate(lines if lines != [""] else [], 1)]


def _is_operation(text: str) -> bool:
    try:
        return msgspec.json.decode(text, type=_Kind).schema == operation_record.SCHEMA
    except UNREADABLE:  # text that is no Unicode, perhaps: its schema is still named in it
        return f'"{operation_record.SCHEMA}"' in text


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """The garbage collector is off: records leave no garbage, and a search takes a sixth of the time of reading."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
