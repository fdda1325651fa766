"""The decomposition and the timeline of a run of the task graph; the task graph is imported for the records of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spdnn.report.common.collection import once
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.notes import TaskgraphNotes

if TYPE_CHECKING:
    from spdnn.engines.taskgraph.decomposition import Decomposition
    from spdnn.engines.taskgraph.timeline import Span


@once
def decomposition_of(run: RunRow) -> Decomposition | None:
    """How a run of the task graph was cut into tasks; None of any other."""
    if not isinstance(run.record.engine.notes, TaskgraphNotes):
        return None
    from spdnn.runs import schedules

    return schedules.decomposition_of(run.record)


@once
def timeline_of(run: RunRow) -> list[Span] | None:
    """What tasks of the task graph did when; None where the record has no sound timeline."""
    if not isinstance(run.record.engine.notes, TaskgraphNotes):
        return None
    from spdnn.runs import schedules

    return schedules.timeline_of(run.record)
