"""The time of a decomposition, predicted: its tasks in order of events, each at its cost by the cost model.

Lanes are served as in the executors, for it asks the same `Execution`: batches that are drawn go to whoever is through
first. Devices that are parts of one machine's threads share its cores, so a task's speed changes whenever another
begins or ends. Nothing here was measured.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.locks import cached_property
from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import Execution, Lane
from spdnn.engines.taskgraph.graph import COMPUTE, LANES, Graph, Kind, Task
from spdnn.engines.taskgraph.timeline import Span, lane_seconds

PROBED_LAYERS = 32  # whose costs are measured at most; deeper ones are taken to be like the last of them
FIXED = "fixed costs of the run"
CLOSED = 1e-3  # relative drop of the row count between two layers that means gaps were closed in between


@dataclass(frozen=True)
class TaskCosts:
    """What tasks cost on one device, by the cost model.

    Attributes:
        work: of the whole inference; device: its rates hold for one device of the decomposition or, where devices share
            cores, for `device.threads` threads. Copies cost nothing where it has no rate of copies: weights are shared.
        messages: what rows cost that move between devices.
        seconds_per_task: of every task of layers, whatever it computes: a launch, or waking up the threads.
        compact_bytes_per_second: of rows that close up where others left; None: that costs nothing of its own.
        threads: of one device, where devices share cores; None: device.threads.
        waiting: for each thread beyond the first of a device, what it adds to the time of all that it shares out, as a
            part: threads wait at the ends of layers, and for what one of them does alone.
        row_shares: by number of batches, the part of the rows that each has, float64 (batches, layers), as
            `costs.official.official_shares` gives it; None: by size.
    """

    work: Work
    device: DeviceCosts
    messages: MessageCosts = FREE
    seconds_per_task: float = 0.0
    _: KW_ONLY
    compact_bytes_per_second: float | None = None
    threads: int | None = None
    waiting: float = 0.0
    row_shares: Callable[[int], np.ndarray | None] = field(default=lambda batches: None)

    def speed(self, cores: int, part: float = 1.0) -> float:
        """Of a device's computing, relative to the rates, when each of its threads has that part of a core."""
        threads, before = self.threads or self.device.threads, min(self.device.threads, cores)
        useful = (1 + (self.device.threads - 1) * self.waiting) / (1 + (threads - 1) * self.waiting)
        return threads * part / before * useful

    @cached_property
    def closed(self) -> np.ndarray:
        """Before which layers gaps have been closed, bool (layers,): fewer rows are computed than in the one before."""
        rows = self.work.rows
        return np.diff(rows, prepend=rows[:1]) < -CLOSED * rows

    def rows(self, decomposition: Decomposition) -> np.ndarray:
        """Rows of each batch at each layer, expected, float64 (batches, layers); they change where gaps are closed."""
        # Each batch has its part of the rows that were measured; merged rows shrink less than inputs do (Work.of).
        work, batches = self.work, decomposition.batches
        sizes = np.diff([decomposition.members(batch) for batch in range(batches)])[:, 0]
        shares = None if work.merged else self.row_shares(batches)
        if shares is None:
            kinds = {int(size): work.of(int(size)).rows for size in np.unique(sizes)}
            counts = np.array([kinds[int(size)] for size in sizes])
        else:
            # The order tells of equal parts; of two that are nearly equal, each has its part of their mean.
            counts = shares * work.rows * (sizes * batches / sizes.sum())[:, None]
        # Rows change only where gaps were closed: between two such layers dead rows are computed with the others.
        counts[:, 0] = sizes * work.rows[0] / work.inputs
        since = np.maximum.accumulate(np.where(self.closed, np.arange(work.layers), 0))
        kept = np.divide(work.rows, work.rows[since], out=np.ones(work.layers), where=work.rows[since] > 0)
        return np.minimum(counts[:, since] * kept, np.ceil(sizes * max(1.0, work.rows[0] / work.inputs))[:, None])

    def layers(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of each layer for so many rows (..., layers), with what each layer costs whatever it computes."""
        return self.device.layers(self.work, rows, streamed=False)

    def compacts(self, rows: np.ndarray) -> np.ndarray:
        """Seconds of closing gaps before each layer (..., layers): the rows that are left move."""
        if self.compact_bytes_per_second is None:
            return np.zeros(rows.shape)
        return np.where(self.closed, rows * self.work.row_bytes / self.compact_bytes_per_second, 0.0)


@dataclass(frozen=True)
class Simulated:
    """What is predicted.

    Attributes:
        seconds: of the run.
        timeline: every task, in the order in which they ended.
        parts: seconds by kind of task along the critical path of the simulated schedule; they add up to `seconds`.
        groups: of each batch, the group that it passed through.
        tasks: the graph that ran.
    """

    seconds: float
    timeline: tuple[Span, ...] = field(repr=False)
    parts: dict[str, float]
    groups: dict[int, int] = field(repr=False)
    tasks: tuple[Task, ...] = field(repr=False)

    @property
    def bound(self) -> str:
        """What takes most of the time of the critical path."""
        return max(self.parts, key=self.parts.__getitem__)

    @cached_property
    def busy(self) -> dict[Lane, float]:
        """Of each lane that did anything: the share of the run in which it did; it was idle in the rest."""
        lanes = sorted(lane_seconds(self.timeline).items())
        return {lane: seconds / self.seconds if self.seconds else 0.0 for lane, seconds in lanes}


def simulate(decomposition: Decomposition, costs: TaskCosts, cores: int | None = None) -> Simulated:
    """Run all tasks on paper.

    Args:
        cores: that the devices share, each with `costs.threads` threads, and with one for its copies and one for its
            moves; None: devices slow each other in nothing.

    Raises:
        InputError: costs of another number of layers or of inputs.
    """
    _check(decomposition, costs)
    execution, clock = Execution(decomposition), _Clock(decomposition, costs, cores)
    graph = execution.graph
    lanes = [(device, lane) for device in range(decomposition.devices) for lane in LANES]
    # Discrete events: every free lane begins its first ready task, and the clock goes on to the next end of one.
    while execution.left:
        for lane in lanes:
            if lane not in clock.running and (task := execution.take(lane)):
                clock.running[lane] = _Running(task, clock.seconds(task), clock.now)
        for task in clock.step():
            # As in a run, the rows that are left decide whether a batch is joined, and an end may let one be drawn.
            count, layer = len(graph.tasks), decomposition.stages[task.stage][1]
            rows = math.ceil(clock.rows[task.batch][layer]) if task.kind == Kind.COMPACT else None
            execution.done(task, rows)
            clock.add_joined(graph)
            clock.drew.update(dict.fromkeys(range(count, len(graph.tasks)), task.number))
    return Simulated(clock.now, tuple(clock.timeline), clock.parts(), dict(graph.groups), tuple(graph.tasks))


def least_seconds(decomposition: Decomposition, costs: TaskCosts, cores: int | None = None) -> float:
    """What no order of its tasks could be faster than: layers shared out evenly, or the copies of the first range."""
    _check(decomposition, costs)
    # Computing, shared out without a gap to all devices, at the speed of all of them at once.
    d, device = decomposition, costs.device
    speed = float(d.devices)
    if cores is not None:
        speed *= costs.speed(cores, min(1.0, cores / (d.devices * (costs.threads or device.threads))))
    computing = float(costs.layers(costs.rows(d)).sum()) / speed
    if not d.streamed:
        return computing
    # Copies: each batch of a group streams the first range anew, but for what the buffers held.
    stages = [costs.work.weight_bytes[slice(*d.stages[stage])].sum() for stage in range(*d.ranges[0])]
    anew = max(0.0, sum(stages) - d.buffers * max(stages))
    return max(computing, float(device.copy(anew)) * (d.batches // d.groups))


def _check(decomposition: Decomposition, costs: TaskCosts) -> None:
    if (decomposition.layers, decomposition.inputs) != (costs.work.layers, costs.work.inputs):
        raise InputError(
            f"costs of {costs.work.inputs} inputs through {costs.work.layers} layers, and a decomposition of "
            f"{decomposition.inputs} through {decomposition.layers}"
        )


@dataclass(slots=True)
class _Running:
    """A task that is on its way: `left` seconds of it, were nothing to slow it."""

    task: Task
    left: float
    began: float


class _Clock:
    """What runs now, how fast, and what is over."""

    def __init__(self, decomposition: Decomposition, costs: TaskCosts, cores: int | None):
        self.decomposition, self.costs, self.cores = decomposition, costs, cores
        self.now = costs.device.seconds_per_run
        self.running: dict[Lane, _Running] = {}
        self.timeline: list[Span] = []
        self.ended: dict[int, tuple[Task, float, float, int | None]] = {}  # by number: task, begin, end, predecessor
        self.before: dict[Lane, int] = {}  # of a lane: its last task
        self.drew: dict[int, int] = {}  # of a task of a batch that was drawn: the one whose end let it be drawn
        # Prefix sums over the layers: the seconds of any stage are then one difference.
        weights = np.append(0.0, np.cumsum(costs.device.copy(costs.work.weight_bytes)))
        self.weights = weights.tolist()
        self.layers: list[list[float]] = []  # of each batch: seconds of all layers before each
        self.compacts: list[list[float]] = []  # of each batch: seconds of closing gaps before each layer
        self.rows: list[list[float]] = []  # of each batch and layer
        for rows in costs.rows(decomposition):
            self._add(rows)

    def _add(self, rows: np.ndarray) -> None:
        """A batch more, of so many rows at each layer."""
        self.layers.append(np.append(0.0, np.cumsum(self.costs.layers(rows))).tolist())
        self.compacts.append(self.costs.compacts(rows).tolist())
        self.rows.append(rows.tolist())

    def add_joined(self, graph: Graph) -> None:
        """Add the joined batches new in the graph: the rows of their members; where rows merge, of as many inputs."""
        for members in list(graph.joined.values())[len(self.rows) - self.decomposition.batches :]:
            work = self.costs.work
            inputs = sum(last - first for first, last in map(self.decomposition.members, members))
            self._add(
                work.of(inputs).rows if work.merged else np.sum([self.rows[member] for member in members], axis=0)
            )

    def seconds(self, task: Task) -> float:
        """Of a task, were it alone."""
        d, costs = self.decomposition, self.costs
        first, last = d.stages[task.stage]
        # Layers and gaps at the rates of the device, weights at the rate of copies, rows at that of messages.
        if task.kind == Kind.LAYER:
            own = self.layers[task.batch]
            seconds = own[last] - own[first] + costs.seconds_per_task
            if first == 0:
                begin, end = d.members(task.batch)
                seconds += (end - begin) * costs.device.seconds_per_input
            return seconds
        if task.kind == Kind.COMPACT:
            return self.compacts[task.batch][last]
        if task.kind == Kind.COPY:
            return self.weights[last] - self.weights[first]
        if task.kind in (Kind.MOVE, Kind.PARK, Kind.JOIN):
            return costs.messages.message(self.rows[task.batch][last] * float(costs.work.row_bytes[last]))
        return 0.0

    def step(self) -> list[Task]:
        """Go on to the next end of a task; those that end then."""
        # Speed of each lane: whoever runs shares the cores evenly, so a speed holds until a task begins or ends.
        speeds = dict.fromkeys(LANES, 1.0)
        if self.cores is not None:
            threads = self.costs.threads or self.costs.device.threads
            needed = sum(threads if name == COMPUTE else 1 for (_, name), run in self.running.items() if run.left)
            part = min(1.0, self.cores / needed) if needed else 1.0
            speeds = dict.fromkeys(LANES, part) | {COMPUTE: self.costs.speed(self.cores, part)}
        # The next event is the earliest end at these speeds; all others have then done a part of their work.
        ends = {lane: run.left / speeds[lane[1]] for lane, run in self.running.items()}
        step = min(ends.values())
        self.now += step
        over = [lane for lane, end in ends.items() if end <= step * (1 + 1e-12)]
        for lane, run in self.running.items():
            run.left -= step * speeds[lane[1]]
        # Critical path: of all that a task waited for, what ended last is its predecessor on the chain (`parts`).
        tasks = []
        for lane in over:
            run = self.running.pop(lane)
            task = run.task
            predecessors = (*task.after, self.before.get(lane), self.drew.get(task.number))
            ready = [number for number in predecessors if number in self.ended]
            predecessor = max(ready, key=lambda number: self.ended[number][2], default=None)
            self.ended[task.number] = task, run.began, self.now, predecessor
            self.before[lane] = task.number
            self.timeline.append(Span.of(self.decomposition, task, run.began, self.now))
            tasks.append(task)
        return tasks

    def parts(self) -> dict[str, float]:
        """Seconds by kind of the tasks that each began when the one before it had ended, back from the last."""
        parts = {FIXED: self.costs.device.seconds_per_run} if self.costs.device.seconds_per_run else {}
        number = max(self.ended, key=lambda number: (self.ended[number][2], number), default=None)
        while number is not None:
            task, began, ended, number = self.ended[number]
            parts[task.kind.value] = parts.get(task.kind.value, 0.0) + ended - began
        return {name: seconds for name, seconds in parts.items() if seconds} or {Kind.LAYER.value: 0.0}
