"""One device of the task graph: its streams, events, buffer slots and weights, and what each kind of task launches;
and what batches do there, captured as CUDA graphs before a run, each of which is one launch for batches of any size.

A lane of the graph is a stream. Where an edge crosses lanes, the later task's stream waits for an event: the one that
was recorded last for the same buffer, or the same buffer slot. So a few events serve all tasks. Edges inside a lane are
its order.
"""

from collections.abc import Callable, Sequence

import numpy as np

from spdnn.core.numbers import ceil_div
from spdnn.engines.cuda.buffers import DevicePart, KernelPlan, Launch, launch_all
from spdnn.engines.cuda.rows import COLUMNS, TILE, DeviceInputs, counters_of
from spdnn.engines.cuda.schedule import LayerPass
from spdnn.engines.taskgraph.cuda.layers import DeviceWeights
from spdnn.engines.taskgraph.cuda.rows import Pool
from spdnn.engines.taskgraph.cuda.slot import TaskSlot
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import Execution, run_serially
from spdnn.engines.taskgraph.graph import COMPUTE, Kind, Task
from spdnn.kernels.cuda.device import Device, Event

IN_GRAPHS = (Kind.COPY, Kind.LAYER, Kind.COMPACT, Kind.COLLECT)


class Outcomes:
    """Pinned memory for the outcome of each batch, joined ones included: 36 bytes of an input, and counters."""

    def __init__(self, device: Device, plan: KernelPlan, cut: Decomposition):
        rows, batches = ceil_div(cut.batch, TILE) * TILE, cut.batches + joins_of(cut)
        self.counters = device.pinned_array(batches * counters_of(plan.depth), np.uint64).reshape(batches, -1)
        self.row_of = device.pinned_array(batches * rows, np.int32).reshape(batches, -1)
        self.statistics = device.pinned_array(batches * rows * COLUMNS, np.uint64).reshape(batches, -1)


def joins_of(cut: Decomposition) -> int:
    """Batches that may be joined of others: each group makes one at its end."""
    return cut.groups if cut.joined is not None else 0


def batch_table(device: Device, cut: Decomposition) -> np.ndarray:
    """int32 (batches, 2), pinned: what DeviceRows.batch takes; of joined batches, which come last, no inputs yet."""
    members = [(first, last - first) for first, last in map(cut.members, range(cut.batches))]
    table = device.pinned_array(2 * (cut.batches + joins_of(cut)), np.int32).reshape(-1, 2)
    table[...] = members + [(0, 0)] * joins_of(cut)
    return table


