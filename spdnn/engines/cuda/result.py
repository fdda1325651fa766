"""The result of a run, from what its batches told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spdnn.engines.cuda.buffers import Plan
from spdnn.problem.features import Inputs, Result

COLUMNS = "sums", "projections", "least", "most", "hashes"


def result(
    plan: Plan, inputs: Inputs, parts: Sequence[tuple[np.ndarray, dict[str, Any]]], notes: dict, values: bool
) -> Result:
    """`parts`: of each batch, the numbers of its inputs, and what Place.finish gave; `notes` are added to."""
    alive, columns, kept = [], [[] for _ in COLUMNS], []
    for numbers, found in parts:
        living = np.flatnonzero(found["row_of"] >= 0)
        row_of = found["row_of"][living].astype(np.int64)
        alive.append(numbers[living])
        for column, name in zip(columns, COLUMNS, strict=True):
            column.append(found[name][row_of])
        kept.append((found.get("values"), row_of))
    work = np.sum([found["work"] for _, found in parts], axis=0, dtype=np.int64)
    computed = int(work @ plan.edges)
    loaded = 4 * computed
    if inputs.kind == "bits":
        loaded -= int(work[0] * plan.edges[0]) * 31 // 8  # a bit for each edge, not a float
    told = {"batches": len(parts), "rows_merged": int(sum(found["merged"] for _, found in parts)), **notes}
    survivors = np.sum([found["survivors"] for _, found in parts], axis=0, dtype=np.int64)
    return Result(
        inputs.total, plan.last.outputs, np.concatenate(alive), *(np.concatenate(column) for column in columns),
        survivors, computed, plan.last.gathered(kept) if values else None, told, bytes_loaded=loaded,
    )  # fmt: skip
