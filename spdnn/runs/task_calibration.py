"""What tasks cost, from a run record: the rates that a simulation takes.

What a record does not have, such as the rate of copies, is taken from its machine, or given.
"""

import math
from dataclasses import replace

import numpy as np

from spdnn.core.errors import InputError
from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.graph import Kind
from spdnn.engines.taskgraph.simulation import TaskCosts
from spdnn.engines.taskgraph.timeline import Span
from spdnn.runs.calibration import from_record, known_shares
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.run_record import RunRecord


def costs_of(
    record: RunRecord,
    devices: int = 1,
    messages: MessageCosts | None = None,
    copy_bytes_per_second: float | None = None,
) -> tuple[TaskCosts, int | None]:
    """(costs of tasks, cores that the devices share) as a record of one rank and one device tells them.

    A record of a GPU tells of one device, and others like it share nothing. One of a processor tells of all its
    threads, which the devices of a decomposition share out: each has a part of them, and at least one.

    Args:
        devices: of the decompositions to simulate.
        messages: between devices; None: parts of a machine's memory copy rows as they copy weights, GPUs for nothing.
        copy_bytes_per_second: of weights; None: half of what the machine copied (a copy reads and writes).

    Raises:
        InputError: a record of several ranks or devices, of a run that did nothing, or with notes that cannot be read.
    """
    devices_of_record = notes_of(record).devices
    if devices_of_record not in (None, 1):
        raise InputError(f"{record.case}: {devices_of_record} devices; the model is calibrated by a record of one")
    # Rates of layers from the record, and of single tasks where it has their timeline.
    device, work = from_record(record)
    device, tasks = _stage_rates(device, work, record)
    if copy_bytes_per_second is None and record.machine:
        copy_bytes_per_second = record.machine.copy_bytes_per_second / 2
    device = replace(device, copy_bytes_per_second=copy_bytes_per_second)
    on_gpu = bool(record.environment.gpu)
    if messages is None:
        messages = FREE if on_gpu or not copy_bytes_per_second else MessageCosts(0.0, copy_bytes_per_second)
    order = lambda batches: known_shares(record, work, batches, "static", batches)  # noqa: E731
    threads = None if on_gpu else max(1, record.threads // devices)
    # Waiting: threads that computed all the time would have used as many processor seconds as there are of them in each
    # second. Amdahl's law takes what is missing as spent while one thread computed and the others waited.
    waiting, used = 0.0, notes_of(record).processor_seconds
    if not on_gpu and used is not None and used > 0 and 1 < record.threads <= record.environment.cores:
        whole = min(record.inference_seconds) * record.threads
        waiting = max(0.0, whole / used - 1) / (record.threads - 1)
    costs = TaskCosts(work, device, messages, threads=threads, waiting=waiting, row_shares=order, **tasks)
    return costs, None if on_gpu else device.cores


def _stage_rates(device: DeviceCosts, work: Work, record: RunRecord) -> tuple[DeviceCosts, dict]:
    """(the device with rates of its own for each stage, what else TaskCosts takes), where the record has the time of
    every task: what passes between two of them belongs to each task of layers, and what gaps cost to close to the rows
    that moved. All in all it is the time of the run still.
    """
    notes, timeline = notes_of(record), timeline_of(record)
    if timeline is None or len(timeline) != notes.timeline_tasks or notes.batches != 1:
        return device, {}
    # A task of several layers gives each of them time by the edges that its rows go through there.
    spent, computed = np.zeros(work.layers), device.lanes(work.rows) * work.edges
    total = float((computed * device.rates(work.layers)).sum()) + work.inputs * device.seconds_per_input
    tasks, closing, explained, starts = 0, 0.0, 0.0, set()
    for span in timeline:
        seconds = span.end - span.begin
        explained += seconds
        if span.kind == Kind.LAYER:
            part = computed[span.first : span.last]
            spent[span.first : span.last] += seconds * part / part.sum() if part.sum() else 0.0
            tasks += 1
            starts.add(span.first)
        elif span.kind == Kind.COMPACT:
            closing += seconds
    # The clock of the tasks is of one repeat, the time of the run the median of several.
    factor = min(1.0, total / explained) if explained else 1.0
    rates = np.divide(spent * factor, computed, out=np.zeros(work.layers), where=computed > 0)
    # What no task explains passed between tasks: it belongs to each task of layers, as a launch does.
    each = max(0.0, total - explained * factor) / max(1, tasks)
    # Closing gaps: seconds for each byte of the rows that moved; where none moved, it stays with the inputs.
    tried = TaskCosts(work, device, compact_bytes_per_second=1.0)
    moved = float(tried.compacts(work.rows)[sorted(starts)].sum())
    entries = {"seconds_per_task": each, "compact_bytes_per_second": moved / (closing * factor) if closing else None}
    rest = (explained - closing) * factor - float(spent.sum()) * factor + (0.0 if moved else closing * factor)
    device = replace(device, seconds_per_edge=tuple(rates.tolist()), seconds_per_input=max(0.0, rest) / work.inputs)
    return device, entries if moved else {**entries, "compact_bytes_per_second": None}


def notes_of(record: RunRecord) -> TaskgraphNotes:
    """The notes of a record of the task graph; of another engine, none."""
    notes = record.engine.notes
    return notes if isinstance(notes, TaskgraphNotes) else TaskgraphNotes()


def decomposition_of(record: RunRecord) -> Decomposition | None:
    """The decomposition that a record of the task graph tells of; None where its notes are not of one, or not sound."""
    notes = notes_of(record)
    sizes = notes.batch_inputs, notes.devices, notes.pipeline, notes.places
    if None in (notes.schedule, notes.stages, *sizes) or not notes.ranges or notes.pipeline != len(notes.ranges):
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
