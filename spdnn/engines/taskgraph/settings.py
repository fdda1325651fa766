"""The settings of the engines `taskgraph` and `taskgraph-cuda`."""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from msgspec import Meta

from spdnn.core.errors import InputError
from spdnn.core.numbers import whole

Schedule = Literal["resident", "stream", "graph", "pipeline"]
SCHEDULES = RESIDENT, STREAM, GRAPH, PIPELINE = get_args(Schedule)
AUTO = "auto"

Count = Annotated[int, Meta(ge=1, le=10**9)]
Bytes = Annotated[int, Meta(ge=1, le=10**18, extra={"unit": "bytes"})]


@dataclass(frozen=True)
class TaskgraphSettings:
    """How an inference is cut into tasks. What is None, the cost model chooses.

    Attributes:
        schedule: resident (weights stay on each device), stream (weights pass through buffers), graph (devices take
            batches as they finish), pipeline (each device has a range of layers), or auto (the fastest predicted).
        devices: number of devices on each rank: parts of its threads, or GPUs.
        pipeline: number of devices that each batch passes through (default: all with the schedule pipeline, else 1).
        batches: largest number of batches to divide the inputs into (default: as few as fit).
        buffers: number of buffers for streamed weights on a device, 2 or more (default: 2).
        device_memory: limit on the memory of a device in bytes (default: all that it has).
        join: merge batches that have few rows left; without, keep every batch separate to its end.

    Raises:
        InputError: an unknown schedule, or a number below 1.

    Example:
        >>> import numpy as np, spdnn
        >>> settings = spdnn.TaskgraphSettings(schedule="stream", buffers=3)
        >>> network = spdnn.from_matrices([np.eye(3)] * 2, last="relu")
        >>> spdnn.infer(network, np.eye(3), engine="taskgraph", settings=settings).categories
        array([1, 2, 3])
    """

    schedule: Literal[Schedule, "auto"] = AUTO
    devices: Count = 1
    pipeline: Count | None = None
    batches: Count | None = None
    buffers: Count | None = None
    device_memory: Bytes | None = None
    join: bool = True

    def __post_init__(self):
        if self.schedule not in (AUTO, *SCHEDULES):
            raise InputError(f"schedule {str(self.schedule)[:40]!r} must be one of {', '.join((AUTO, *SCHEDULES))}")
        named = ("devices", "pipeline", "batches", "buffers", "device_memory")
        numbers = {name: whole(value) for name in named if (value := getattr(self, name)) is not None}
        if any(number is None or number < 1 for number in numbers.values()):
            raise InputError(f"{self}: each number must be an integer from 1, or None")
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
