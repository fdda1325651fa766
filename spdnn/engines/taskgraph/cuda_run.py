"""One run of a task graph on CUDA devices: tasks are given to their streams as soon as those before them have been.

The host does not wait for a task to be done before it issues the next; events make streams wait. It looks whether
something is done in two cases only: before rows move on, for how many there are is then known, and where several groups
draw batches. With `captured`, all that a batch does on a device is one launch of a graph; tasks in it are issued with
the first layer of the batch there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from spdnn import progress
from spdnn.engines.taskgraph.cuda_device import GraphDevice, Told
from spdnn.files import check_ended
from spdnn.kernels.cuda.device import Event
from spdnn.taskgraph import Decomposition, Kind, Task
from spdnn.taskgraph.execution import Execution, Lane, lanes_of
from spdnn.taskgraph.timeline import Span

MOST_TIMED = 1 << 15  # tasks whose times are taken


class Graphs:
    """The graphs of batches on devices, captured when they are first asked for.

    What a batch does on a device is the same for all batches, but for weights that the first of them may have to bring.
    """

    def __init__(self, devices: Sequence[GraphDevice], blocks: Sequence[np.ndarray]):
        self.devices, self.blocks = devices, blocks
        self._held: dict[tuple, object] = {}

    def of(self, tasks: Sequence[Task]):
        """The launch of the graph of these tasks, all of one batch on one device."""
        key = tasks[0].device, tuple((task.kind, task.stage, task.place, task.buffer) for task in tasks)
        if key not in self._held:
            self._held[key] = self.devices[tasks[0].device].capture(tasks, self.blocks)
        return self._held[key]

    def prepare(self, cut: Decomposition) -> None:
        """Capture all that a run will ask for: weights have settled when each place has had two batches."""
        execution = Execution(cut)
        graph = execution.graph
        for batch in range(len(graph.groups), min(cut.batches, 2 * cut.places * cut.groups)):
            graph.add(batch, batch % cut.groups)
        for task in graph.tasks[len(execution.preloaded) :]:
            if first_here(cut, task):
                self.of(on_device(graph.tasks, task))


def first_here(cut: Decomposition, task: Task) -> bool:
    """Whether this is the first layer task of a batch on its device."""
    return task.kind == Kind.LAYER and task.stage == cut.range_of(task.device)[0]


def on_device(tasks: Sequence[Task], first: Task) -> list[Task]:
    """All tasks of a batch on the device of its first layer task there, in order, without the moves."""

    def same(number: int) -> bool:
        task = tasks[number]
        return (task.batch, task.device) == (first.batch, first.device) and task.kind != Kind.MOVE

    begin = end = first.number
    while begin and same(begin - 1):
        begin -= 1
    while end < len(tasks) and same(end):
        end += 1
    return list(tasks[begin:end])


class Going:
    """One run.

    Args:
        batches: pinned, as batches_told has them; told: where batches tell what became of them.
        blocks: pinned, of each stage, where weights are streamed; graphs: None: tasks are launched one by one.

    Attributes:
        places: of each batch, the (device, place) where it ended.
        values: of each batch, what `Place.finish` gave, where values are kept: the next batch overwrites them.
    """

    def __init__(
        self,
        cut: Decomposition,
        devices: Sequence[GraphDevice],
        batches: np.ndarray,
        told: Told,
        blocks: Sequence[np.ndarray],
        graphs: Graphs | None,
        keep_values: bool = False,
    ):
        self.cut, self.devices, self.batches, self.told, self.blocks = cut, devices, batches, told, blocks
        self.graphs, self.keep_values = graphs, keep_values
        self.execution = Execution(cut)
        self.places: dict[int, tuple[int, int]] = {}
        self.values: dict[int, dict] = {}
        self._unmoved: dict[Lane, Task] = {}
        self._undone: list[Task] = []  # tasks that may let a group draw
        self._timed: list[tuple[Task, int, Event, Event]] = []  # task, last stage, before, after
        self._begun: dict[int, Event] = {}
        self.advance, self.close = progress.ticker("inference", cut.batches, " batches")

    def run(self) -> None:
        """Issue all tasks, and wait."""
        for number, one in enumerate(self.devices):
            begun = self._begun[number] = one.device.event(timed=True)
            one.device.record(begun)
            for stream in one.streams.values():
                with one.device.on(stream):
                    one.device.wait(begun)
        lanes = lanes_of(self.cut)
        try:
            while not self.execution.finished:
                issued = [self._next(lane) for lane in lanes]
                if not (any(issued) or self._drawn()):
                    check_ended()
                    time.sleep(0)
            for one in self.devices:
                one.device.synchronize()
        finally:
            self.close()

    def spans(self) -> list[Span]:
        """What happened when, of all tasks that were timed, by the clocks of their devices."""
        found = []
        for task, last, before, after in self._timed:
            device, lane = task.lane
            clock, begun = self.devices[device].device, self._begun[device]
            layers = self.cut.stages[task.stage][0], self.cut.stages[last][1]
            times = clock.elapsed(begun, before), clock.elapsed(begun, after)
            found.append(Span(device, lane, task.kind.value, task.batch, *layers, *times))
        return found

    def _next(self, lane: Lane) -> bool:
        """Issue the lane's next task, if there is one that can be; whether there was."""
        task = self._unmoved.pop(lane, None) or self.execution.take(lane)
        if task is None:
            return False
        if task.kind == Kind.MOVE and not self._counted(task):
            self._unmoved[lane] = task
            return False
        self._issue(task)
        frees = task.kind in (Kind.MOVE, Kind.COLLECT)
        if frees and self.cut.drawn and self.cut.groups > 1:
            self._undone.append(task)
        else:
            self.execution.done(task)
        return True

    def _counted(self, task: Task) -> bool:
        """Whether the host knows how many rows a move has to bring."""
        before = self.execution.graph.tasks[max(task.after, key=lambda number: self._is_source(task, number))]
        return self.devices[before.device].event(before).done()

    def _is_source(self, move: Task, number: int) -> bool:
        task = self.execution.graph.tasks[number]
        return task.kind == Kind.COMPACT and (task.batch, task.device) == (move.batch, move.device)

    def _drawn(self) -> bool:
        """Let groups draw whose tasks are done; whether there were any."""
        done = [task for task in self._undone if self._owner(task).event(task).done()]
        for task in done:
            self._undone.remove(task)
            self.execution.done(task)
        return bool(done)

    def _owner(self, task: Task) -> GraphDevice:
        """The device on whose stream a task is."""
        return self.devices[task.lane[0]]

    def _issue(self, task: Task) -> None:
        owner = self._owner(task)
        device, stream = owner.device, owner.streams[task.lane[1]]
        held = self.graphs and task.kind != Kind.MOVE  # in a graph
        if held and task.kind == Kind.COPY:
            return
        with device.on(stream):
            for number in task.after:
                self._wait(owner, task, self.execution.graph.tasks[number])
            if not held:
                self._timing(task, task.stage, lambda: self._launch(owner, task))
            elif first_here(self.cut, task):
                replay = self.graphs.of(on_device(self.execution.graph.tasks, task))
                owner.before(task, self.batches)
                self._timing(task, owner.last - 1, replay)
            if task.kind in (Kind.COMPACT, Kind.COLLECT):
                owner.after(task, self.told)
            if self._crosses(owner, task):
                device.record(owner.event(task))
        if task.kind == Kind.COLLECT:
            self._collected(owner, task)

    def _wait(self, owner: GraphDevice, task: Task, before: Task) -> None:
        """Let the task's stream wait for one that is before it, where that is on another."""
        preloaded = before.batch is None
        in_graph = self.graphs and before.kind == Kind.COPY
        if not (preloaded or in_graph or before.lane == task.lane):
            owner.device.wait(self._owner(before).event(before))

    def _crosses(self, owner: GraphDevice, task: Task) -> bool:
        """Whether a task of another lane, or the host, may wait for this one."""
        if task.kind == Kind.LAYER:
            return self.cut.streamed and not self.graphs
        return task.kind != Kind.COMPACT or owner.leaves(task)

    def _launch(self, owner: GraphDevice, task: Task) -> None:
        if task.kind == Kind.MOVE:
            owner.receive(task.target[1], self.devices[task.device], task.place)
            return
        owner.before(task, self.batches)
        owner.launch(task, self.blocks, check_ended)

    def _timing(self, task: Task, last: int, work) -> None:
        """Call `work` between two events, of the stages from the task's to `last`."""
        if len(self._timed) >= MOST_TIMED:
            work()
            return
        device = self._owner(task).device
        before, after = device.event(timed=True), device.event(timed=True)
        device.record(before)
        work()
        device.record(after)
        self._timed.append((task, last, before, after))

    def _collected(self, owner: GraphDevice, task: Task) -> None:
        self.places[task.batch] = task.device, task.place
        self.advance(1)
        if self.keep_values:
            owner.event(task).synchronize()
            self.values[task.batch] = self.finished(task.batch)

    def finished(self, batch: int) -> dict:
        """What a batch told, as Place.finish has it."""
        device, number = self.places[batch]
        place, (first, last) = self.devices[device].places[number], self.cut.members(batch)
        told = self.told
        found = place.rows.told(told.counters[batch], told.row_of[batch][: last - first], told.found[batch])
        return place.finish(found, self.keep_values)


def busy(spans: Sequence[Span]) -> dict[str, dict[str, float]]:
    """Seconds that tasks took, by device and lane."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for span in spans:
        lanes = found[str(span.device)]
        lanes[span.lane] = lanes.get(span.lane, 0.0) + span.end - span.begin
    return dict(found)
