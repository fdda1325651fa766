"""Run records and verdicts as files: reading, writing and checking them.

A record holds the verdict that allowed it. `check_record` refuses one whose verdict did not pass, and one whose
numbers contradict each other or its own samples, so a report can only show what was verified and measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from spdnn.common.errors import InputError
from spdnn.common.files import existing, write_text
from spdnn.common.statistics import interval
from spdnn.common.validation import check_schema, shortened
from spdnn.problem import challenge
from spdnn.records import limits, rank_checks, time_to_solution

RATE_TOLERANCE = 1e-6  # relative: between a stored rate and the one that follows from the samples
# Rows that an engine may go through beyond the inputs: a batch holds at least one input and pads it to whole tiles of
# at most 64, and up to 1000 batches a rank that are no whole tiles are allowed for. None goes through a layer twice.
TILE, BATCHES = 64, 1000


def read_record(path: str | Path) -> dict:
    """The run record in the file `path`; InputError when there is none that is sound (see check_record)."""
    return check_record(read_json(path, "run record"), str(path))


def read_records(path: str | Path) -> list[dict]:
    """The run records in the file `path`: one, or one on each line of a .jsonl file; InputError as of read_record."""
    return [check_record(content, where) for content, where in contents(path)]


def contents(path: str | Path) -> list[tuple[Any, str]]:
    """(content, where) of the records in the file `path`: one, or one on each line of a .jsonl file; not checked.

    Raises:
        InputError: no such file, or no JSON.
    """
    if Path(path).suffix != ".jsonl":
        return [(read_json(path, "run record"), str(path))]
    lines = _text_of(path, "file of run records").removesuffix("\n").split("\n")  # texts hold other ends of lines
    lines = lines if lines != [""] else []
    where = [f"{path}, line {number}" for number in range(1, len(lines) + 1)]
    return [(_parsed(line, place, "run record"), place) for line, place in zip(lines, where, strict=True)]


def write_record(path: str | Path, record: dict) -> None:
    """Check `record` and write it to `path`, whole or not at all."""
    write_json(path, check_record(record, str(path)))


def read_verdict(path: str | Path) -> dict:
    """The verdict in the file `path`, passed or failed; InputError when there is none that is sound."""
    return check_verdict(read_json(path, "verdict"), str(path))


def write_verdict(path: str | Path, verdict: dict) -> None:
    """Check `verdict` and write it to `path`, whole or not at all."""
    write_json(path, check_verdict(verdict, str(path)))


def write_json(path: str | Path, content: dict) -> None:
    """Write `content` to `path`, whole or not at all; InputError when JSON has no words for it."""
    write_text(path, as_text(content, path, indent=1))


def as_text(content: dict, path: str | Path, indent: int | None = None) -> str:
    """A record or verdict as the text of the file `path`, or as a line of it.

    Raises:
        InputError: it holds something that JSON does not know.
    """
    try:
        text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False) + "\n"
        text.encode()
    except UnicodeEncodeError:  # a command that names a file in another encoding: escaped, it can be written
        return json.dumps(content, indent=indent) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: it cannot be written as JSON ({shortened(str(error))})") from error
    return text


def check_verdict(verdict: Any, where: str) -> dict:
    """The verdict itself when it follows its schema, its counts agree, and it passes exactly when nothing is wrong.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    check_schema("verdict.json", verdict, where)
    _check_outcome(verdict, f"{where}: ")
    return verdict


