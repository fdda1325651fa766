"""One run of a task graph on CUDA devices: each task enters its stream once those before it have.

The host does not wait for a task to be done before it issues the next; events make streams wait. So progress counts
batches whose last task was issued, and knows no rows. The host asks whether a task is done in
three cases only: before rows move on, for their number is then known; before it is decided whether they are joined to
others; and where several groups draw batches. With `graphs`, all that a batch does on a device in one go is one launch
of a graph; the tasks in it are issued with the first of its layers.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from spdnn.core import progress
from spdnn.core.endings import check_ended
from spdnn.core.errors import SpdnnError
from spdnn.core.result import KeptInputs
from spdnn.engines.taskgraph.cuda.device import IN_GRAPHS, GraphDevice, Graphs, Outcomes
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import Execution, Lane, lanes_of
from spdnn.engines.taskgraph.graph import COMPUTE, Kind, Task
from spdnn.engines.taskgraph.timeline import Span
from spdnn.kernels.cuda.device import Event

MOST_TIMED = 1 << 15  # tasks whose times are taken


class CudaGraphRun:
    """One run.

    Args:
        batches: pinned, as batch_table has them; outcomes: where batches leave theirs.
        blocks: pinned, of each stage, where weights are streamed; graphs: None: tasks are launched one by one.
        numbered: gives the numbers of inputs first..last-1.

    Attributes:
        slots: of each batch, the (device, slot) where it ended.
        values: of each batch, what `BufferSlot.finish` gave, where values are kept: the next batch overwrites them.
    """

    def __init__(
        self, cut: Decomposition, devices: Sequence[GraphDevice], batches: np.ndarray, outcomes: Outcomes,
        blocks: Sequence[np.ndarray], graphs: Graphs | None, keep: KeptInputs,
        numbered: Callable[[int, int], np.ndarray],
    ):  # fmt: skip
        self.cut, self.devices, self.batches, self.outcomes, self.blocks = cut, devices, batches, outcomes, blocks
        self.graphs, self.keep, self.numbered = graphs, keep, numbered
        self.execution = Execution(cut)
        self.slots: dict[int, tuple[int, int]] = {}
        self.values: dict[int, dict] = {}
        self._unmoved: dict[Lane, Task] = {}
        self._undone: list[Task] = []  # issued, and what comes next depends on when, or how, they end
        self._pool_rows: dict[int, int] = {}  # of a device: rows parked in its pool
        self._parked: dict[int, int] = {}  # of a batch that was joined to others, the first of its rows among theirs
        self._timed: list[tuple[Task, int, Event, Event]] = []  # task, last stage, before, after
        self._timed_on: Counter[int] = Counter()
        self._begun: dict[int, Event] = {}
        self.stage = progress.Stage(progress.inference_name(), cut.batches, "issued batch")

    def run(self) -> None:
        """Issue all tasks, and wait."""
        # All streams of a device begin after one event, which its timeline is measured from.
        for number, owner in enumerate(self.devices):
            origin = self._begun[number] = owner.device.event(timed=True)
            owner.device.record(origin)
            for stream in owner.streams.values():
                with owner.device.on(stream):
                    owner.device.wait(origin)
        lanes = lanes_of(self.cut)
        try:
            # Polling: tasks are issued as soon as those before them are; the host never waits for the work itself.
            with self.stage:
                while self.execution.left:
                    went_on = [self._go_on(), *(self._next(lane) for lane in lanes)]
                    if not any(went_on):
                        check_ended()
                        time.sleep(0)
                for owner in self.devices:
                    owner.device.synchronize()
        except BaseException:
            # What is still on its way reads and writes memory that another session may get next.
            for owner in self.devices:
                with suppress(SpdnnError):  # what was wrong before is the one to tell
                    owner.device.synchronize()
            raise

    def spans(self) -> list[Span]:
        """What happened when, of all tasks that were timed, by the clocks of their devices."""
        spans = []
        for task, last, before, after in self._timed:
            device, lane = task.lane
            clock, origin = self.devices[device].device, self._begun[device]
            layers = self.cut.stages[task.stage][0], self.cut.stages[last][1]
            times = clock.elapsed(origin, before), clock.elapsed(origin, after)
            spans.append(Span(device, lane, task.kind.value, task.batch, *layers, *times))
        return spans

    def _next(self, lane: Lane) -> bool:
        """Issue the lane's next task, if there is one that can be; whether there was."""
        task = self._unmoved.pop(lane, None) or self.execution.take(lane)
        if task is None:
            return False
        # A move waits on the host until it is known how many rows it brings.
        if task.kind == Kind.MOVE and not self._count_known(task):
            self._unmoved[lane] = task
            return False
        self._issue(task)
        # Issued is done, for streams keep the order, unless what comes next depends on when or how the task ends.
        drawn = self.cut.drawn and self.cut.groups > 1
        if self._rows_decide_next(task) or (drawn and task.kind in (Kind.MOVE, Kind.COLLECT)):
            self._undone.append(task)
        else:
            self.execution.done(task)
        return True

    def _rows_decide_next(self, task: Task) -> bool:
        """Whether the rows that are left after this task decide what comes next."""
        return task.kind == Kind.COMPACT and task.stage + 1 == self.cut.joined

    def _count_known(self, task: Task) -> bool:
        """Whether the host knows how many rows a move has to bring."""
        # A batch moves after its gaps were closed, and the counters of that task come to the host with its event.
        after = (self.execution.graph.tasks[number] for number in task.after)
        source = next(earlier for earlier in after if (earlier.kind, earlier.batch) == (Kind.COMPACT, task.batch))
        return self.devices[source.device].event(source).done()

    def _go_on(self) -> bool:
        """Let batches and groups go on that wait for the host to know that a task is done; whether there were any."""
        done = [task for task in self._undone if self._owner(task).event(task).done()]
        for task in done:
            self._undone.remove(task)
            self.execution.done(task, self._owner(task).rows_after(task) if self._rows_decide_next(task) else None)
        return bool(done)

    def _owner(self, task: Task) -> GraphDevice:
        """The device on whose stream a task is."""
        return self.devices[task.lane[0]]

    def _issue(self, task: Task) -> None:
        owner = self._owner(task)
        device, stream = owner.device, owner.streams[task.lane[1]]
        captured = self.graphs and task.kind in IN_GRAPHS
        # Copies of a graph are in it; its other tasks are launched with the first of its layers.
        if captured and task.kind == Kind.COPY:
            return
        with device.on(stream):
            for number in task.after:
                self._wait(owner, task, self.execution.graph.tasks[number])
            if not captured:
                self._timing(task, task.stage, lambda: self._launch(owner, task))
            elif self.graphs.begins(task):
                part = self.graphs.part(self.execution.graph.tasks, task)
                owner.before(task, self.batches)
                self._timing(task, part[-1].stage, self.graphs.of(part))
            if task.kind in (Kind.COMPACT, Kind.COLLECT):
                owner.after(task, self.outcomes)
            # Events: only for tasks that another lane, or the host, may wait for; of layers, where copies do.
            reads_weights = task.kind == Kind.LAYER and self.cut.streamed and not self.graphs
            if reads_weights or owner.needs_count(task) or task.kind in (Kind.COPY, Kind.MOVE, Kind.COLLECT):
                device.record(owner.event(task))
        if task.kind == Kind.COLLECT:
            self._collect_rows(owner, task)

    def _wait(self, owner: GraphDevice, task: Task, before: Task) -> None:
        """Let the task's stream wait for one that is before it, where that is on another."""
        preloaded = before.batch is None
        in_graph = self.graphs and before.kind == Kind.COPY
        if not (preloaded or in_graph or before.lane == task.lane):
            owner.device.wait(self._owner(before).event(before))

    def _launch(self, owner: GraphDevice, task: Task) -> None:
        if task.kind == Kind.MOVE:
            owner.receive(task.target[1], self.devices[task.device], task.slot)
        elif task.kind == Kind.PARK:
            first = self._pool_rows.get(task.device, 0)
            self._pool_rows[task.device] = first + owner.rows_after(task)
            self.slots[task.batch], self._parked[task.batch] = (task.device, task.slot), first
            owner.park(task, first, self.outcomes)
            self.stage.advance()
        elif task.kind == Kind.JOIN:
            self.batches[task.batch, 1] = self._pool_rows.pop(task.device, 0)
            owner.join(task, self.batches)
        else:
            owner.before(task, self.batches)
            check_ended()
            owner.launch(task, self.blocks)

    def _timing(self, task: Task, last: int, work) -> None:
        """Call `work` between two events, of the stages from the task's to `last`."""
        if len(self._timed) >= MOST_TIMED:
            work()
            return
        owner = self._owner(task)
        device, (before, after) = owner.device, owner.timing_events(self._timed_on[owner.number])
        self._timed_on[owner.number] += 1
        device.record(before)
        work()
        device.record(after)
        self._timed.append((task, last, before, after))

    def _collect_rows(self, owner: GraphDevice, task: Task) -> None:
        self.slots[task.batch] = task.device, task.slot
        self.stage.advance()
        if self.keep:
            owner.event(task).synchronize()
            self.values[task.batch] = self._finish_batch(task.batch)

    def parts(self) -> list[tuple[np.ndarray, dict]]:
        """Of each batch, the numbers of its inputs and its outcome, as KernelPlan.result takes them."""
        # Joined batches: each input has the row of its own row among those of the joined batch; counters stay apart.
        outcomes = {batch: self.values.get(batch) or self._finish_batch(batch) for batch in sorted(self.slots)}
        parts = []
        for batch in range(self.cut.batches):
            outcome = outcomes[batch]
            if batch in self._parked:
                joined = next(first for first, others in self.execution.graph.joined.items() if batch in others)
                row_of, own = np.full(outcome["row_of"].size, -1), ("survivors", "work", "merged", "failed")
                alive = np.flatnonzero(outcome["row_of"] >= 0)
                row_of[alive] = outcomes[joined]["row_of"][self._parked[batch] + outcome["row_of"][alive]]
                outcome = {**outcomes[joined], "row_of": row_of, **{name: outcome[name] for name in own}}
            parts.append((self.numbered(*self.cut.members(batch)), outcome))
        none = np.empty(0, np.int64)
        return parts + [(none, {**outcomes[batch], "row_of": none}) for batch in self.execution.graph.joined]

    def _finish_batch(self, batch: int) -> dict:
        """The outcome of a batch, as BufferSlot.finish has it."""
        (device, number), outcomes = self.slots[batch], self.outcomes
        slot, count = self.devices[device].slots[number], int(self.batches[batch, 1])
        outcome = slot.rows.outcome(
            outcomes.counters[batch], outcomes.row_of[batch][:count], outcomes.statistics[batch]
        )
        numbers, keep = np.arange(count), self.keep
        if batch in self._parked:
            keep = KeptInputs()  # its rows are among those of a joined batch
        elif batch in self.execution.graph.joined:
            keep = KeptInputs(bool(keep))  # of all rows: whose inputs they are is known when all batches are through
        else:
            numbers = self.numbered(*self.cut.members(batch))
        return slot.finish(outcome, keep, numbers)


def copies_hidden(spans: Sequence[Span]) -> float | None:
    """The share of the seconds of copies of weights in which their device was computing; None without copies."""
    whole = within = 0.0
    for device in {span.device for span in spans}:
        own = [span for span in spans if span.device == device]
        copies = np.array([(span.begin, span.end) for span in own if span.lane == Kind.COPY.value]).reshape(-1, 2)
        # Tasks of one stream follow each other: the seconds computed until a time are a piecewise linear function.
        ends = np.sort([(span.begin, span.end) for span in own if span.lane == COMPUTE], axis=0)
        if len(copies) and len(ends):
            computed = np.stack([np.zeros(len(ends)), ends[:, 1] - ends[:, 0]], axis=1).ravel().cumsum()
            within += float(np.diff(np.interp(copies, ends.ravel(), computed)).sum())
        whole += float(np.diff(copies).sum())
    return within / whole if whole else None
