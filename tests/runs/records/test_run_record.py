"""Records and verdicts: what is sound is read back as it was, and everything else is one sentence."""

import copy
import json
import math
import re
import subprocess
import sys
import time
from functools import reduce

import numpy as np
import pytest
from refusals import refuses

from spdnn.core import challenge
from spdnn.core.validation import builtins
from spdnn.runs.records.columns import columns
from spdnn.runs.records.files import check_content, read_all, read_record, read_verdict, write_record, write_verdict
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.verdict import Verdict
from spdnn.runs.workflow.stages import stage_seconds
from tests.report.records import SHA, agreed, made_record, made_verdict, measured, solved

ONE = {"count": 1, "first": [4]}
SECONDS = [0.4, 0.5, 0.7]
PROBLEM = {"official": False, "source": "digits", "neurons": 32, "layers": 2, "inputs": 10}
RECORD = {**made_record("32-2.digits.cpu.none.t1", SECONDS, (), **PROBLEM), "threads": 1}
RECORD["engine"]["notes"] = {}
RECORD["result"] |= {"survivors": [5, 2], "categories": 2}
RECORD["verdict"] = made_verdict(10, 2, True, "oracle", RECORD["problem"])
VERDICT = RECORD["verdict"]
ACCURACY = {"labels_sha256": SHA, "top1": 7, "confusion": [[4, 2], [1, 3]]}
FAILED = {**VERDICT, "passed": False, "expected": 3, "missing": ONE, "reasons": ["1 category is missing"]}


def changed(content, key, value):
    """A deep copy of `content` with the value at the dotted `key` replaced, or removed where that is `...`."""
    content = copy.deepcopy(content)
    *parts, last = (int(part) if part.isdigit() else part for part in key.split("."))
    place = content
    for part in parts:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return content


def sound(content):
    """The record of a run, or of an operation, that a dictionary is."""
    return check_content(OperationRecord if "operation" in content else RunRecord, content, "r")


def unsound(sentence, content):
    return refuses(sentence, sound, content)


def test_written_and_read(tmp_path):
    write_record(tmp_path / "record.json", RECORD)
    assert builtins(read_record(tmp_path / "record.json")) == RECORD
    for verdict in (VERDICT, FAILED):
        write_verdict(tmp_path / "verdict.json", verdict)
        assert builtins(read_verdict(tmp_path / "verdict.json")) == verdict


def sized(record, count, edges):
    """The record with that number of inputs and edges."""
    record = changed(record, "problem.edges", edges)
    record["problem"]["input_count"] = count
    return agreed(record)


def official_record(count):
    """A sound record of 1024-120 with the first `count` of the official inputs."""
    found = challenge.TRUTH_COUNT[1024] if count == challenge.INPUTS else 2
    record = sized(RECORD, count, 32 * 1024 * 120)
    record["problem"] |= {"official": "1024-120", "neurons": 1024, "layers": 120}
    record["problem"]["inputs_sha256"] = challenge.INPUT_SHA256[1024]
    record["result"] |= {"survivors": [found] * 120, "categories": found, "edges_computed": 32 * 1024 * 120 * found}
    record["result"]["categories_sha256"] = challenge.TRUTH_SHA256[1024]
    record["verdict"] |= {"categories": found, "expected": found}
    record["verdict"]["truth"] |= {"kind": "official", "inputs": count, "checked": count}
    record["verdict"]["values"]["checked"] = found
    return agreed(record)


@pytest.mark.parametrize("count", [10, challenge.INPUTS])
def test_official_record(count):
    record = official_record(count)
    assert builtins(sound(record)) == record
    unsound("r: problem.official: '1024-480' is not the official", changed(record, "problem.official", "1024-480"))
    unsound("r: verdict.truth.kind: oracle, but an official problem", changed(record, "verdict.truth.kind", "oracle"))


@pytest.mark.parametrize("key", ["problem.inputs_sha256", "result.categories_sha256"])
def test_digests_of_official_records(key):
    def other(count):
        return agreed(changed(official_record(count), key, SHA))

    unsound(re.escape(f"r: {key}: not the digest of the official"), other(challenge.INPUTS))
    sound(other(10))


def test_number_of_official_categories():
    record = official_record(challenge.INPUTS)
    record["result"]["categories"] = record["verdict"]["categories"] = record["verdict"]["expected"] = 1811
    unsound(r"r: result\.categories: 1811, not 1812", record)


def test_the_oracle_does_not_verify_itself():
    record = changed(RECORD, "engine.name", "reference")
    unsound(r"r: verdict\.truth\.kind: the engine is the float64 reference", record)
    sound(changed(record, "verdict.truth.kind", "file"))


