"""What must hold of a graph, whatever order its tasks run in: found by looking at tasks and edges alone.

* every batch goes through every layer exactly once and in order, on one device after the other;
* a buffer is not filled again before its last reader is done, and a layer reads the weights of its own stage;
* a slot of a device holds one batch at a time, and what waits in its pool is joined once;
* nothing waits for itself, so something can always run.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.graph import Kind, Task


def wrong(decomposition: Decomposition, tasks: Sequence[Task]) -> list[str]:
    """One sentence for each thing that is wrong with these tasks; none where all is well."""
    forward = [task for task in tasks if any(not 0 <= number < task.number for number in task.after)]
    if forward or [task.number for task in tasks] != list(range(len(tasks))):
        return [f"{_named(task)} waits for a task that is not before it" for task in forward] or ["numbers have gaps"]
    order = _Order(tasks)
    return [
        *_batches(decomposition, tasks, order),
        *_buffers(tasks, order),
        *_places(tasks, order),
        *_pools(tasks, order),
    ]


class _Order:
    """Which tasks must be done before which, as sets of bits."""

    def __init__(self, tasks: Sequence[Task]):
        self.before = [0] * len(tasks)
        after = [0] * len(tasks)
        for task in tasks:
            for number in task.after:
                self.before[task.number] |= self.before[number] | 1 << number
        for task in reversed(tasks):
            for number in task.after:
                after[number] |= after[task.number] | 1 << task.number
        self.ordered = [one | other for one, other in zip(self.before, after, strict=True)]

    def first(self, earlier: Task, later: Task) -> bool:
        """Whether `later` must wait for `earlier`."""
        return bool(self.before[later.number] >> earlier.number & 1)

    def unordered(self, task: Task, others: Iterable[Task]) -> list[Task]:
        """Those of the others that could run before the task and after it."""
        return [other for other in others if other is not task and not self.ordered[task.number] >> other.number & 1]


def _batches(decomposition: Decomposition, tasks: Sequence[Task], order: _Order) -> list[str]:
    found, of_batch, joined = [], defaultdict(list), decomposition.joined
    for task in tasks:
        if task.batch is not None and task.kind != Kind.COPY:
            of_batch[task.batch].append(task)
    given = [batch for batch in sorted(of_batch) if batch < decomposition.batches]
    if given != list(range(decomposition.batches)):
        found.append(f"batches {given[:5]} are computed, and there are {decomposition.batches}")
    for batch, chain in of_batch.items():
        stages = [task.stage for task in chain if task.kind == Kind.LAYER]
        parked = chain[-1].kind == Kind.PARK
        first, last = joined if batch >= decomposition.batches else 0, joined if parked else len(decomposition.stages)
        if stages != list(range(first or 0, last or 0)):
            found.append(f"batch {batch} goes through the stages {stages[:8]}, not through each once and in order")
        ends = [task.number for task in chain if task.kind in (Kind.COLLECT, Kind.PARK)]
        if ends != [chain[-1].number]:
            found.append(f"batch {batch} is not collected once, at its end")
        begins = [task.number for task in chain if task.kind == Kind.JOIN]
        if begins != ([chain[0].number] if batch >= decomposition.batches else []):
            found.append(f"batch {batch} is joined of others, or not, in another slot than its beginning")
        for earlier, later in zip(chain, chain[1:], strict=False):
            if not order.first(earlier, later):
                found.append(f"{_named(later)} does not wait for {_named(earlier)}")
            if (earlier.target or (earlier.device, earlier.slot)) != (later.device, later.slot):
                found.append(f"{_named(later)} is not where {_named(earlier)} left the batch")
    return found


def _pools(tasks: Sequence[Task], order: _Order) -> list[str]:
    """What waits in a pool is joined once, by a task that waits for all of it."""
    found = []
    for device in {task.device for task in tasks}:
        joins = [task for task in tasks if task.kind == Kind.JOIN and task.device == device]
        for task in tasks:
            if task.kind == Kind.PARK and task.device == device:
                after = [join for join in joins if order.first(task, join)]
                if not after:
                    found.append(f"{_named(task)} is joined to nothing")
                found += _either(task, joins, order)
        found += [f"{_named(join)} joins nothing new" for join in joins[1:]]
    return found


def _buffers(tasks: Sequence[Task], order: _Order) -> list[str]:
    found, users = [], defaultdict(list)
    for task in tasks:
        if task.buffer is not None:
            users[task.device, task.buffer].append(task)
    for using in users.values():
        copies = [task for task in using if task.kind == Kind.COPY]
        for copy in copies:
            found += _either(copy, using, order)
        for layer in using:
            if layer.kind == Kind.LAYER:
                filled = [copy for copy in copies if order.first(copy, layer)]
                if not filled or filled[-1].stage != layer.stage:
                    there = f"stage {filled[-1].stage}" if filled else "nothing"
                    found.append(f"{_named(layer)} finds {there} in buffer {layer.buffer}")
    return found


def _places(tasks: Sequence[Task], order: _Order) -> list[str]:
    found, users = [], defaultdict(list)
    for task in tasks:
        if task.slot is not None:
            users[task.device, task.slot].append(task)
        if task.target is not None:
            users[task.target].append(task)
    for (device, slot), using in users.items():
        met = []
        for task in using:
            if not met or met[-1] != task.batch:
                met.append(task.batch)
            others = (other for other in using if other.batch != task.batch)
            for other in order.unordered(task, others):
                found.append(f"{_named(other)} and {_named(task)} share slot {slot} of device {device} unordered")
        if len(set(met)) < len(met):
            found.append(f"slot {slot} of device {device} holds several batches at a time: {met[:8]}")
    return found


def _either(task: Task, others: Iterable[Task], order: _Order) -> list[str]:
    return [f"{_named(other)} and {_named(task)}: either could be first" for other in order.unordered(task, others)]


def _named(task: Task) -> str:
    return f"task {task.number} ({task.kind}, batch {task.batch}, stage {task.stage}, device {task.device})"
