"""The task graph on the device: every schedule against the engine `cuda`, what a graph and streams gain over a launch
after the other from Python, weights that do not fit a promise, and how far apart launches are.

On a machine with one GPU, what takes two has it twice: rows then move from one place in its memory to another.
"""

import json
from collections.abc import Callable, Sequence

import numpy as np
from correctness import poisoned
from engine_cases import SHAPES, random_network, rows
from networks import Case, Networks
from tally import Tally, write_details

from spdnn.api import infer
from spdnn.engines.base import Options
from spdnn.engines.cuda.choice import idle_run
from spdnn.engines.cuda.inputs import TILE
from spdnn.engines.cuda.layers import lay_out, to_device
from spdnn.engines.cuda.schedule import ELL
from spdnn.engines.registry import engine
from spdnn.kernels.cuda import cupy_device
from spdnn.kernels.cuda.device import Device
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.records.files import seal_record
from spdnn.records.run_record import RunRecord
from spdnn.reductions.registry import parse_reductions
from spdnn.scheduling.engines.cuda.session import CudaGraphSession
from spdnn.scheduling.taskgraph.settings import SCHEDULES, TaskgraphSettings
from spdnn.sources.radixnet import RadixNet

ENGINE = "taskgraph-cuda"
REDUCTIONS = ("none", "dead,inputs", "all")
DEVICES = (1, 2)
BATCHES = 5
DEEP = (256, 24, 700)  # neurons, layers, inputs: enough layers for several stages
LEAST_DEEP = 12  # layers that make enough stages for two devices
COMPARED, QUICK_COMPARED = challenge.problem(1024, 1920), challenge.problem(1024, 120)
SOME_SHAPES = ("rectangular", "96 inputs, 7 layers", "vector bias", "one input")
PROMISED, PROMISE = challenge.problem(65536, 1920), 8 << 30
LAUNCHES = 1000
LAUNCHED = ("resident", "stream", "graph")  # schedules; `resident` launches one kernel after the other from Python


def check(tally: Tally, seed: int, shapes: Sequence[str], deep: tuple[int, int, int] = DEEP) -> None:
    """Every schedule on one device and on two gives the bits of the engine `cuda`."""
    neurons, layers, count = deep
    cases = {f"{neurons} x {layers}": (random_network([neurons] * (layers + 1), 0.1, seed, bias=-0.3), count)}
    for shape in shapes:
        count, widths, options = SHAPES[shape]
        cases[shape] = random_network(widths, seed=seed, **options), count
    for name, (network, count) in cases.items():
        inputs = rows(count, network.inputs, seed, "bits")
        for schedule in SCHEDULES:
            tally.case(
                f"{ENGINE}, {schedule}, {name}",
                lambda network=network, inputs=inputs, schedule=schedule: agrees(network, inputs, schedule),
            )


def agrees(network: Network, inputs: Inputs, schedule: str) -> None:
    """Compare the digests of two runs with that of the engine `cuda`.

    Raises:
        AssertionError: they differ.
    """
    runner = engine(ENGINE)
    for reductions in REDUCTIONS:
        told = infer(network, inputs, "cuda", reductions=reductions)
        prepared = runner.prepare(network, parse_reductions(reductions, runner.offers))
        # Without rows that leave, few layers are one stage.
        several = network.depth >= LEAST_DEEP and (reductions != "none" or schedule != "pipeline")
        for count in DEVICES if several else DEVICES[:1]:
            request = TaskgraphSettings(schedule, count, batches=min(BATCHES, inputs.count), **few(schedule))
            with poisoned():
                session = opened(prepared, inputs, request)
            for _ in range(2):
                got = session.run()
                assert got.digest == told.digest, f"{reductions}, {count} devices: not the digest of cuda"
                assert (got.survivors == told.survivors).all(), f"{reductions}, {count} devices: other survivors"
            del session


def few(schedule: str) -> dict:
    """Weights pass through few buffers, where a schedule can do so."""
    return {} if schedule == "resident" else {"buffers": 2}


def opened(prepared, inputs: Inputs, request: TaskgraphSettings) -> CudaGraphSession:
    """A session on as many devices as were requested, the same ones again where there are fewer."""
    there = cupy_device.count()
    devices = [cupy_device.open_device(number % there) for number in range(request.devices)]
    return CudaGraphSession(devices, prepared, inputs, Options(settings=request))