def check_record(record: Any, where: str) -> dict:
    """The record itself when it follows its schema, its verdict passed and its numbers agree.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    check_schema("record.json", record, where)
    return check_claims(record, where)


def check_claims(record: dict, where: str) -> dict:
    """The record itself when its verdict passed and its numbers agree; it follows its schema.

    Raises:
        InputError: as of check_record.
    """
    _check_outcome(record["verdict"], f"{where}: verdict.")
    for check in (_check_allowed, _check_result, _check_official, _check_rate):
        check(record, f"{where}: ")
    for claims in (rank_checks.claims, time_to_solution.claims, limits.claims):  # the last builds on the first
        require_each(f"{where}: ", claims(record))
    return record


def _require(where: str, *claims: tuple[bool, str]) -> None:
    """Refuse the first claim that does not hold; its sentence says what is wrong."""
    require_each(where, claims)


def require_each(where: str, claims: Iterable[tuple[bool, str]]) -> None:
    """As `_require`; no claim is worked out before those ahead of it hold."""
    for holds, told in claims:
        if not holds:
            raise InputError(f"{where}{told}")


def _check_outcome(verdict: dict, where: str) -> None:
    truth, passed, reasons = verdict["truth"], verdict["passed"], len(verdict["reasons"])
    checked, inputs, expected, found = truth["checked"], truth["inputs"], verdict["expected"], verdict["categories"]
    compared, wrong = verdict["values"]["checked"], verdict["values"]["failures"]
    missing, unexpected, near = (verdict[name]["count"] for name in ("missing", "unexpected", "borderline"))
    same = not (missing or unexpected or wrong)
    tells_nothing = expected in (0, checked)  # a truth that a run may be failed for without a difference
    # A borderline input is in one of the two lists alone, so each moves the difference of the counts by one.
    apart = abs(expected - (found + missing - unexpected))
    follows = apart <= near and (near - apart) % 2 == 0
    counts = f"{missing} missing, {unexpected} unexpected"
    _require(
        where,
        (passed != bool(reasons), f"reasons: a verdict that {'passed' if passed else 'failed'} has {reasons} of them"),
        (checked >= 1, "truth.checked: no input was compared"),
        (checked <= inputs, f"truth.checked: {checked} of {inputs} inputs"),
        (wrong <= compared, f"values.failures: {wrong} of {compared}"),
        (not passed or same, f"passed: true, with {counts} and {wrong} wrong values"),
        (passed or not same or tells_nothing, f"passed: false, with {counts} and 0 wrong values"),
        (follows, f"expected: {expected} does not follow from {found} found, {counts}, {near} borderline"),
    )


def _check_allowed(record: dict, where: str) -> None:
    """The verdict allows a number, and is on this run."""
    verdict, count, name = record["verdict"], record["problem"]["input_count"], record["engine"]["name"]
    kind, inputs, compared = verdict["truth"]["kind"], verdict["truth"]["inputs"], verdict["values"]["checked"]
    known = 0 if kind == "file" else verdict["categories"] - verdict["borderline"]["count"]
    itself = name == "reference" and kind == "oracle"
    judged = verdict.get("judged", {})
    known_of = {**record["problem"], "digest": record["result"]["digests"][0]} if judged else {}
    other = [key for key in judged if judged[key] != known_of[key]]
    _require(
        where,
        (verdict["passed"], "verdict.passed: the verdict is fail, and a record needs one that passed"),
        (not other, f"verdict.judged: {', '.join(other)} of another run than this one"),
        (inputs == count, f"verdict.truth.inputs: {inputs}, but the run had {count} inputs"),
        (not itself, "verdict.truth.kind: the reference engine is the oracle itself, so the oracle cannot verify it"),
        (compared >= known, f"verdict.values.checked: {compared}, but {known} categories have values to compare"),
    )


def _check_result(record: dict, where: str) -> None:
    result, problem, verdict = record["result"], record["problem"], record["verdict"]
    repeats, count, edges = len(record["samples"]["inference_seconds"]), problem["input_count"], problem["edges"]
    survivors, computed, digests = result["survivors"], result["edges_computed"], result["digests"]
    found, judged, checked = result["categories"], verdict["categories"], verdict["truth"]["checked"]
    # Survivors may rise: a positive bias revives rows. Where none are left, the layers after may cost nothing.
    layers, last, idle = len(survivors), survivors[-1] if survivors else 0, not edges or 0 in survivors
    most = (count + (TILE - 1) * min(count, BATCHES * record["ranks"])) * edges
    unseen = count - checked  # inputs that the verdict did not compare, categories or not
    agree = found - unseen <= judged <= min(found, checked)
    _require(
        where,
        (layers == problem["layers"], f"result.survivors: {layers} numbers for {problem['layers']} layers"),
        (max(survivors, default=0) <= count, f"result.survivors: more than the {count} inputs"),
        (last >= found, f"result.categories: {found}, but {last} inputs survived"),
        (computed > 0 or idle, f"result.edges_computed: 0 of the network's {edges} edges"),
        (computed <= most, f"result.edges_computed: {computed}, more than {count} inputs in whole tiles have"),
        (len(digests) == repeats, f"result.digests: {len(digests)} digests for {repeats} repeats"),
        (len(set(digests)) == 1, "result.digests: the repeats differ, and one verdict covers one output"),
        (agree, f"result.categories: {found}, but the verdict is on {judged} categories"),
    )


def _check_official(record: dict, where: str) -> None:
    """Of the twelve problems, everything is known: the sizes, and with all inputs their digest and the truth's."""
    problem, result, kind = record["problem"], record["result"], record["verdict"]["truth"]["kind"]
    if problem["official"] is None:
        return
    width, depth, edges = problem["neurons"], problem["layers"], problem["edges"]
    official = ((k.name, k.neurons, k.layers, k.edges) for k in challenge.PROBLEMS)
    named = shortened(repr(problem["official"]))
    told = f"{named} is not the official problem of {width} neurons, {depth} layers and {edges} edges"
    _require(where, ((problem["official"], width, depth, edges) in official, f"problem.official: {told}"))
    whole, count = problem["input_count"] == challenge.INPUTS, challenge.TRUTH_COUNT[width]
    same_inputs = problem["inputs_sha256"] == challenge.INPUT_SHA256[width]
    same_truth = result["categories_sha256"] == challenge.TRUTH_SHA256[width]
    _require(
        where,
        (kind == "official", f"verdict.truth.kind: {kind}, but an official problem needs the official truth"),
        (not whole or same_inputs, "problem.inputs_sha256: not the digest of the official inputs"),
        (not whole or result["categories"] == count, f"result.categories: {result['categories']}, not {count}"),
        (not whole or same_truth, "result.categories_sha256: not the digest of the official truth"),
    )


