"""Survivors and ladders: the same runs by layer and by setting.

A curve has the inputs with a nonzero row after each layer. A ladder has one problem with every setting that was run,
the slowest first, so that a reader sees the gain of each step.
"""

from collections.abc import Sequence
from typing import NamedTuple

from spdnn.report.common import words
from spdnn.report.common.collection import fair
from spdnn.report.common.run_rows import RunRow, group_by, latest

LEAST_RUNGS, MOST_RUNGS = 3, 24


class Curve(NamedTuple):
    """The survivors of one network and inputs after each layer."""

    label: str
    survivors: Sequence[int]


class LadderStep(NamedTuple):
    """One setting of a ladder: its name, and the median seconds of a run with the ends of its interval."""

    label: str
    seconds: float
    low: float
    high: float


def curves(runs: Sequence[RunRow], most: int) -> list[Curve]:
    """The survivors by network and inputs, less the runs whose counts begin those of a deeper one.

    Of more than `most`, one of each width comes before the second of any, and official inputs before others.
    """
    groups: dict[tuple, list[Curve]] = {}
    for run in sorted(runs, key=lambda run: -run.problem.layers):
        counts = tuple(run.record.result.survivors)
        if set(counts) == {run.problem.input_count}:
            continue  # a flat line says nothing
        group = groups.setdefault((run.problem.neurons, run.inputs, run.comparable), [])
        label = f"{run.problem.neurons:,} neurons × {run.problem.layers:,} layers, {run.inputs} inputs"
        if not any(curve.label == label or curve.survivors[: len(counts)] == counts for curve in group):
            group.append(Curve(label, counts))
    keyed = [(key, curve) for key in sorted(groups) for curve in groups[key]]
    shown = fair(keyed, most, lambda pair: pair[0][0], lambda pair: (pair[0][2], len(pair[1].survivors)))
    return [curve for _, curve in shown]


def ladders(runs: Sequence[RunRow]) -> list[dict]:
    """Runs of one rank on one machine, network and inputs, of at least LEAST_RUNGS settings.

    The slowest is first. Of a setting that was run again the latest is shown; of more than MOST_RUNGS settings, so many
    evenly from the slowest to the fastest.

    Returns:
        id, runs, rungs; machine: of all runs; span: what all their times include, or None.
    """

    def same(run: RunRow) -> tuple | None:
        where = words.machine(run.record.environment)
        return (*run.problem_key, run.record.span.startswith("one layer"), where) if run.record.ranks == 1 else None

    shown = []
    for group in group_by(runs, same).values():
        members = _latest(group)
        labels = [", ".join(filter(None, _setting(run))) for run in members]
        if len(set(labels)) < LEAST_RUNGS:
            continue
        spans = {run.record.span for run in members}
        several = len({run.threads_text for run in members}) > 1
        rungs = []
        for label, run in zip(labels, members, strict=True):
            name = f"{label}: {run.record.span}" if len(spans) > 1 else label
            name = f"{name}, {run.threads_text}" if several else name
            rungs.append(LadderStep(name, run.inference_seconds, *run.ends))
        shown.append(
            {
                "id": f"ladder-{len(shown) + 1}",
                "runs": members,
                "rungs": rungs,
                "machine": words.machine(members[0].record.environment),
                "span": spans.pop() if len(spans) == 1 else None,
            }
        )
    return shown


def _latest(runs: Sequence[RunRow]) -> list[RunRow]:
    """The latest run of each setting, the slowest first; not more than MOST_RUNGS."""
    members = latest(runs, lambda run: (*_setting(run), run.threads_text, run.record.span))
    slowest = sorted(members, key=lambda run: (-run.inference_seconds, run.number))
    last, most = len(slowest) - 1, MOST_RUNGS - 1
    return slowest if last <= most else [slowest[index * last // most] for index in range(MOST_RUNGS)]


def _setting(run: RunRow) -> tuple[str, str, str]:
    """Engine, reductions and, of the task graph, how it was cut."""
    return run.engine, run.reductions.replace("none", "no reductions"), run.cut
