"""Engine `taskgraph` on the processor: every schedule, in every order that its edges allow, gives the bits of `cpu`."""

import functools
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from engine_cases import SHAPES, assert_equal, assert_same, official_inputs, opened, rows
from ladders import covering, rung

from spdnn.api import infer
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines.base import Options
from spdnn.engines.cpu.batch import BatchKernels
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.cpu import session as executor
from spdnn.engines.taskgraph.cpu.probe import measure_costs
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import run_serially
from spdnn.engines.taskgraph.graph import Graph, Kind
from spdnn.engines.taskgraph.settings import SCHEDULES
from spdnn.engines.taskgraph.settings import TaskgraphSettings as Settings
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.official import official_problem
from tests.engines.taskgraph.graph_check import wrong

# Every schedule, buffers, pipelines and batches in any combination.
CUTS = {
    **{f"{schedule} on {devices}": Settings(schedule, devices) for schedule in SCHEDULES for devices in (1, 2, 4)},
    "batches": Settings("resident", 1, batches=5),
    "three buffers": Settings("stream", 2, batches=4, buffers=3),
    "pipelines side by side": Settings("graph", 4, pipeline=2, batches=7),
    "joined after 32 layers": Settings("stream", 2, batches=6),
    "each to its end alone": Settings("stream", 2, batches=6, join=False),
    "a streamed pipeline": Settings("pipeline", 3, batches=4, buffers=2),
    "chosen": Settings(),
}
INPUTS = 700


@functools.cache
def problem():
    """40 layers of 1024 and inputs of which few to many die."""
    inputs = rows(INPUTS, 1024, kind="bits", density=np.linspace(0, 0.35, INPUTS)[:, None])
    return RadixNet(1024, 40), inputs


@functools.cache
def expected(reductions="all"):
    """What the engine `cpu` makes of the problem on one thread."""
    found = infer(*problem(), "cpu", threads=1, reductions=reductions, values=True)
    assert 0 < found.alive.size < INPUTS
    return found


def ran_as(settings, reductions="all", threads=4, **options):
    """What the task graph makes of it."""
    return infer(*problem(), "taskgraph", reductions, threads, settings=settings, **options)


@pytest.mark.parametrize(("cut", "reductions"), covering(CUTS, ["all", "dead,inputs", "none"]))
def test_schedules_change_nothing(cut, reductions):
    one, request = expected(reductions), CUTS[cut]
    got = ran_as(request, reductions, values=True)
    assert_equal(got, one)
    assert (got.notes["schedule"], got.notes["devices"]) == (
        {"auto": "resident"}.get(request.schedule, request.schedule),
        request.devices,
    )
    assert ("predicted_seconds" in got.notes) == ((request.pipeline or 1) > 1 or request.schedule == "pipeline")
    assert request.batches in (None, got.notes["batches"])


def serially(monkeypatch, choose):
    """Tasks run one at a time from now on, as `choose` picks them of those that may run; the tasks that ran."""
    ran = []

    def run(execution, work, lanes, check):
        def noted(task):
            ran.append((task, execution.graph))
            return work(task)

        run_serially(execution, noted, choose)

    monkeypatch.setattr(executor, "run_threads", run)
    return ran


@pytest.mark.parametrize(
    "name", ["stream on 2", "graph on 4", "each to its end alone", "a streamed pipeline", "pipelines side by side"]
)
def test_any_order_that_the_edges_allow(monkeypatch, name):
    for choose in (lambda ready: ready[0], lambda ready: ready[-1], random.Random(0).choice):
        ran = serially(monkeypatch, choose)
        got = ran_as(replace(CUTS[name], batches=5))
        assert got.digest == expected().digest
        graph = ran[-1][1]
        assert wrong(graph.decomposition, graph.tasks) == []
        assert len(ran) == got.notes["timeline_tasks"] == len(graph.tasks) - sum(t.batch is None for t in graph.tasks)


