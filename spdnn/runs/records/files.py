"""Run records, operation records and verdicts in files: read, checked and written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec.structs import replace

from spdnn.core import safe_open
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.files import replacing, write_text
from spdnn.core.request import RunRequest
from spdnn.core.result import LayerWork, PartOutputs, Result
from spdnn.core.validation import builtins, check_numbers, encode, parse
from spdnn.runs.records.result import Accuracy
from spdnn.runs.records.run_record import RUN_VERSION, SCHEMA, Measured, Measurement, RunRecord
from spdnn.runs.records.verdict import Verdict

if TYPE_CHECKING:
    from spdnn.runs.records.operation_record import OperationRecord

NUMBERS = {"inputs", "outputs", "edges_computed", "bytes_moved", "bytes_loaded"}  # of a result; bytes may be missing
Checked = TypeVar("Checked", RunRecord, "OperationRecord", Verdict)
Sealed = TypeVar("Sealed", RunRecord, "OperationRecord")


def read_record(path: str | Path) -> RunRecord:
    """The run record in the file `path`; InputError when there is none that is sound."""
    return parse_record(RunRecord, safe_open.text(path, "run record"), str(path))


def read_verdict(path: str | Path) -> Verdict:
    """The verdict in the file `path`, passed or failed; InputError when there is none that is sound."""
    return parse_record(Verdict, safe_open.text(path, "verdict"), str(path))


def read_all(paths: Iterable[str | Path]) -> tuple[list[RunRecord], list[OperationRecord]]:
    """(run records, operation records) in .json and .jsonl files; InputError: one is absent, no JSON or not sound."""
    from spdnn.runs.records.operation_record import SCHEMA, OperationRecord

    runs, operations = [], []
    for path in paths:
        several = Path(path).suffix == ".jsonl"
        whole = safe_open.text(path, "file of run records" if several else "run record")
        records = {str(path): whole}
        if several:  # a record on each line; texts hold other ends of lines
            lines = enumerate(whole.removesuffix("\n").split("\n"), 1)
            records = {f"{path}, line {number}": line for number, line in lines if whole not in ("", "\n")}
        for where, text in records.items():
            if f'"{SCHEMA}"' in text:  # which is no part of a longer text: quotes in one are escaped
                operations.append(parse_record(OperationRecord, text, where))
            else:
                runs.append(parse_record(RunRecord, text, where))
    return runs, operations


def write_record(path: str | Path, record: RunRecord | dict) -> None:
    """Check the record and write it to `path`, whole or not at all."""
    write_text(path, as_text(check_content(RunRecord, record, str(path)), str(path), indent=1))


def record_of(
    case: str,
    measurement: Measured,
    verdict: Verdict,
    command: str,
    comparison: str | None = None,
    request: RunRequest | None = None,
    configuration: str | None = None,
    accuracy: Accuracy | None = None,
) -> RunRecord:
    """The run record of a measured and judged case, sealed.

    Args:
        comparison: of engines that were timed alternately.
        request: what was asked for; None: single layers beside other libraries.
        configuration: the workflow's configuration files by name; None: the run was not the workflow's.
        accuracy: of the output; None: no labels were given.

    Raises:
        SpdnnError: the verdict did not pass: an unverified run has no number.
    """
    if not verdict.passed:
        raise SpdnnError(f"{case}: verification failed ({'; '.join(verdict.reasons)}), so there is no record")
    parts = {name: getattr(measurement, name) for name in Measured.__struct_fields__}
    parts["environment"] = replace(measurement.environment, command=command)
    if verdict.truth.kind != "official":  # an official result is one that the official truth judged
        parts["problem"] = replace(measurement.problem, official=None)
    record = RunRecord(
        schema=SCHEMA, version=RUN_VERSION, case=case, created=now(), request=request, configuration=configuration,
        comparison=comparison, accuracy=accuracy, verdict=verdict, seal=None, **parts,
    )  # fmt: skip
    return seal_record(record, case)


def now() -> str:
    """The time as records have it, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_samples(path: str | Path) -> Measurement:
    """A measurement as `write_samples` wrote it; InputError where the file is none."""
    return parse(Measurement, safe_open.text(path, "samples file"), str(path), "samples file")