def test_survivors_may_rise_and_may_die_before_any_edge():
    record = changed(sized(RECORD, 10, 0), "result.edges_computed", 0)  # of a network without edges
    assert sound(record).edges_per_second.median == 0
    sound(changed(RECORD, "result.survivors", [1, 10]))
    record = changed(changed(RECORD, "result.survivors", [0, 0]), "result.edges_computed", 0)
    record["result"]["categories"] = record["verdict"]["categories"] = record["verdict"]["expected"] = 0
    sound(record)


def test_outputs_share_loads_of_bits():
    sound(changed(RECORD, "result.bytes_loaded", 20480 // 8 // 8))
    record = changed(RECORD, "result.bytes_loaded", 20480 // 8 // 8 - 1)
    unsound(r"r: result\.bytes_loaded: 319 for 20480 edges", record)


def test_values_of_borderline_and_listed_categories_need_no_check():
    record = changed(RECORD, "verdict.values.checked", 0)
    sound(changed(record, "verdict.truth.kind", "file"))
    record["verdict"] |= {"expected": 0, "borderline": {"count": 2, "first": [1, 2]}}
    sound(record)


@pytest.mark.parametrize("key", ["ranks", "verdict.truth.checked", "engine.notes.tile", "read_seconds"])
@pytest.mark.parametrize("value", [10**400, 10**5000, 2**63], ids=["400 digits", "5000 digits", "64 bits"])
def test_absurd_numbers(tmp_path, key, value):
    record = changed(RECORD, key, [value] if key == "read_seconds" else value)
    unsound(rf"^r: {key}.*: a whole number beyond 2\*\*63 - 1$", record)
    if value < 10**4000:
        (tmp_path / "r.json").write_text(json.dumps(record))
        refuses(rf"{key}.*: a whole number beyond", read_record, tmp_path / "r.json")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("result.categories", -1, "result.categories: -1 is not a whole number from 0"),
        ("inference_seconds", [0.1, "x"], 'inference_seconds[1]: "x" is not a number from 0 to 1e+12'),
        ("verdict.truth.kind", "trust", 'verdict.truth.kind: "trust" is not one of "file", "official" or "oracle"'),
        ("verdict.missing", {}, 'verdict.missing: the field "count" is missing'),
        ("surprise", 1, 'there is no field "surprise"'),
        ("span", "a" * 5000, 'span: "aaa'),
        ("threads", True, "threads: true is not a whole number from 1"),
        ("verdict", FAILED, "verdict.passed: verification failed, and a record needs one that passed"),
        ("verdict.reasons", ["one"], "verdict.reasons: a run that passed has 1 of them"),
        ("verdict.truth.checked", 11, "verdict.truth.checked: 11 of 10 inputs"),
        ("verdict.truth.inputs", 11, "verdict.truth.inputs: 11, but the run had 10 inputs"),
        ("verdict", {**VERDICT, "categories": 1, "expected": 1}, "result.categories: 2, but `verdict` is on 1 "),
        ("verdict.categories", 3, "verdict.expected: 2 does not follow from 3 found, 0 missing, 0 unexpected, 0 bor"),
        ("verdict.missing.count", 1, "verdict.passed: true, with 1 missing, 0 unexpected and 0 wrong values"),
        ("verdict.unexpected.count", 1, "verdict.passed: true, with 0 missing, 1 unexpected and 0 wrong values"),
        ("verdict.values.failures", 1, "verdict.passed: true, with 0 missing, 0 unexpected and 1 wrong values"),
        ("verdict.values.checked", 1, "verdict.values.checked: 1, but 2 categories have values to compare"),
        ("verdict.truth.checked", 0, "verdict.truth.checked: no input was compared"),
        ("result.survivors", [5, 1], "result.categories: 2, but 1 inputs survived"),
        ("result.edges_computed", 0, "result.edges_computed: 0 of the network's 2048 edges"),
        ("result.edges_computed", 640 * 2048 + 1, "result.edges_computed: 1310721, more than 10 inputs in whole tiles"),
        ("problem.official", "32-2", "problem.official: '32-2' is not the official problem"),
        ("result.bytes_moved", -1, "result.bytes_moved: -1 is not a whole number from 0 or null"),
        ("result.bytes_loaded", 1, "result.bytes_loaded: 1 for 20480 edges, and a load of a bit serves 8 outputs"),
        ("result.survivors", [5], "result.survivors: 1 numbers for 2 layers"),
        ("result.survivors", [11, 2], "result.survivors: more than the 10 inputs"),
        ("version", 1, "version: 1 is not one of 2 or 3"),
        ("result.digest", "cd" * 32, "verdict.judged: the digest of another network, inputs or output"),
        ("result.sha256", "cd" * 32, "verdict.judged: the digest of another network"),
        ("problem.inputs_sha256", "cd" * 32, "verdict.judged: the digest of another network"),
        ("accuracy", ACCURACY | {"top1": 11}, "accuracy.top1: 11 of 10 inputs"),
        ("accuracy", ACCURACY | {"top1": 6}, "accuracy.confusion: 7 right answers, and top-1 is 6"),
        ("accuracy", ACCURACY | {"confusion": [[7, 2], [0, 0]]}, "accuracy.confusion: 9 inputs of 10"),
        ("accuracy", ACCURACY | {"confusion": [[7], [3]]}, "accuracy.confusion: 2 rows, and not as many columns"),
        ("edges_per_second", {"median": 1e12}, 'there is no field "edges_per_second"'),
        ("inference_seconds", [0, 1, 1], "inference_seconds: every sample must be a positive number"),
        ("read_seconds", [1e13], "read_seconds[0]: 10000000000000.0 is not a number from 0 to 1e+12"),
        ("engine.notes", {"speed": math.nan}, "engine.notes.speed: nan is not a finite number"),
        ("problem.input_count", 1e300, "problem.input_count: 1e+300 is not a whole number from"),
        ("peak_memory_bytes", math.inf, "peak_memory_bytes: inf is not"),
    ],
)
def test_unsound_records(tmp_path, key, value, told):
    path = tmp_path / "record.json"
    said = refuses(re.escape(f"record.json: {told}"), write_record, path, changed(RECORD, key, value))
    assert len(said.removeprefix(f"{tmp_path}/")) < 330
    assert not (tmp_path / "record.json").exists()


@pytest.mark.parametrize(
    "hostile", ["\x1b[31mred\x00", "\u202egpj.exe", "two\nlines\u2028three", "\ud800", "'\"</script>"]
)
def test_sentences_have_no_control_characters(hostile):
    for record in (
        {**RECORD, hostile: 1},
        changed(RECORD, "span", hostile),
        changed(RECORD, "environment.versions", {hostile: 1}),
        changed(RECORD, "engine.notes", {hostile: math.nan}),
        changed(RECORD, "problem.official", hostile),
    ):
        assert unsound("^r: ", record).isprintable()


def test_machines_are_optional_and_may_be_null(tmp_path):
    sound(changed(RECORD, "machine", None))
    record = changed(measured(RECORD), "result.bytes_moved", 10**15)
    write_record(tmp_path / "record.json", record)
    assert builtins(read_record(tmp_path / "record.json")) == record
    sound(changed(record, "result.bytes_moved", None))


def test_a_number_above_the_limit_is_refused():
    """20480 edges are 81920 bytes, and the fastest repeat took 0.4 s: 204,800 bytes a second."""
    rate = 4 * 20480 / 0.4
    of_edges = sound(measured(RECORD, load=rate / 2.99)).edges_per_second
    assert (of_edges.median, of_edges.low, of_edges.high) == (20480 / 0.5, 20480 / 0.7, 20480 / 0.4)
    record = measured(RECORD, load=rate / 3.01)
    unsound(r"^r: result\.edges_computed: 20480 edges in 0\.4 s, 3\.01 times what .* failure", record)


def test_sampled_truth_need_not_see_all_categories():
    record = changed(changed(RECORD, "verdict.truth.checked", 5), "verdict.truth.seed", 1)
    record = changed(changed(record, "verdict.expected", 1), "verdict.categories", 1)
    sound(record)
    record["verdict"]["truth"]["checked"] = 10
    unsound("result.categories: 2, but `verdict` is on 1", record)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', "[" * 100_000, "\x00"]
)
def test_no_json(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text)
    for read in (read_record, read_verdict):
        refuses(re.escape(f"{path}: it is not a "), read, path)