@pytest.mark.parametrize("reductions", ["dead", "all"])
def test_batches_with_few_rows_left_go_on_as_one(monkeypatch, reductions):
    """At layer 32 a batch of 117 inputs has about 60 left, so two of three go on as one."""
    one = expected(reductions)
    for seed in range(2):
        ran = serially(monkeypatch, random.Random(seed).choice)
        got = ran_as(Settings("stream", 1, batches=6), reductions, 2, values=True)
        assert got.notes["batches_joined"] >= 2
        assert got.notes["joined_before_layer"] == 33
        graph = ran[-1][1]
        assert wrong(graph.decomposition, graph.tasks) == []
        assert_equal(got, one)


@pytest.mark.parametrize("kind", [Kind.COPY, Kind.LAYER])
def test_without_its_edges_some_order_is_wrong(monkeypatch, kind):
    """The same orders find a graph in which copies wait for no reader, or layers not for their place."""
    task = Graph._task

    def without(self, made, batch, stage, device, buffer, place, after, target=None):
        weights = [number for number in after if self.tasks[number].kind == Kind.COPY]
        after = after if made != kind else weights
        return task(self, made, batch, stage, device, buffer, place, after, target)

    monkeypatch.setattr(Graph, "_task", without)
    found = set()
    for choose in (lambda ready: ready[-1], random.Random(1).choice):
        serially(monkeypatch, choose)
        try:
            found.add(ran_as(Settings("stream", 1, batches=4), "dead", 2).digest)
        except (SpdnnError, KeyError, ValueError):  # of layers that do not fit
            found.add("an error")
    assert found - {expected("dead").digest}


@pytest.mark.parametrize(("shape", "kind"), covering(SHAPES, ["bits", "dense", "csr"]))
def test_awkward_shapes(random_network, shape, kind):
    count, widths, options = SHAPES[shape]
    cut = [*CUTS.values()][5 * [*SHAPES].index(shape) % len(CUTS)]
    pipeline = min(cut.pipeline or cut.devices, len(widths) - 1) if cut.schedule == "pipeline" else cut.pipeline
    cut = replace(cut, pipeline=pipeline, devices=pipeline or cut.devices)
    if (cut.pipeline or 1) > len(widths) - 1:
        cut = Settings("stream", 2)
    assert_same(
        "taskgraph", random_network(widths, **options), rows(count, widths[0], kind=kind), threads=4, settings=cut
    )


@pytest.mark.parametrize("schedule", ["stream", "pipeline"])
def test_devices_read_one_source_at_once(monkeypatch, schedule):
    """Where the process has no room for the weights, each device reads stages of its own from a formula."""
    monkeypatch.setattr(executor.CpuGraphSession, "_keeps", lambda self, made: False)
    inputs, request = problem()[1], Settings(schedule, 4, batches=8, buffers=2)
    for _ in range(2):
        got = infer(RadixNet(1024, 40), inputs, "taskgraph", threads=4, reductions="dead", settings=request)
        assert got.notes["streamed_from"] == "the network's source"
        assert got.digest == expected("dead").digest


def test_what_is_copied_and_moved_counts_as_moved():
    """Nothing here passes a cache but by what the task graph adds: streamed weights, parked and moved rows."""
    requests = Settings("resident"), Settings("stream"), Settings("pipeline", 2)
    none, streamed, on_two = (ran_as(request, "dead", 2).bytes_moved for request in requests)
    assert streamed == none + 2 * problem()[0].nbytes
    assert on_two > none


def test_a_session_runs_again_and_again():
    settings = Settings("stream", 2, pipeline=2, batches=3)
    session = opened("taskgraph", *problem(), engine("taskgraph").offers, threads=4, settings=settings)
    assert len({session.run().digest for _ in range(4)}) == 1


@pytest.mark.parametrize("schedule", ["resident", "stream", "pipeline"])
def test_an_error_of_any_device_ends_the_run(schedule):
    grown = [np.full((4, 4), 3e38, np.float32), np.eye(4)]
    network = from_matrices([np.eye(4)] * 3 + grown + [np.eye(4)], 0.0, last="relu")
    with pytest.raises(SpdnnError, match="a value of layer 4 passed the range of float32"):
        request = Settings(schedule, 2, batches=6)
        infer(network, Inputs.from_array(np.full((400, 4), 3, np.float32)), "taskgraph", threads=2, settings=request)


