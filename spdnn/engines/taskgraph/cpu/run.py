"""A run of the task graph on the processor: what each kind of task does.

A device owns its buffers of weights and its buffer slots, each with two feature buffers. A batch owns its rows, which
are in the buffers of its slot. Tasks touch only what their edges protect, so nothing is locked but the progress.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from spdnn.core import progress
from spdnn.core.network import Layer
from spdnn.core.result import LastRows
from spdnn.engines.cpu.batch import LOGGED, BatchKernels, TileCounters
from spdnn.engines.execute import advance
from spdnn.engines.taskgraph.cpu.rows import TaskTiledRows
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import lanes_of
from spdnn.engines.taskgraph.graph import Kind, Task
from spdnn.engines.taskgraph.timeline import Span
from spdnn.kernels.tiles import buffer, touch


class TaskBatch(NamedTuple):
    """A batch on its way; `inputs`: that it began with; `tell`: as Inference.batch gives it."""

    rows: TaskTiledRows
    inputs: int
    tell: Callable[[int, int], None]


class CpuDevice:
    """A part of the threads, the bound layers in its buffers of weights, the feature buffers of its slots, and rows of
    features, of `pooled` neurons, that wait to be joined; 0 where none do."""

    def __init__(self, threads: int, cut: Decomposition, widest: int, tile: int, pooled: int):
        self.threads = threads
        self.weights: dict[int, list] = {}
        self.slots = [[buffer(cut.batch, widest, tile) for _ in range(2)] for _ in range(cut.slots)]
        self.pool = np.empty((cut.batch if pooled else 0, pooled), np.float32)
        for memory in (self.pool, *(memory for slot in self.slots for memory in slot)):
            touch(memory, threads)  # here, not on the clock


class CpuGraphRun:
    """One run: batches on their way, what was counted, what happened when."""

    def __init__(
        self, work: BatchKernels, cut: Decomposition, devices: Sequence[CpuDevice], kept: Sequence[Layer],
        edges_passed: list[int],
    ):  # fmt: skip
        self.work, self.cut, self.devices, self.kept = work, cut, devices, kept
        self.batches: dict[int, TaskBatch] = {}
        self.waiting: list[list[tuple[np.ndarray, np.ndarray, int, TaskBatch]]] = [[] for _ in self.devices]
        self.parts: dict[int, LastRows] = {}
        self.spans: list[Span] = []
        # A tally for each lane, which one thread writes.
        self.tallies = {lane: work.counters() for lane in lanes_of(self.cut)}
        self.stage, self.telling = progress.Inference(edges_passed, cut.inputs, cut.batches), threading.Lock()
        self.begun = time.perf_counter()

    def do(self, task: Task) -> int | None:
        begin = time.perf_counter()
        rows = self._work(task.kind)(task)
        self.spans.append(Span.of(self.cut, task, begin - self.begun, time.perf_counter() - self.begun))
        return rows

    def _work(self, kind: Kind) -> Callable[[Task], int | None]:
        """What does a task of that kind."""
        return {
            Kind.COPY: self._copy, Kind.LAYER: self._layer, Kind.COMPACT: self._compact, Kind.PARK: self._park,
            Kind.JOIN: self._join, Kind.MOVE: self._move, Kind.COLLECT: self._collect,
        }[kind]  # fmt: skip

    def tally(self) -> TileCounters:
        """What all devices counted."""
        whole, *others = self.tallies.values()
        for other in others:
            for name, value in vars(other).items():
                setattr(whole, name, getattr(whole, name) + value)
        whole.log = whole.log[:LOGGED]
        return whole

    def _copy(self, task: Task) -> None:
        # The old layers of the buffer are dropped before the new ones are read, so that it never holds both.
        weights, kept, stage = self.devices[task.device].weights, self.kept, self.cut.stages[task.stage]
        weights.pop(task.buffer, None)
        weights[task.buffer] = [self.work.bind(k, copy_layer(kept[k]) if kept else None) for k in range(*stage)]
        nbytes = int(self.work.costs.nbytes[slice(*stage)].sum())
        self.tallies[task.lane].moved += 2 * nbytes if kept else nbytes  # read, where it was, and written

    def _layer(self, task: Task) -> None:
        device, last = self.devices[task.device], self.cut.stages[task.stage][1]
        # The first stage makes the rows of the batch in its slot; later ones find them in it.
        if task.stage == 0:
            numbers = self.work.inputs.numbers_of(*self.cut.members(task.batch))
            tell = self.stage.batch(numbers.size)
            self.batches[task.batch] = TaskBatch(self._rows(task, numbers), numbers.size, tell)
        rows = self._rows_of(task)
        rows.stage_end = last
        advance(rows, last, iter(device.weights[task.buffer]))
        with self.telling:
            self.batches[task.batch].tell(last, rows.left)

    def _count_moved(self, task: Task, rows: int) -> None:
        """So many rows were read and written."""
        neurons = int(self.work.costs.outputs[self.cut.stages[task.stage][1] - 1])
        self.tallies[task.lane].moved += 2 * 4 * neurons * rows

    def _rows(self, task: Task, numbers: np.ndarray) -> TaskTiledRows:
        """The rows of so many inputs in the task's slot."""
        device = self.devices[task.device]
        return TaskTiledRows(
            self.work, numbers, self.tallies[task.lane], device.threads, *device.slots[task.slot], self.cut.batch
        )

    def _rows_of(self, task: Task) -> TaskTiledRows:
        """The rows of the task's batch, which count for the task's lane from now on."""
        rows = self.batches[task.batch].rows
        rows.counters = self.tallies[task.lane]
        return rows

    def _compact(self, task: Task) -> int:
        rows = self._rows_of(task)
        if rows.count:
            rows.compact(meeting=False)
        return self._rows_left(rows).size

    def _rows_left(self, rows: TaskTiledRows) -> np.ndarray:
        """int64, ascending: the indices of rows that may still be nonzero at the end."""
        return rows.indices if rows.may_leave else np.arange(rows.count)

    def _park(self, task: Task) -> None:
        """The rows that are left wait, row by row, behind those that wait already."""
        batch, device, waiting = self.batches.pop(task.batch), self.devices[task.device], self.waiting[task.device]
        rows = batch.rows
        # Rows leave their tiles for the pool, where they lie one by one: those of all batches make full tiles again.
        first, indices = sum(count for _, _, count, _ in waiting), self._rows_left(rows)
        numbers, row_of = rows.inputs.of(indices)
        rows.level.take(rows.source, rows.tile, indices, device.pool[first : first + indices.size], device.threads)
        waiting.append((numbers, first + row_of, indices.size, batch))
        self._count_moved(task, indices.size)

    def _join(self, task: Task) -> None:
        """All rows that wait become a batch, in the order in which they came; equal ones are searched for."""
        device, waiting = self.devices[task.device], self.waiting[task.device]
        # Rows of different batches may be equal, so a search begins anew with the joined batch.
        count = sum(rows for _, _, rows, _ in waiting)
        numbers, row_of = (np.concatenate([batch[i] for batch in waiting]) for i in (0, 1))
        rows = self._rows(task, np.empty(0, np.int64))
        rows.layer = self.cut.stages[task.stage][1]
        rows.join(numbers, row_of, device.pool[:count])
        inputs, left = sum(batch.inputs for *_, batch in waiting), sum(batch.rows.left for *_, batch in waiting)
        tell = self.stage.batch(inputs, rows.layer, left, len(waiting))
        self.batches[task.batch] = TaskBatch(rows, inputs, tell)
        waiting.clear()
        self._count_moved(task, count)
        if count:
            rows.compact(meeting=False)

    def _move(self, task: Task) -> None:
        """The rows that may still be nonzero go to the target's buffers; what was left of their gaps closes."""
        rows, (device, slot) = self._rows_of(task), task.target
        target = self.devices[device]
        rows.move(self._rows_left(rows), target.threads, *target.slots[slot])
        self._count_moved(task, rows.count)

    def _collect(self, task: Task) -> None:
        self.parts[task.batch] = self.batches.pop(task.batch).rows.finish()


def copy_layer(layer: Layer) -> Layer:
    """The layer in memory of its own, as a device has it."""
    indices, offsets = layer.indices.copy(), layer.offsets.copy()
    return layer.changed(indices=indices, offsets=offsets, values=np.copy(layer.values)[()])
