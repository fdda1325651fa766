"""Samples and the records made of them."""

from __future__ import annotations

import numpy as np

from spdnn import measure, provenance
from spdnn.engines import Options, engine
from spdnn.features import Inputs
from spdnn.records import check_record


def test_a_record_tells_the_machine_that_ran_and_not_the_one_that_joined(random_network, tmp_path, monkeypatch):
    network, runner = random_network([6, 5, 4]), engine("cpu")
    inputs = Inputs.from_array(np.random.default_rng(0).random((9, 6)))
    measurement, result = measure.measure(runner, runner.prepare(network, ()), inputs, Options(1), 2, 0.1, 0.2)
    measure.write_samples(tmp_path / "samples.json", measurement, result)
    here = provenance.environment("")
    monkeypatch.setattr(provenance, "environment", lambda command: {**here, "cpu": "another", "command": command})
    read, summary = measure.read_samples(tmp_path / "samples.json")
    record = measure.record("case", read, summary, measure.judge(network, inputs, result), "again")
    check_record(record, "record")
    assert record["environment"] == {**here, "command": "again"}
