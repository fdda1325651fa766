"""Comparisons: every record is verified, of one run, and sound; an output that is wrong or changes ends them."""

import numpy as np
import pytest
from refusals import refuses

from spdnn.bench import networks as peers
from spdnn.bench.contest import ComparisonSettings
from spdnn.bench.engines.scipy import ScipyEngine
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.request import RunRequest
from spdnn.core.statistics import ratios
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.records.files import check_content, read_record
from spdnn.runs.records.run_record import RunRecord
from tests.report.records import made_record, typed

THREADS = 2  # JAX keeps the number that it starts with
HERE = peers.find_libraries()[0]


def layers(libraries=("scipy",), count=67, widths=(1024,)):
    comparison = ComparisonSettings(THREADS, libraries, 0.0, "spdnn bench kernels")
    return [record for group in peers.compare_layers(widths, count, comparison) for record in group]


def bits(count, neurons, seed=0):
    rng = np.random.default_rng(seed)
    return Inputs.from_array(rng.random((count, neurons)) < np.linspace(0.05, 0.35, count)[:, None])


def networks(network, inputs, libraries, repeats=2):
    request = RunRequest(network="net.txt", inputs="x.npy", layers=network.depth, threads=THREADS, repeats=repeats)
    comparison = ComparisonSettings(THREADS, libraries, 0.0, "spdnn bench kernels")
    return peers.compare_networks(request, network, inputs, comparison)


@pytest.mark.parametrize("count", [1, 67, 600])
def test_one_layer_in_every_library(count):
    records = layers(HERE, count)
    assert [record.engine.name for record in records] == ["cpu", *HERE]
    for record in records:
        check_content(RunRecord, record, "record")
        assert record.comparison == records[0].comparison
        assert record.span == "one layer, features in the engine's layout"
        assert record.verdict.truth.kind == "oracle"
        assert record.verdict.truth.checked == count
        assert record.problem.input_count == count
        assert record.problem.edges == 32 * 1024
        assert len(record.inference_seconds) == peers.LAYER_PACE.least
        assert record.result.edges_computed >= count * 32 * 1024
    assert {record.engine.noted.get("threads_used", THREADS) for record in records} == {1, THREADS}


def test_widths_and_the_default_count(monkeypatch):
    monkeypatch.setattr("spdnn.bench.networks.FEATURE_BYTES", 4 * 1024 * 100)
    records = layers((), None, (1024, 4096))
    assert [record.problem.input_count for record in records] == [100, 64]
    assert len({record.comparison for record in records}) == 1
    permuted = RadixNet(4096, 20)
    assert records[1].problem.network["layer"] == permuted.block + 1
    assert len(np.unique(np.diff(permuted.layer(permuted.block).indices[:32].astype(int)))) > 2  # no regular stride


def test_a_wrong_output_has_no_record(monkeypatch):
    step = ScipyEngine.block_step
    monkeypatch.setattr(ScipyEngine, "block_step", lambda self, *given: step(self, *given) * np.float32(1.001))
    with pytest.raises(SpdnnError, match="peers-layer-1024.random-67.scipy.t2: verification failed"):
        layers()
    with pytest.raises(SpdnnError, match=r"peers-net-.*\.scipy\.all\.t2: verification failed"):
        networks(RadixNet(1024, 4), bits(50, 1024), ["scipy"])


def test_a_network_in_every_library(tmp_path):
    records, refused = networks(RadixNet(1024, 12), bits(300, 1024), HERE)
    assert not refused
    assert [record.engine.name for record in records] == ["cpu", "cpu", *HERE]
    assert [record.reductions.requested for record in records[:2]] == [["dead", "inputs", "neurons"], ["dead"]]
    assert [peers.label(record) for record in records] == ["cpu", "cpu, dead", *HERE]
    for record in records:
        assert record.result.categories == records[0].result.categories > 0
        assert len(record.inference_seconds) == 2
    peers.write_records(tmp_path / "records", records)
    paths = sorted((tmp_path / "records").iterdir())
    names = ("cpu.all", "cpu.dead", *(f"{name}.all" for name in HERE))
    assert [path.name.split("-first-")[-1].split(".", 2)[-1] for path in paths] == sorted(
        f"{name}.t2.json" for name in names
    )
    assert read_record(paths[0]).comparison == records[0].comparison


@pytest.mark.needs("graphblas")
def test_a_library_that_cannot_run_the_network_says_why(random_network):
    rows = Inputs.from_array(np.random.default_rng(0).random((20, 40)).astype(np.float32))
    records, refused = networks(random_network([40, 40, 40], bias=0.2), rows, ["graphblas", "scipy"])
    assert [record.engine.name for record in records] == ["cpu", "cpu", "scipy"]
    assert list(refused) == ["graphblas"]
    assert "keeps features sparse" in refused["graphblas"]


def configured(settings, inputs=None):
    return [record for group, _ in peers.compare(settings, "snakemake", inputs) for record in group]


def test_a_configuration():
    network = {"neurons": 1024, "layers": 3, "inputs": "digits", "count": 60, "repeats": 1}
    settings = {"widths": [1024], "count": 3, "seconds": 0, "network": network, "libraries": ["scipy"],
                "threads": THREADS}  # fmt: skip
    records = configured(settings, bits(90, 1024))
    assert [record.case for record in records] == [
        *(f"peers-layer-1024.random-3.{name}.t2" for name in ("cpu", "scipy")),
        *(f"peers-radixnet-1024-3.digits-1024-first-60.{name}.t2" for name in ("cpu.all", "cpu.dead", "scipy.all")),
    ]
    assert len({record.comparison for record in records}) == 1
    only = configured({**settings, "network": None, "libraries": "auto"})
    assert len(only) == 1 + len(HERE)


def test_ratios_are_of_pairs():
    busy = np.array([1, 5, 1, 9, 2.0])  # what else the machine did, the same for both of a pair
    found = ratios(0.1 * busy, 0.3 * busy)
    assert (found.median, found.low, found.high) == pytest.approx((3, 3, 3))
    found = ratios([1, 1, 1], [2, 4, 3])
    assert (found.median, found.low, found.high) == (3, 2, 4)
    assert ratios([2.0], [1.0]) == (0.5, 0.5, 0.5, 0)
    refuses("2 of our samples and 1 of theirs are no pairs", ratios, [1, 2], [1])
    refuses("every sample must be a positive number", ratios, [0.0], [1])


@pytest.mark.parametrize(
    ("name", "requested", "label"),
    [
        ("cpu", [], "cpu"),
        ("cpu", ["dead"], "cpu, dead"),
        ("cpu", ["dead", "inputs", "neurons"], "cpu"),
        ("scipy", ["dead"], "scipy"),
        ("cusparse", ["dead"], "cusparse"),
    ],
)
def test_only_our_own_tell_which_reductions_were_on(name, requested, label):
    record = made_record("one") | {"engine": {"name": name, "notes": {}}}
    record["reductions"]["requested"] = requested
    assert peers.label(typed(record)) == label