def compare(runs: Networks, problem, reductions: str, store: Callable[[RunRecord], None]) -> dict[str, float]:
    """Seconds, the median, of the engine `cuda`, launches from Python, weights that stream and captured graphs, on one
    problem; how many times as long as the graphs the others took is in all records.
    """
    cases = [
        Case(problem, "cuda", reductions),
        *(Case(problem, ENGINE, reductions, TaskgraphSettings(schedule)) for schedule in LAUNCHED),
    ]
    records: list[RunRecord] = []
    runs.store = records.append
    runs.run(cases)
    found = {}
    for record in records:
        notes = record.engine.noted
        samples = sorted(record.seconds)
        found[notes.get("schedule") or record.engine.name] = samples[len(samples) // 2]
    for record in records:
        if "graph" in found:
            record.engine.noted["times_graph"] = {name: one / found["graph"] for name, one in found.items()}
        tally_record(runs.tally, record, lambda one: store(seal_record(one, one.case)))
    return found


def tally_record(tally: Tally, record: RunRecord, store: Callable[[RunRecord], None]) -> None:
    """Store a record; one that is unsound is a case that failed, and what comes after it still runs."""
    tally.case(f"record of {record.case}", lambda: store(record))


def kept(memory: Sequence[int], promise: int) -> None:
    """
    Raises:
        AssertionError: some device may hold more than was promised.
    """
    assert max(memory) <= promise, f"{max(memory):,} bytes on a device, {promise:,} promised"


def gaps(device: Device, launches: int = LAUNCHES) -> dict[str, float]:
    """Seconds from one launch to the next, from Python and in a graph, of a layer's kernel that finds no row. A launch
    from Python takes longer the more arguments it has; this one has as many as others."""
    laid = to_device(device, lay_out(RadixNet(1024, 1).layer(0), ELL))
    source, target = (device.empty(TILE * 1024, np.float32) for _ in range(2))
    launch = idle_run(device, 1, 1).layer(0, laid, source, target, device.upload(np.zeros(1, np.int32)))

    def several() -> None:
        for _ in range(launches):
            launch()

    replay = device.capture(several)
    found = {"launched from Python": several, "in a graph": replay}
    for work in found.values():
        device.seconds(work)  # once to warm up
    return {name: min(device.seconds(work) for _ in range(5)) / launches for name, work in found.items()}


def run(
    tally: Tally, device: Device, seed: int, runs: Networks, store: Callable[[RunRecord], None], name: str, quick: bool
) -> list[str]:
    """All of it, stored in `name`/taskgraph.json; the lines of its table."""
    check(tally, seed, SOME_SHAPES[:1] if quick else SOME_SHAPES, DEEP)
    gap = tally.case("gaps between launches", lambda: gaps(device))
    problem = QUICK_COMPARED if quick else COMPARED
    within = None if quick else promised(runs, store)  # first, for it takes long
    compared = {reductions: compare(runs, problem, reductions, store) for reductions in ("all", "dead")}
    found = {"device": device.properties.name, "software": device.properties.software, "launch_gap_seconds": gap}
    found |= {"compared": {f"{problem.name} {which}": told for which, told in compared.items()}, "promised": within}
    write_details(name, "taskgraph", json.dumps(found, indent=1) + "\n")
    lines = list(runs.rows)
    for case, seconds in found["compared"].items():
        lines.append(f"{case}: {', '.join(f'{one} {spent:.5f} s' for one, spent in seconds.items())}")
    if gap:
        lines.append(f"gaps: {', '.join(f'{one} {1e6 * spent:.2f} us' for one, spent in gap.items())}")
    return lines


def promised(
    runs: Networks, store: Callable[[RunRecord], None], problem=PROMISED, promise: int = PROMISE
) -> dict | None:
    """The largest network as distributed within the promise; how long beside the busiest of copies and computing."""
    records: list[RunRecord] = []
    runs.store = records.append
    runs.run([Case(problem, ENGINE, "dead", TaskgraphSettings("stream", device_memory=promise))])
    for record in records:
        tally_record(runs.tally, record, store)
        notes = record.engine.noted
        runs.tally.case("the promise is kept", lambda held=notes["memory_bytes"]: kept(held, promise))
        return {
            "problem": problem.name, "device_memory_bytes": promise, "memory_bytes": notes["memory_bytes"],
            "batches": notes["batches"], "seconds": notes["spans"], "busy_seconds": notes["busy_seconds"],
            "times_busiest_lane": notes["times_busiest_lane"],
        }  # fmt: skip
    return None
