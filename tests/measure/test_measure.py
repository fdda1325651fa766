"""Samples and the records made of them."""

import numpy as np
import pytest
from msgspec.structs import replace

from spdnn.common import provenance
from spdnn.common.errors import InputError
from spdnn.common.validation import builtins
from spdnn.engines.base import Options
from spdnn.engines.registry import engine
from spdnn.measure import run as measure
from spdnn.measure.judging import judge
from spdnn.measure.record import Measurement, read_samples, record_of
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.records.files import check_record
from spdnn.sources.radixnet import RadixNet


def test_a_record_tells_the_machine_that_ran_and_not_the_one_that_joined(random_network, tmp_path, monkeypatch):
    network, runner = random_network([6, 5, 4]), engine("cpu")
    inputs = Inputs.from_array(np.random.default_rng(0).random((9, 6)))
    measurement, result = measure.measure(runner, runner.prepare(network, ()), inputs, Options(1), 2, 0.1, 0.2)
    measure.write_samples(tmp_path / "samples.json", measurement, result)
    here = provenance.environment("")
    monkeypatch.setattr(provenance, "environment", lambda *told: {**here, "cpu": "another"})
    read, summary = read_samples(tmp_path / "samples.json")
    record = record_of("case", read, summary, judge(network, inputs, result), "again")
    check_record(record, "record")
    assert builtins(record.environment) == {**here, "command": "again"}


def test_a_verdict_on_another_run_makes_no_record(random_network):
    networks, runner = [random_network([6, 5, 4]), random_network([6, 5, 5, 4])], engine("cpu")
    rows = np.random.default_rng(0).random((9, 6))
    inputs = [Inputs.from_array(rows), Inputs.from_array(rows[::-1])]
    runs = {}
    for n, network in enumerate(networks):
        for i, given in enumerate(inputs):
            prepared = runner.prepare(network, ())
            measurement, result = measure.measure(runner, prepared, given, Options(1), 1, 0.1, 0.2)
            runs[n, i] = Measurement.of(measurement), measure.summary(result), judge(network, given, result)
    for one, (measurement, summary, _) in runs.items():
        for other, (*_, verdict) in runs.items():
            record = record_of("case", measurement, summary, verdict, "")
            if one == other:
                check_record(record, "r")
            else:
                with pytest.raises(InputError, match=r"r: verdict\.judged: [a-z0-9_, ]+ of another run than this one"):
                    check_record(record, "r")
    record = record_of("case", *runs[0, 0], "")
    record = replace(record, problem=replace(record.problem, edges=4 * record.problem.edges))
    with pytest.raises(InputError, match=r"verdict\.judged: edges of another run"):
        check_record(record, "r")


def test_inputs_that_say_they_are_official():
    """286 rows with a description that names the official digest, cut from nothing or from other rows: not official."""
    told = {"source": "mnist", "official_sha256": challenge.INPUT_SHA256[1024]}
    rows = np.random.default_rng(0).integers(0, 256, (400, 128), dtype=np.uint8)
    network = RadixNet(1024, 120)
    for forged in (Inputs(rows[:286], 1024, None, told), Inputs(rows, 1024, None, told).counted(286)):
        assert measure.official(network, forged) is None
