"""The task graph on the processor: each device is a part of the threads with memory of its own.

Who owns what: the session has the weights that stay and the decomposition; a device has its buffers of weights and its
places, each with two feature buffers; a batch has its rows, which live in the buffers of the place that it is at. Tasks
touch only what their edges protect, so nothing here is locked.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from spdnn import progress
from spdnn.engines import plan, usable_cores
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, Session
from spdnn.engines.cpu_batch import CpuWork, Part, Tally
from spdnn.engines.memory import INPUT_BYTES, limit_bytes, resident_bytes
from spdnn.engines.rows import Rows
from spdnn.engines.taskgraph.notes import notes
from spdnn.engines.taskgraph.probe import measured
from spdnn.errors import InputError, MemoryTooSmall
from spdnn.features import Inputs, Result
from spdnn.files import check_ended
from spdnn.layouts import bind, buffer
from spdnn.network import Layer
from spdnn.taskgraph import Decomposition, Kind, Sizes, Task, Wanted, cut
from spdnn.taskgraph.choice import choose
from spdnn.taskgraph.decomposition import PIPELINE
from spdnn.taskgraph.decomposition import RESIDENT as ALL_STAY
from spdnn.taskgraph.execution import Execution, lanes_of, run_threads
from spdnn.taskgraph.timeline import Span

READING = 4  # copies of a layer, while it is read: as plan.batches counts them


@dataclass
class Batch:
    """A batch on its way.

    Attributes:
        slots: of the rows that were nonzero when it was last computed, int64, ascending.
    """

    rows: Rows
    looks: plan.Looks
    slots: np.ndarray


class CpuDevice:
    """A part of the threads, the bound layers in its buffers of weights, the feature buffers of its places, and rows of
    features that wait to be joined.

    Args:
        pooled: neurons of the rows that wait; 0 where none do.
    """

    def __init__(self, threads: int, cut: Decomposition, widest: int, tile: int, pooled: int):
        self.threads = threads
        self.weights: dict[int, list] = {}
        self.places = [[buffer(cut.batch, widest, tile) for _ in range(2)] for _ in range(cut.places)]
        self.pool = np.empty((cut.batch if pooled else 0, pooled), np.float32)
        for memory in (self.pool, *(one for place in self.places for one in place)):
            memory.fill(0)  # the pages are touched here, not on the clock


class CpuGraphSession(Session):
    """Feature buffers for the places of all devices, weights that stay, and a graph to go through in every run."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__()
        self.wanted = options.wanted or Wanted()
        if self.wanted.devices > options.threads:
            raise InputError(
                f"{self.wanted.devices} devices of {options.threads} threads: each takes one at least (--threads)"
            )
        self.work = CpuWork(prepared, inputs, options)
        self.sizes, self.predicted = self._sizes(), None
        self.decomposition, self.why = self._decomposition(options)
        cut, work = self.decomposition, self.work
        self.batches, self.span = cut.batches, STREAMED if cut.streamed else RESIDENT
        threads = options.threads // cut.devices
        pooled = 0 if cut.joined is None else int(work.costs.outputs[cut.stages[cut.joined][0] - 1])
        self.devices = [CpuDevice(threads, cut, work.widest, work.tile, pooled) for _ in range(cut.devices)]
        self.kept = self._kept(options) if cut.streamed else []
        if not cut.streamed:  # the processor has one memory: weights that stay are there once
            layers = [bind(layer) for layer in work.network.layers()]
            for device, stages in enumerate(cut.ranges * cut.groups):
                self.devices[device].weights = {
                    cut.buffer_of(device, stage): layers[slice(*cut.stages[stage])] for stage in range(*stages)
                }

    def _sizes(self) -> Sizes:
        network, work = self.work.network, self.work
        weights = tuple(network.header(k).nbytes for k in range(network.depth))
        return Sizes(work.inputs.count, work.tile, weights, 8 * work.widest + INPUT_BYTES)

    def _aside(self, options: Options) -> int:
        """Bytes of the process that are no device's."""
        work = self.work
        aside = resident_bytes() + plan.kept_bytes(work.inputs, work.last.outputs, options)
        aside += plan.scratch_bytes(work.network, work.inputs, work.widest, options.threads, work.tile)
        return aside + READING * max(self.sizes.weights) * self.wanted.devices

    def _kept(self, options: Options) -> list[Layer]:
        """All layers, where the process has room for them beside its devices: what is streamed is then copied from
        here, as to a GPU. None of them: each is read from its source whenever it is streamed.
        """
        network, devices = self.work.network, range(self.decomposition.devices)
        new = sum(nbytes for k, nbytes in enumerate(self.sizes.weights) if not network.in_memory(k))
        taken = sum(self.decomposition.memory(self.sizes, device) for device in devices)
        fits = new + taken + self._aside(options) <= limit_bytes(options.memory)
        return list(network.layers()) if fits else []

    def _decomposition(self, options: Options) -> tuple[Decomposition, str]:
        """How the inference is cut, and why so, within what each device may take: its promise, and no more than its
        part of what the process may take.

        Raises:
            MemoryTooSmall: it cannot be cut so fine; the sentence says the least that is needed, and of which of both.
        """
        devices, aside, limit = self.wanted.devices, self._aside(options), limit_bytes(options.memory)
        part = max(0, limit - aside) // devices
        promise = self.wanted.device_memory or part
        try:
            return self._cut(min(part, promise), options)
        except MemoryTooSmall as error:
            if promise < part:
                raise
            least = aside + devices * error.least
            raise MemoryTooSmall(
                f"memory of {limit:,} bytes is too small; this network, these inputs and {devices} devices of "
                f"{options.threads} threads need at least {least:,} (--memory)",
                least,
            ) from None

    def _cut(self, memory: int, options: Options) -> tuple[Decomposition, str]:
        """Within so many bytes of each device. What tasks cost is measured only where it can matter: to choose a
        schedule, or the ranges of a pipeline.
        """
        wanted, leaving = self.wanted, bool({"dead", "inputs"} & set(self.work.reductions))
        given = {
            "pipeline": wanted.pipeline, "batches": wanted.batches, "buffers": wanted.buffers, "leaving": leaving,
            "stage_bytes": plan.PASS_WEIGHTS, "join": wanted.join,
        }  # fmt: skip
        if wanted.schedule and wanted.schedule != PIPELINE and (wanted.pipeline or 1) == 1:
            made = cut(wanted.schedule, self.sizes, wanted.devices, memory=memory, **given)
            return made, f"{wanted.schedule} was asked for"
        if wanted.schedule is None and wanted.devices == 1 and not wanted.buffers:
            try:
                made = cut(ALL_STAY, self.sizes, 1, memory=memory, **given)
            except MemoryTooSmall:
                pass
            else:
                return made, "resident: all weights fit the one device there is, and nothing is faster"
        cores = min(options.threads, usable_cores())
        in_memory = _copied if self.work.network.in_memory(0) else None
        costs = measured(self.work, options.threads, wanted.devices, in_memory, cores)
        chosen = choose(self.sizes, wanted.devices, memory, costs, cores, schedule=wanted.schedule, **given)
        self.predicted = chosen.predicted.seconds
        return chosen.decomposition, chosen.why

    def run(self, meetings=None) -> Result:
        cut, work = self.decomposition, self.work
        execution = Execution(cut)
        going = _Going(self, cut.batches * len(cut.stages))
        try:
            run_threads(execution, going.do, lanes_of(cut), check_ended)
        finally:
            going.close()
        tally = going.tally()
        self.found |= work.found(tally)
        parts = [going.parts[batch] for batch in sorted(going.parts)]
        told = notes(cut, self.sizes, self.wanted, self.why, execution.graph, going.spans)
        if self.predicted is not None:
            told["predicted_seconds"] = self.predicted
        if cut.streamed:
            told["streamed_from"] = "memory" if self.kept else "the network's source"
        return work.result(parts, tally, told)


