"""Official problems through the CUDA engines, on the CPU shim: the whole of them, and their records and page."""

import json
from functools import lru_cache

import pytest
from shim import ShimDevice

from spdnn.cli import main
from spdnn.engines.base import Options
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.verify.judging import judge

mnist = lru_cache(maxsize=1)(mnist_inputs)


@pytest.mark.xdist_group("official")
@pytest.mark.full("official")
@pytest.mark.needs("mnist")
@pytest.mark.parametrize(
    ("neurons", "name", "order"),
    [
        (1024, "cuda", 0),
        (1024, "cuda-persistent", 1),
        (1024, "cuda-ell", 2),
        (4096, "cuda-csr", 0),
        (16384, "cuda-staged", 0),
    ],
)
def test_all_inputs_against_the_official_truth(on_shim, mnist_file, neurons, name, order):
    on_shim(order=order)
    network, chosen = RadixNet(neurons, 120), engine(name)
    inputs = mnist(neurons, mnist_file)
    prepared = chosen.prepare(network, parse_reductions("all", chosen.offers))
    found = chosen.open(prepared, inputs, Options()).run()
    verdict = judge(network, inputs, found)
    assert verdict.truth.kind == "official"
    assert verdict.passed, verdict.reasons
    assert found.survivors[0] > 50_000
    assert found.notes["rows_merged"] > 1_000


def test_command_record_and_page(on_shim, tmp_path, capsys):
    device = ShimDevice(multiprocessors=3)
    device.startup_seconds = 1 / 64
    on_shim([ShimDevice(), device])
    record, page = tmp_path / "run.json", tmp_path / "page.html"
    problem = ["--neurons", "1024", "--layers", "120", "--inputs", "digits", "--count", "500"]
    cuda = ["--engine", "cuda", "--device", "1", "--repeats", "2", "--record", str(record)]
    assert main(["challenge", *problem, *cuda]) == 0
    assert "verified    pass" in capsys.readouterr().out
    found = json.loads(record.read_text())
    notes = found["engine"]["notes"]
    assert notes["multiprocessors"] == 3
    assert " --device 1 " in found["environment"]["command"]
    assert notes["device"] == found["environment"]["gpu"] == device.properties.name
    assert notes["kernels"]["why"] == "the fastest of those timed"
    for shape in notes["kernels"]["shapes"]:
        times = shape["seconds_per_layer"]
        assert set(times) == {"persistent", "staged", "ell", "csr"}
        assert shape["kernel"] == min(times, key=times.get)
    assert notes["spans"]["with host-to-device copies"] > notes["spans"]["layer loop, resident"] > 0
    assert found["span"] == "layer loop, resident"
    told = found["time_to_solution"]
    assert told["inputs"] + told["network"] == pytest.approx(found["read_seconds"][0] - 1 / 64)
    assert told["startup"] > 1 / 64
    assert found["machine"]["instruction_set"] == "sm_90"
    assert main(["report", str(tmp_path), "-o", str(page)]) == 0
    assert "cuda" in page.read_text()
