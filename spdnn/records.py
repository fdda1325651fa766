"""Run records and verdicts as files: reading, writing and checking them; and the interval of a median.

A record holds the verdict that allowed it. `check_record` refuses one whose verdict did not pass, and one
whose rate does not follow from its own samples, so a report can only show what was verified and measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn import challenge
from spdnn.errors import InputError, Unavailable
from spdnn.files import existing, write_text

SCHEMAS = Path(__file__).resolve().parent / "schemas"
RESAMPLES = 10_000
RATE_TOLERANCE = 1e-6  # relative: between a stored rate and the one that follows from the samples
LONGEST_VALUE = 60  # characters of a value that an error sentence shows
LONGEST_SENTENCE = 200


class Interval(NamedTuple):
    """The median of some samples and a bootstrap interval of it, in the samples' unit."""

    median: float
    low: float
    high: float
    resamples: int


def interval(samples_seconds: Sequence[float], confidence: float = 0.95, seed: int = 0) -> Interval:
    """The median of the samples and its percentile bootstrap interval.

    The same samples and seed give the same interval. One sample is its own interval, with 0 resamples.

    Args:
        samples_seconds: positive seconds, at least one.
        confidence: of the interval, between 0 and 1.
        seed: of the resampling.

    Raises:
        InputError: no sample, a sample that is not a positive number, or a confidence out of range.
    """
    samples = np.asarray(samples_seconds, dtype=np.float64)
    if samples.ndim != 1 or not samples.size:
        raise InputError("an interval needs at least one sample, in a list")
    if not (np.isfinite(samples) & (samples > 0)).all():
        raise InputError("every sample must be a positive number of seconds")
    if not 0 < confidence < 1:
        raise InputError(f"confidence {confidence} must lie between 0 and 1")
    median = float(np.median(samples))
    if samples.size == 1:
        return Interval(median, median, median, 0)
    chosen = np.random.default_rng(seed).integers(samples.size, size=(RESAMPLES, samples.size))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(samples[chosen], axis=1), [tail, 1 - tail])
    return Interval(median, min(float(low), median), max(float(high), median), RESAMPLES)


def read_record(path: str | Path) -> dict:
    """The run record in the file `path`.

    Raises:
        InputError: no such file, no JSON, or not a sound record (see check_record).
    """
    return check_record(_read(path, "run record"), str(path))


def write_record(path: str | Path, record: dict) -> None:
    """Check `record` and write it to `path`, whole or not at all."""
    write_text(path, _text(check_record(record, str(path)), path))


def read_verdict(path: str | Path) -> dict:
    """The verdict in the file `path`, passed or failed.

    Raises:
        InputError: no such file, no JSON, or not a sound verdict (see check_verdict).
    """
    return check_verdict(_read(path, "verdict"), str(path))


def write_verdict(path: str | Path, verdict: dict) -> None:
    """Check `verdict` and write it to `path`, whole or not at all."""
    write_text(path, _text(check_verdict(verdict, str(path)), path))


def check_verdict(verdict: Any, where: str) -> dict:
    """The verdict itself when it follows its schema and passes exactly when it has no reason not to.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    _check_schema("verdict.json", verdict, where)
    _check_outcome(verdict, f"{where}: ")
    return verdict


def check_record(record: Any, where: str) -> dict:
    """The record itself when it follows its schema, its verdict passed and its numbers agree.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    _check_schema("record.json", record, where)
    _check_outcome(record["verdict"], f"{where}: verdict.")
    if not record["verdict"]["passed"]:
        raise InputError(f"{where}: verdict.passed: the verdict is fail, and a record needs one that passed")
    _check_problem(record, where)
    _check_result(record, where)
    _check_rate(record, where)
    return record


def _check_outcome(verdict: dict, where: str) -> None:
    if verdict["passed"] == bool(verdict["reasons"]):
        passed = "passed" if verdict["passed"] else "failed"
        raise InputError(f"{where}reasons: a verdict that {passed} has {len(verdict['reasons'])} of them")
    if verdict["truth"]["checked"] > verdict["truth"]["inputs"]:
        raise InputError(f"{where}truth.checked: {verdict['truth']['checked']} of {verdict['truth']['inputs']} inputs")