class _Going:
    """One run: batches on their way, what was counted, what happened when."""

    def __init__(self, session: CpuGraphSession, stages: int):
        self.session, self.work, self.cut = session, session.work, session.decomposition
        self.batches: dict[int, Batch] = {}
        self.waiting: list[list[tuple[np.ndarray, np.ndarray, int]]] = [[] for _ in session.devices]
        self.parts: dict[int, Part] = {}
        self.spans: list[Span] = []
        self.tallies = [session.work.tally() for _ in session.devices]
        self.advance, self.close = progress.ticker("inference", stages, " stages")
        self.begun = time.perf_counter()

    def do(self, task: Task) -> int | None:
        begin = time.perf_counter()
        rows = _WORK[task.kind](self, task)
        self.spans.append(Span.of(self.cut, task, begin - self.begun, time.perf_counter() - self.begun))
        return rows

    def tally(self) -> Tally:
        """What all devices counted."""
        whole, *others = self.tallies
        for other in others:
            whole.add(other)
        return whole

    def _copy(self, task: Task) -> None:
        device, kept, network = self.session.devices[task.device], self.session.kept, self.work.network
        device.weights.pop(task.buffer, None)  # its memory can be filled again
        device.weights[task.buffer] = [
            bind(_copied(kept[k]) if kept else network.layer(k)) for k in range(*self.cut.stages[task.stage])
        ]

    def _layer(self, task: Task) -> None:
        device, (k, last) = self.session.devices[task.device], self.cut.stages[task.stage]
        if task.stage == 0:
            numbers = self.work.inputs.numbered(*self.cut.members(task.batch))
            rows = self.work.begin(numbers, device.threads, *device.places[task.place])
            self.batches[task.batch] = Batch(rows, self.work.looks(), np.arange(numbers.size))
        batch, layers = self.batches[task.batch], device.weights[task.buffer]
        rows, first = batch.rows, k
        while rows.count and k < last:
            most = self.work.costs.layers(k, rows.tiles, rows.tile, self.work.deaths(k, rows), last - k)
            passed = layers[k - first : k - first + most]
            batch.slots = self.work.through(k, passed, rows, self.tallies[task.device])
            k += most
        self.advance(1)

    def _compact(self, task: Task) -> int:
        batch, tally, k = self.batches[task.batch], self.tallies[task.device], self.cut.stages[task.stage][1]
        if batch.rows.count:
            batch.slots = self.work.compact(k, batch.rows, batch.slots, batch.looks, tally)
        return self._left(batch, k).size

    def _left(self, batch: Batch, k: int) -> np.ndarray:
        """int64, ascending: the slots of rows that may still be nonzero at the end."""
        return batch.slots if k >= self.work.dead_from else np.arange(batch.rows.count)

    def _park(self, task: Task) -> None:
        """The rows that are left wait, row by row, behind those that wait already."""
        batch, k = self.batches.pop(task.batch), self.cut.stages[task.stage][1]
        device, waiting, slots = self.session.devices[task.device], self.waiting[task.device], self._left(batch, k)
        first = sum(rows for _, _, rows in waiting)
        numbers, row_of = batch.rows.inputs.of(slots)
        batch.rows.level.take(
            batch.rows.source, batch.rows.tile, slots, device.pool[first : first + slots.size], device.threads
        )
        waiting.append((numbers, first + row_of, slots.size))

    def _join(self, task: Task) -> None:
        """All rows that wait become a batch, in the order in which they came; equal ones among them are looked for."""
        device, waiting, k = (
            self.session.devices[task.device],
            self.waiting[task.device],
            self.cut.stages[task.stage][1],
        )
        count = sum(rows for _, _, rows in waiting)
        numbers, row_of = (np.concatenate([one[i] for one in waiting]) for i in (0, 1))
        rows = self.work.begin(np.empty(0, np.int64), device.threads, *device.places[task.place])
        rows.join(numbers, row_of, device.pool[:count])
        waiting.clear()
        batch = self.batches[task.batch] = Batch(rows, self.work.looks(), np.arange(count))
        if count:
            batch.slots = self.work.compact(k, rows, batch.slots, batch.looks, self.tallies[task.device])

    def _move(self, task: Task) -> None:
        """The rows that may still be nonzero go to the target's buffers; what was left of their gaps closes."""
        batch, k = self.batches[task.batch], self.cut.stages[task.stage][1]
        device, place = task.target
        rows, target = batch.rows, self.session.devices[device]
        rows.move(self._left(batch, k), int(self.work.costs.outputs[k - 1]), target.threads, *target.places[place])
        batch.slots = np.arange(rows.count)

    def _collect(self, task: Task) -> None:
        batch = self.batches.pop(task.batch)
        slots = batch.slots if batch.rows.count else np.empty(0, np.int64)
        self.parts[task.batch] = self.work.finish(batch.rows, slots)


_WORK = {
    Kind.COPY: _Going._copy,
    Kind.LAYER: _Going._layer,
    Kind.COMPACT: _Going._compact,
    Kind.MOVE: _Going._move,
    Kind.PARK: _Going._park,
    Kind.JOIN: _Going._join,
    Kind.COLLECT: _Going._collect,
}


def _copied(layer: Layer) -> Layer:
    """The layer in memory of its own, as a device has it."""
    indices, offsets = layer.indices.copy(), layer.offsets.copy()
    return replace(layer, indices=indices, offsets=offsets, values=np.copy(layer.values)[()])
