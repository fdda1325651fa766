"""The tasks of an inference and what each waits for.

    copy-weights  a stage's weights into a buffer of a device       after the last reader of what the buffer held
    layer         a batch through the layers of a stage             after its weights, and the batch's task before it
    compact       rows that died or became equal leave              after the layers
    move          a batch from a device to the next                 after what is before it, when the next has a slot
    park          the few rows that are left of a batch wait in the device's pool, and its slot is free
    join          all that waits in the pool takes a slot, and goes on as one batch
    collect       the outcome of a batch's last rows, to the host

Tasks are numbered as they come, and wait for earlier ones alone: there is no cycle. A decomposition whose
batches are drawn or joined grows while it runs (`go_on`); what has run is a graph like any other. That a graph is sound
in every order is proved by tests/engines/taskgraph/graph_check.py.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from spdnn.engines.taskgraph.decomposition import Decomposition


class Kind(StrEnum):
    COPY = "copy-weights"
    LAYER = "layer"
    COMPACT = "compact"
    MOVE = "move"
    PARK = "park"
    JOIN = "join"
    COLLECT = "collect"


COMPUTE = "compute"  # the lane of what is computed; copies and moves overlap with it on lanes of their own
LANES = (COMPUTE, Kind.COPY.value, Kind.MOVE.value)


@dataclass(frozen=True, slots=True)
class Task:
    """One node.

    Attributes:
        number: its index in Graph.tasks.
        batch: 0-based, those that were joined after the others; None: weights that stay, there before the run begins.
        stage: whose weights or layers; of the other kinds, the stage that has just been computed.
        device: where it happens; of a move, where the batch comes from.
        buffer: of weights, that a copy fills or a layer reads; None for the other kinds.
        slot: of the batch's features on the device; None for copies.
        target: (device, slot) that a move goes to; None for the other kinds.
        after: numbers of tasks that must be done before.
    """

    number: int
    kind: Kind
    batch: int | None
    stage: int
    device: int
    buffer: int | None
    slot: int | None
    target: tuple[int, int] | None
    after: tuple[int, ...]

    @property
    def lane(self) -> tuple[int, str]:
        """(device, lane): tasks of one lane follow each other, those of different lanes go on at once. A move has the
        lane of its target, whose slots say when."""
        if self.kind == Kind.MOVE:
            return self.target[0], Kind.MOVE.value
        return self.device, Kind.COPY.value if self.kind == Kind.COPY else COMPUTE


class _Device:
    """A device while tasks are added for it."""

    def __init__(self, slots: int):
        self.content: dict[int, int] = {}  # of a buffer: the stage
        self.filled: dict[int, int] = {}  # of a buffer: the task that filled it
        self.readers: dict[int, list[int]] = {}  # of a buffer: the tasks that read what it holds
        self.left: list[int | None] = [None] * slots  # of a slot: the task with which the last batch left it
        self.arrived = 0  # batches that came to a slot of it, one after the other


@dataclass
class _Pool:
    """What waits on a group's device to be joined: batches, the tasks that parked them, and their rows."""

    batches: list[int] = field(default_factory=list)
    parked: list[int] = field(default_factory=list)
    rows: int = 0