def write_samples(path: str | Path, measurement: Measurement) -> None:
    """Write a measurement; InputError where it holds what JSON does not know."""
    write_text(path, as_text(measurement, str(path), indent=1))


def write_result(path: str | Path, result: Result) -> None:
    """Write survivors, row sums, extremes, hashes and the values of the inputs that were drawn, as .npz."""
    arrays = result.arrays()
    numbers = {name: getattr(result, name) for name in NUMBERS if getattr(result, name) is not None}
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays, **numbers)


@safe_open.releasing()
def read_result(path: str | Path) -> Result:
    """A result as `write_result` wrote it; InputError where the file is none."""
    from spdnn.formats.tensors import NpzArchive

    stored = NpzArchive(path)
    with safe_open.sound(f"{path}: not a result of an inference"):
        parts = dict(stored)
        for name in NUMBERS & parts.keys():
            parts[name] = int(parts[name])
        counted = {name: parts.pop(f"layer_{name}") for name in LayerWork._fields if f"layer_{name}" in parts}
        if counted:
            counted["sparse"] = bool(counted["sparse"])
            parts["counts"] = LayerWork(**counted)
        if "part_shapes" in parts:
            parts["parts"] = PartOutputs(parts.pop("part_shapes"), parts.pop("part_values"))
        result = Result(**parts)
        result.check()
        return result


def write_verdict(path: str | Path, verdict: Verdict | dict) -> None:
    """Check the verdict and write it to `path`, whole or not at all."""
    write_text(path, as_text(check_content(Verdict, verdict, str(path)), str(path), indent=1))


def write_operations(path: str | Path, records: Sequence[OperationRecord | dict]) -> None:
    """Check the records and write them to `path`, one on each line, whole or not at all."""
    from spdnn.runs.records.operation_record import OperationRecord

    places = [(record, f"{path}, line {number}") for number, record in enumerate(records, 1)]
    write_text(path, "".join(as_text(check_content(OperationRecord, *place), place[1]) for place in places))


def seal_record(record: Sealed, where: str) -> Sealed:
    """The record as it is read from a file, with the digest of all that it says; InputError when it is not sound."""
    plain = check_content(type(record), replace(record, seal=None), where)
    return replace(plain, seal=_seal(plain))


def _seal(record: RunRecord | OperationRecord) -> str:
    """The seal that a record should have, whether it has one or not."""
    return hashlib.sha256(encode(replace(record, seal=None))).hexdigest()


def check_content(kind: type[Checked], content: Checked | dict, where: str) -> Checked:
    """The object of class `kind` that `content` is when it is read from a file; InputError when it is not sound."""
    return parse_record(kind, as_text(content, where), where)


def as_text(content: Any, where: str, indent: int | None = None) -> str:
    """An object of typed classes, or a dictionary, in JSON: the text of a file, or a line of it.

    Names of files in another encoding than UTF-8 are no Unicode; what is not becomes a number, such as &#56553;.
    InputError where it holds something that JSON does not know.
    """
    with safe_open.sound(f"{where}: it cannot be written as JSON"):
        content = builtins(content)
        check_numbers(content, where)
        text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
        return text.encode(errors="xmlcharrefreplace").decode()


def parse_record(kind: type[Checked], text: str, where: str) -> Checked:
    """The object of class `kind` that a text in JSON holds, when its claims hold; InputError when it is not sound."""
    value = parse(kind, text, where, {Verdict: "verdict"}.get(kind, "run record"))
    for holds, wrong in value.claims():
        if not holds:
            raise InputError(f"{where}: {wrong}")
    if not isinstance(value, Verdict) and value.seal and value.seal != _seal(value):
        raise InputError(f"{where}: `seal`: the record was changed after it was written, so it is not what was run")
    return value