def _check_rate(record: dict, where: str) -> None:
    rate, work = record["edges_per_second"], (record["problem"]["input_count"], record["problem"]["edges"])
    try:
        median, low, high, resamples = interval(record["samples"]["inference_seconds"])
    except InputError as error:
        raise InputError(f"{where}samples.inference_seconds: {error}") from None
    for key, seconds in (("median", median), ("low", high), ("high", low)):
        right = challenge.edges_per_second(*work, seconds)
        same = math.isclose(rate[key], right, rel_tol=RATE_TOLERANCE)
        _require(where, (same, f"edges_per_second.{key}: {rate[key]:g}, but {right:g} follows from the samples"))
    same = rate["resamples"] == resamples
    _require(where, (same, f"edges_per_second.resamples: {rate['resamples']}, but the samples take {resamples}"))


def read_json(path: str | Path, what: str) -> Any:
    """What the file `path` holds, not checked. Raises InputError when it is absent or no JSON; `what` it should be."""
    return _parsed(_text_of(path, what), str(path), what)


def _text_of(path: str | Path, what: str) -> str:
    try:
        return existing(path, what).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: it is not a {what} in JSON ({shortened(str(error))})") from error


def _parsed(text: str, where: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: it is not a {what} in JSON ({shortened(str(error))})") from error


def _finite(text: str) -> float:
    """The number in JSON's own words, so neither NaN nor an infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number that JSON knows, or too large a one")
    return number


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice in one object")
    return found
