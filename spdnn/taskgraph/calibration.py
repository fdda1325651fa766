"""What tasks cost, from a run record: the rates that a simulation takes, and what of them the record does not tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spdnn.errors import InputError
from spdnn.model import FREE, Device, Messages, Work, from_record, known_shares
from spdnn.taskgraph.graph import Kind
from spdnn.taskgraph.simulation import TaskCosts


def costs_of(
    record: dict,
    devices: int = 1,
    messages: Messages = FREE,
    copy_bytes_per_second: float | None = None,
) -> tuple[TaskCosts, int | None]:
    """(costs of tasks, cores that the devices share) as a record of one rank and one device tells them.

    A record of a GPU tells of one device, and others like it share nothing. One of a processor tells of all its
    threads, which the devices of a decomposition share out: each has a part of them, and at least one.

    Args:
        devices: of the decompositions to simulate.
        copy_bytes_per_second: of weights; None: half of what the machine copied (a copy reads and writes).

    Raises:
        InputError: a record of several ranks or devices, or of a run that did nothing.
    """
    notes = record["engine"]["notes"]
    if notes.get("devices", 1) != 1:
        raise InputError(f"{record['case']}: {notes['devices']} devices; the model is calibrated by a record of one")
    device, work = from_record(record)
    device = _timed(device, work, notes)
    machine = record.get("machine")
    if copy_bytes_per_second is None and machine:
        copy_bytes_per_second = machine["copy_bytes_per_second"] / 2
    device = replace(device, copy_bytes_per_second=copy_bytes_per_second)
    order = lambda batches: known_shares(record, work, batches, "static")  # noqa: E731
    on_gpu = bool(record["environment"].get("gpu"))
    threads = None if on_gpu else max(1, record["threads"] // devices)
    return TaskCosts(work, device, messages, threads=threads, order=order), None if on_gpu else device.cores


def _timed(device: Device, work: Work, notes: dict) -> Device:
    """The device with rates of its own for each stage, where the record has the time of every task."""
    timeline = notes.get("timeline") or ()
    if not timeline or len(timeline) != notes.get("timeline_tasks") or notes.get("batches") != 1:
        return device
    spent, computed = np.zeros(work.layers), device.lanes(work.rows) * work.edges
    for _, _, kind, _, first, last, begin, end in timeline:
        if kind == Kind.LAYER:
            part = computed[first:last]
            spent[first:last] += (end - begin) * part / part.sum() if part.sum() else 0.0
    rates = np.divide(spent, computed, out=np.zeros(work.layers), where=computed > 0)
    before = float((computed * device.rates(work.layers)).sum()) + work.inputs * device.seconds_per_input
    rest = max(0.0, before - float(spent.sum()))
    return replace(device, seconds_per_edge=tuple(rates.tolist()), seconds_per_input=rest / work.inputs)
