"""Records and verdicts: what is sound is read back as it was, and everything else is one sentence."""

import copy
import json
import math
import re

import pytest

from spdnn import challenge
from spdnn.errors import InputError
from spdnn.records import (
    check_record,
    check_verdict,
    interval,
    read_record,
    read_verdict,
    write_record,
    write_verdict,
)

SHA = "ab" * 32
DIFFERENCE = {"count": 0, "first": []}
VERDICT = {
    "schema": "spdnn-verdict",
    "version": 1,
    "passed": True,
    "truth": {"kind": "oracle", "source": "float64 oracle", "inputs": 10, "checked": 10, "seed": None},
    "categories": 2,
    "expected": 2,
    "missing": DIFFERENCE,
    "unexpected": DIFFERENCE,
    "borderline": DIFFERENCE,
    "values": {"rule": "equal", "checked": 2, "failures": 0, "first": [], "largest_error": None},
    "reasons": [],
}
FAILED = {**VERDICT, "passed": False, "reasons": ["1 category is missing"]}
RATE = challenge.edges_per_second(10, 2048, 0.5)
RECORD = {
    "schema": "spdnn-record",
    "version": 1,
    "case": "64-2.digits.oracle.none.t1",
    "created": "2025-01-02T03:04:05Z",
    "problem": {
        "official": None,
        "network": {"source": "radixnet"},
        "network_identity": SHA,
        "neurons": 64,
        "layers": 2,
        "edges": 2048,
        "inputs": {"source": "digits"},
        "inputs_sha256": SHA,
        "input_count": 10,
    },
    "engine": {"name": "oracle", "notes": {}},
    "reductions": {"requested": [], "found": {}},
    "threads": 1,
    "ranks": 1,
    "memory_limit_bytes": None,
    "samples": {"read_seconds": [0.1], "prepare_seconds": [0], "inference_seconds": [0.4, 0.5, 0.7]},
    "span": "layer loop, resident",
    "result": {
        "categories": 2,
        "categories_sha256": SHA,
        "digests": [SHA, SHA, SHA],
        "survivors": [5, 2],
        "edges_computed": 20480,
    },
    "edges_per_second": {
        "median": RATE,
        "low": RATE * 0.7,
        "high": RATE * 1.3,
        "confidence": 0.95,
        "resamples": 10,
    },
    "peak_memory_bytes": 1,
    "verdict": VERDICT,
    "environment": {
        "cpu": "A CPU",
        "cores": 1,
        "memory_bytes": None,
        "system": "Linux",
        "python": "3.12",
        "versions": {},
        "commit": None,
        "command": "spdnn run",
    },
}


def changed(content, key, value):
    """A deep copy of `content` with the value at the dotted `key` replaced."""
    content = copy.deepcopy(content)
    *parts, last = key.split(".")
    place = content
    for part in parts:
        place = place[part]
    place[last] = value
    return content


def test_written_and_read(tmp_path):
    write_record(tmp_path / "record.json", RECORD)
    assert read_record(tmp_path / "record.json") == RECORD
    for verdict in (VERDICT, FAILED):
        write_verdict(tmp_path / "verdict.json", verdict)
        assert read_verdict(tmp_path / "verdict.json") == verdict