def test_the_notes_tell_what_was_run():
    told = ran_as(Settings("stream", 2, batches=4, device_memory=10**7, join=False), threads=2).notes
    assert (told["buffers"], told["places"], told["drawn"], told["groups"]) == (2, 1, False, [0, 1, 0, 1])
    assert told["streamed_from"] == "memory"
    assert told["why"] == "stream was asked for"
    stages = tuple(map(tuple, told["stages"]))
    cut = Decomposition("stream", 700, told["batch_inputs"], stages, tuple(map(tuple, told["ranges"])), 2, 2)
    assert max(told["memory_bytes"]) <= told["device_memory_bytes"] == 10**7
    lanes = {(device, lane): [] for device, lane, *_ in told["timeline"]}
    for device, lane, kind, batch, first, last, begin, end in told["timeline"]:
        assert batch % 2 == device
        assert (first, last) in cut.stages
        assert lane == ("copy-weights" if kind == "copy-weights" else "compute")
        lanes[device, lane].append((begin, end))
    assert set(lanes) == {(device, lane) for device in (0, 1) for lane in ("compute", "copy-weights")}
    for spans in lanes.values():
        spans = sorted(spans)
        assert all(begin <= end for begin, end in spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    copied = sum(kind == "copy-weights" for _, _, kind, *_ in told["timeline"])
    assert copied == 4 * len(cut.stages)
    assert told["timeline_tasks"] == len(told["timeline"])


REFUSED = {
    "more devices than threads": ({"settings": Settings("resident", 3)}, InputError, "3 devices of 2 threads"),
    "a small device": (
        {"settings": Settings("resident", device_memory=10**5)}, MemoryTooSmall, "device memory of 100,000 bytes"
    ),
    "a small process": ({"memory": 1000}, MemoryTooSmall, "memory of 1,000 bytes is too small"),
    "an engine that cuts nothing": (
        {"engine": "cpu", "settings": Settings("stream")}, InputError, "the engine cpu has no settings"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("options", "kind", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_cut_is_one_sentence(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        infer(*problem(), **{"engine": "taskgraph", "threads": 2, **options})


@pytest.mark.parametrize("asked", [{"schedule": "eager"}, {"devices": 0}, {"buffers": 2.5}, {"batches": -1}])
def test_wishes_out_of_range_are_one_sentence(asked):
    with pytest.raises(InputError, match=r"must be (one of|an integer from 1)"):
        Settings(**asked)


@pytest.mark.needs("mnist")
@pytest.mark.xdist_group("mnist")
@pytest.mark.parametrize(
    ("neurons", "devices"),
    [rung(1024, 2, default=True), *(rung(*one) for one in ((1024, 1), (1024, 4), (4096, 1), (4096, 2), (4096, 4)))],
)
def test_all_inputs_against_the_official_truth(mnist_file, neurons, devices):
    """Every schedule on devices of which each may take less than weights and inputs of its batches need."""
    network, chosen, inputs = RadixNet(neurons, 120), engine("taskgraph"), official_inputs(neurons, mnist_file)
    prepared = chosen.prepare(network, chosen.offers)
    official = verify.official(neurons, inputs.count)
    assert official_problem(network, inputs)
    for schedule in SCHEDULES:
        request = Settings(schedule, devices, device_memory=40_000_000)
        found = chosen.open(prepared, inputs, Options(4, settings=request)).run()
        verdict = verify.judge(found, official)
        assert verdict.passed, (schedule, verdict.reasons)
        assert max(found.notes["memory_bytes"]) <= 40_000_000
        assert found.notes["batches"] > 1


def test_costs_that_are_measured_are_of_the_threads_of_a_device_and_closing_gaps_costs_nothing_of_its_own():
    network, inputs = RadixNet(1024, 12), rows(300, 1024, kind="bits")
    prepared = engine("taskgraph").prepare(network, ("dead",))
    work = BatchKernels(prepared, inputs, Options(4))
    costs = measure_costs(work, 4, 2, None, 2, 1 << 30)
    assert (costs.threads, costs.device.threads, costs.compact_bytes_per_second) == (2, 4, None)
