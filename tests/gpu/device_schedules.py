"""The task graph on the device: every schedule against the engine `cuda`.

On a machine with one GPU, what takes two has it twice: rows then move from one place in its memory to another.
"""

from collections.abc import Sequence

from correctness import poisoned
from engine_cases import SHAPES, random_network, rows
from tally import Tally

from spdnn.api import infer
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.engines.base import Options
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.cuda.session import CudaGraphSession
from spdnn.engines.taskgraph.settings import SCHEDULES, TaskgraphSettings
from spdnn.kernels.cuda import cupy_device

ENGINE = "taskgraph-cuda"
REDUCTIONS = ("none", "dead,inputs", "all")
DEVICES = (1, 2)
BATCHES = 5
DEEP = (256, 24, 700)  # neurons, layers, inputs: enough layers for several stages
LEAST_DEEP = 12  # layers that make enough stages for two devices
SOME_SHAPES = ("rectangular", "96 inputs, 7 layers", "vector bias", "one input")


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
