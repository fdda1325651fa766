"""Samples and the records made of them."""

import itertools
import json

import numpy as np
import pytest
from msgspec.structs import replace
from refusals import refuses

from spdnn.core import challenge, provenance
from spdnn.core.features import Inputs
from spdnn.core.validation import builtins
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.records.files import check_content, read_result, read_samples, record_of, write_result, write_samples
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.verify.judging import judge
from spdnn.runs.verify.official import official_problem


def test_a_record_tells_the_machine_that_ran_and_not_the_one_that_joined(small_run, tmp_path, monkeypatch):
    network, inputs, measurement, result = small_run(2)
    write_samples(tmp_path / "samples.json", measurement)
    here = provenance.environment("")
    monkeypatch.setattr(provenance, "environment", lambda *told: {**here, "cpu": "another"})
    read = read_samples(tmp_path / "samples.json")
    record = record_of("case", read, judge(network, inputs, result), "again")
    check_content(RunRecord, record, "record")
    assert builtins(record.environment) == {**here, "command": "again"}


def test_a_verdict_on_another_run_makes_no_record(small_run):
    rows = np.random.default_rng(0).random((9, 6))
    runs = []
    for widths, given in itertools.product(((6, 5, 4), (6, 5, 5, 4)), (rows, rows[::-1])):
        network, inputs, measurement, result = small_run(widths=widths, rows=given)
        runs.append((measurement, judge(network, inputs, result)))
    for measurement, own in runs:
        for _, verdict in runs:
            if verdict is own:
                check_content(RunRecord, record_of("case", measurement, verdict, ""), "r")
            else:
                refuses(r"verdict\.judged: the digest of another network", record_of, "case", measurement, verdict, "")
    record = record_of("case", *runs[0], "")
    record = replace(record, problem=replace(record.problem, edges=4 * record.problem.edges))
    refuses(r"verdict\.judged: the digest of another network", check_content, RunRecord, record, "r")


def test_inputs_that_say_they_are_official():
    """286 rows with a description that names the official digest, cut from nothing or from other rows: not official."""
    told = {"source": "mnist", "official_sha256": challenge.INPUT_SHA256[1024], "stored": "largest modulus"}
    rows = np.random.default_rng(0).integers(0, 256, (400, 128), dtype=np.uint8)
    network = RadixNet(1024, 120)
    for forged in (Inputs(rows[:286], 1024, None, told), Inputs(rows, 1024, None, told).first(286)):
        assert official_problem(network, forged) is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("alive", np.arange(5, 14), "inputs beyond the 9 that there are"),
        ("alive", np.array([3, 1, 2, 0, 4, 5, 6, 7, 8]), "inputs that do not ascend"),
        ("alive", np.arange(9.0), "alive is float64"),
        ("alive", np.arange(9)[:, None], r"alive is int64 of shape \(9, 1\)"),
        ("row_sum", np.zeros(8), r"row_sum is float64 of shape \(8,\)"),
        ("row_hash", np.zeros(9, np.int64), "row_hash is int64"),
        ("outputs", 0, "9 inputs, 0 outputs"),
        ("survivors", np.zeros(0, np.int64), "0 layers"),
        ("inputs", np.arange(2), ""),
        ("more", 1, ""),
    ],
)
def test_a_result_whose_parts_do_not_belong_together_is_refused(name, value, says, small_run, tmp_path):
    result = small_run(bias=0.1)[-1]
    write_result(tmp_path / "r.npz", result)
    assert read_result(tmp_path / "r.npz").digest == result.digest
    with np.load(tmp_path / "r.npz") as stored:
        np.savez(tmp_path / "r.npz", **{**stored, name: value})
    refuses(rf"r\.npz: not a result of an inference \(.*{says}", read_result, tmp_path / "r.npz")


@pytest.mark.parametrize("change", [{"more": 1}, {"categories": -1}, {"survivors": "9"}, {"categories_sha256": "x"}])
def test_samples_with_another_result_are_refused(change, small_run, tmp_path):
    path = tmp_path / "s.json"
    write_samples(path, small_run()[2])
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "result": {**content["result"], **change}}))
    refuses(rf"s\.json: result\.?.*{next(iter(change))}", read_samples, path)