def test_unreadable_files(tmp_path):
    refuses("there is no such run record", read_record, tmp_path / "absent.json")
    refuses("there is no such file of run records", read_all, [tmp_path / "absent.jsonl"])
    refuses("it is not a verdict in JSON", read_verdict, tmp_path)
    (tmp_path / "latin").write_bytes(b'"\xe9"')
    refuses("it is not a run record in JSON", read_record, tmp_path / "latin")
    refuses("it is not a file of run records in JSON", read_all, [(tmp_path / "latin").rename(tmp_path / "l.jsonl")])
    for content in ("null", "[]", '"x"'):
        (tmp_path / "r.json").write_text(content)
        refuses(r"r\.json: .* is not an object", read_record, tmp_path / "r.json")


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ({**VERDICT, "passed": False}, "reasons: a run that failed has 0 of them"),
        (changed(VERDICT, "passed", ...), 'the field "passed" is missing'),
        (changed(VERDICT, "borderline.first", [0]), "borderline.first[0]: 0 is not a whole number from 1"),
        ({**VERDICT, "passed": False, "reasons": ["one"]}, "passed: false, with 0 missing, 0 unexpected and 0 wrong"),
        (changed(FAILED, "unexpected.count", 1), "expected: 3 does not follow from 2 found"),
        (changed(FAILED, "values.failures", 3), "values.failures: 3 of 2"),
        ({**VERDICT, "borderline": ONE}, "expected: 2 does not follow from 2 found"),
        ({**VERDICT, "borderline": ONE, "expected": 4}, "expected: 4 does not follow from 2 found"),
    ],
)
def test_unsound_verdicts(tmp_path, verdict, told):
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    refuses(re.escape(f"verdict.json: {told}"), read_verdict, tmp_path / "verdict.json")


