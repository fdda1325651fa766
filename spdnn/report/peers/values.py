"""The section on peers: other libraries on the same problem, timed in turn with ours in one process.

Each library has its ratio to ours, by pairs of samples, so that what else the machine did slowed both of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence

from spdnn.common.statistics import ratios
from spdnn.report.common import runs as rows_of
from spdnn.report.common.collection import Collection

OURS = "cpu"  # the engine of a comparison that the others are set against


def values(collection: Collection) -> dict | None:
    """What the section prints: {problem, inputs, label, ours, rows} of each comparison; None without one."""
    compared = [run for run in collection.runs if "comparison" in run["record"] and run["ranks"] == 1]
    groups = rows_of.grouped(compared, lambda run: (run["record"]["comparison"], *rows_of.problem_key(run)))
    comparisons = [one for members in groups.values() if (one := _comparison(members))]
    return {"comparisons": comparisons} if comparisons else None


def _comparison(members: Sequence[dict]) -> dict | None:
    """One problem, each engine with its ratio to ours, the fastest first; None without ours or another."""
    own = [run for run in members if run["record"]["engine"]["name"] == OURS]
    ours = max(own, key=lambda run: len(run["record"]["reductions"]["requested"]), default=None)
    if ours is None or len(members) < 2:
        return None
    seconds = ours["record"]["samples"]["inference_seconds"]
    rows = [
        {**run, "is_ours": run is ours, "ratio": ratios(seconds, run["record"]["samples"]["inference_seconds"])}
        for run in members if run["repeats"] == ours["repeats"]
    ]  # fmt: skip
    rows.sort(key=lambda row: row["ratio"].median)
    problem = ours["record"]["problem"]
    label = f"{problem['neurons']:,} × {problem['layers']:,}, {ours['inputs']} inputs"
    return {"problem": problem, "inputs": ours["inputs"], "label": label, "ours": ours, "rows": rows}
