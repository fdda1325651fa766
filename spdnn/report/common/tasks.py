"""The decomposition and the timeline of a run of the task graph; the task graph is imported for the records of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spdnn.report.common.collection import once
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.notes import TaskgraphNotes

if TYPE_CHECKING:
    from spdnn.engines.taskgraph.decomposition import Decomposition
    from spdnn.engines.taskgraph.timeline import Span


def decomposition_of(run: RunRow) -> Decomposition | None:
    """How a run of the task graph was cut into tasks; None of any other, or where its notes are not sound."""
    return _of(run)[0]


def timeline_of(run: RunRow) -> Sequence[Span] | None:
    """What tasks of the task graph did when; None where the record has no sound timeline."""
    return _of(run)[1]


@once
def _of(run: RunRow) -> tuple[Any, Any]:
    if not isinstance(run.record.engine.notes, TaskgraphNotes):
        return None, None
    from spdnn.runs.schedules import decomposition_of, timeline_of

    return decomposition_of(run.record), timeline_of(run.record)
