"""The notes of a run of the task graph, fit for a record: how it was cut, and what happened when, lane by lane.

Long runs are coarsened: neighbours on a lane become one entry.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.graph import Graph, Task
from spdnn.engines.taskgraph.settings import TaskgraphSettings

MOST_SPANS = 600  # that a record holds


@dataclass(frozen=True)
class Span:
    """One task, or several that followed each other on a lane for the same batch.

    Attributes:
        first, last: layers, 0-based, last exclusive.
        begin, end: seconds since the run began.
    """

    device: int
    lane: str
    kind: str
    batch: int | None
    first: int
    last: int
    begin: float
    end: float

    @classmethod
    def of(cls, decomposition: Decomposition, task: Task, begin: float, end: float) -> "Span":
        return cls(*task.lane, task.kind.value, task.batch, *decomposition.stages[task.stage], begin, end)

    def as_list(self) -> list:
        """As a record's notes have it, in the order of the attributes."""
        return [*vars(self).values()]


def coarsen(spans: Iterable[Span], most: int = MOST_SPANS) -> list[Span]:
    """At most so many spans, but one for each lane: neighbours on a lane that serve one batch are joined, two by two,
    four by four and so on, and at last those of several batches, which then have none. A joined span has the kind that
    took longest in it, and holds what time was between them."""
    # Neighbours of one batch first, for they are one piece of work; the factor doubles until the list is short enough.
    ordered, merged = sorted(spans, key=lambda span: (span.device, span.lane, span.begin)), []
    for key in (lambda span: (span.device, span.lane, span.batch), lambda span: (span.device, span.lane)):
        factor = 1
        while factor < 2 * len(ordered):
            merged = [
                _join(run[i : i + factor])
                for _, same in groupby(ordered, key=key)
                for run in [list(same)]
                for i in range(0, len(run), factor)
            ]
            if len(merged) <= most:
                return merged
            factor *= 2
    return merged


def _join(spans: Sequence[Span]) -> Span:
    longest = max(spans, key=lambda span: span.end - span.begin)
    first, last = min(span.first for span in spans), max(span.last for span in spans)
    batch = longest.batch if len({span.batch for span in spans}) == 1 else None
    return Span(longest.device, longest.lane, longest.kind, batch, first, last, spans[0].begin, spans[-1].end)


def lane_seconds(spans: Iterable[Span]) -> dict[tuple[int, str], float]:
    """Of each (device, lane) that did anything, the seconds in which it did."""
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    for span in spans:
        lane = span.device, span.lane
        seconds[lane] = seconds[lane] + span.end - span.begin
    return seconds


def timeline(spans: Sequence[Span]) -> dict:
    """Of all tasks of a run."""
    return {"timeline": [span.as_list() for span in coarsen(spans)], "timeline_tasks": len(spans)}


def notes(cut: Decomposition, sizes: RunSizes, settings: TaskgraphSettings, why: str, graph: Graph) -> dict:
    """`graph`: what ran."""
    joined = [batch for batches in graph.joined.values() for batch in batches if len(batches) > 1]
    return {
        "schedule": cut.schedule,
        "devices": cut.devices,
        "pipeline": len(cut.ranges),
        "batches": cut.batches,
        "batch_inputs": cut.batch,
        "stages": [list(stage) for stage in cut.stages],
        "ranges": [list(layers) for layers in cut.ranges],
        "buffers": cut.buffers,
        "places": cut.slots,
        "drawn": cut.drawn,
        "groups": [graph.groups[batch] for batch in range(cut.batches)],
        "joined_before_layer": None if cut.joined is None else cut.stages[cut.joined][0] + 1,
        "batches_joined": len(joined),
        "device_memory_bytes": settings.device_memory,
        "memory_bytes": [cut.memory(sizes, device) for device in range(cut.devices)],
        "why": why,
    }