@pytest.mark.parametrize(
    "changes",
    [
        # Borderline inputs move the count.
        {"expected": 3, "borderline": ONE},
        {"expected": 2, "borderline": {"count": 2, "first": [4]}},
        # A truth that tells nothing may fail without a difference.
        {"passed": False, "categories": 0, "expected": 0, "reasons": ["it tells nothing"]},
        {"passed": False, "categories": 10, "expected": 10, "reasons": ["it tells nothing"]},
    ],
)
def test_sound_verdicts(changes):
    verdict = VERDICT | changes
    assert builtins(check_content(Verdict, verdict, "v")) == verdict


def test_a_line_ends_where_json_lets_it(tmp_path):
    """Texts may hold what Python, but not JSON, takes for the end of a line."""
    hostile = changed(RECORD, "environment.command", "a\u2028b\u2029c\u0085d\x1ce")
    path = tmp_path / "all.jsonl"
    for end in ("\n", ""):
        path.write_text(f"{json.dumps(hostile, ensure_ascii=False)}\n{json.dumps(RECORD)}{end}", encoding="utf-8")
        assert builtins(read_all([path])[0]) == [hostile, RECORD]
    path.write_text("")
    write_record(tmp_path / "one.json", RECORD)
    assert builtins(read_all([path, tmp_path / "one.json"])[0]) == [RECORD]


def test_text_that_is_no_unicode(tmp_path):
    """A command that names a file in another encoding holds halves of surrogate pairs, which no file may."""
    write_record(tmp_path / "record.json", changed(RECORD, "environment.command", "spdnn infer caf\udce9.npz"))
    assert read_record(tmp_path / "record.json").environment.command == "spdnn infer caf&#56553;.npz"
    (tmp_path / "record.json").write_text(json.dumps(changed(RECORD, "case", "\udce9")))
    refuses("it is not a run record in JSON", read_record, tmp_path / "record.json")
    sound(changed(RECORD, "environment.versions", dict.fromkeys(("\ud800", "\ud801"), "1")))
    for key, value in (("span", "\ud800"), ("created", "\ud800"), ("environment.versions", {"\ud800": 1})):
        caught = unsound(rf"^r: {key}", changed(RECORD, key, value))
        assert caught.encode()


def test_numbers_of_numpy_are_as_they_would_be_in_the_file(tmp_path):
    record = changed(RECORD, "prepare_seconds", [np.float64(0.25)])
    write_record(tmp_path / "record.json", record)
    assert builtins(read_record(tmp_path / "record.json")) == record
    unsound("it cannot be written as JSON", changed(RECORD, "threads", np.int64(1)))
    notes = {"tile": np.int64(32)}
    refuses("cannot be written as JSON", write_record, tmp_path / "other.json", changed(RECORD, "engine.notes", notes))


def nested(times):
    """An object in `2 * times` lists and objects."""
    notes = {}
    for _ in range(times):
        notes = {"deeper": [notes]}
    return notes


