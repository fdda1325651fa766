"""What a run record says of the schedule of a task graph: its decomposition, and the timeline of its tasks."""

import math

from spdnn.core.errors import InputError
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.timeline import Span
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.run_record import RunRecord


def notes_of(record: RunRecord) -> TaskgraphNotes:
    """The notes of a record of the task graph; of another engine, none."""
    notes = record.engine.notes
    return notes if isinstance(notes, TaskgraphNotes) else TaskgraphNotes()


def decomposition_of(record: RunRecord) -> Decomposition | None:
    """The decomposition that a record of the task graph tells of; None where its notes are not of one, or not sound."""
    notes = notes_of(record)
    needed = notes.schedule, notes.stages, notes.batch_inputs, notes.devices, notes.pipeline, notes.places
    if None in needed or not notes.ranges or notes.pipeline != len(notes.ranges):
        return None
    try:
        layer = notes.joined_before_layer
        joined = None if layer is None else [first + 1 for first, _ in notes.stages].index(layer)
        return Decomposition(
            notes.schedule, record.problem.input_count, notes.batch_inputs, tuple(notes.stages), tuple(notes.ranges),
            notes.devices // notes.pipeline, notes.buffers, notes.places, bool(notes.drawn), joined,
        )  # fmt: skip
    except (InputError, ValueError):  # ValueError: of `index`
        return None


def timeline_of(record: RunRecord) -> list[Span] | None:
    """What happened when, as a record of the task graph tells it; None where its notes have no sound timeline."""
    spans = [Span(*entry) for entry in notes_of(record).timeline or ()]
    layers = record.problem.layers
    sound = all(0 <= span.begin <= span.end < math.inf and 0 <= span.first < span.last <= layers for span in spans)
    return spans if spans and sound else None
