"""The section on schedules: runs of the task graph on one network, their timelines, and memory against time.

Predictions of the simulator for the same decompositions are kept apart, with the run that calibrated it.
"""

from collections.abc import Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.predictions import Predicted, PredictedGroup
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.published import Baseline
from spdnn.runs.records.result import ProblemRecord

MOST_PANELS = 8  # of a figure of timelines
FIELD = "Lin and Huang, HPEC 2020"  # whose table has schedules of the field side by side
FIELD_SYSTEMS = ("SNIG", "BF", "GPipe*")


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of the task graph."""
    shown = [_group(group, number, collection.baselines) for number, group in enumerate(collection.schedules, 1)]
    return {"groups": shown} if shown else None


def _group(group: PredictedGroup, number: int, baselines: Sequence[Baseline]) -> dict:
    """One network's table and figures; of several runs of one setting, the latest is shown."""
    predicted = {schedule.run: schedule for schedule in group.predicted}
    rows = [_row(run, predicted.get(run)) for run in group.shown]
    first = group.shown[0]
    return {
        "id": f"schedules-{number}",
        "first": first,
        "left_out": len(group.runs) - len(group.shown),
        "base": group.base,
        "rows": rows,
        "measured": [row for row in rows if row["timeline"]][:MOST_PANELS],
        "simulated": [row for row in rows if row["simulated"]][:MOST_PANELS],
        "published": _published_rows(baselines, first.problem) if first.problem.official else [],
    }


def _row(run: RunRow, predicted: Predicted | None) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    made, notes, (low, high) = run.decomposition, run.notes(TaskgraphNotes), run.ends
    return {
        "run": run,
        "label": label(made),
        "schedule": made.schedule,
        "devices": made.devices,
        "pipeline": len(made.ranges),
        "batches": made.batches,
        "buffers": made.buffers,
        "promise": run.device_memory,
        "memory": max(notes.memory_bytes or (), default=None),
        "seconds": run.inference_seconds,
        "low": low,
        "high": high,
        "why": notes.why or "",
        "timeline": run.timeline and [span.as_list() for span in run.timeline],
        "predicted": predicted and predicted.seconds,
        "bound": predicted and predicted.bound,
        "simulated": predicted and [span.as_list() for span in predicted.timeline],
    }


def label(decomposition) -> str:
    """A decomposition in a few words."""
    stages, buffers = len(decomposition.ranges), decomposition.buffers
    parts = [decomposition.schedule, words.plural(decomposition.devices, "device")]
    parts += [f"pipeline of {stages}"] if stages > 1 else []
    parts += [words.plural(decomposition.batches, "batch", "batches")]
    return ", ".join([*parts, f"{buffers} buffers"] if buffers else parts)


def _published_rows(baselines: Sequence[Baseline], problem: ProblemRecord) -> list[Baseline]:
    """The schedules of the field on this network, as their authors measured them side by side."""
    size = problem.neurons, problem.layers
    rows = [row for row in baselines if (row.neurons, row.layers) == size and row.source.startswith(FIELD)]
    named = [(row.system.split(" (")[0], row) for row in rows]
    named = [(name, row) for name, row in named if name in FIELD_SYSTEMS]
    return [row for _, row in sorted(named, key=lambda pair: (FIELD_SYSTEMS.index(pair[0]), int(pair[1].devices)))]
