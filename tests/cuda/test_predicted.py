"""Predicted times: their counts are those of the shim and of machine code, and they miss published ones as stated."""

import json
import os

import numpy as np
import pytest
import test_counts
from counts import count
from engine_cases import rows
from gpus import GPUS, PARTS

from spdnn.engines.base import Options
from spdnn.engines.cuda.schedule import BITS, PERSISTENT, STAGED
from spdnn.engines.cuda.session import CudaSession
from spdnn.engines.registry import engine
from spdnn.problem import challenge
from spdnn.problem.network import from_matrices
from spdnn.reductions.registry import parse_reductions
from spdnn.sources.radixnet import RadixNet


def test_predicted_counts_are_those_of_the_shim_and_of_machine_code(gpu):
    predicted = gpu("predicted")
    for kind, layer in ((STAGED, predicted.layers(1024)[-1]), (BITS, RadixNet(1024, 1).layer(0))):
        work, found = predicted.ours(layer, GPUS["H100"], kind == BITS), count(layer, kind)
        assert work.deliveries == found.reads.deliveries + found.reads.copied / 128
        assert work.multiply_adds * 32 == 32 * layer.edges
    for shared, turns in predicted.TURN.items():
        most = {arch: names["staged"][shared] for arch, names in test_counts.MOST.items() if arch in turns}
        assert {arch: turns[arch] for arch in most} == most
    for arch, names in test_counts.MOST.items():
        assert predicted.BITS_TURN.get(arch) in (None, names["staged, bits"][4])
    assert predicted.OUTPUT == test_counts.MOST_OF_AN_OUTPUT


@pytest.mark.parametrize("reductions", ["dead", "dead,inputs"])
@pytest.mark.parametrize("kind", [STAGED, PERSISTENT])
def test_predicted_launches_are_those_of_a_captured_run(gpu, device, cuda, kind, reductions):
    network, cuda.free = RadixNet(64, 60, -0.3), 1 << 30
    prepared = engine("cuda", usable=False).prepare(network, parse_reductions(reductions))
    CudaSession(device, prepared, rows(100, 64, kind="bits"), Options(1), kind)
    (graph,) = cuda.graphs
    found = gpu("predicted").launches(60, kind, 64, reductions != "dead")
    assert found == len(graph.ops)
    assert found == {"staged": 86, "persistent": 70}[kind] + 5 * (9 if reductions != "dead" else 0)


def test_one_row_waits_for_loads_or_for_bytes(gpu):
    predicted, h100 = gpu("predicted"), GPUS["H100"]
    assert predicted.merged(1024).outputs == 64
    assert predicted.tail(1024, h100, 32) == 0
    assert max(test_counts.WAITS[1, True]) == predicted.LOADS
    assert predicted.tail(1024, h100, 132) == pytest.approx(100 * 270 / 1.98e9)
    assert predicted.tail(4096, GPUS["V100"], 1920) > 1888 * 5 * 270 / 1.53e9  # more weights than the cache holds


