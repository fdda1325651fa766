"""What a run of a task graph tells of how it was cut and what happened when, fit for a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spdnn.taskgraph import Decomposition, Sizes, Wanted
from spdnn.taskgraph.timeline import Span, coarsened


def notes(
    cut: Decomposition, sizes: Sizes, wanted: Wanted, why: str, groups: Mapping[int, int], spans: Sequence[Span]
) -> dict:
    """`groups`: of each batch, the group that it went through; `spans`: of every task."""
    return {
        "schedule": cut.schedule,
        "devices": cut.devices,
        "pipeline": len(cut.ranges),
        "batches": cut.batches,
        "batch_inputs": cut.batch,
        "stages": [list(stage) for stage in cut.stages],
        "ranges": [list(one) for one in cut.ranges],
        "buffers": cut.buffers,
        "places": cut.places,
        "drawn": cut.drawn,
        "groups": [groups[batch] for batch in range(cut.batches)],
        "device_memory_bytes": wanted.device_memory,
        "memory_bytes": [cut.memory(sizes, device) for device in range(cut.devices)],
        "why": why,
        "timeline": [span.listed() for span in coarsened(spans)],
        "timeline_tasks": len(spans),
    }
