"""What must hold of a run on several ranks: its record's `distribution`, rank by rank, adds up to the whole.

Each claim is (whether it holds, what is wrong if it does not), as in `spdnn.records.limits`; `run_record` refuses the
first that does not. This module only compares numbers of one record; its schema has been checked before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

TOLERANCE = 1e-6  # relative: between a stored figure and the one that follows from others
CLOCK = 1e-9  # seconds: parts of a time were rounded apart from it
PER_REPEAT = ("inference_seconds", "waiting_seconds", "communication_seconds")

Claim = tuple[bool, str]


def claims(record: dict) -> Iterator[Claim]:
    """What must hold of a record's `distribution`, and that it is there exactly where there are several ranks."""
    told, ranks = record.get("distribution"), record["ranks"]
    yield (told is None) == (ranks == 1), f"distribution: {'absent' if told is None else 'given'}, with ranks: {ranks}"
    if told is None:
        return
    yield len(told["per_rank"]) == ranks, f"distribution.per_rank: {len(told['per_rank'])} entries for {ranks} ranks"
    yield from _places(told)
    yield from _times(record, told["per_rank"])
    yield from _sums(record, told["per_rank"])
    yield from _exchanges(record, told)
    yield from _imbalance(told)


def computing(rank: dict) -> float:
    """Computing seconds of one rank: inference - waiting - communication, the median over the repeats."""
    repeats = zip(*(rank[name] for name in PER_REPEAT), strict=True)
    return median(whole - waiting - sending for whole, waiting, sending in repeats)


def imbalance(parts: Sequence[float]) -> float:
    """The largest part over their mean; 1 when all are 0, for nothing is shared out evenly."""
    return max(parts) * len(parts) / total if (total := sum(parts)) > 0 else 1.0


def busiest(record: dict) -> int:
    """Edges of the rank that went through most; of one rank, all."""
    if record.get("distribution") is None:
        return record["result"]["edges_computed"]
    return max(rank["edges_computed"] for rank in record["distribution"]["per_rank"])


def _places(told: dict) -> Iterator[Claim]:
    places = Counter(rank["host"] for rank in told["per_rank"])
    hosts = len(places)
    yield told["nodes"] == hosts, f"distribution.nodes: {told['nodes']}, but the ranks ran on {hosts} hosts"
    for host, here in sorted(places.items()):
        found = sorted(rank["local_rank"] for rank in told["per_rank"] if rank["host"] == host)
        what = f"distribution.per_rank: the local ranks of one host are not the numbers 0 to {here - 1}"
        yield found == list(range(here)), what


def _times(record: dict, per_rank: Sequence[dict]) -> Iterator[Claim]:
    """Each list has an entry a repeat, no part is more than the whole, and the slowest rank's time is the run's."""
    seconds = record["samples"]["inference_seconds"]
    for place, rank in enumerate(per_rank):
        where = f"distribution.per_rank[{place}]"
        for name in PER_REPEAT:
            found = len(rank[name])
            yield found == len(seconds), f"{where}.{name}: {found} numbers for {len(seconds)} repeats"
        for whole, waiting, sending in zip(*(rank[name] for name in PER_REPEAT), strict=True):
            what = f"{where}: {waiting:g} s of waiting and {sending:g} s of communication in {whole:g} s of inference"
            yield waiting + sending <= whole * (1 + TOLERANCE) + CLOCK, what
    for repeat, told in enumerate(seconds):
        slowest = max(rank["inference_seconds"][repeat] for rank in per_rank)
        what = f"samples.inference_seconds[{repeat}]: {told:g}, but the slowest rank took {slowest:g}"
        yield math.isclose(told, slowest, rel_tol=TOLERANCE), what


def _sums(record: dict, per_rank: Sequence[dict]) -> Iterator[Claim]:
    result, layers = record["result"], record["problem"]["layers"]
    wholes = {"inputs": record["problem"]["input_count"], "edges_computed": result["edges_computed"]}
    for name, whole in wholes.items():
        total = sum(rank[name] for rank in per_rank)
        yield total == whole, f"distribution.per_rank: {name} add up to {total}, and the whole run has {whole}"
    for place, rank in enumerate(per_rank):
        found = len(rank["survivors"])
        yield found == layers, f"distribution.per_rank[{place}].survivors: {found} numbers for {layers} layers"
    totals = map(sum, zip(*(rank["survivors"] for rank in per_rank), strict=True))
    for layer, (total, whole) in enumerate(zip(totals, result["survivors"], strict=True), 1):
        if total != whole:  # no sentence is made up for the others, of which there are thousands
            told = f"survivors of layer {layer} add up to {total}, and the whole run has {whole}"
            yield False, f"distribution.per_rank: {told}"


def _exchanges(record: dict, told: dict) -> Iterator[Claim]:
    """Rows change ranks at meetings; none is lost, and there are figures from then on exactly if any did."""
    exchanges, per_rank, partition = told["exchanges"], told["per_rank"], told["partition"]
    layers, meetings, merged = record["problem"]["layers"], told["meetings"], told["rows_merged_across_ranks"]
    moved, last = sum(one["rows"] for one in exchanges), max((one["before_layer"] for one in exchanges), default=1)
    sent, received = (sum(rank[name] for rank in per_rank) for name in ("rows_sent", "rows_received"))
    where, merging = "distribution.exchanges", "inputs" in record["reductions"]["requested"]
    yield not exchanges or partition == "rebalanced", f"{where}: {len(exchanges)} with the partition {partition}"
    yield len(exchanges) <= meetings, f"{where}: {len(exchanges)} at {meetings} meetings"
    yield last <= layers, f"{where}: before layer {last} of {layers}"
    yield sent == received, f"distribution.per_rank: {sent} rows were sent and {received} received"
    yield moved == sent, f"{where}: {moved} rows, but the ranks sent {sent}"
    yield merging or not merged, f"distribution.rows_merged_across_ranks: {merged} without the reduction inputs"
    figures = {f"per_rank[{place}]": rank for place, rank in enumerate(per_rank)} | {"imbalance": told["imbalance"]}
    for name, figure in figures.items():
        known = figure["edges_from_exchange"] is not None
        told_of = f"{'a number' if known else 'null'} with {len(exchanges)} exchanges"
        yield known == bool(exchanges), f"distribution.{name}.edges_from_exchange: {told_of}"
    for place, rank in enumerate(per_rank):
        part, whole = rank["edges_from_exchange"] or 0, rank["edges_computed"]
        yield part <= whole, f"distribution.per_rank[{place}].edges_from_exchange: {part} of {whole} edges"


def _imbalance(told: dict) -> Iterator[Claim]:
    per_rank = told["per_rank"]
    parts = {
        "edges": [rank["edges_computed"] for rank in per_rank],
        "edges_from_exchange": [rank["edges_from_exchange"] for rank in per_rank],
        "seconds": [computing(rank) for rank in per_rank],
    }
    for name, figure in told["imbalance"].items():
        if figure is not None:
            right = imbalance(parts[name])
            what = f"distribution.imbalance.{name}: {figure:g}, but {right:g} follows from the ranks"
            yield math.isclose(figure, right, rel_tol=TOLERANCE), what