class Graph:
    """Tasks of a decomposition: those of weights that stay, then of every batch, where it is known before anything has
    run; others are added by `go_on`.

    Attributes:
        tasks: in an order in which they could run.
        groups: of each batch that was added, in that order, the group that it passes through.
        joined: of each batch that others were joined to, their numbers.
    """

    def __init__(self, decomposition: Decomposition):
        self.decomposition = decomposition
        self.tasks: list[Task] = []
        self.groups: dict[int, int] = {}
        self.joined: dict[int, list[int]] = {}
        self._pools = [_Pool() for _ in range(decomposition.groups)]
        self._left = list(range(decomposition.batches))
        self._devices = [_Device(decomposition.slots) for _ in range(decomposition.devices)]
        if not decomposition.streamed:
            for device in range(decomposition.devices):
                for stage in range(*decomposition.range_of(device)):
                    self._weights(None, device, stage)
        groups, batches = decomposition.groups, decomposition.batches
        for batch in range(min(groups, batches) if decomposition.dynamic else batches):
            self._add(batch, batch % groups)

    def _add(self, batch: int, group: int) -> None:
        """Add the tasks of a batch that passes through that group; as far as the graph says where it goes."""
        # The batch goes from device to device of its group's pipeline; beyond the stage where it may be joined to
        # others nothing is known yet, so its tasks end there.
        before, self.groups[batch] = None, group
        self._left.remove(batch)
        for position, (first, last) in enumerate(self.decomposition.ranges):
            device, last = self.decomposition.device(group, position), self.decomposition.joined or last
            before = self._through(batch, device, range(first, last), before)

    def go_on(self, done: Task, rows: int | None = None) -> list[Task]:
        """The tasks that follow `done`: of the batch, where it may be joined to others, for which its `rows` that are
        left must be known; and of the next."""
        number, d = len(self.tasks), self.decomposition
        joins = d.joined is not None and (done.kind, done.stage) == (Kind.COMPACT, d.joined - 1)
        ends = d.dynamic and done.kind in (Kind.COLLECT, Kind.PARK, Kind.MOVE) and done.device % len(d.ranges) == 0
        if not (joins or ends):
            return []
        group = self.groups[done.batch]
        pool = self._pools[group]
        if joins and (2 * rows > d.batch or pool.rows + rows > d.batch):
            # Alone: a batch that filled half a slot, or does not fit with those that wait, gains nothing by waiting.
            self._through(done.batch, done.device, range(d.joined, len(d.stages)), done)
        elif joins:
            # Park: the rows wait in the pool, so that their slot is free for the next batch.
            parked = self._task(Kind.PARK, done.batch, done.stage, done.device, None, done.slot, [done.number])
            self._devices[done.device].left[done.slot] = parked.number
            pool.rows += rows
            pool.batches.append(done.batch)
            pool.parked.append(parked.number)
        elif (batch := next((b for b in self._left if d.drawn or b % d.groups == group), None)) is not None:
            # Next batch of the group: whichever comes first where batches are drawn, else of those dealt out to it.
            self._add(batch, group)
        elif pool.batches:
            # Join: no batch is left to fill the pool, so all that waits goes on as one, in the first slot.
            batch, device = d.batches + len(self.joined), d.device(group, 0)
            self.groups[batch], self.joined[batch] = group, pool.batches
            state = self._devices[device]
            waits = [*pool.parked, *(left for left in [state.left[0]] if left is not None)]
            before = self._task(Kind.JOIN, batch, d.joined - 1, device, None, 0, waits)
            self._pools[group] = _Pool()
            self._through(batch, device, range(d.joined, len(d.stages)), before)
        return self.tasks[number:]

    def _through(self, batch: int, device: int, stages: range, before: Task | None) -> Task:
        """A batch through a device's stages, to its last task; `before`: its last so far, on the one before or here."""
        state = self._devices[device]
        if before is not None and before.device == device:
            slot, waits = before.slot, [before.number]
        else:
            # Slots are taken in turn, each when the batch before has left it; a move waits for that too.
            slot = state.arrived % self.decomposition.slots
            state.arrived += 1
            waits = [] if state.left[slot] is None else [state.left[slot]]
            if before is not None:
                waits, place = [*waits, before.number], (before.stage, before.device, None, before.slot)
                move = self._task(Kind.MOVE, batch, *place, waits, (device, slot))
                self._devices[before.device].left[before.slot] = move.number
                waits = [move.number]
        # Each stage: weights are there, the batch passes its layers, dead and equal rows leave, but after the last.
        for stage in stages:
            filled = self._weights(batch, device, stage)
            buffer = self.decomposition.buffer_of(device, stage)
            before = self._task(Kind.LAYER, batch, stage, device, buffer, slot, [filled, *waits])
            state.readers[buffer].append(before.number)
            if stage + 1 < len(self.decomposition.stages):
                before = self._task(Kind.COMPACT, batch, stage, device, None, slot, [before.number])
            waits = [before.number]
        if stages[-1] + 1 == len(self.decomposition.stages):
            before = self._task(Kind.COLLECT, batch, stages[-1], device, None, slot, waits)
            state.left[slot] = before.number
        return before

    def _weights(self, batch: int | None, device: int, stage: int) -> int:
        """The number of the task that brings a stage's weights to its buffer: a new one, unless they are there."""
        state, buffer = self._devices[device], self.decomposition.buffer_of(device, stage)
        # A buffer is filled again only when all readers of what it held are done. They have waited for whatever filled
        # it, so the copy need not.
        if state.content.get(buffer) != stage:
            copy = self._task(Kind.COPY, batch, stage, device, buffer, None, state.readers.get(buffer, []))
            state.content[buffer], state.filled[buffer], state.readers[buffer] = stage, copy.number, []
        return state.filled[buffer]

    def _task(self, kind: Kind, batch, stage, device, buffer, slot, after, target=None) -> Task:
        task = Task(len(self.tasks), kind, batch, stage, device, buffer, slot, target, tuple(sorted(set(after))))
        self.tasks.append(task)
        return task
