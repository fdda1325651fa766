"""The notes of a run of the task graph, fit for a record: how it was cut, and what happened when."""

from collections.abc import Sequence

from spdnn.engines.taskgraph.decomposition import Decomposition, Sizes
from spdnn.engines.taskgraph.graph import Graph
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.engines.taskgraph.timeline import Span, coarsen


def timeline(spans: Sequence[Span]) -> dict:
    """Of all tasks of a run."""
    return {"timeline": [span.as_list() for span in coarsen(spans)], "timeline_tasks": len(spans)}


def notes(cut: Decomposition, sizes: Sizes, settings: TaskgraphSettings, why: str, graph: Graph) -> dict:
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
