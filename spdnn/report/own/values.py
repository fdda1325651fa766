"""The section on networks that are none of the twelve: one's own, and parts of official ones."""

from spdnn.report.common.collection import Collection


def values(collection: Collection) -> dict | None:
    """What the section prints: `runs`, the fastest by inputs a second first; None without one."""
    runs = [run for run in collection.own if not run.official_size]
    runs.sort(key=lambda run: (-run.inputs_per_second, run.number))
    return {"runs": runs} if runs else None
