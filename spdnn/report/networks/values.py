"""The section on the twelve networks: a row each, and under it every figure that the rows are chosen from."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from spdnn.problem import challenge
from spdnn.records.published import DEVICES, Baseline
from spdnn.report.common import words

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
GROUPS = {"one": "Best published, one device", "any": "Best published, any devices"}


def official_size(problem: dict) -> tuple[int, int] | None:
    """(neurons, layers) when the network is one of the twelve, whatever its inputs."""
    size = problem["neurons"], problem["layers"]
    official = challenge.Problem(*size)
    if official not in challenge.PROBLEMS or problem["edges"] != official.edges:
        return None
    formula = {"seed": challenge.SEED, "bias": float(np.float32(challenge.BIAS[size[0]])), "ymax": challenge.YMAX}
    network = problem["network"]
    by_formula = network.get("source") == "radixnet" and all(network.get(key) == formula[key] for key in formula)
    return size if problem["official"] or by_formula else None


def twelve(runs: Sequence[dict], baselines: Sequence[Baseline]) -> list[dict]:
    """A row for each official network, run or not.

    Each has the best of ours without reductions (`plain`) and with (`reduced`), runs on the official inputs before
    others, and the best exact published figures by GROUPS (`best`); None where there is none. Ratios of rates, ours
    over published, are in `times`, by (ours, group).

    Args:
        runs: as `model.page` makes them, of one project and no comparison.
        baselines: the published results.
    """
    rows = []
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        own = [run for run in runs if run["official_size"] == size]
        known = [row for row in baselines if (row.neurons, row.layers) == size and row.edges_per_second]
        exact = [row for row in known if not row.lossy]
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
                "times": {
                    (name, group): one["rate"] / figure.edges_per_second
                    for name, one in ours.items() for group, figure in best.items() if one and figure
                },
            }
        )  # fmt: skip
    return rows


def key(neurons: int, layers: int) -> str:
    """A network's name in the page's attributes."""
    return f"{neurons}-{layers}"


def _ours(runs: Sequence[dict], reduced: bool) -> dict | None:
    """The fastest of our runs, the official inputs first; None without one."""
    found = [run for run in runs if run["reduced"] == reduced]
    if not found:
        return None
    run = max(found, key=lambda run: (run["comparable"], run["rate"]["median"], -run["number"]))
    return {
        "rate": run["rate"]["median"],
        "seconds": run["seconds"]["inference"],
        "solution": run["solution"],
        "comparable": run["comparable"],
        "told": run["told"],
        "number": run["number"],
    }


def _fastest(rows: Sequence[Baseline], devices: Sequence[str]) -> Baseline | None:
    known = [row for row in rows if row.device_class in devices]
    return min(known, key=_order, default=None)


def published(baselines: Sequence[Baseline]) -> list[dict]:
    """Every published figure on one of the twelve that has a rate: by network, the fastest first."""
    rows = [row for row in baselines if row.neurons and row.edges_per_second]
    rows.sort(key=lambda row: (row.neurons, row.layers, *_order(row)))
    return [{"key": key(row.neurons, row.layers), "row": row, "told": told(row)} for row in rows]


def _order(row: Baseline) -> tuple:
    return -row.edges_per_second, row.system, row.devices, row.hardware


def told(row: Baseline) -> str:
    """A published figure's system and what it ran on, in a few words."""
    devices = f"{row.devices} × " if row.devices.isdecimal() else f"{row.devices}, " if row.devices else ""
    system = _AUTHORS.sub("", row.system)
    return words.printable(f"{system}, {devices}{row.hardware.split(' (')[0]}, {row.year}")
