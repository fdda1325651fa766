"""Predictions of the cost model for more ranks, calibrated by the runs on the page: rows of the part "Predicted".

Each run of several ranks is predicted from its base, to show how far off the model is; then numbers of ranks that were
not run. No prediction is drawn together with measurements.
"""

import math
from collections.abc import Iterator, Sequence

from spdnn.common.errors import InputError
from spdnn.costmodel.calibration import check, from_record, known_shares
from spdnn.costmodel.costs import MessageCosts
from spdnn.costmodel.prediction import Prediction, predict
from spdnn.report.common import words

MOST_ROWS = 8  # of numbers of ranks that were not run, in one group
HELPS = 1.05  # twice as many ranks that gain less than this factor hardly help


def rows(groups: Sequence[dict]) -> list[dict]:
    """Rows for the groups of `scaling.values` that have a base, in their order; the same for the same records."""
    predicted = []
    for group in groups:
        if group["base"]:
            several = [row for row in group["rows"] if row["ranks"] > 1]
            try:
                again = [_again(group, row) for row in several]
                predicted += [*again, *(_further(group, several) if group["kind"] == "strong" else ())]
            except InputError:  # notes that the model cannot read calibrate nothing
                continue
    return predicted


def _again(group: dict, row: dict) -> dict:
    """A run of several ranks, as the model predicts it from the base."""
    (checked,) = check([group["base"].record, row["run"].record])
    grown = row["run"].record.problem.input_count / group["base"].record.problem.input_count
    return _row(group, checked.predicted, row["nodes"], row["seconds"], grown)


def _further(group: dict, several: Sequence[dict]) -> Iterator[dict]:
    """Twice the most ranks that were run, and so on, on full nodes, until twice as many hardly help."""
    base, most = group["base"].record, max(several, key=lambda row: (row["ranks"], -row["seconds"]))
    ranked, threads = most["run"].record.distribution, base.threads
    device, work = from_record(base)
    messages = MessageCosts(ranked.messages.latency_seconds, ranked.messages.bytes_per_second)
    partition, before = ranked.partition, math.inf
    for step in range(1, MOST_ROWS + 1):
        ranks = most["ranks"] << step
        per_node = min(ranks, max(1, group["cores"] // threads))
        shares = known_shares(base, work, ranks, partition, per_node)
        predicted = predict(work, device, messages, ranks, partition, per_node=per_node, threads=threads, shares=shares)
        if ranks > work.inputs or predicted.seconds * HELPS > before:
            return
        yield _row(group, predicted, -(-ranks // per_node), None, 1.0)
        before = predicted.seconds


def _row(group: dict, predicted: Prediction, nodes: int, measured: float | None, grown: float) -> dict:
    size = f"{words.network(group['neurons'], group['layers'])}, {predicted.inputs:,} inputs"
    single = group["base"].inference_seconds
    return {
        "setting": f"{size}, {group['engine']}, {words.plural(group['threads'], 'thread')}, {group['reductions']}",
        "ranks": predicted.ranks,
        "nodes": nodes,
        "partition": predicted.partition,
        "seconds": predicted.seconds,
        "efficiency": grown * single / predicted.seconds / predicted.ranks,
        "measured": measured,
        "bound": predicted.bound,
    }
