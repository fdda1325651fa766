"""A request is one value: the command that it writes, the record that holds it and the files named by it agree."""

import re
import shlex

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from refusals import refused, refuses

from spdnn import cli
from spdnn.cli import arguments
from spdnn.core.request import ALL_EDGES, ORACLE_SPEED, RunRequest
from spdnn.core.validation import builtins, convert, encode
from spdnn.runs import rerun
from spdnn.runs.records.files import as_text, parse_record, seal_record
from spdnn.runs.records.run_record import RunRecord
from tests.report.records import made_record

WORDS = some.text("abz -.=_/'\"{}é", min_size=1, max_size=12).filter(lambda word: word.strip("./ "))
NUMBERS = some.floats(-1e6, 1e6, allow_nan=False)


def maybe(strategy):
    return some.none() | strategy


@some.composite
def requests(draw):
    """Any request of the command: a network of the challenge, or a file; of an engine with settings, or without."""
    counts = some.integers(1, 10**9)
    values = {
        "layers": draw(counts),
        "count": draw(maybe(counts)),
        "mnist": draw(maybe(WORDS)),
        "reductions": draw(some.sampled_from(["all", "none", "dead", "dead,inputs"])),
        "threads": draw(maybe(some.integers(1, 1024))),
        "memory": draw(maybe(some.integers(1, 10**15))),
        "device": draw(maybe(some.integers(0, 7))),
        "ranks": draw(some.integers(1, 8)),
        "partition": draw(some.sampled_from(["static", "cyclic", "rebalanced"])),
        "repeats": draw(some.integers(1, 1000)),
        "repeat_if_busy": draw(some.integers(0, 100)),
        "seed": draw(some.integers(0, 10**9)),
        "oracle_edges": draw(some.floats(1, 1e12) | some.just(ALL_EDGES)),
        "engine": draw(some.sampled_from(["cpu", "spgemm", "taskgraph"])),
    }
    if draw(some.booleans()):
        values |= {"neurons": draw(some.sampled_from([1024, 4096, 16384, 65536])), "cache": draw(some.booleans())}
        values["inputs"] = draw(some.sampled_from(["mnist", "digits", "official"]) | WORDS)
        values["source"] = draw(some.sampled_from(["formula", "official", "unstructured"]))
    else:
        values |= {"network": draw(WORDS), "inputs": draw(WORDS), "truth": draw(maybe(WORDS))}
        values["last"] = draw(some.sampled_from([None, "relu", "none"]))
        values["rows"] = draw(some.sampled_from([None, "inputs"]))
        values["bias"] = draw(maybe(NUMBERS | some.lists(NUMBERS, min_size=2, max_size=3)))
        values["clip"] = draw(some.sampled_from([None, "none"]) | some.floats(1e-3, 1e6))
    if values["engine"] == "taskgraph":
        optional = {
            "schedule": some.sampled_from(["stream", "graph"]),
            "devices": some.integers(2, 9),
            "batches": counts,
            "device_memory": some.integers(1, 10**12),
            "join": some.just(False),
        }
        values["settings"] = draw(some.fixed_dictionaries({}, optional=optional))
    return RunRequest.of({name: value for name, value in values.items() if value is not None})


def parsed(words):
    """The request that a command line makes; the launcher says how many ranks there are."""
    ranks = int(words[2]) if words[0] == "mpiexec" else 1
    words = words[words.index("spdnn") + 1 :]
    return arguments.request(cli.parser(words[:1]).parse_args(words), ranks=ranks)


@settings(max_examples=100, deadline=None)
@given(requests())
@example(RunRequest(network="=", layers=1, inputs="--"))
def test_its_command_parsed_is_the_request(request):
    assert parsed(request.command()) == request
    assert parsed(shlex.split(shlex.join(request.command()))) == request


@pytest.mark.parametrize(("text", "edges"), [("all", ALL_EDGES), ("1e99", ALL_EDGES), ("2.5", 2.5 * ORACLE_SPEED)])
def test_seconds_of_the_reference_are_stored_as_edges(text, edges):
    request = parsed(["spdnn", "infer", "--network", "x", "--inputs", "y", "--verify", text])
    assert request.oracle_edges == edges


@settings(max_examples=100, deadline=None)
@given(requests())
def test_a_record_holds_the_request_and_a_rerun_runs_it(request):
    content = made_record() | {"request": builtins(request), "threads": 2, "memory_limit_bytes": request.memory}
    record = seal_record(convert(RunRecord, content, "record"), "record")
    read = parse_record(RunRecord, as_text(record, "record"), "record")
    assert read.request == request
    again = rerun._request(read)
    changed = {name for name in RunRequest.__struct_fields__ if getattr(again, name) != getattr(request, name)}
    assert changed <= {"ranks", "device", "threads", "repeats", "repeat_if_busy", "truth"}  # of this machine, and time
    assert (again.engine, again.settings, again.reductions) == (request.engine, request.settings, request.reductions)


@settings(max_examples=100, deadline=None)
@given(requests(), requests())
def test_names_of_different_cases_differ(one, other):
    if one.ranks == other.ranks == 1:
        other = msgspec.structs.replace(other, partition=one.partition)
    other = msgspec.structs.replace(other, repeats=one.repeats)
    assert (one.name == other.name) == (one == other)
    assert (one.network_name == other.network_name) or one != other


@pytest.mark.parametrize("field", ["seed", "memory", "oracle_edges", "device", "mnist", "count", "threads", "layers"])
def test_a_field_that_differs_is_in_the_name(field):
    value = {"mnist": "m.gz", "oracle_edges": 5.0}.get(field, 7)
    plain = RunRequest(neurons=1024, layers=120, inputs="digits")
    assert plain.name == "radixnet-1024-120.digits-1024.cpu.all"
    assert msgspec.structs.replace(plain, **{field: value}).name != plain.name


def test_a_default_is_not_written():
    request = RunRequest.of({"neurons": 1024, "layers": 120, "engine": "cpu", "oracle_edges": 10**9, "settings": {}})
    assert request.values == {"neurons": 1024, "layers": 120}
    assert encode(RunRequest.of(request.values)) == b'{"neurons":1024,"layers":120}'


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "a run needs a network file, or the neurons"),
        ({"neurons": 1024, "layers": 1, "network": "x"}, "and not both"),
        ({"neurons": 1024}, "layers: a network of the challenge needs them"),
        ({"neurons": 1000, "layers": 1}, "1000 neurons have no official bias"),
        ({"neurons": 1024, "layers": 1, "bias": -1.0}, "bias -1.0 does not go with a network of the challenge"),
        ({"network": "x", "source": "official"}, "source 'official' does not go with a network file"),
        ({"neurons": 1024, "layers": 1, "threads": 0}, "threads: 0 is not a whole number from 1 to 1024"),
        ({"neurons": 1024, "layers": 1, "engine": "a b"}, 'engine: "a b" is not a text of the form'),
        ({"neurons": 1024, "layers": 1, "thread": 1}, 'there is no field "thread"'),
    ],
)
def test_what_is_refused(values, sentence):
    refuses(re.escape(sentence), RunRequest.of, values)


@pytest.mark.parametrize(
    "words", [["--reductions", "dead, inputs"], ["--inputs", ""], ["--mnist", ""], ["--engine", "a b"]]
)
def test_the_command_line_is_checked_before_anything_runs(words, capsys):
    said = refused(capsys, "challenge", "--neurons", 1024, "--layers", 1, *words)
    assert words[0].removeprefix("--") in said
