"""The result of a run of the CUDA engines, from the outcomes of its batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spdnn.core.features import Inputs
from spdnn.core.result import KeptInputs, LastRows, Result
from spdnn.engines.cuda.buffers import KernelPlan


def result(
    plan: KernelPlan,
    inputs: Inputs,
    parts: Sequence[tuple[np.ndarray, dict[str, Any]]],
    shared: Sequence[int],
    notes: dict,
    keep: KeptInputs,
) -> Result:
    """`parts`: of each batch, the numbers of its inputs, and what BufferSlot.finish gave; `shared`: of each layer, the
    edges that one load of an input serves at most; `notes` are added to."""
    batches = []
    for numbers, outcome in parts:
        # Inputs whose row is left are the categories; several of them may have one row.
        living = np.flatnonzero(outcome["row_of"] >= 0)
        row_of = outcome["row_of"][living].astype(np.int64)
        values = outcome.get("kept"), outcome.get("values")
        batches.append(LastRows(numbers[living], row_of, outcome["statistics"], *values))
    # Work: the device counted rows of each layer; edges, and loads that outputs share, follow from the layers.
    work = np.sum([outcome["work"] for _, outcome in parts], axis=0, dtype=np.int64)
    computed = int(work @ plan.edges)
    loads = work * (plan.edges // np.array(shared, np.int64))
    if inputs.kind == "bits":
        loads[0] //= 4  # a word has four inputs of a thread
    common = {"batches": len(parts), "rows_merged": int(sum(outcome["merged"] for _, outcome in parts)), **notes}
    survivors = np.sum([outcome["survivors"] for _, outcome in parts], axis=0, dtype=np.int64)
    return plan.last.result(
        inputs.total, batches, keep, survivors=survivors, edges_computed=computed, notes=common,
        bytes_loaded=4 * int(loads.sum()),
    )  # fmt: skip
