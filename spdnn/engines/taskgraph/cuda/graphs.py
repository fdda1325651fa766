"""What batches do on a device, captured as CUDA graphs before a run.

One launch then does all of it, for batches of any size.
"""

from collections.abc import Sequence

import numpy as np

from spdnn.engines.cuda.buffers import Launch
from spdnn.engines.taskgraph.cuda.device import GraphDevice
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import Execution, run_serially
from spdnn.engines.taskgraph.graph import Kind, Task

IN_GRAPHS = (Kind.COPY, Kind.LAYER, Kind.COMPACT, Kind.COLLECT)


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
