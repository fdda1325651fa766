"""Runs that are compared over schedules or ranks, and what models predict for them, before any section sees them.

Each model is calibrated by one of the runs. Its predictions are values of their own, never among the measured ones.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from spdnn.common.errors import InputError
from spdnn.costmodel.calibration import check, from_record, known_shares
from spdnn.costmodel.costs import MessageCosts
from spdnn.costmodel.prediction import predict
from spdnn.records.notes import TaskgraphNotes
from spdnn.report.common import words
from spdnn.report.common.run_rows import Run, grouped, latest
from spdnn.taskgraph.calibration import costs_of
from spdnn.taskgraph.settings import RESIDENT, SCHEDULES
from spdnn.taskgraph.simulation import simulate
from spdnn.taskgraph.timeline import Span

STRONG, WEAK, OTHER = "strong", "weak", "other"  # the same inputs on more ranks, inputs that grow with them, neither
MOST_TASKS = 50_000  # of a decomposition that is simulated, batches x stages, and slots: some seconds
MOST_FURTHER = 8  # numbers of ranks that were not run, in one group
HELPS = 1.05  # twice as many ranks that gain less than this factor hardly help


@dataclass(frozen=True)
class Predicted:
    """What a model expects of a run; nothing of it was measured.

    Attributes:
        run: the run that was made so; None: there is none.
        seconds: of inference; bound: what takes most of them.
        ranks, nodes, partition: where it runs.
        timeline: of its tasks, where they were simulated.
    """

    run: Run | None
    seconds: float
    bound: str
    ranks: int = 1
    nodes: int = 1
    partition: str | None = None
    timeline: Sequence[Span] = field(default=(), repr=False)


@dataclass(frozen=True)
class Group:
    """Runs that differ in their schedule alone, or in their ranks (under weak scaling, with their inputs).

    Attributes:
        kind: STRONG, WEAK or OTHER; of schedules, empty.
        runs: all of them.
        shown: of each setting the latest, in the order of the settings.
        base: the run that the others are compared with and predicted from; None: it was not made.
        predicted: of the runs shown, and of more ranks; empty where the model cannot be calibrated.
    """

    kind: str
    runs: Sequence[Run]
    shown: Sequence[Run]
    base: Run | None
    predicted: Sequence[Predicted]


def schedules(runs: Sequence[Run]) -> list[Group]:
    """The runs of the task graph on one rank, by what their schedules may be compared on."""
    cut = [run for run in runs if run.record.ranks == 1 and run.decomposition]
    groups = []
    for members in grouped(cut, _place).values():
        shown = latest(members, _schedule)
        base = next((run for run in shown if _schedule(run)[:4] == (SCHEDULES.index(RESIDENT), 1, 1, 1)), None)
        predicted = [one for run in shown if base and (one := _simulated(base, run))]
        groups.append(Group("", members, shown, base, predicted))
    return groups


def _place(run: Run) -> tuple:
    """The same for runs whose schedules may be compared; threads may differ, for each device has one at least."""
    record = run.record
    environment, names = record.environment, tuple(sorted(record.reductions.requested))
    machine = environment.cpu, environment.gpu or "", environment.cores
    return *run.problem_key, record.engine.name, names, *machine


def _schedule(run: Run) -> tuple:
    """A sorting key: schedules in their order, then devices and the other settings."""
    made, promise = run.decomposition, run.notes(TaskgraphNotes).device_memory_bytes
    numbers = made.devices, len(made.ranges), made.batches, made.buffers or 0, promise or 0
    return SCHEDULES.index(made.schedule), *numbers, run.record.threads


def _simulated(base: Run, run: Run) -> Predicted | None:
    """A run by the costs of another; None where it has too many tasks, or one of them has notes that are not sound."""
    made = run.decomposition
    if max(made.batches * len(made.stages), made.slots) > MOST_TASKS:
        return None
    with contextlib.suppress(InputError):
        costs, cores = costs_of(base.record, made.devices)
        found = simulate(made, costs, cores)
        return Predicted(run, found.seconds, found.bound, timeline=found.timeline)


def scaling(runs: Sequence[Run]) -> list[Group]:
    """Strong and weak scaling over ranks, then the other runs of several ranks: none without such a run."""
    groups = [*_scaling(STRONG, runs, _strong), *_scaling(WEAK, runs, _weak)]
    compared = {run for group in groups for run in group.runs}
    alone = [run for run in runs if run.record.ranks > 1 and run not in compared]
    return groups + [_scaled(OTHER, members) for members in grouped(alone, _strong).values()]


def _scaling(kind: str, runs: Sequence[Run], key: Callable[[Run], tuple | None]) -> list[Group]:
    """The groups that compare at least two numbers of ranks."""
    groups = grouped(runs, key).values()
    return [_scaled(kind, members) for members in groups if len({run.record.ranks for run in members}) > 1]


def _setting(run: Run) -> tuple:
    """All but inputs and ranks: a speed-up must not come from these."""
    record, problem = run.record, run.problem
    names = tuple(sorted(record.reductions.requested))
    network = problem.network_identity, problem.layers
    return *network, record.engine.name, names, record.threads, record.span, words.machine(record.environment)


def _strong(run: Run) -> tuple:
    return *_setting(run), run.problem.inputs_sha256, run.problem.input_count


def _weak(run: Run) -> tuple | None:
    """Inputs of one origin, as many for each rank; None where they cannot be divided evenly."""
    origin = {key: value for key, value in run.problem.inputs.items() if key not in ("count", "sha256")}
    if run.problem.input_count % run.record.ranks:
        return None
    return *_setting(run), json.dumps(origin, sort_keys=True), run.problem.input_count // run.record.ranks


def _scaled(kind: str, runs: Sequence[Run]) -> Group:
    shown = latest(runs, lambda run: (run.record.ranks, run.partition or ""))
    base, predicted = next((run for run in shown if run.record.ranks == 1), None), []
    if base:
        several = [run for run in shown if run.record.ranks > 1]
        with contextlib.suppress(InputError):  # notes that the model cannot read calibrate nothing
            predicted = [_again(base, run) for run in several]
            predicted += _further(base, several) if kind == STRONG else ()
    return Group(kind, runs, shown, base, predicted)


def _again(base: Run, run: Run) -> Predicted:
    """A run of several ranks, as the model predicts it from the base: it shows how far off the model is."""
    (checked,) = check([base.record, run.record])
    found = checked.predicted
    return Predicted(run, found.seconds, found.bound, run.record.ranks, run.record.distribution.nodes, found.partition)


def _further(base: Run, several: Sequence[Run]) -> Iterator[Predicted]:
    """Twice the most ranks that were run, and so on, on full nodes, until twice as many hardly help."""
    most = max(several, key=lambda run: (run.record.ranks, -run.inference_seconds))
    messages, partition = most.record.distribution.messages, most.partition
    device, work = from_record(base.record)
    cores, threads = base.record.environment.cores, base.record.threads
    costs, before = MessageCosts(messages.latency_seconds, messages.bytes_per_second), math.inf
    for step in range(1, MOST_FURTHER + 1):
        ranks = most.record.ranks << step
        per_node = min(ranks, max(1, cores // threads))
        shares = known_shares(base.record, work, ranks, partition, per_node)
        found = predict(work, device, costs, ranks, partition, per_node=per_node, threads=threads, shares=shares)
        if ranks > work.inputs or found.seconds * HELPS > before:
            return
        yield Predicted(None, found.seconds, found.bound, ranks, -(-ranks // per_node), partition)
        before = found.seconds
