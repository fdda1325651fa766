"""The section on schedules: runs of the task graph on one network, their timelines, and memory against time.

Predictions of the simulator for the same decompositions are kept apart, with the run that calibrated it.
"""

import contextlib
from collections.abc import Sequence

from spdnn.common.errors import InputError
from spdnn.records.published import Baseline
from spdnn.records.run_record import Problem, RunRecord
from spdnn.report.common import run_rows, words
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import Run
from spdnn.taskgraph.calibration import costs_of, decomposition_of, notes_of, timeline_of
from spdnn.taskgraph.settings import RESIDENT, SCHEDULES
from spdnn.taskgraph.simulation import simulate

MOST_PANELS = 8  # of a figure of timelines
MOST_TASKS = 50_000  # of a decomposition that is simulated, batches x stages, and slots: some seconds
FIELD = "Lin and Huang, HPEC 2020"  # whose table has schedules of the field side by side
FIELD_SYSTEMS = ("SNIG", "BF", "GPipe*")


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of the task graph."""
    cut = [run for run in collection.own if run.ranks == 1 and decomposition_of(run.record) is not None]
    groups = run_rows.grouped(cut, _setting).values()
    shown = [_group(members, number, collection.baselines) for number, members in enumerate(groups, 1)]
    return {"groups": shown} if shown else None


def _setting(run: Run) -> tuple:
    """The same for runs whose schedules may be compared; threads may differ, for each device has one at least."""
    record = run.record
    environment, names = record.environment, tuple(sorted(record.reductions.requested))
    machine = environment.cpu, environment.gpu or "", environment.cores
    return *run.problem_key, record.engine.name, names, *machine


def _group(runs: Sequence[Run], number: int, baselines: Sequence[Baseline]) -> dict:
    """One network's table and figures; of several runs of one setting, the latest is shown."""
    shown = run_rows.latest(runs, _key)
    base = next((run for run in shown if _calibrates(run.record)), None)
    problem = shown[0].problem
    rows = [_row(run, base) for run in shown]
    return run_rows.heading(runs, shown) | {
        "id": f"schedules-{number}",
        "base": base,
        "rows": rows,
        "measured": [one for one in rows if one["timeline"]][:MOST_PANELS],
        "simulated": [one for one in rows if one["simulated"]][:MOST_PANELS],
        "published": _published(baselines, problem) if problem.official else [],
    }


def _key(run: Run) -> tuple:
    """A sorting key: schedules in their order, then devices and the other settings."""
    made, promise = decomposition_of(run.record), notes_of(run.record).device_memory_bytes
    numbers = made.devices, len(made.ranges), made.batches, made.buffers or 0, promise or 0
    return SCHEDULES.index(made.schedule), *numbers, run.threads


def _calibrates(record: RunRecord) -> bool:
    made = decomposition_of(record)
    return (made.schedule, made.devices, made.batches) == (RESIDENT, 1, 1)


def _row(run: Run, base: Run | None) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    record, decomposition = run.record, decomposition_of(run.record)
    notes, (low, high) = notes_of(record), run.ends
    predicted = None
    work = max(decomposition.batches * len(decomposition.stages), decomposition.slots)
    if base is not None and work <= MOST_TASKS:
        with contextlib.suppress(InputError):  # a decomposition that leaves layers out, or notes that cannot be read
            costs, cores = costs_of(base.record, decomposition.devices)
            predicted = simulate(decomposition, costs, cores)
    timeline = timeline_of(record)
    return {
        "run": run,
        "label": label(decomposition),
        "schedule": decomposition.schedule,
        "devices": decomposition.devices,
        "pipeline": len(decomposition.ranges),
        "batches": decomposition.batches,
        "buffers": decomposition.buffers,
        "promise": notes.device_memory_bytes,
        "memory": max(notes.memory_bytes or (), default=None),
        "seconds": run.inference_seconds,
        "low": low,
        "high": high,
        "why": notes.why or "",
        "timeline": timeline and [span.listed() for span in timeline],
        "predicted": predicted and predicted.seconds,
        "bound": predicted and predicted.bound,
        "simulated": predicted and [span.listed() for span in predicted.timeline],
    }


def label(decomposition) -> str:
    """A decomposition in a few words."""
    stages, buffers = len(decomposition.ranges), decomposition.buffers
    parts = [decomposition.schedule, words.plural(decomposition.devices, "device")]
    parts += [f"pipeline of {stages}"] if stages > 1 else []
    parts += [words.plural(decomposition.batches, "batch", "batches")]
    return ", ".join([*parts, f"{buffers} buffers"] if buffers else parts)


def _published(baselines: Sequence[Baseline], problem: Problem) -> list[Baseline]:
    """The schedules of the field on this network, as their authors measured them side by side."""
    size = problem.neurons, problem.layers
    rows = [row for row in baselines if (row.neurons, row.layers) == size and row.source.startswith(FIELD)]
    named = [(row.system.split(" (")[0], row) for row in rows]
    named = [(name, row) for name, row in named if name in FIELD_SYSTEMS]
    return [row for _, row in sorted(named, key=lambda one: (FIELD_SYSTEMS.index(one[0]), int(one[1].devices)))]