def test_notes_may_be_nested(tmp_path):
    # 500 deep, on each Python; the record, its engine and the notes are the first three. Brackets in texts are none.
    notes = nested(248) | {"text": "[" * 600, "lists": [[]] * 600}
    write_record(tmp_path / "record.json", changed(RECORD, "engine.notes", notes))
    assert read_record(tmp_path / "record.json").engine.noted == notes
    for notes, said in ((nested(249), "nested more than 500"), (nested(2000), "nested|it cannot be written as JSON")):
        for other in ({"engine": {"name": "cpu", "notes": notes}}, {"threads": [[notes]]}):
            refuses(said, write_record, tmp_path / "deep.json", {**RECORD, **other})
    text = json.dumps(changed(RECORD, "engine.notes", {"deeper": "here"}))
    (path := tmp_path / "deep.json").write_text(text.replace('"here"', "[" * 498 + "]" * 498))
    refuses(r"deep.json: engine.notes.deeper\[0.*: it is nested more than 500 deep", read_record, path)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("{", r"line 2: it is not a run record in JSON"),
        ("", r"line 2: it is not a run record in JSON"),
        (json.dumps(changed(RECORD, "verdict.passed", False)), r"line 2: verdict\.reasons"),
        (json.dumps({**RECORD, "ranks": 0}), r"line 2: ranks"),
    ],
)
def test_a_broken_line_is_named(tmp_path, second, told):
    path = tmp_path / "all.jsonl"
    path.write_text(f"{json.dumps(RECORD)}\n{second}\n{json.dumps(RECORD)}\n")
    refuses(f"{re.escape(str(path))}, {told}", read_all, [path])


def test_time_to_solution():
    record = solved(RECORD, 2.5, cached=["inputs"])
    assert builtins(sound(record)) == record
    for key, value, said in (
        ("seconds", 2.5, 'time_to_solution: there is no field "seconds"'),
        ("inference", 0.3, r"time_to_solution\.inference: 0\.3, but the first repeat took 0\.4"),
        ("startup", -1, "time_to_solution.startup"),
        ("startup", ..., "startup"),
        ("cached", ["network"], "time_to_solution.cached"),
        ("of", "user", "time_to_solution.of"),
    ):
        unsound(said, changed(record, f"time_to_solution.{key}", value))
    assert sound(record).time_to_solution.seconds == 2.5


@pytest.mark.parametrize(
    ("of", "network", "request_of", "read"),
    [
        ("command", {"source": "text"}, {"network": "layers"}, True),
        ("command", {"source": "text"}, {"neurons": 1024, "layers": 2, "source": "official"}, True),
        ("workflow", {"source": "text"}, {"network": "net.safetensors"}, True),
        ("command", {"source": "text"}, {"network": "net.safetensors"}, False),  # read while it is prepared
        ("command", {"source": "text", "first_layers": 2}, {"network": "layers"}, False),  # more layers were read
        ("command", {"source": "radixnet"}, {"neurons": 1024, "layers": 2}, False),
        ("workflow", {"source": "radixnet"}, {"network": "net.safetensors"}, False),
        ("command", {"source": "unstructured"}, {"neurons": 1024, "layers": 2, "source": "unstructured"}, False),
        ("command", {"source": "text"}, None, False),
        (None, {"source": "text"}, {"network": "layers"}, False),
    ],
)
def test_read_rate_is_edges_by_the_seconds_of_reading_layers(of, network, request_of, read):
    record = changed(solved(RECORD, 2.5, of or "command"), "request", request_of)
    record["problem"]["network"] = network
    record["time_to_solution"] = of and record["time_to_solution"] | {"inputs": 1.5, "network": 0.25}
    made = sound(agreed(record))
    assert made.read_seconds_of_layers == (0.25 if read else None)
    assert made.read_rate == (made.problem.edges / 0.25 if read else None)
    paths = dict(columns(RunRecord))
    assert [reduce(getattr, paths[name], made) for name in ("layers_read_seconds", "layers_read_edges_per_second")] == [
        made.read_seconds_of_layers, made.read_rate,
    ]  # fmt: skip


def test_times_of_stages(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("s\th:m:s\tmax_rss\n1.2500\t0:00:01\t5.0\n")
    assert stage_seconds(path) == 1.25
    for text in ("", "s\n", "h\n1\n", "s\nNA\n", "s\nnan\n", "s\n-1\n", "s\th\n1\n"):
        path.write_text(text)
        refuses("t.tsv: (not a job's time as Snakemake writes it|a job of)", stage_seconds, path)
    refuses("not a job's time", stage_seconds, tmp_path / "none")


def test_a_process_knows_how_old_it_is():
    code = "import time; time.sleep(0.2); from spdnn.core.endings import process_seconds; print(process_seconds())"
    begun = time.monotonic()
    told = float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert 0.2 <= told <= time.monotonic() - begun + 0.02
