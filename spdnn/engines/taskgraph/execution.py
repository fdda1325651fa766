"""Which task may run now. Executors and simulator share it, so that a simulation follows the order of a run."""

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

from spdnn.core.errors import SpdnnError
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.graph import COMPUTE, Graph, Kind, Task
from spdnn.kernels.dispatch import use_all_cores

Lane = tuple[int, str]  # of a task: its device, and which of the device's lanes
SIGNALS_SECONDS = 0.1  # between two checks for signals, where there is nothing to do


class Execution:
    """A graph on its way. Weights that stay are taken as there: their tasks are done before it begins.

    Attributes:
        graph: grows while batches are drawn or joined.
        left: tasks that exist and are not done.
    """

    def __init__(self, decomposition: Decomposition):
        self.graph = Graph(decomposition)
        self._done = {task.number for task in self.graph.tasks if task.batch is None}
        self._waiting: dict[int, int] = {}
        self._followers: dict[int, list[int]] = defaultdict(list)
        # Ready tasks of a lane are a heap by number: the order in which the graph made them is a sound one.
        self._ready: dict[Lane, list[int]] = defaultdict(list)
        self.left = 0
        self._know(self.graph.tasks[len(self._done) :])

    def ready(self) -> list[Task]:
        """All tasks that may run now, by their numbers."""
        return [self.graph.tasks[number] for number in sorted(n for lane in self._ready.values() for n in lane)]

    def take(self, lane: Lane) -> Task | None:
        """The first task of that lane that may run; it is then nobody else's. None: there is none now."""
        ready = self._ready[lane]
        return self.graph.tasks[heapq.heappop(ready)] if ready else None

    def take_task(self, task: Task) -> Task:
        """That task, which may run; it is then nobody else's."""
        ready = self._ready[task.lane]
        ready.remove(task.number)
        heapq.heapify(ready)
        return task

    def done(self, task: Task, rows: int | None = None) -> None:
        """The task is done: those that waited for nothing else may run. `rows`: as Graph.go_on takes them."""
        # Followers count the tasks that they wait for; the last of these makes them ready. Then the graph may grow.
        self._done.add(task.number)
        self.left -= 1
        for number in self._followers.pop(task.number, ()):
            self._waiting[number] -= 1
            if not self._waiting[number]:
                self._allow(self.graph.tasks[number])
        self._know(self.graph.go_on(task, rows))

    def _know(self, tasks: list[Task]) -> None:
        self.left += len(tasks)
        for task in tasks:
            pending = [number for number in task.after if number not in self._done]
            self._waiting[task.number] = len(pending)
            for number in pending:
                self._followers[number].append(task.number)
            if not pending:
                self._allow(task)

    def _allow(self, task: Task) -> None:
        heapq.heappush(self._ready[task.lane], task.number)


Work = Callable[[Task], int | None]  # does a task, and tells the rows that are left of its batch where joining asks


def run_serially(execution: Execution, work: Work, choose: Callable[[list[Task]], Task]) -> None:
    """Run all tasks one after the other, each time the one that `choose` picks of those that may run."""
    while execution.left:
        task = execution.take_task(choose(execution.ready()))
        execution.done(task, work(task))


def lanes_of(decomposition: Decomposition) -> list[Lane]:
    """The lanes that a run of this decomposition uses."""
    lanes = [(device, COMPUTE) for device in range(decomposition.devices)]
    if decomposition.streamed:
        lanes += [(device, Kind.COPY.value) for device in range(decomposition.devices)]
    moved_to = (device for device in range(decomposition.devices) if device % len(decomposition.ranges))
    return [*lanes, *((device, Kind.MOVE.value) for device in moved_to)]


def run_threads(execution: Execution, work: Work, lanes: Sequence[Lane], check: Callable[[], None]) -> None:
    """Run all tasks, each lane on a thread of its own, the first of them on the calling thread, which calls `check` now
    and then. What `work` or `check` raises first ends the run: tasks that have begun are waited for, no other
    begins."""
    news, errors = threading.Condition(), []

    def fail(error: BaseException) -> None:
        with news:
            errors.append(error)
            news.notify_all()

    def through(lane: Lane, calling: bool = False) -> None:
        try:
            if not calling:
                use_all_cores()
            while True:
                # Wait for a task of this lane. The calling thread wakes up now and then, for signals reach it alone.
                with news:
                    while (task := execution.take(lane)) is None and execution.left and not errors:
                        news.wait(SIGNALS_SECONDS if calling else None)
                        if calling:
                            check()
                if task is None or errors:
                    return
                if calling:
                    check()
                # The work itself holds no lock; its end may make tasks of any lane ready, so all are woken.
                rows = work(task)
                with news:
                    execution.done(task, rows)
                    news.notify_all()
        except BaseException as error:
            fail(error)  # the first one ends all lanes: each looks for it before it begins another task

    others = [threading.Thread(target=through, args=(lane,), name=f"{lane}", daemon=True) for lane in lanes[1:]]
    threads = []
    try:
        for other in others:
            other.start()
            threads.append(other)
    except RuntimeError as error:
        fail(SpdnnError(f"{len(lanes)} threads for the lanes of the task graph cannot be started: {error}"))
    through(lanes[0], calling=True)
    for other in threads:
        other.join()
    if errors:
        raise errors[0]
