"""How several ranks shared the inputs of a run, and what each of them did: a part of a run record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from spdnn.core.fields import Claim, Count, Positive, Rate, Record, Samples, Seconds, column
from spdnn.runs.records.result import ProblemRecord, ResultRecord
from spdnn.runs.records.samples import CLOCK, FOLLOWING_TOLERANCE

PER_REPEAT = ("inference_seconds", "waiting_seconds", "communication_seconds")


class Exchange(Record):
    """Rows that changed ranks.

    Attributes:
        before_layer: 1-based.
        rows: that changed ranks.
        bytes: of these rows, as sent.
    """

    before_layer: Positive
    rows: Positive
    bytes: Count


class Imbalance(NamedTuple):
    """Maximum over mean of the ranks; 1 is even, and so is nothing at all.

    Attributes:
        edges: of edges really computed in the whole run.
        edges_from_exchange: of edges computed from the first exchange on; None without an exchange.
        seconds: of computing seconds (inference - waiting - communication), each rank's median over the repeats.
    """

    edges: float
    edges_from_exchange: float | None
    seconds: float


class OneRank(Record):
    """What one rank did.

    Attributes:
        host: name of the node.
        inputs: that it started with.
        inference_seconds: of each repeat, barrier to barrier.
        waiting_seconds: of each repeat's inference seconds: waiting for other ranks.
        communication_seconds: of each repeat's inference seconds: sending and receiving.
        edges_computed: inputs x edges that this rank computed in one repeat.
        edges_from_exchange: the part of them from the first exchange on; null without an exchange.
        survivors: after each layer, the inputs alive whose row this rank holds.
        rows_sent, rows_received: in one repeat.
        peak_memory_bytes: its own: peak resident set less the shared windows.
        proportional_memory_bytes: largest proportional set size seen: each shared page divided by those that share it;
            null where the system has no such number.
    """

    host: Annotated[str, Meta(min_length=1, max_length=255)]
    inputs: Count
    inference_seconds: Samples
    waiting_seconds: Samples
    communication_seconds: Samples
    edges_computed: Count
    edges_from_exchange: Count | None
    survivors: list[Count]
    rows_sent: Count
    rows_received: Count
    peak_memory_bytes: Positive
    proportional_memory_bytes: Count | None

    @property
    def computing_seconds(self) -> float:
        """Inference - waiting - communication, the median over the repeats."""
        repeats = zip(*(getattr(self, name) for name in PER_REPEAT), strict=True)
        return median(whole - waiting - sending for whole, waiting, sending in repeats)


def imbalance(parts: Sequence[float]) -> float:
    """The largest part over their mean; 1 when all are 0, for nothing is shared out evenly."""
    return max(parts) * len(parts) / total if (total := sum(parts)) > 0 else 1.0


class Distribution(Record):
    """How several ranks shared the inputs.

    Attributes:
        partition: which inputs a rank starts with: contiguous, every R-th, or contiguous with rows exchanged while it
            runs.
        shared_bytes: of weights and inputs in shared-memory windows, of the node that has most.
        message_latency_seconds: of a small allgather among all ranks, measured after the repeats.
        message_bytes_per_second: of large messages between two ranks, measured after the repeats.
        exchanges: of one repeat, in their order; layers begin anew with each batch.
        told: one sentence: why rows were exchanged, or why not.
        rows_merged_across_ranks: rows that were identical to one on another rank.
        per_rank: one entry a rank, rank 0 first.
    """

    partition: Annotated[Literal["static", "cyclic", "rebalanced"], column()]
    weights: Literal["one copy a node", "a copy a rank", "streamed by each rank"]
    shared_bytes: Count
    message_latency_seconds: Seconds
    message_bytes_per_second: Rate
    exchanges: list[Exchange]
    told: Annotated[str, Meta(min_length=1, max_length=1000)]
    rows_merged_across_ranks: Count
    per_rank: Annotated[list[OneRank], Meta(min_length=2)]

    @property
    def nodes(self) -> int:
        """Machines that the ranks ran on."""
        return len({rank.host for rank in self.per_rank})

    @property
    def imbalance(self) -> Imbalance:
        """Of edges and seconds."""
        late = [rank.edges_from_exchange for rank in self.per_rank]
        return Imbalance(
            imbalance([rank.edges_computed for rank in self.per_rank]),
            None if None in late else imbalance(late),
            imbalance([rank.computing_seconds for rank in self.per_rank]),
        )

    def claims(
        self, ranks: int, seconds: Sequence[float], problem: ProblemRecord, result: ResultRecord, merging: bool
    ) -> Iterator[Claim]:
        """Rank by rank, it adds up to the whole run; `merging`: whether identical inputs were merged."""
        entries = len(self.per_rank)
        yield entries == ranks, f"distribution.per_rank: {entries} entries for {ranks} ranks"
        yield from self._times(seconds)
        for name, whole in (("inputs", problem.input_count), ("edges_computed", result.edges_computed)):
            total = sum(getattr(rank, name) for rank in self.per_rank)
            yield total == whole, f"distribution.per_rank: {name} add up to {total}, and the whole run has {whole}"
        for place, rank in enumerate(self.per_rank):
            count, layers = len(rank.survivors), problem.layers
            yield count == layers, f"distribution.per_rank[{place}].survivors: {count} numbers for {layers} layers"
        totals = list(map(sum, zip(*(rank.survivors for rank in self.per_rank), strict=True)))
        yield totals == result.survivors, "distribution.per_rank: `survivors` do not add up to those of the whole run"
        yield from self._exchanges(problem.layers, merging)

    def _times(self, seconds: Sequence[float]) -> Iterator[Claim]:
        """Each list has an entry a repeat, no part is more than the whole, and the slowest rank's time is the run's."""
        for place, rank in enumerate(self.per_rank):
            where = f"distribution.per_rank[{place}]"
            for name in PER_REPEAT:
                count = len(getattr(rank, name))
                yield count == len(seconds), f"{where}.{name}: {count} numbers for {len(seconds)} repeats"
            for whole, waiting, sending in zip(*(getattr(rank, name) for name in PER_REPEAT), strict=True):
                what = (
                    f"{where}: {waiting:g} s of waiting and {sending:g} s of communication in {whole:g} s of inference"
                )
                yield waiting + sending <= whole * (1 + FOLLOWING_TOLERANCE) + CLOCK, what
        for repeat, sample in enumerate(seconds):
            slowest = max(rank.inference_seconds[repeat] for rank in self.per_rank)
            what = f"inference_seconds[{repeat}]: {sample:g}, but the slowest rank took {slowest:g}"
            yield math.isclose(sample, slowest, rel_tol=FOLLOWING_TOLERANCE), what

    def _exchanges(self, layers: int, merging: bool) -> Iterator[Claim]:
        """No row is lost where rows change ranks, and there are figures from then on exactly if any did."""
        per_rank, count, merged = self.per_rank, len(self.exchanges), self.rows_merged_across_ranks
        moved = sum(exchange.rows for exchange in self.exchanges)
        last = max((exchange.before_layer for exchange in self.exchanges), default=1)
        sent, received = sum(rank.rows_sent for rank in per_rank), sum(rank.rows_received for rank in per_rank)
        where = "distribution.exchanges"
        yield not count or self.partition == "rebalanced", f"{where}: {count} with the partition {self.partition}"
        yield last <= layers, f"{where}: before layer {last} of {layers}"
        yield sent == received, f"distribution.per_rank: {sent} rows were sent and {received} received"
        yield moved == sent, f"{where}: {moved} rows, but the ranks sent {sent}"
        yield merging or not merged, f"distribution.rows_merged_across_ranks: {merged} without the reduction inputs"
        for place, rank in enumerate(per_rank):
            where, late = f"distribution.per_rank[{place}].edges_from_exchange", rank.edges_from_exchange
            yield (late is None) == (not count), f"{where}: {late} with {count} exchanges"
            yield (late or 0) <= rank.edges_computed, f"{where}: {late} of {rank.edges_computed} edges"
