"""The section on the twelve networks: a row for each, and every run and published figure that rows are chosen from.

Our runs and the published figures are compared by the challenge's rate, within one span.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from spdnn.problem import challenge
from spdnn.records.published import DEVICES, Baseline, best
from spdnn.report.common import run_rows, words
from spdnn.report.common.collection import Collection, fair_runs, once

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
OURS, OURS_REDUCED, OURS_RANKS = (
    "this project, no reductions", "this project, reductions on", "this project, several ranks",
)  # fmt: skip
MOST_POINTS = 20  # of ours, of one network in the figure of all


class Point(NamedTuple):
    """One rate of the throughput figure.

    Attributes:
        row: the network's label.
        rate, low, high: edges per second, and the ends of its interval (the rate itself when there is none).
        span: what the time includes.
        who: one of OURS, OURS_REDUCED and OURS_RANKS, or a published figure's devices.
        same: whether it is the same computation as the challenge's: exact, on the official inputs.
        label: who it is, in words.
        record: the number of its record on the page; None for a published figure.
    """

    row: str
    rate: float
    low: float
    high: float
    span: str
    who: str
    same: bool
    label: str
    record: int | None = None


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of this project."""
    if not collection.own:
        return None
    official = [run for run in collection.own if run["official_size"]]
    return {
        "own": collection.own,
        "twelve": twelve(collection),
        "published": published(collection.baselines),
        "points": points(official, collection.baselines),
        "configurations": run_rows.configurations(official),
    }


@once
def twelve(collection: Collection) -> list[dict]:
    """A row for each official network, run or not.

    Each has the best of ours without reductions (`plain`) and with (`reduced`), runs on the official inputs before
    others, and the best exact published figures on one device and on any (`best`), each with its `label`; None where
    there is none. Ratios of rates, ours over published, are in `times`, by (ours, devices).
    """
    rows = []
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        own = [run for run in collection.own if run["official_size"] == size]
        exact = [
            row for row in collection.baselines
            if (row.neurons, row.layers) == size and row.edges_per_second and not row.lossy
        ]  # fmt: skip
        ours = {"plain": _ours(own, reduced=False), "reduced": _ours(own, reduced=True)}
        best = {"one": _fastest(exact, DEVICES[:1]), "any": _fastest(exact, DEVICES)}
        rows.append(
            {
                "key": key(*size),
                "neurons": problem.neurons,
                "layers": problem.layers,
                "edges": problem.edges,
                **ours,
                "best": best,
                "label": {devices: figure and label(figure) for devices, figure in best.items()},
                "times": {
                    (name, devices): one["rate"].median / figure.edges_per_second
                    for name, one in ours.items() for devices, figure in best.items() if one and figure
                },
            }
        )  # fmt: skip
    return rows


def key(neurons: int, layers: int) -> str:
    """A network's name in the page's attributes."""
    return f"{neurons}-{layers}"


def _ours(runs: Sequence[dict], reduced: bool) -> dict | None:
    """The fastest of our runs, the official inputs first; None without one."""
    runs = [run for run in runs if run["reduced"] == reduced]
    return max(runs, key=lambda run: (run["comparable"], run["rate"].median, -run["number"]), default=None)


def _fastest(rows: Sequence[Baseline], devices: Sequence[str]) -> Baseline | None:
    return min((row for row in rows if row.device_class in devices), key=_order, default=None)


def published(baselines: Sequence[Baseline]) -> list[dict]:
    """Every published figure on one of the twelve that has a rate: by network, the fastest first."""
    rows = [row for row in baselines if row.neurons and row.edges_per_second]
    rows.sort(key=lambda row: (row.neurons, row.layers, *_order(row)))
    return [{"key": key(row.neurons, row.layers), "row": row, "label": label(row)} for row in rows]


def _order(row: Baseline) -> tuple:
    return -row.edges_per_second, row.system, row.devices, row.hardware


def label(row: Baseline) -> str:
    """A published figure's system and what it ran on, in a few words."""
    devices = f"{row.devices} × " if row.devices.isdecimal() else f"{row.devices}, " if row.devices else ""
    system = _AUTHORS.sub("", row.system)
    return words.printable(f"{system}, {devices}{row.hardware.split(' (')[0]}, {row.year}")


def points(runs: Sequence[dict], baselines: Sequence[Baseline]) -> list[Point]:
    """Runs of official networks, and the best published figures of each; spans that the runs have come first."""
    marks = []
    for size, members in run_rows.grouped(runs, lambda run: run["official_size"]).items():
        spans = {run["span"] for run in members}
        row = f"{size[0]} × {size[1]}"
        for group, figure in sorted(best(baselines, *size).items(), key=lambda item: item[0].span not in spans):
            rate, text = figure.edges_per_second, f"{figure.system}, {figure.hardware}"
            text = f"{text}, {figure.devices or 'devices not stated'}"
            marks.append(Point(row, rate, rate, rate, group.span, group.devices, not group.lossy, text))
        for run in fair_runs(members, MOST_POINTS):
            rate, who = run["rate"], OURS_REDUCED if run["reduced"] else OURS
            who = who if run["ranks"] == 1 else OURS_RANKS
            ends = rate.median, rate.low, rate.high
            marks.append(Point(row, *ends, run["span"], who, run["comparable"], run["case"], run["number"]))
    return marks