def _check_problem(record: dict, where: str) -> None:
    problem, inputs = record["problem"], record["verdict"]["truth"]["inputs"]
    if inputs != problem["input_count"]:
        raise InputError(f"{where}: verdict.truth.inputs: {inputs}, but the run had {problem['input_count']} inputs")
    if problem["official"] is None:
        return
    official = {found.name: found for found in challenge.PROBLEMS}.get(problem["official"])
    sizes = problem["neurons"], problem["layers"], problem["edges"]
    if official is None or sizes != (official.neurons, official.layers, official.edges):
        raise InputError(
            f"{where}: problem.official: {_shortened(repr(problem['official']))} is not the official "
            f"problem of {sizes[0]} neurons, {sizes[1]} layers and {sizes[2]} edges"
        )


def _check_result(record: dict, where: str) -> None:
    result, problem, truth = record["result"], record["problem"], record["verdict"]["truth"]
    repeats = len(record["samples"]["inference_seconds"])
    if len(result["survivors"]) != problem["layers"]:
        raise InputError(
            f"{where}: result.survivors: {len(result['survivors'])} numbers for {problem['layers']} layers"
        )
    if max(result["survivors"], default=0) > problem["input_count"]:
        raise InputError(f"{where}: result.survivors: more than the {problem['input_count']} inputs")
    if len(result["digests"]) != repeats:
        raise InputError(f"{where}: result.digests: {len(result['digests'])} digests for {repeats} repeats")
    if len(set(result["digests"])) != 1:
        raise InputError(f"{where}: result.digests: the repeats differ, and one verdict covers one output")
    if truth["checked"] == problem["input_count"] and record["verdict"]["categories"] != result["categories"]:
        raise InputError(
            f"{where}: result.categories: {result['categories']}, but the verdict is on "
            f"{record['verdict']['categories']} categories"
        )


def _check_rate(record: dict, where: str) -> None:
    seconds = float(np.median(record["samples"]["inference_seconds"]))
    rate, problem = record["edges_per_second"], record["problem"]
    if seconds == 0:
        raise InputError(f"{where}: samples.inference_seconds: a median of 0 seconds gives no rate")
    expected = challenge.edges_per_second(problem["input_count"], problem["edges"], seconds)
    if not math.isclose(rate["median"], expected, rel_tol=RATE_TOLERANCE):
        raise InputError(
            f"{where}: edges_per_second.median: {rate['median']:g}, but {expected:g} follows from the samples"
        )
    if not rate["low"] <= rate["median"] <= rate["high"]:
        raise InputError(f"{where}: edges_per_second: the interval does not hold the median")


def _read(path: str | Path, what: str) -> Any:
    path = existing(path, what)
    try:
        return json.loads(
            path.read_text(encoding="utf-8"),
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unrepeated,
        )
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: it is not a {what} in JSON ({_shortened(str(error))})") from error


def _text(content: dict, path: str | Path) -> str:
    try:
        return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: it cannot be written as JSON ({_shortened(str(error))})") from error


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number that JSON knows")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


@cache
def _validator(name: str):
    """The validator of one schema; `verdict.json` is known to all."""
    try:
        import jsonschema
        import referencing
    except ImportError as error:
        raise Unavailable("checking records needs jsonschema: pip install 'spdnn[full]'") from error
    schemas = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")}
    resources = ((key, referencing.Resource.from_contents(schema)) for key, schema in schemas.items())
    registry = referencing.Registry().with_resources(resources)
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)


def _check_schema(name: str, content: Any, where: str) -> None:
    errors = _validator(name).iter_errors(content)
    first = min(errors, key=lambda error: list(map(str, error.absolute_path)), default=None)
    if first is not None:
        path, value = first.absolute_path, repr(first.instance)
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        key, shown = _shortened(key.lstrip(".")), first.message.replace(value, _shortened(value))
        shown = _shortened(shown, LONGEST_SENTENCE)
        raise InputError(f"{where}: {key}: {shown}" if key else f"{where}: {shown}")
    _check_finite(content, where)


def _check_finite(content: Any, where: str, key: str = "") -> None:
    """Refuse NaN and infinities in a record that never was a file; the schema lets NaN through."""
    if isinstance(content, float) and not math.isfinite(content):
        raise InputError(f"{where}: {key}: {content} is not a finite number")
    if isinstance(content, dict):
        for name, value in content.items():
            _check_finite(value, where, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list):
        for place, value in enumerate(content):
            _check_finite(value, where, f"{key}[{place}]")


def _shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."
