"""The chain from network and inputs to a record: what is not of one run is never joined."""

import tempfile
from dataclasses import replace as with_parts

import numpy as np
import pytest
from msgspec.structs import replace

from spdnn.api import infer
from spdnn.cli import main
from spdnn.core import challenge
from spdnn.core.features import Inputs
from spdnn.core.network import MemoryNetwork
from spdnn.engines.registry import engine
from spdnn.formats import text
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_prepared
from spdnn.runs.load import read_store, store_info
from spdnn.runs.records.files import read_record, read_result, record_of, write_result
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import judge, truth_for, verdict_key
from spdnn.runs.verify.official import official_problem
from tests.refusals import refuses


@pytest.fixture
def some_inputs():
    return Inputs.from_array(np.random.default_rng(0).random((40, 1024)) < 0.3)


@pytest.fixture
def official_inputs(some_inputs, monkeypatch):
    """Inputs that count as the official ones of 1024 neurons."""
    monkeypatch.setitem(challenge.INPUT_SHA256, 1024, some_inputs.sha256)
    monkeypatch.setattr(verify, "official_categories", lambda neurons: np.empty(0, np.int64))
    return some_inputs


class Named(MemoryNetwork):
    """Layers whose stored digests, and whose description, are those of another network."""

    def __init__(self, layers, other):
        super().__init__(layers, other.description)
        self.other = other

    def layer_sha256(self, k):
        return self.other.layer_sha256(k)

    def sha256(self):
        return self.other.sha256()


def test_official_is_asked_of_the_layers_and_not_of_their_digests(official_inputs):
    whole = RadixNet(1024, 120)
    layers = list(whole.layers())
    assert official_problem(MemoryNetwork(layers), official_inputs).name == "1024-120"
    for k, change in ((7, {"bias": np.float32(-0.15)}), (119, {"indices": np.roll(layers[119].indices, 32)})):
        forged = Named([*layers[:k], with_parts(layers[k], **change), *layers[k + 1 :]], whole)
        assert official_problem(forged, official_inputs) is None
        refuses(rf"no official problem.*layer {k + 1} is not the official one", truth_for, forged,
                official_inputs, None, "official")  # fmt: skip


def test_what_is_configured_as_official_is_never_judged_by_the_oracle(official_inputs, some_inputs):
    """One bit of a formula's bias, one input less, another depth: a sentence, and no verdict."""
    result = infer(RadixNet(1024, 120, -0.15), some_inputs)
    for network, inputs, told in (
        (RadixNet(1024, 120, -0.15), official_inputs, "layer 1 is not the official one"),
        (RadixNet(1024, 120), Inputs(some_inputs.data[:-1], 1024), "the inputs' SHA-256 is"),
        (RadixNet(1024, 30), official_inputs, "1024 neurons x 30 layers are none of the twelve"),
    ):
        for truth in ("official", "official:1024"):
            refuses(f"no official problem, as it should be: {told}", judge, network, inputs, result, truth)
        if network.depth == 120:
            assert truth_for(network, inputs, result).kind == "oracle"
    refuses("official:4096 is not 1024 neurons", judge, RadixNet(1024, 120), official_inputs, result,
            "official:4096")  # fmt: skip


def test_a_network_prepared_of_another_is_refused(random_network, tmp_path):
    runner = engine("cpu")
    networks = [random_network([6, 5, 4], seed=seed) for seed in (1, 2)]
    prepared = runner.prepare(networks[0], ())
    write_prepared(tmp_path / "p.safetensors", prepared.network, store_info(prepared, 0.0))
    assert read_store(tmp_path / "p.safetensors", networks[0])[0].source is not networks[1]
    refuses("this was prepared of another network", read_store, tmp_path / "p.safetensors", networks[1])


def test_statistics_of_another_run_make_no_record(small_run):
    """A result whose digest is the run's, with statistics or values that are not."""
    network, inputs, measurement, result = small_run()
    verdict = judge(network, inputs, result)
    assert verdict.values.every == result.alive.size > 0
    assert record_of("case", measurement, verdict, "").seal
    for part in ("row_sum", "row_max", "values"):
        other = with_parts(result, **{part: getattr(result, part) * np.float32(1 + 1e-7)})
        assert other.digest == result.digest
        of_other = replace(verdict, judged=verdict_key(network, inputs, other))
        refuses("verdict.judged: the digest of another network", record_of, "case", measurement, of_other, "")


def test_a_stored_result_is_whole(random_network, tmp_path):
    network = random_network([6, 5, 4])
    inputs = Inputs.from_array(np.random.default_rng(0).random((9, 6)))
    result = infer(network, inputs, "cpu", values=np.arange(0, 9, 2))
    write_result(tmp_path / "r.npz", result)
    read = read_result(tmp_path / "r.npz")
    assert (read.sha256, read.valued.tolist()) == (result.sha256, result.valued.tolist())


@pytest.mark.parametrize("engine", ["cpu", "taskgraph"])
def test_a_run_reads_text_once_and_on_the_clock_of_reading(tmp_path, set_all, capsys, engine):
    """Engines, reductions and verification read layers again: they are in a store, which has no name any more."""
    network, folder, read, temporary = RadixNet(1024, 3), tmp_path / "net", [], tmp_path / "temporary"
    text.write_layers(network, folder)
    temporary.mkdir()

    def read_layer(content, where, *more, before=text.read_layer):
        read.append(where)
        return before(content, where, *more)

    set_all(text, read_layer=read_layer)
    set_all(tempfile, tempdir=str(temporary))
    words = ["infer", "--network", folder, "--inputs", "digits", "--count", 100, "--engine", engine, "--repeats", 2]
    assert main([*map(str, words), "--record", str(tmp_path / "record.json")]) == 0
    record = read_record(tmp_path / "record.json")
    assert sorted(read) == sorted(map(str, folder.iterdir()))
    assert list(temporary.iterdir()) == []
    assert record.problem.network == {"source": "text", "path": "net", "sha256": network.sha256()}
    assert record.problem.network_identity == network.sha256()
    spent, line = record.time_to_solution.network, capsys.readouterr().out.split("read        ")[1].splitlines()[0]
    assert record.read_rate == network.edges / spent
    assert line.startswith(f"{spent:.4f} s for the layers, ")
