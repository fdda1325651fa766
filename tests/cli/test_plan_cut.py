"""`spdnn plan --cut`: what it prints and writes, and how mistakes end."""

import json
import re

import pytest
from refusals import refused, spdnn

from spdnn.runs.records.files import write_record
from tests.engines.taskgraph.test_costmodel import record
from tests.report.records import made_record

OFFICIAL = ("--neurons", 1024, "--layers", 120, "--edges-per-second", 1e12)


def cut(*arguments):
    return spdnn("plan", "--cut", *arguments)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.json"
    made = record(inputs=4000, layers=8)
    made["machine"] = None
    write_record(path, made)
    return path


def test_an_official_problem_by_rates(capsys):
    assert cut(*OFFICIAL) == 0
    text = capsys.readouterr().out
    assert text.startswith("1024-120, 60,000 inputs: predicted, by the rates given; rows are those that the official")
    assert re.search(r"^resident: 1 batch of up to 60,000 inputs; 24 stages.* layer$", text, re.MULTILINE)


def test_what_does_not_fit_is_streamed_and_told(tmp_path, capsys):
    written = tmp_path / "d.json", tmp_path / "d.svg"
    machine = ("--device-memory", "30MB", "--devices", 2, "--copy-bandwidth", 1e10)
    assert cut(*OFFICIAL, *machine, "--json", written[0], "--svg", written[1]) == 0
    text = capsys.readouterr().out
    told = json.loads(written[0].read_text())
    assert told["predicted"] is True
    assert max(told["memory_bytes"]) <= told["promise_bytes"] == 30_000_000
    assert told["seconds"] == pytest.approx(max(entry[-1] for entry in told["timeline"]))
    assert sum(told["parts"].values()) == pytest.approx(told["seconds"])
    assert told["decomposition"]["groups"] * len(told["decomposition"]["ranges"]) == 2
    assert told["why"] in text
    assert len(told["plans"]) > 3
    assert told["plans"][0]["seconds"] == told["seconds"]
    assert told["plans"][0]["memory_bytes"] == max(told["memory_bytes"])
    picture = written[1].read_text()
    assert picture.startswith("<svg")
    assert "Predicted timeline of 1024-120" in picture


def test_a_schedule_that_is_given_is_kept(capsys):
    arguments = ("--schedule", "pipeline", "--devices", 4, "--pipeline", 2, "--batches", 8, "--bandwidth", 1e9)
    assert cut(*OFFICIAL, *arguments) == 0
    text = capsys.readouterr().out
    assert "pipeline: 8 batches" in text
    assert "4 devices (2 pipelines of 2)" in text


def test_a_record_calibrates(saved, capsys):
    """One device and all weights there: what was measured is predicted."""
    assert cut(saved) == 0
    text = capsys.readouterr().out
    assert "measured 0.5 s" in text
    assert re.search(r"^resident: .* 4,000 +0\.5000 ", text, re.MULTILINE)
    assert cut(saved, "--devices", 2, "--count", 8000, "--schedule", "graph") == 0
    assert "8,000 inputs" in capsys.readouterr().out
    # An official problem at the rates of the record's edges; what its reductions left of them is kept.
    assert cut(saved, "--neurons", 1024, "--layers", 480, "--devices", 2) == 0
    text = capsys.readouterr().out
    assert text.startswith("1024-480, 60,000 inputs: predicted, calibrated by ")
    assert "measured 0.5 s; rows are those that the official inputs have left" in text


def test_any_network(tmp_path, capsys):
    network = tmp_path / "net.safetensors"
    assert spdnn("network", "make", "unstructured", "--neurons", 256, "--layers", 9, "-o", network) == 0
    assert cut("--network", network, "--count", 500, "--edges-per-second", 1e9) == 0
    text = capsys.readouterr().out
    assert "500 inputs: predicted, by the rates given; no row is taken to die" in text
    assert "1 stages of up to 9 layers" in text or "1 stage of up to 9 layers" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--neurons", 1024, "--layers", 120), "the cost of a layer is not known: give a record, or --edges"),
        (("--neurons", 1024), "--neurons and --layers go together"),
        (("--neurons", 1000, "--layers", 120, "--edges-per-second", 1), "1000"),
        ((*OFFICIAL, "--device-memory", "30MB"), "weights would be streamed at an unknown rate"),
        ((*OFFICIAL, "--device-memory", "1MB", "--copy-bandwidth", 1e9), "device memory of 1,000,000 bytes is too"),
        ((*OFFICIAL, "--devices", 4, "--pipeline", 3), "cannot be shared out to pipelines of 3"),
        ((*OFFICIAL, "--devices", 5000), "5000 devices: at most 4,096"),
        ((*OFFICIAL, "--devices", "1,2"), "--devices: a cut takes one number, not 2"),
        (("one.json", "two.json"), "there is no such file or folder"),
        ((*OFFICIAL, "--per-node", 2), "--per-node is not for a cut"),
        (("--network", "nowhere.safetensors", "--edges-per-second", 1), "nowhere.safetensors"),
        ((), "no problem is named: give --neurons and --layers, --network or a record"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(arguments, sentence, capsys):
    assert sentence in refused(capsys, "plan", "--cut", *arguments)


def test_a_record_of_several_devices_or_ranks_does_not_calibrate(tmp_path, saved, capsys):
    made = record()
    made["engine"] = {"name": "taskgraph", "notes": made["engine"]["notes"] | {"devices": 2}}
    write_record(tmp_path / "two.json", made)
    for words, sentence in (
        ([tmp_path / "two.json"], "calibrated by a record of one"),
        ([saved, "--edges-per-second", 1e9], "--edges-per-second and a record exclude each other"),
        ([*OFFICIAL, "--json", tmp_path / "x", "--svg", tmp_path / "x"], "two outputs cannot be one file"),
    ):
        assert sentence in refused(capsys, "plan", "--cut", *words)


def test_records_are_compared_with_what_is_predicted_of_them(tmp_path, saved, capsys):
    faster = record(inputs=4000, layers=8) | {"threads": 4, "case": "two", "inference_seconds": [0.3], "machine": None}
    write_record(tmp_path / "two.json", faster)
    assert spdnn("plan", tmp_path / "two.json", saved, "--json", tmp_path / "plan.json") == 0
    first, *others = json.loads((tmp_path / "plan.json").read_text())["plans"]
    assert (first["what"], first["measured"]) == ("two (measured)", 0.3)
    assert first["error"] == pytest.approx(first["seconds"] / 0.3 - 1)
    assert [other["measured"] for other in others] == [None] * 6
    assert re.search(r"^two \(measured\) +4,000 ", capsys.readouterr().out, re.MULTILINE)


def test_records_of_other_work_are_refused(tmp_path, saved, capsys):
    write_record(tmp_path / "other.json", made_record("other", reductions=()))
    said = refused(capsys, "plan", saved, tmp_path / "other.json")
    assert "another network, engine or list of reductions than" in said