def test_counts_of_published_kernels_by_plain_loops(gpu):
    """A thread for each output; steps, banks and sectors of a small layer, gone through one by one."""
    predicted = gpu("predicted")
    rng = np.random.default_rng(0)
    matrix = np.zeros((1100, 512), np.float32)
    for column in range(512):
        matrix[rng.permutation(1100)[: rng.integers(1, 40)], column] = 0.5
    layer = from_matrices([matrix], last="relu").layer(0)
    steps = deliveries = sectors = copied = 0
    for block in range(0, 512, 256):
        footprint = np.flatnonzero(matrix[:, block : block + 256].any(axis=1))
        for stage in range(0, footprint.size, 512):
            here = footprint[stage : stage + 512]
            copied += here.size
            sectors += sum(len({i // 8 for i in here[first : first + 32]}) for first in range(0, here.size, 32))
            for warp in range(block, block + 256, 32):
                lanes = [np.flatnonzero(matrix[here, output]) for output in range(warp, warp + 32)]
                for step in range(max(map(len, lanes))):
                    asked = {int(lane[step]) for lane in lanes if len(lane) > step}
                    steps, banks = steps + 1, [place % 32 for place in asked]
                    deliveries += max(banks.count(bank) for bank in banks)
    found = predicted.at_scale(layer, GPUS["V100"])
    assert found.multiply_adds == 12 * steps
    assert found.deliveries == 12 * (deliveries + copied / 32)
    assert found.weight_bytes == steps * 32 * 6
    assert found.l2_bytes == found.weight_bytes + 12 * (32 * sectors + 4 * 512)
    banks = sum(max(np.bincount(np.flatnonzero(row) % 32)) for row in matrix if row.any())
    assert predicted.snig(layer, GPUS["RTX 2080 Ti"]).deliveries == 2 * banks


def test_how_far_published_times_are(gpu):
    """At-scale's kernel within 2.5 times, SNIG's, with which the host's clock went, within 5."""
    predicted = gpu("predicted")
    factors = {}
    for row in predicted.checked((1024,)):
        factors.setdefault(row.system, []).append(row.factor)
        assert row.binds in PARTS
    assert len(factors[predicted.AT_SCALE]) == 2 * len(challenge.DEPTHS)
    assert len(factors[predicted.SNIG]) == len(challenge.DEPTHS)
    assert all(1 < factor < 2.5 for factor in factors[predicted.AT_SCALE])
    assert all(1 < factor < 5 for factor in factors[predicted.SNIG])


@pytest.fixture
def ncu(gpu, monkeypatch, tmp_path):
    """A function that puts a stand-in for Nsight Compute on the path, which ends with that status and text."""

    def put(text, status=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "ncu").write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
        (folder / "ncu").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    return put


def test_profiled_launches_are_those_that_are_predicted(gpu, on_shim, ncu, tmp_path, capsys):
    profiling, check, device = gpu("profiling"), gpu("check"), on_shim()
    profiling.launch(device, (1024,), 2)
    assert device.launches == {"staged_layer": 3}
    names = [*(name for name, _ in profiling.SAME.values()), *profiling.OTHERS]
    page = ["program's own line", '"ID","Kernel Name",' + ",".join(f'"{name}"' for name in names)]
    page += ['"","",' + ",".join('"unit"' for _ in names)]
    page += [f'"{i}","staged_layer",' + ",".join(f'"{64 * (i + 1):,}"' for _ in names) for i in range(9)]
    ncu("\n".join(page))
    tally = gpu("tally").Tally()
    lines = check.check_profile(tally, device.properties, str(tmp_path / "DATE"), check.parser().parse_args([]))
    assert (len(lines), tally.passed) == (10, 1)
    found = json.loads((tmp_path / "DATE/profile.json").read_text())["launches"]
    assert [(row["neurons"], row["layer"]) for row in found[:4]] == [(1024, 0), (1024, 1), (1024, 2), (4096, 0)]
    assert found[1]["counted"]["multiply_adds"] == 128 / 32
    assert found[0]["predicted"]["multiply_adds"] == profiling.TILES * 32 * 1024


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", 0, "ERR_NVGPUCTRPERM"),
        ("nothing", 3, "exit status 3"),
    ],
)
def test_where_nsight_compute_refuses(gpu, on_shim, ncu, text, status, why):
    ncu(text, status)
    with pytest.raises(gpu("tally").NotHere, match=why):
        gpu("profiling").profile(on_shim().properties, None)


def test_the_page_has_what_is_predicted(gpu, root):
    page = (root / "docs/explanation/cuda.md").read_text().splitlines()
    lines = [line for line in gpu("predicted").tables((1024,)) if line]
    assert len(lines) == (2 + 3) + (2 + 1) + (2 + 4) + (2 + 3)
    assert not set(lines) - set(page)