def test_official_record():
    problem = {"official": "1024-120", "neurons": 1024, "layers": 120, "edges": 32 * 1024 * 120}
    record = {**RECORD, "problem": {**RECORD["problem"], **problem}}
    record["result"] = {**RECORD["result"], "survivors": [2] * 120}
    rate = challenge.edges_per_second(10, problem["edges"], 0.5)
    record["edges_per_second"] = {**RECORD["edges_per_second"], "median": rate, "low": rate, "high": rate}
    assert check_record(record, "r") is record
    with pytest.raises(InputError, match=r"r: problem\.official: '1024-480' is not the official problem"):
        check_record(changed(record, "problem.official", "1024-480"), "r")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("result.categories", -1, "result.categories: -1 is less than the minimum of 0"),
        ("samples.inference_seconds", [0.1, "x"], "samples.inference_seconds[1]: 'x' is not of type 'number'"),
        ("verdict.truth.kind", "trust", "verdict.truth.kind: 'trust' is not one of"),
        ("verdict.missing", {}, "verdict.missing: 'count' is a required property"),
        ("surprise", 1, "Additional properties are not allowed ('surprise' was unexpected)"),
        ("span", "a" * 5000, "span: 'aaa"),
        ("threads", True, "threads: True is not of type 'integer'"),
        ("verdict", FAILED, "verdict.passed: the verdict is fail, and a record needs one that passed"),
        ("verdict.reasons", ["one"], "verdict.reasons: a verdict that passed has 1 of them"),
        ("verdict.truth.checked", 11, "verdict.truth.checked: 11 of 10 inputs"),
        ("verdict.truth.inputs", 11, "verdict.truth.inputs: 11, but the run had 10 inputs"),
        ("verdict.categories", 3, "result.categories: 2, but the verdict is on 3 categories"),
        ("problem.official", "64-2", "problem.official: '64-2' is not the official problem"),
        ("result.survivors", [5], "result.survivors: 1 numbers for 2 layers"),
        ("result.survivors", [11, 2], "result.survivors: more than the 10 inputs"),
        ("result.digests", [SHA], "result.digests: 1 digests for 3 repeats"),
        ("result.digests", [SHA, SHA, "cd" * 32], "result.digests: the repeats differ"),
        ("edges_per_second.median", RATE * 1.00001, "edges_per_second.median: "),
        ("edges_per_second.low", RATE * 1.1, "edges_per_second: the interval does not hold the median"),
        ("samples.inference_seconds", [0, 0, 0], "samples.inference_seconds: a median of 0 seconds gives no rate"),
        ("engine.notes", {"speed": math.nan}, "engine.notes.speed: nan is not a finite number"),
        ("peak_memory_bytes", math.inf, "peak_memory_bytes: inf is not"),
    ],
)
def test_unsound_records(tmp_path, key, value, told):
    with pytest.raises(InputError, match=re.escape(f"record.json: {told}")) as caught:
        check_record(changed(RECORD, key, value), "record.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 330
    with pytest.raises(InputError):
        write_record(tmp_path / "record.json", changed(RECORD, key, value))
    assert not (tmp_path / "record.json").exists()


def test_rates_agree_within_the_tolerance():
    check_record(changed(RECORD, "edges_per_second.median", RATE * (1 + 5e-7)), "r")


def test_sampled_truth_need_not_see_all_categories():
    record = changed(changed(RECORD, "verdict.truth.checked", 5), "verdict.truth.seed", 1)
    check_record(changed(record, "verdict.categories", 1), "r")


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 100_000, "\x00"],
)
def test_no_json(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text)
    for read in (read_record, read_verdict):
        with pytest.raises(InputError, match=re.escape(f"{path}: it is not a ")) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="there is no such run record"):
        read_record(tmp_path / "absent.json")
    with pytest.raises(InputError, match="it is not a verdict in JSON"):
        read_verdict(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'"\xe9"')
    with pytest.raises(InputError, match="it is not a run record in JSON"):
        read_record(tmp_path / "latin.json")
    for content in ("null", "[]", '"x"'):
        (tmp_path / "r.json").write_text(content)
        with pytest.raises(InputError, match=r"r\.json: .* is not of type 'object'"):
            read_record(tmp_path / "r.json")


def test_unsound_verdicts(tmp_path):
    with pytest.raises(InputError, match="v: reasons: a verdict that failed has 0 of them"):
        check_verdict({**VERDICT, "passed": False}, "v")
    with pytest.raises(InputError, match="v: 'passed' is a required property"):
        check_verdict({key: value for key, value in VERDICT.items() if key != "passed"}, "v")
    (tmp_path / "verdict.json").write_text(json.dumps(changed(VERDICT, "borderline.first", [0])))
    with pytest.raises(InputError, match=r"verdict\.json: borderline\.first\[0\]: 0 is less than"):
        read_verdict(tmp_path / "verdict.json")


def test_interval_of_one_sample():
    assert interval([0.25]) == (0.25, 0.25, 0.25, 0)


def test_interval_is_deterministic_and_holds_the_median():
    samples = [1.0, 1.2, 1.1, 5.0, 1.05]
    found = interval(samples)
    assert found == interval(samples)
    assert found.low <= found.median == 1.1 <= found.high
    assert found.resamples > 0
    assert {found.low, found.high} <= set(samples)
    narrow = interval(samples, confidence=0.5)
    assert found.low <= narrow.low <= narrow.high <= found.high
    assert interval([2.0, 2.0, 2.0])[:3] == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [math.inf], [[1.0]]])
def test_interval_refuses(samples):
    with pytest.raises(InputError):
        interval(samples)


@pytest.mark.parametrize("confidence", [0, 1, math.nan])
def test_interval_refuses_confidence(confidence):
    with pytest.raises(InputError, match="confidence"):
        interval([1.0, 2.0], confidence)