class GraphDevice:
    """Device `number` of the decomposition; `parts`: the passes of all layers; `inputs`: None if batches come from
    another device."""

    def __init__(
        self, device: Device, number: int, plan: KernelPlan, cut: Decomposition, parts: Sequence[LayerPass],
        weights: DeviceWeights, inputs: DeviceInputs | None,
    ):  # fmt: skip
        self.device, self.number, self.plan, self.cut, self.weights = device, number, plan, cut, weights
        self.first, self.last = cut.range_of(number)
        # A stream for each lane: copies of weights and moves of rows overlap with computing.
        self.streams = {COMPUTE: device.main}
        if cut.streamed:
            self.streams[Kind.COPY.value] = weights.stream
        if self.first:
            self.streams[Kind.MOVE.value] = device.stream()
        part, stages = DevicePart(device, plan, weights.layers, inputs), cut.stages[self.first : self.last]
        tiles, size = ceil_div(cut.batch, TILE), ceil_div(cut.batch, TILE) * TILE * plan.widest
        # Pool: rows that wait to be joined need one buffer, as they are only copied in and out.
        joined, self.pool = None, None
        if cut.joined is not None:
            joined = cut.stages[cut.joined][0]
            neurons, rows = weights.layers[joined - 1].outputs, tiles * TILE
            self.pool = Pool(
                device.empty(rows * neurons, np.float32), device.empty(rows, np.int32), device.empty(1, np.int32)
            )
            self.pooled = device.pinned_array(cut.batches, np.int32)  # of each batch, where in the pool its rows begin
        self.slots = []
        for _ in range(cut.slots):
            buffers = [device.empty(size, np.float32) for _ in range(2)]
            self.slots.append(TaskSlot(part, parts, stages, tiles, buffers, self.pool, joined))
        # How many rows each slot has, for what moves them on: a copy of its counters.
        self.counters = [device.pinned_array(counters_of(plan.depth), np.uint64) for _ in range(cut.slots)]
        self._events: dict[tuple, Event] = {}
        self._pairs: list[tuple[Event, Event]] = []

    def timing_events(self, number: int) -> tuple[Event, Event]:
        """The events before and after the task of this device that is the `number`-th to be timed in a run."""
        if number == len(self._pairs):
            self._pairs.append((self.device.event(timed=True), self.device.event(timed=True)))
        return self._pairs[number]

    def event(self, task: Task) -> Event:
        """The event of tasks like this one, on this device (of a move, the device that it goes to)."""
        # One event for each buffer or slot is enough: what is to be waited for is always what was recorded there last.
        of_buffer = task.kind in (Kind.COPY, Kind.LAYER)
        key = task.kind, task.target[1] if task.target else task.buffer if of_buffer else task.slot
        if key not in self._events:
            self._events[key] = self.device.event()
        return self._events[key]

    def before(self, task: Task, batches: np.ndarray) -> None:
        """What precedes the launches of a layer task and is of its batch alone: its number and size."""
        if task.kind == Kind.LAYER and task.stage == 0:
            self.device.copy_in(self.slots[task.slot].rows.batch, batches[task.batch])

    def after(self, task: Task, outcomes: Outcomes) -> None:
        """What follows the launches of a task and is of its batch alone: its outcome, to the host."""
        rows, copy_out = self.slots[task.slot].rows, self.device.copy_out
        if self.needs_count(task):
            copy_out(self.counters[task.slot], rows.counters)
        if task.kind == Kind.COLLECT:
            copy_out(outcomes.counters[task.batch], rows.counters)
            copy_out(outcomes.row_of[task.batch], rows.row_of)
            copy_out(outcomes.statistics[task.batch], rows.last_statistics)

    def needs_count(self, task: Task) -> bool:
        """Whether the host has to know how many rows are left of a batch after this task: it then goes to another
        device, or may be joined to others."""
        return task.kind == Kind.COMPACT and task.stage + 1 in (self.last, self.cut.joined)

    def rows_after(self, task: Task) -> int:
        """How many rows are left after a task that is `needs_count` and done."""
        counters, k = self.counters[task.slot], self.cut.stages[task.stage][1]
        return self.slots[task.slot].rows.rows_into(counters, k)

    def park(self, task: Task, first: int, outcomes: Outcomes) -> None:
        """A batch's rows go to the pool, from row `first` on, and the host learns which of them each input has."""
        # Where the rows begin is a number in device memory, so that the launches are the same for every batch.
        slot = self.slots[task.slot]
        self.pooled[task.batch] = first
        self.device.copy_in(self.pool.next_row, self.pooled[task.batch : task.batch + 1])
        launch_all(slot.park)
        self.device.copy_out(outcomes.counters[task.batch], slot.rows.counters)
        self.device.copy_out(outcomes.row_of[task.batch], slot.rows.row_of)

    def join(self, task: Task, batches: np.ndarray) -> None:
        """All rows in the pool, as many as `batches` says, become a batch at a slot."""
        # Rows become a batch of as many inputs; their features and weights are copied in between the launches.
        slot, device, batch = self.slots[task.slot], self.device, batches[task.batch]
        device.copy_in(slot.rows.batch, batch)
        launch_all(slot.join)
        features, weights, rows = slot.waiting
        count, neurons = int(batch[1]), slot.layers[self.cut.stages[self.cut.joined][0] - 1].outputs
        size = ceil_div(count, TILE) * TILE * neurons
        device.move(features[:size], device, self.pool.features[:size])
        device.move(weights[:count], device, self.pool.weights[:count])
        device.copy_in(rows, batch[1:])
        launch_all(slot.joined)

    def receive(self, slot: int, other: "GraphDevice", at: int) -> None:
        """Bring the batch at a slot of another device, whose number of rows the host has, to a slot here."""
        # State first, in small arrays; of the features only the tiles that have rows, which is why the host knows them.
        here, theirs = self.slots[slot], other.slots[at]
        for target, source in zip(here.rows.arrived, theirs.rows.state, strict=True):
            self.device.move(target, other.device, source)
        rows = theirs.rows.rows_into(other.counters[at], theirs.rows.last_pass)
        neurons = theirs.layers[self.cut.stages[other.last - 1][1] - 1].outputs
        size = ceil_div(rows, TILE) * TILE * neurons
        self.device.move(here.source[:size], other.device, theirs.features[:size])

    def capture(self, tasks: Sequence[Task], blocks: Sequence[np.ndarray]) -> Callable[[], None]:
        """The graph of one batch's tasks here, but for what is of that batch alone."""
        device, own = self.device, {task.number: task for task in tasks}
        events = {task.number: device.event() for task in tasks}
        copies, fork = [task for task in tasks if task.kind == Kind.COPY], device.event()

        def work() -> None:
            # Fork: the copy stream takes part in the capture from when it waits for an event that was recorded in it.
            if copies:
                device.record(fork)
                with device.on(self.streams[Kind.COPY.value]):
                    device.wait(fork)
            # Each task on the stream of its lane; an edge between lanes is an event, by which layers wait for copies.
            for task in tasks:
                with device.on(self.streams[task.lane[1]]):
                    for number in task.after:
                        if number in own and own[number].lane != task.lane:
                            device.wait(events[number])
                    self.launch(task, blocks)
                    device.record(events[task.number])

        return device.capture(work)

    def launch(self, task: Task, blocks: Sequence[np.ndarray]) -> None:
        """What a task of IN_GRAPHS launches, on the current stream: the same for every batch."""
        if task.kind == Kind.COPY:
            self.weights.copy(task.stage, blocks[task.stage])
            return
        slot, stage = self.slots[task.slot], task.stage - self.first
        if task.kind == Kind.LAYER and stage == 0:
            launch_all(slot.arrive)
        launches = {Kind.LAYER: slot.through, Kind.COMPACT: slot.after}
        launch_all(launches[task.kind][stage] if task.kind in launches else slot.collect)


