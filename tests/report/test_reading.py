"""Reading many records: what is sound is read, and what is spoiled is refused as an independent judge does."""

import copy
import json
import math
import random
from pathlib import Path

import jsonschema
import many
import pytest
from records import made_verdict
from refusals import refuses

from spdnn.core.errors import InputError
from spdnn.core.validation import LARGEST_INTEGER, check_numbers, convert, parse, schema
from spdnn.runs.records.files import as_text, check_content, read_all
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.verdict import Verdict

ROUNDS = 30
SHORT = 20_000  # characters of a record that is spoiled again and again
RUNS = [one for one in map(many.run, range(200)) if len(json.dumps(one)) < SHORT]
CONTENTS = {
    "timed": ("record.json", next(one for one in RUNS if one["machine"] and one["problem"]["official"])),
    "compared": ("record.json", next(one for one in RUNS if one["comparison"])),
    "ranks": ("record.json", next(one for one in RUNS if one["ranks"] > 1)),
    "exchanged": ("record.json", next(one for one in RUNS if one["ranks"] > 1 and one["distribution"]["exchanges"])),
    "task graph": ("record.json", many.run(16)),
    "hostile": ("record.json", next(many.run(number) for number in range(19, 400, 20))),
    "operation": ("operation.json", many.operation(0)),
    "failed": ("verdict.json", made_verdict(passed=False)),
}
KINDS = {"record.json": RunRecord, "operation.json": OperationRecord, "verdict.json": Verdict}
VALUES = (
    None, True, False, 0, 1, -1, 7, 1.0, 2.5, -0.5, 1e-320, 1e300, 2**62, LARGEST_INTEGER, float(2**63), 2**63,
    -(2**63), 10**400, math.nan, math.inf, -math.inf, "", "x", "7", "a" * 300, "\ud800", "0" * 64, "\x00\u2028<b>", [],
    [1], ["x"], [1, 1], [[]], [1.5, None], {}, {"x": 1}, {"first": [], "count": 0}, {"": {"": []}},
)  # fmt: skip


def judge(name):
    """The schema of that class in another library, to which, as to ours, 1.0 is no whole number."""
    whole = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=whole)
    return kind(schema(KINDS[name]))


def numbers(content):
    """Every number in it, and in what is in it."""
    if isinstance(content, dict | list):
        for part in content.values() if isinstance(content, dict) else content:
            yield from numbers(part)
    elif isinstance(content, int | float):
        yield content


def places(content, path=()):
    """The path of every part."""
    for key, part in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*path, key)
        if isinstance(part, dict | list):
            yield from places(part, (*path, key))


def spoiled(content, chosen):
    """(what was done, a copy of the content in which one part was removed, replaced, added or given twice)."""
    content = copy.deepcopy(content)
    path = chosen.choice(list(places(content)))
    part = content
    for key in path[:-1]:
        part = part[key]
    value, key = chosen.choice(VALUES), path[-1]
    done = chosen.choice(["remove", "replace", "replace", "replace", "add", "twice"])
    if done == "remove":
        del part[key]
    elif done == "replace":
        part[key] = value
    elif done == "add":
        inner = part[key] if isinstance(part[key], dict | list) else part
        inner.append(value) if isinstance(inner, list) else inner.update({f"{key}_": value})
    elif isinstance(part, list):
        part.insert(key, copy.deepcopy(part[key]))
    else:
        part[key] = [part[key]] * 2
    return (done, path, value), content


def written(path):
    """A key as sentences show it, so far as they show it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")[:50]


def unsound(number):
    return abs(number) > LARGEST_INTEGER if isinstance(number, int) else not math.isfinite(number)


def parsed(kind, content, where):
    """The object that the content is in a file, whatever it claims."""
    return parse(kind, as_text(content, where), where, "record")


def sentence(check, *content):
    """What the check tells of the file r.json; None where it is sound."""
    try:
        check(*content, "r.json")
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_another_library_refuses_is_refused_and_nothing_else(kind):
    name, content = CONTENTS[kind]
    independent, chosen, refused = judge(name), random.Random(kind), 0
    for _ in range(ROUNDS):
        done, found = spoiled(content, chosen)
        wrong = any(map(unsound, numbers(found)))
        errors = [] if wrong else list(independent.iter_errors(found))
        told = sentence(parsed, KINDS[name], found)
        if not errors and told and told.startswith("r.json: request."):
            continue  # rules of a request that no schema says
        assert (told is None) == (not wrong and not errors), (done, told)
        if told is not None:
            refused += 1
            keys = {f"r.json: {written(error.absolute_path)}" for error in errors}
            missing = [error.message.split("'")[1] for error in errors if error.validator == "required"]
            shown = told.partition("[...]")[0]  # of a key that may be anything, only where it is
            assert wrong or any(told.startswith(key) or key.startswith(shown) for key in keys), (done, told)
            assert not missing or errors[1:] or f'"{missing[0]}"' in told, (done, told)
    assert ROUNDS // 10 < refused < ROUNDS


@pytest.mark.parametrize("kind", CONTENTS)
def test_what_is_spoiled_is_never_more_than_one_sentence(kind):
    """The claims too: a spoiled record is sound all the same, or refused with a sentence that names its file."""
    (name, content), chosen = CONTENTS[kind], random.Random(f"{kind} again")
    assert sentence(check_content, KINDS[name], content) is None
    for _ in range(ROUNDS):
        done, found = spoiled(content, chosen)
        told = sentence(check_content, KINDS[name], found)
        assert told is None or (told.startswith("r.json: ") and "\n" not in told and len(told) < 400), (done, told)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2**63, -(2**63), 10**400])
def test_unsound_numbers_are_found_wherever_they_are(value):
    for hidden in (value, [value], [1, value], [1.5, value], ["x", value], {"a": value}, {"a": [{"b": [[1, value]]}]}):
        told = r"^r: notes.*: (a whole number beyond|-?(nan|inf) is not)"
        refuses(told, check_numbers, {"sound": [1, 2.5, None, "x"], "notes": hidden}, "r")
    check_numbers([LARGEST_INTEGER, -LARGEST_INTEGER, 1.7e308, True, None, "x", [], {}, [[]], (1, 2.5)], "r")


def test_stricter_than_python_where_json_schema_is():
    """Its patterns know ASCII digits alone, and an end that is no line break."""
    for created in ("2025-01-02T03:04:05Z\n", "\u0662025-01-02T03:04:05Z"):
        record = {**CONTENTS["timed"][1], "created": created}
        refuses("r: created: .* is not a text of the form", convert, RunRecord, record, "r")


def test_a_spoiled_record_among_many_is_named(tmp_path):
    paths = many.write(tmp_path, 20)
    lines = Path(paths[-1])
    text = lines.read_text("utf-8").split("\n")
    text[3] = text[3].replace('"passed": true', '"passed": false')
    lines.write_text("\n".join(text), "utf-8")
    refuses(r"runs-000000\.jsonl, line 4: verdict\.reasons: ", read_all, paths)
