"""Estimates of memory and time: above what was measured, in the right direction, and never below a usable job."""

import pytest
from msgspec.structs import replace

from spdnn.core.request import RunRequest
from spdnn.engines.registry import ENGINES
from spdnn.runs.workflow import estimates

SMALL = RunRequest(neurons=1024, layers=120, inputs="digits", threads=2, repeats=5, oracle_edges=1e10)

# docs/results.md (MNIST, 2 threads, 1920 layers): width, inference seconds, preparation seconds, peak bytes.
MEASURED = [(1024, 0.0145, 0.5, 0.2), (4096, 0.0325, 1.3, 0.4), (16384, 0.097, 6.2, 1.1), (65536, 0.316, 28, 3.9)]


@pytest.mark.parametrize(("neurons", "inference", "preparation", "peak"), MEASURED)
def test_estimates_bound_what_was_measured_and_not_by_orders(neurons, inference, preparation, peak):
    case = replace(SMALL, neurons=neurons, layers=1920, inputs="mnist")
    need = estimates.infer(case, [SMALL], 0)
    assert peak * 2**30 < estimates.allowed_bytes(need.megabytes) < 3 * peak * 2**30 + 1e9
    assert 5 * inference < 60 * need.minutes < 3600
    assert preparation < 60 * estimates.prepare(case, [SMALL], 0).minutes < 100 * preparation + 180


def test_without_merged_neurons_features_are_whole():
    # Measured: 2.1e9 bytes at 4096 x 480, 60,000 inputs, the reductions dead and inputs.
    case = replace(SMALL, neurons=4096, layers=480, reductions="dead,inputs")
    assert 2.1e9 < estimates.allowed_bytes(estimates.infer(case, [SMALL], 0).megabytes) < 4e9


def test_where_nothing_dies_all_work_is_counted():
    dead = replace(SMALL, neurons=16384, inputs="digits", reductions="dead", layers=1920)
    none = replace(dead, reductions="none")
    unstructured = replace(dead, source="unstructured")
    assert estimates.infer(dead, [SMALL], 0).minutes < estimates.infer(none, [SMALL], 0).minutes / 3
    assert estimates.infer(unstructured, [SMALL], 0).minutes == estimates.infer(none, [SMALL], 0).minutes


def test_the_memory_configured_is_what_is_asked_for():
    case = replace(SMALL, memory=12 << 30)
    for stage in (estimates.infer, estimates.prepare):
        assert 12 << 30 <= estimates.allowed_bytes(stage(case, [case], 0).megabytes) < (12 << 30) + 1e8


def test_more_ranks_need_more_memory_and_less_time():
    case = replace(SMALL, neurons=16384, inputs="digits", reductions="none")
    one, eight = (estimates.infer(replace(case, ranks=ranks), [SMALL], 0) for ranks in (1, 8))
    assert eight.megabytes > one.megabytes
    assert eight.minutes < one.minutes


def test_memory_is_that_of_the_ranks_of_one_node():
    for name in ("cpu", "cuda"):
        case = replace(SMALL, neurons=16384, inputs="digits", reductions="none", engine=name, ranks=8)
        all_, two, one = (estimates.infer(case, [SMALL], 0, together).megabytes for together in (None, 2, 1))
        assert one < two < all_
        assert one >= estimates.infer(replace(case, ranks=1, count=7500), [SMALL], 0).megabytes


def test_the_oracle_is_bounded_by_the_configuration():
    long = estimates.verify(replace(SMALL, oracle_edges=1e12), [SMALL], 0)
    assert long.minutes > estimates.verify(SMALL, [SMALL], 0).minutes >= 2


def test_networks_of_ones_own_are_judged_by_their_files():
    own = RunRequest(network="mine.npz", layers=5, inputs="x.npy", threads=2)
    for stage in (estimates.prepare, estimates.infer, estimates.verify):
        small, large = stage(own, [SMALL], 1000), stage(own, [SMALL], 10**9)
        assert 2000 <= small.megabytes < large.megabytes


def test_what_snakemake_leaves_of_a_job():
    assert estimates.allowed_bytes(2000) == 2000 * 10**6 - estimates.SNAKEMAKE_BYTES
    assert estimates.allowed_bytes(1) == 1
    assert [estimates.time_limit(minutes) for minutes in (1, 2, 10)] == [1, 60, 540]


CUDA = [name for name in ENGINES if name.startswith("cuda")]


@pytest.mark.parametrize("name", CUDA)
def test_engines_on_a_device_keep_features_and_weights_there(name):
    large = replace(SMALL, neurons=65536, inputs="mnist", layers=1920, reductions="none")
    one, cpu = estimates.infer(replace(large, engine=name), [SMALL], 0), estimates.infer(large, [SMALL], 0)
    assert (
        2e9 + 60_000 * 65_536 / 8 < estimates.allowed_bytes(one.megabytes) < estimates.allowed_bytes(cpu.megabytes) / 5
    )
    assert 60 * one.minutes > 1920 * 32 * 65_536 * 3.3e-7  # measured: what laying out took, before any run
    assert estimates.infer(replace(large, engine=name, ranks=4), [SMALL], 0).minutes < one.minutes


@pytest.mark.parametrize("name", CUDA)
def test_engines_on_a_device_merge_neurons_too(name):
    none = replace(SMALL, neurons=16384, inputs="digits", engine=name, reductions="none", layers=1920)
    merged = replace(none, reductions="neurons")
    assert estimates.infer(merged, [SMALL], 0).minutes < estimates.infer(none, [SMALL], 0).minutes / 4
    unstructured = replace(merged, source="unstructured")
    assert estimates.infer(unstructured, [SMALL], 0).minutes == estimates.infer(none, [SMALL], 0).minutes


def test_threads_of_the_host_make_no_device_faster():
    case = replace(SMALL, engine="cuda", neurons=16384, inputs="digits", reductions="none")
    assert estimates.infer(case, [SMALL], 0) == estimates.infer(replace(case, threads=64), [SMALL], 0)
