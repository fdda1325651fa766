"""What tasks cost, from a run record: the rates that a simulation takes, and what of them the record does not tell."""

import math
from dataclasses import replace

import numpy as np

from spdnn.common.errors import InputError
from spdnn.costmodel.calibration import UNREADABLE, from_record, known_shares, reading_notes
from spdnn.costmodel.costs import FREE, Device, Messages, Work
from spdnn.taskgraph.decomposition import Decomposition
from spdnn.taskgraph.graph import Kind
from spdnn.taskgraph.simulation import TaskCosts
from spdnn.taskgraph.timeline import Span


def costs_of(
    record: dict, devices: int = 1, messages: Messages | None = None, copy_bytes_per_second: float | None = None
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
    notes = record["engine"]["notes"]
    if notes.get("devices", 1) != 1:
        raise InputError(f"{record['case']}: {notes['devices']} devices; the model is calibrated by a record of one")
    device, work = from_record(record)
    with reading_notes(record):
        device, tasks = _timed(device, work, record)
    machine = record.get("machine")
    if copy_bytes_per_second is None and machine:
        copy_bytes_per_second = machine["copy_bytes_per_second"] / 2
    device = replace(device, copy_bytes_per_second=copy_bytes_per_second)
    on_gpu = bool(record["environment"].get("gpu"))
    if messages is None:
        messages = FREE if on_gpu or not copy_bytes_per_second else Messages(0.0, copy_bytes_per_second)
    order = lambda batches: known_shares(record, work, batches, "static", batches)  # noqa: E731
    threads = None if on_gpu else max(1, record["threads"] // devices)
    waiting = 0.0 if on_gpu else _waiting(record)
    costs = TaskCosts(work, device, messages, threads=threads, waiting=waiting, order=order, **tasks)
    return costs, None if on_gpu else device.cores


def _waiting(record: dict) -> float:
    """What each thread beyond the first adds to the time, where the record has the processor time of a run.

    Threads that computed all the time would have used as many processor seconds as there are of them in each second;
    Amdahl's law takes what is missing as spent while one thread computed and the others waited.
    """
    used, threads = record["engine"]["notes"].get("processor_seconds"), record["threads"]
    cores = record["environment"].get("cores") or threads
    if not isinstance(used, int | float) or not used > 0 or not 1 < threads <= cores:
        return 0.0
    whole = min(record["samples"]["inference_seconds"]) * threads
    return max(0.0, whole / used - 1) / (threads - 1)


def _timed(device: Device, work: Work, record: dict) -> tuple[Device, dict]:
    """(the device with rates of its own for each stage, what else TaskCosts takes), where the record has the time of
    every task: what passes between two of them belongs to each task of layers, and what gaps cost to close to the rows
    that moved. All in all it is the time of the run still.
    """
    notes, timeline = record["engine"]["notes"], timeline_of(record)
    if timeline is None or len(timeline) != notes.get("timeline_tasks") or notes.get("batches") != 1:
        return device, {}
    spent, computed = np.zeros(work.layers), device.lanes(work.rows) * work.edges
    total = float((computed * device.rates(work.layers)).sum()) + work.inputs * device.seconds_per_input
    tasks, closing, known, starts = 0, 0.0, 0.0, set()
    for one in timeline:
        seconds = one.end - one.begin
        known += seconds
        if one.kind == Kind.LAYER:
            part = computed[one.first : one.last]
            spent[one.first : one.last] += seconds * part / part.sum() if part.sum() else 0.0
            tasks += 1
            starts.add(one.first)
        elif one.kind == Kind.COMPACT:
            closing += seconds
    # The clock of the tasks is of one repeat, the time of the run the median of several.
    factor = min(1.0, total / known) if known else 1.0
    rates = np.divide(spent * factor, computed, out=np.zeros(work.layers), where=computed > 0)
    turn = max(0.0, total - known * factor) / max(1, tasks)
    tried = TaskCosts(work, device, compact_bytes_per_second=1.0)
    moved = float(tried.compacts(work.rows)[sorted(starts)].sum())
    told = {"seconds_per_task": turn, "compact_bytes_per_second": moved / (closing * factor) if closing else None}
    rest = (known - closing) * factor - float(spent.sum()) * factor + (0.0 if moved else closing * factor)
    device = replace(device, seconds_per_edge=tuple(rates.tolist()), seconds_per_input=max(0.0, rest) / work.inputs)
    return device, told if moved else {**told, "compact_bytes_per_second": None}


def decomposition_of(record: dict) -> Decomposition | None:
    """The decomposition that a record of the task graph tells of; None where its notes are not of one, or not sound."""
    notes = record["engine"]["notes"]
    try:
        stages, ranges = (tuple((int(first), int(last)) for first, last in notes[key]) for key in ("stages", "ranges"))
        counts = [notes[key] for key in ("batch_inputs", "devices", "pipeline", "places")]
        if notes["pipeline"] != len(ranges) or not all(type(one) is int for one in (*counts, notes["buffers"] or 0)):
            return None
        layer = notes.get("joined_before_layer")
        joined = None if layer is None else [first + 1 for first, _ in stages].index(layer)
        return Decomposition(
            notes["schedule"], record["problem"]["input_count"], notes["batch_inputs"], stages, ranges,
            notes["devices"] // notes["pipeline"], notes["buffers"], notes["places"], bool(notes["drawn"]), joined,
        )  # fmt: skip
    except (InputError, *UNREADABLE):
        return None


def timeline_of(record: dict) -> list[Span] | None:
    """What happened when, as a record of the task graph tells it; None where its notes have no sound timeline."""
    try:
        spans = [
            Span(int(device), str(lane), str(kind), None if batch is None else int(batch), int(first), int(last),
                 float(begin), float(end))
            for device, lane, kind, batch, first, last, begin, end in record["engine"]["notes"]["timeline"]
        ]  # fmt: skip
    except UNREADABLE:
        return None
    sound = all(0 <= one.begin <= one.end < math.inf and 0 <= one.first < one.last for one in spans)
    return spans if spans and sound else None
