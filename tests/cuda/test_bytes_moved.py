"""What the CUDA engines count as moved between a device's memory and its second-level cache."""

import json
from pathlib import Path

import pytest
from engine_cases import rows

from spdnn.api import infer
from spdnn.core import limits
from spdnn.formats.radixnet import RadixNet

H100_L2 = 50 << 20  # bytes


@pytest.mark.parametrize("name", ["cuda-csr", "cuda-ell", "cuda-staged"])
def test_each_launch_reads_and_writes_the_features_of_its_rows(on_shim, name):
    on_shim(multiprocessors=1, l2_bytes=0)
    network = RadixNet(64, 4, bias=-0.1)
    dense, bits = (infer(network, rows(64, 64, kind=kind), name, reductions="none") for kind in ("dense", "bits"))
    features = 4 * 64 * 64
    weights = dense.bytes_moved - 8 * features
    assert network.layer(0).indices.nbytes <= weights < 3 * sum(network.header(k).nbytes for k in range(4))
    assert bits.bytes_moved - weights == pytest.approx(7 * features + features // 32, abs=weights // 4)


def test_the_persistent_kernel_reads_and_writes_once_a_pass(on_shim):
    on_shim(multiprocessors=1, l2_bytes=0)
    network = RadixNet(64, 4, bias=-0.1)
    got = infer(network, rows(64, 64, kind="dense"), "cuda-persistent", reductions="none")
    passes = got.notes["passes"]
    assert passes < 4
    other = infer(network, rows(128, 64, kind="dense"), "cuda-persistent", reductions="none")
    assert other.bytes_moved - got.bytes_moved == passes * 2 * 4 * 64 * 64


def test_rows_that_left_are_not_moved(on_shim):
    on_shim(multiprocessors=1, l2_bytes=0)
    network, inputs = RadixNet(64, 12, bias=-0.3), rows(640, 64, kind="dense")
    none, dead = (infer(network, inputs, "cuda-csr", reductions=kind) for kind in ("none", "dead"))
    assert dead.counts.rows[-1] < none.counts.rows[-1]
    saved = 2 * 4 * 64 * (none.edges_computed - dead.edges_computed) // network.layer(0).edges
    assert none.bytes_moved - dead.bytes_moved == saved


def test_what_fits_the_second_level_cache_does_not_pass_it(on_shim):
    network, inputs = RadixNet(64, 4, bias=-0.1), rows(64, 64, kind="dense")
    on_shim(multiprocessors=1)
    assert infer(network, inputs, "cuda-csr", reductions="none").bytes_moved == 0


def test_nsight_counts_as_many_bytes_on_an_h100():
    """Within 5 %, of layers whose features are 2.6 to 41 times what the cache holds; measured on 2026-11-26."""
    profile = json.loads(Path(__file__).with_name("nsight-h100.json").read_text())
    assert len(profile["launches"]) == 9
    for launch in profile["launches"]:
        features = 2 * 4 * launch["neurons"] * 32 * profile["tiles"]
        counted = launch["counted"]["dram__bytes.sum"]
        assert limits.past_cache([features], limits.L2_SHARE * H100_L2) == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize("name", ["cuda-csr", "taskgraph-cuda"])
def test_a_record_says_what_a_gpu_held(on_shim, name):
    device = on_shim(multiprocessors=1)
    network, inputs = RadixNet(64, 4, bias=-0.1), rows(640, 64, kind="dense")
    held = infer(network, inputs, name, reductions="none").notes["device_peak_bytes"]
    assert inputs.data.nbytes < held <= device.most
