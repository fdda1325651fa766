"""`spdnn record check`: records made up by hand are refused or lack evidence, and a run that is repeated tells."""

import json
import re

import pytest
from operation_cases import made_operation
from refusals import refused

from spdnn.cli import main
from spdnn.core.validation import builtins, convert
from spdnn.runs import rerun as repeat
from spdnn.runs.records.files import seal_record
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from tests.report.records import agreed


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A record of a small run by formula."""
    path = tmp_path_factory.mktemp("run") / "run.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPDNN_DATA", str(path.parent / "data"))
        command = ["challenge", "--neurons", "1024", "--layers", "12", "--inputs", "digits", "--count", "300"]
        assert main([*command, "--threads", "1", "--repeats", "2", "--record", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def check(tmp_path, record, *options):
    path = tmp_path / "run.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record), encoding="utf-8")
    return main(["record", "check", str(path), *options])


def faster(record, times):
    """The record with all that is measured that many times as fast, in agreement with itself."""
    record["inference_seconds"] = [one / times for one in record["inference_seconds"]]
    record["time_to_solution"] = None


def without_machine(record):
    record["machine"] = None
    faster(record, 1e6)


def zero_digests(record):
    for part, name in (("problem", "inputs_sha256"), ("problem", "network_identity"), ("result", "categories_sha256")):
        record[part][name] = "0" * 64


def by_file(record):
    record["verdict"]["truth"] |= {"kind": "file", "source": "file truth.txt"}
    record["verdict"]["values"] |= {"checked": 0, "largest_error": None, "rule": "values not checked"}
    record["verdict"]["values"]["every"] = 0


EDITS = {
    "times": lambda record: faster(record, 50),
    "machine": without_machine,
    "work": lambda record: record["result"].update(edges_computed=1),
    "digests": zero_digests,
    "truth": by_file,
}


@pytest.mark.parametrize("edit", EDITS)
def test_records_edited_by_hand_are_refused_or_without_their_seal_lack_evidence(text, tmp_path, capsys, edit):
    record = json.loads(text)
    assert check(tmp_path, text) == 0
    EDITS[edit](record)
    assert check(tmp_path, record) == 1
    capsys.readouterr()
    assert "run.json: " in refused(capsys, "report", tmp_path / "run.json", "-o", tmp_path / "page.html")
    record["seal"] = None
    status = check(tmp_path, record)
    told = capsys.readouterr()
    if edit in ("machine", "work", "digests"):
        assert status == 1
        assert told.err.count("\n") == 1
    elif not status:  # 50 times as fast may still be less than the machine's limit
        assert re.search("lacks +no checksum", told.out)
        assert (edit == "truth") == ("compared with a file alone, and no values" in told.out)


def test_operation_records_lack_a_checksum_or_are_refused_once_edited(tmp_path, capsys):
    assert check(tmp_path, made_operation()) == 0
    assert re.search("lacks +1 operation record without checksum", capsys.readouterr().out)
    record = seal_record(convert(OperationRecord, made_operation(), "r"), "r")
    assert check(tmp_path, builtins(record)) == 0
    assert "lacks" not in capsys.readouterr().out
    assert check(tmp_path, builtins(record) | {"created": "2025-01-02T03:04:06Z"}) == 1
    assert "the record was changed after it was written" in capsys.readouterr().err


@pytest.mark.parametrize(("threads", "status"), [((1, 2), 1), ((2, 1), 0)])
def test_of_a_key_that_is_there_twice_the_seal_is_of_the_value_that_counts(text, tmp_path, threads, status):
    """The last one, as to every parser of JSON."""
    assert text.count(top := '\n "threads": 1,') == 1
    twice = "".join(f'"threads": {count},' for count in threads)
    assert check(tmp_path, text.replace(top, twice)) == status


def forged(text, edit):
    """The edited record with a seal of its own, as whoever has this code can make it."""
    record = json.loads(text)
    edit(record)
    record["seal"] = None
    return json.dumps(builtins(seal_record(convert(RunRecord, record, "r"), "r")))


def test_a_rerun_finds_what_a_seal_cannot(text, tmp_path, capsys):
    def other_output(record):
        record["result"]["digest"] = "ab" * 32
        agreed(record)

    assert check(tmp_path, text, "--rerun") == 0
    assert "digest of the output the same, to the bit" in capsys.readouterr().out
    record = forged(text, other_output)
    assert check(tmp_path, record) == 0
    assert check(tmp_path, record, "--rerun") == 1
    assert re.search("WRONG +digest of the output differs", capsys.readouterr().out)


def test_a_record_fifty_times_as_fast_contradicts_its_run(text, tmp_path, capsys, monkeypatch):
    def unlimited(record):
        record["machine"] = None
        faster(record, 50)

    record = forged(text, unlimited)
    assert check(tmp_path, record) == 0
    assert "the machine was not measured" in capsys.readouterr().out
    monkeypatch.setattr(repeat, "busy_part", lambda _: None)
    assert check(tmp_path, record, "--rerun") == 1
    assert "more than 3 times as fast on the same kind of machine" in capsys.readouterr().out
    monkeypatch.setattr(repeat, "busy_part", lambda _: 0.5)
    assert check(tmp_path, record, "--rerun") == 0
    assert re.search(r"open +times not compared \(other work took 50 % of this machine\)", capsys.readouterr().out)


def test_nothing_that_a_record_names_is_opened_or_run(text, tmp_path, capsys):
    target = tmp_path / "touched"

    def hostile(record):
        record["environment"]["command"] = f"touch {target}"
        record["problem"]["network"] = {"source": "layers", "path": str(tmp_path / "run.json")}
        record["problem"]["inputs"] = {"source": f"$(touch {target})", "path": "/dev/zero"}

    assert check(tmp_path, forged(text, hostile), "--rerun") == 1
    assert "made by no formula; name the file of it (--network)" in capsys.readouterr().err
    assert not target.exists()
    for described in ({"neurons": 10**12}, {"layers": 10**9}, {"seed": -1}):
        record = json.loads(text)
        huge = {**record["problem"]["network"], **described}
        assert check(tmp_path, forged(text, lambda one, huge=huge: one["problem"].update(network=huge)), "--rerun") == 1
        assert "--network" in capsys.readouterr().err
    said = refused(capsys, "record", "check", tmp_path / "run.json", "--inputs", "x.npz")
    assert "--inputs is for --rerun alone" in said
