"""The section on the twelve networks: a row for each, and every run and published figure that rows are chosen from.

Our runs and the published figures are compared by the challenge's rate, within one span.
"""

import re
from collections.abc import Sequence

from spdnn.problem import challenge
from spdnn.records.published import DEVICES, Baseline
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
SERIES = ("reduced", "like", "plain")  # ours: with reductions, like for like with published systems, without any


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of one of the twelve."""
    official = [run for run in collection.own if run["official_size"]]
    if not official:
        return None
    rows = twelve(collection)
    return {
        "own": official,
        "series": [name for name in SERIES if any(row[name] for row in rows)],
        "twelve": rows,
        "published": published(collection.baselines),
    }


@once
def twelve(collection: Collection) -> list[dict]:
    """A row for each official network, run or not.

    Each has the best of ours of each of SERIES, runs on the official inputs before others and quiet machines before
    busy ones, and the best exact published figures on one device and on any (`best`), each with its `label`; None where
    there is none. Ratios of our rates over published ones are in `times`, by (one of SERIES, devices), where the two
    are fair to set side by side: on the official inputs, with no more left out than published systems leave out.
    """
    rows = []
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        own = [run for run in collection.own if run["official_size"] == size]
        exact = [
            row for row in collection.baselines
            if (row.neurons, row.layers) == size and row.edges_per_second and not row.lossy
        ]  # fmt: skip
        ours = {name: _ours(own, name) for name in SERIES}
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
                    for name, one in ours.items() for devices, figure in best.items()
                    if name != "reduced" and one and one["comparable"] and figure
                },
            }
        )  # fmt: skip
    return rows


def key(neurons: int, layers: int) -> str:
    """A network's name in the page's attributes."""
    return f"{neurons}-{layers}"


def series(run: dict) -> str:
    """Which of SERIES a run belongs to."""
    return "like" if run["like_for_like"] else "reduced" if run["reduced"] else "plain"


def _ours(runs: Sequence[dict], name: str) -> dict | None:
    """The fastest of our runs of a series, the official inputs and quiet machines first; None without one."""

    def rank(run: dict) -> tuple:
        return run["comparable"], not run["busy"], run["rate"].median, -run["number"]

    return max((run for run in runs if series(run) == name), key=rank, default=None)


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