class Graphs:
    """The graphs of batches on devices, captured before a run.

    What a batch does on a device is the same for all batches, but for weights that the first of them may have to bring.
    """

    def __init__(self, cut: Decomposition, devices: Sequence[GraphDevice], blocks: Sequence[np.ndarray]):
        self.cut, self.devices, self.blocks = cut, devices, blocks
        self.captured: dict[tuple, Launch] = {}
        # Dry runs of the task graph on the host meet every graph that a run can need: with all batches joined, where no
        # rows are left of them, and with none. So nothing is captured on the clock.
        for rows in {0, cut.batch + 1} if cut.joined is not None else {0}:
            execution = Execution(cut)

            def captured(task: Task, tasks: Sequence[Task] = execution.graph.tasks, rows: int = rows) -> int:
                if self.begins(task):
                    self.of(self.part(tasks, task))
                return rows

            run_serially(execution, captured, lambda ready: ready[0])

    def of(self, tasks: Sequence[Task]) -> Launch:
        """The launch of the graph of these tasks, all of one batch on one device."""
        # Batches differ in numbers that are in device memory, so tasks of the same places have the same graph.
        key = tasks[0].device, tuple((task.kind, task.stage, task.slot, task.buffer) for task in tasks)
        if key not in self.captured:
            self.captured[key] = self.devices[tasks[0].device].capture(tasks, self.blocks)
        return self.captured[key]

    def begins(self, task: Task) -> bool:
        """Whether a graph begins with this layer task: the batch has just come, or may have been joined."""
        first = task.stage in (self.cut.range_of(task.device)[0], self.cut.joined)
        return task.kind == Kind.LAYER and first

    def part(self, tasks: Sequence[Task], first: Task) -> list[Task]:
        """All that a batch does on its device from that task on, with which a graph begins, until it may move or wait;
        and the copy that is only for the first."""

        def same(number: int, kinds: tuple[Kind, ...]) -> bool:
            task = tasks[number]
            return (task.batch, task.device) == (first.batch, first.device) and task.kind in kinds

        # The graph ends where the batch may be joined to others, for the host must then decide; and where it moves.
        joined = self.cut.joined
        begin = first.number - same(first.number - 1, (Kind.COPY,)) if first.number else 0
        end = first.number + 1
        while end < len(tasks) and same(end, IN_GRAPHS):
            if joined is not None and tasks[end].stage >= joined > first.stage:
                break
            end += 1
        return list(tasks[begin:end])
