"""What the report and the cost model read of the notes of engines on a run, with a type.

Notes are the free part of a record: a file may have others, and any value. Values that are not of the type here are
ignored. An engine, of this package or not, registers the type of its notes with `notes_of`.
"""

import contextlib
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from spdnn.core.fields import Count, Positive, Seconds, column
from spdnn.core.validation import UNREADABLE, builtins

Type = TypeVar("Type", bound=type)


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What any engine may note; all fields may be absent, and are None then.

    Attributes:
        instruction_set: level of the compiled kernels.
        tile: inputs that are computed together.
        batches: parts of the inputs that were computed one after the other.
        batch_inputs: inputs of a batch.
        pass_log: of each pass: first layer from 0, layers, rows, edges of all layers, seconds.
        layer_rows: of records of version 2: rows that were computed, by layer.
        layer_edges: of records of version 2: edges of the prepared network, by layer.
        spans: seconds of what an inference can be taken to include, by its name; of a GPU, by its events.
        device_peak_bytes: held at once on the GPU, of several the one that held most: weights, inputs, features.
    """

    instruction_set: str | None = None
    tile: Positive | None = None
    batches: Count | None = None
    batch_inputs: Count | None = None
    pass_log: list[list[float]] | None = None
    layer_rows: list[Count] | None = None
    layer_edges: list[Count] | None = None
    spans: dict[str, Seconds] | None = None
    device_peak_bytes: Annotated[Positive | None, column()] = None


NOTES: dict[str, type[Notes]] = {}  # by the name of the engine


def notes_of(*engines: str) -> Callable[[Type], Type]:
    """A decorator: the notes of these engines are of the class below."""

    def register(kind: Type) -> Type:
        NOTES.update(dict.fromkeys(engines, kind))
        return kind

    return register


def read_notes(engine: str, notes: dict[str, Any]) -> Notes:
    """The notes of an engine as its type has them; what is of another kind is None.

    An engine that has no type here is read by the type that has most of the fields that it notes.
    """
    nearest = max((Notes, *NOTES.values()), key=lambda kind: len(notes.keys() & set(kind.__struct_fields__)))
    kind, fields = NOTES.get(engine, nearest), {}
    for name in kind.__struct_fields__:
        if notes.get(name) is not None:
            with contextlib.suppress(*UNREADABLE):
                fields[name] = getattr(msgspec.convert(builtins({name: notes[name]}), kind), name)
    return kind(**fields)


@notes_of("taskgraph", "taskgraph-cuda")
class TaskgraphNotes(Notes, kw_only=True):
    """An inference cut into tasks: the decomposition, and what happened when.

    Attributes:
        schedule: resident, stream, graph or pipeline.
        devices: parts of the machine, or GPUs, that worked at once.
        pipeline: devices that each hold a range of the stages.
        stages, ranges: first and last of layers, and of stages.
        buffers: of weights on a device; None: all weights stay.
        places: buffer slots for batches on a device.
        drawn: whether devices draw the next batch when they are free.
        joined_before_layer: 1-based, where small batches go on as one; None: nowhere.
        memory_bytes: of each device, by the decomposition.
        why: one sentence on how the decomposition was chosen.
        processor_seconds: of all threads.
        timeline: device, lane, kind, batch, first layer, end of layers, begin seconds, end seconds of each task.
        timeline_tasks: how many tasks the timeline is of.
        captured: whether launches were replayed as captured graphs.
    """

    schedule: str | None = None
    devices: int | None = None
    pipeline: int | None = None
    stages: list[tuple[int, int]] | None = None
    ranges: list[tuple[int, int]] | None = None
    buffers: int | None = None
    places: int | None = None
    drawn: bool | None = None
    joined_before_layer: int | None = None
    memory_bytes: list[Count] | None = None
    why: str | None = None
    processor_seconds: float | None = None
    timeline: list[tuple[int, str, str, int | None, int, int, float, float]] | None = None
    timeline_tasks: Count | None = None
    captured: bool | None = None


@notes_of("scipy", "mkl", "graphblas", "jax", "torch", "cusparse")
class LibraryNotes(Notes, kw_only=True):
    """Another library, measured for comparison.

    Attributes:
        library: its name and version.
        threads_used: where they cannot be set.
    """

    library: str | None = None
    threads_used: Positive | None = None
