"""Runs that are compared over schedules or workers, and what models predict for them, before any section sees them.

Each model is calibrated by one of the runs. Its predictions are values of their own, never among the measured ones.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from spdnn.core.errors import InputError
from spdnn.core.shown import plural
from spdnn.engines.costs.costs import MessageCosts
from spdnn.engines.costs.prediction import predict
from spdnn.engines.taskgraph.settings import RESIDENT, SCHEDULES
from spdnn.engines.taskgraph.simulation import simulate
from spdnn.engines.taskgraph.timeline import Span
from spdnn.report.common import words
from spdnn.report.common.run_rows import RunRow, group_by, latest
from spdnn.runs.calibration import check, costs_of, from_record, known_shares
from spdnn.runs.records.notes import TaskgraphNotes

RANKS, THREADS, GPUS = "ranks", "threads", "GPUs"  # workers
STRONG, WEAK, OTHER = "strong", "weak", "other"  # the same inputs on more workers, inputs that grow with them, neither
MOST_TASKS = 50_000  # of a decomposition that is simulated, batches x stages, and slots: some seconds
MOST_FURTHER = 8  # numbers of workers that were not run, in one group
HELPS = 1.05  # twice as many workers that gain less than this factor hardly help


@dataclass(frozen=True)
class Predicted:
    """What a model expects of a run; nothing of it was measured.

    Attributes:
        run: the run that was made so; None: there is none.
        seconds: of inference; bound: what takes most of them.
        workers, nodes, partition: where it runs.
        timeline: of its tasks, where they were simulated.
    """

    run: RunRow | None
    seconds: float
    bound: str
    workers: int
    nodes: int = 1
    partition: str | None = None
    timeline: Sequence[Span] = field(default=(), repr=False)


@dataclass(frozen=True)
class PredictedGroup:
    """Runs that differ in their schedule alone, or in their workers (under weak scaling, with their inputs).

    Attributes:
        kind: STRONG, WEAK or OTHER; over: RANKS, THREADS or GPUS; of schedules, both are empty.
        runs: all of them.
        shown: of each setting the latest, in the order of the settings.
        base: the run that the others are compared with and predicted from; None: it was not made.
        predicted: of the runs shown, and of more workers; empty where the model cannot be calibrated.
    """

    kind: str
    over: str
    runs: Sequence[RunRow]
    shown: Sequence[RunRow]
    base: RunRow | None
    predicted: Sequence[Predicted]

    @property
    def left_out(self) -> str:
        """What of the runs is not shown, in a sentence; empty where all are."""
        count = len(self.runs) - len(self.shown)
        verb = "is" if count == 1 else "are"
        runs = plural(count, "earlier run")
        return f"{runs} of a setting that was run again {verb} not in this part." if count else ""


def schedules(runs: Sequence[RunRow]) -> list[PredictedGroup]:
    """The runs of the task graph on one rank, by what their schedules may be compared on."""
    cut = [run for run in runs if run.record.ranks == 1 and run.decomposition]
    groups = []
    # Schedules are compared on one problem, engine, list of reductions and machine. Threads may differ, for each device
    # has one at least.
    for members in group_by(
        cut,
        lambda run: (
            *run.problem_key, run.record.engine.name, tuple(sorted(run.record.reductions.requested)),
            run.record.environment.cpu, run.record.environment.gpu or "", run.record.environment.cores,
        ),
    ).values():  # fmt: skip
        shown = latest(members, _schedule)
        base = next((run for run in shown if _schedule(run)[:4] == (SCHEDULES.index(RESIDENT), 1, 1, 1)), None)
        predicted = [schedule for run in shown if base and (schedule := _simulate(base, run))]
        groups.append(PredictedGroup("", "", members, shown, base, predicted))
    return groups


def _schedule(run: RunRow) -> tuple:
    """A sorting key: schedules in their order, then devices and the other settings."""
    cut = run.decomposition
    numbers = cut.devices, len(cut.ranges), cut.batches, cut.buffers or 0, run.device_memory or 0
    return SCHEDULES.index(cut.schedule), *numbers, run.record.threads


def _simulate(base: RunRow, run: RunRow) -> Predicted | None:
    """A run by the costs of another; None where it has too many tasks, or one of them has notes that are not sound."""
    decomposition = run.decomposition
    if max(decomposition.batches * len(decomposition.stages), decomposition.slots) > MOST_TASKS:
        return None
    with contextlib.suppress(InputError):
        costs, cores = costs_of(base.record, decomposition.devices)
        simulation = simulate(decomposition, costs, cores)
        return Predicted(run, simulation.seconds, simulation.bound, decomposition.devices, timeline=simulation.timeline)


def scaling(runs: Sequence[RunRow], cut: Sequence[PredictedGroup]) -> list[PredictedGroup]:
    """Strong and weak scaling over workers, then the other runs of several ranks.

    Args:
        cut: the groups of `schedules`, whose predictions hold for several GPUs.
    """
    simulated = {schedule.run: schedule for group in cut for schedule in group.predicted}
    groups = [
        _scaling_group(kind, over, members, simulated)
        for over in (RANKS, THREADS, GPUS)
        for kind in (STRONG, WEAK)
        for members in group_by(runs, partial(_setting, kind=kind, over=over)).values()
        if len({workers(run, over) for run in members}) > 1
    ]
    compared = {run for group in groups for run in group.runs}
    alone = [run for run in runs if run.record.ranks > 1 and run not in compared]
    others = group_by(alone, partial(_setting, kind=STRONG, over=RANKS)).values()
    return groups + [_scaling_group(OTHER, RANKS, members, simulated) for members in others]


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


def _scaling_group(
    kind: str, over: str, runs: Sequence[RunRow], simulated: Mapping[RunRow, Predicted]
) -> PredictedGroup:
    shown = latest(runs, lambda run: (workers(run, over), run.partition or ""))
    base, predicted = shown[0] if workers(shown[0], over) == 1 else None, []
    if base:
        with contextlib.suppress(InputError):  # notes that the model cannot read calibrate nothing
            if over == GPUS:
                predicted = [simulated[run] for run in shown[1:] if run in simulated and kind == STRONG]
            else:
                predicted = [_again(base, run, over) for run in shown[1:]]
                predicted += _further(base, shown[1:], over) if kind == STRONG else ()
    return PredictedGroup(kind, over, runs, shown, base, predicted)


def _again(base: RunRow, run: RunRow, over: str) -> Predicted:
    """A run, as the model predicts it from the base: it shows how far off the model is."""
    if over == RANKS:
        (comparison,) = check([base.record, run.record])
        prediction, nodes = comparison.predicted, run.record.distribution.nodes
        return Predicted(run, prediction.seconds, prediction.bound, prediction.ranks, nodes, prediction.partition)
    device, work = from_record(base.record)
    prediction = predict(work.of(run.problem.input_count), device, threads=run.record.threads)
    return Predicted(run, prediction.seconds, prediction.bound, run.record.threads)


def _further(base: RunRow, several: Sequence[RunRow], over: str) -> Iterator[Predicted]:
    """Twice the most workers that were run, and so on, until twice as many hardly help; threads up to the cores."""
    most = max(several, key=lambda run: (workers(run, over), -run.inference_seconds))
    limit = base.record.environment.cores if over == THREADS else base.problem.input_count
    before = math.inf
    for step in range(1, MOST_FURTHER + 1):
        prediction = _predict(base, most, workers(most, over) << step, over)
        if prediction.workers > limit or prediction.seconds * HELPS > before:
            return
        yield prediction
        before = prediction.seconds


def _predict(base: RunRow, most: RunRow, count: int, over: str) -> Predicted:
    """So many threads; or so many ranks on full nodes, with the partition and the messages of the run of most."""
    record, threads = base.record, base.record.threads
    device, work = from_record(record)
    if over == THREADS:
        prediction = predict(work, device, threads=count)
        return Predicted(None, prediction.seconds, prediction.bound, count)
    distribution, partition = most.record.distribution, most.partition
    messages = MessageCosts(distribution.message_latency_seconds, distribution.message_bytes_per_second)
    per_node = min(count, max(1, record.environment.cores // threads))
    shares = known_shares(record, work, count, partition, per_node)
    prediction = predict(work, device, messages, count, partition, per_node=per_node, threads=threads, shares=shares)
    return Predicted(None, prediction.seconds, prediction.bound, count, -(-count // per_node), partition)
