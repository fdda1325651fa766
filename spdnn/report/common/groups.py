"""Runs that are compared over workers, before any section sees them; and what a group of such runs is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spdnn.core.shown import plural
from spdnn.report.common import words
from spdnn.report.common.run_rows import RunRow, group_by, latest
from spdnn.runs.records.notes import TaskgraphNotes

RANKS, THREADS, GPUS = "ranks", "threads", "GPUs"  # workers
STRONG, WEAK, OTHER = "strong", "weak", "other"  # the same inputs on more workers, inputs that grow with them, neither


@dataclass(frozen=True)
class Group:
    """Runs that differ in their schedule alone, or in their workers (under weak scaling, with their inputs).

    Attributes:
        kind: STRONG, WEAK or OTHER; over: RANKS, THREADS or GPUS; of schedules, both are empty.
        runs: all of them.
        shown: of each setting the latest, in the order of the settings.
        base: the run that the others are compared with; None: it was not made.
    """

    kind: str
    over: str
    runs: Sequence[RunRow]
    shown: Sequence[RunRow]
    base: RunRow | None

    @property
    def left_out(self) -> str:
        """What of the runs is not shown, in a sentence; empty where all are."""
        count = len(self.runs) - len(self.shown)
        verb = "is" if count == 1 else "are"
        runs = plural(count, "earlier run")
        return f"{runs} of a setting that was run again {verb} not in this part." if count else ""


def scaling(runs: Sequence[RunRow]) -> list[Group]:
    """Strong and weak scaling over workers, then the other runs of several ranks."""
    groups = [
        _scaled(kind, over, members)
        for over in (RANKS, THREADS, GPUS)
        for kind in (STRONG, WEAK)
        for members in group_by(runs, partial(_setting, kind=kind, over=over)).values()
        if len({workers(run, over) for run in members}) > 1
    ]
    compared = {run for group in groups for run in group.runs}
    alone = [run for run in runs if run.record.ranks > 1 and run not in compared]
    others = group_by(alone, partial(_setting, kind=STRONG, over=RANKS)).values()
    return groups + [_scaled(OTHER, RANKS, members) for members in others]


def _scaled(kind: str, over: str, runs: Sequence[RunRow]) -> Group:
    shown = latest(runs, lambda run: (workers(run, over), run.partition or ""))
    return Group(kind, over, runs, shown, shown[0] if workers(shown[0], over) == 1 else None)


def workers(run: RunRow, over: str) -> int | None:
    """How many ranks, threads or GPUs a run had; of several ranks, only ranks are compared, and of a GPU no threads."""
    record = run.record
    if over == RANKS:
        return record.ranks
    if record.ranks > 1 or bool(record.environment.gpu) != (over == GPUS):
        return None
    return record.threads if over == THREADS else run.notes(TaskgraphNotes).devices or 1


def _setting(run: RunRow, kind: str, over: str) -> tuple | None:
    """The same for runs whose speed-up comes from their workers alone; None where there is nothing to compare.

    Under weak scaling, inputs are of one origin, as many for each worker.
    """
    record, problem, count = run.record, run.problem, workers(run, over)
    if count is None or (kind == WEAK and problem.input_count % count):
        return None
    notes, names = run.notes(TaskgraphNotes), tuple(sorted(record.reductions.requested))
    network = problem.network_identity, problem.layers
    each = [number for name, number in ((THREADS, record.threads), (GPUS, notes.devices)) if name != over]
    origin = {key: value for key, value in problem.inputs.items() if key not in ("count", "sha256")}
    weak = json.dumps(origin, sort_keys=True), problem.input_count // count
    inputs = weak if kind == WEAK else (problem.inputs_sha256, problem.input_count)
    machine = words.machine(record.environment)
    # Ranks that share one device are no more workers: such runs are compared with each other alone.
    shares_device = record.ranks > 1 and record.request is not None and record.request.device is not None
    return shares_device, *network, record.engine.name, names, *each, notes.schedule, record.span, machine, *inputs
