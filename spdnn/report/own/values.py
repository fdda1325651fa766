"""The section on networks that are none of the twelve: one's own, and parts of official ones."""

from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import latest


def values(collection: Collection) -> dict | None:
    """What the section prints: `runs`, the fastest by inputs a second first, and of each network the latest run whose
    outputs were compared with labels (`labelled`); None without a run.
    """
    runs = [run for run in collection.own if not run.official_size]
    runs.sort(key=lambda run: (-run.inputs_per_second, run.number))
    labelled = latest((run for run in runs if run.record.accuracy), lambda run: run.problem_key)
    return {"runs": runs, "labelled": labelled} if runs else None
