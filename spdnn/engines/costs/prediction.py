"""From costs to the time of R ranks, before anyone runs them, by the only cost model there is: nothing was measured.

A rank takes its share of the inputs through every layer, and rows leave on the way. Its time is that of its rows in
whole tiles, of what it pays whatever it computes, and of weights that it streams; the run ends with the slowest rank.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from spdnn.core.errors import InputError
from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work

PARTITIONS = ("static", "cyclic", "rebalanced")
CATEGORY_BYTES = 40  # of the outcome of an input that survives: number, sums, extremes, hash
EXCHANGE_BYTES = 8  # that each rank sends in an exchange: how many rows it has left
EXCHANGE_SECONDS = 2e-4  # of an exchange, messages aside: what Python does there (measured: 0.1 to 0.3 ms)
PACKED_BYTES_PER_SECOND = 1.2e9  # rows that leave and arrive, out of tiles and into them again (measured on one core)
HELPS = 1.05  # more devices that gain less than this factor in all do not help
MOST_PLANNED = 1 << 20  # ranks that a plan considers

ROWS, TILE, FIXED, WEIGHTS, IMBALANCE, COMMUNICATION = (
    "computing rows", "tiles that are not full", "fixed costs", "streamed weights", "imbalance", "communication",
)  # fmt: skip


@dataclass(frozen=True)
class Prediction:
    """What is predicted; nothing of it was measured.

    Attributes:
        seconds: of the run, from one barrier to the next.
        efficiency: seconds of one rank / ranks / seconds.
        parts: seconds of the slowest rank, by cause.
        memory_bytes: of a rank, with all its inputs at once; batches: that its memory makes of them.
        fits: False when not even the weights and the waiting inputs fit the memory.
    """

    ranks: int
    inputs: int
    seconds: float
    efficiency: float
    parts: dict[str, float] = field(repr=False)
    memory_bytes: float
    batches: int
    fits: bool

    @property
    def bound(self) -> str:
        """What takes most of the slowest rank's time, or the memory that is not there."""
        return max(self.parts, key=self.parts.__getitem__) if self.fits else "memory"


def predict(
    work: Work,
    device: DeviceCosts,
    messages: MessageCosts = FREE,
    ranks: int = 1,
    partition: str = "rebalanced",
    *,
    per_node: int = 1,
    threads: int | None = None,
    shares: np.ndarray | None = None,
) -> Prediction:
    """The time of `ranks` ranks.

    `rebalanced` evens rows once, before the layer where that saves most, or never when it costs more. Ranks meet
    `work.comparisons` times where they rebalance, or search for equal rows.

    Args:
        per_node: ranks on a node; they share its memory and cores.
        threads: of a rank; None: as many as the rates were measured with.
        shares: float64 (ranks, layers): each rank's part of the rows of each layer (with one rank on a node, of the
            ranks that differ); None: inputs in random order, so that a rank has a binomial number of rows, and the
            slowest has the largest of them that is expected.

    Raises:
        InputError: an unknown partition, a number below 1, or shares of another shape.
    """
    _check(work, ranks, partition, per_node, shares)
    per_node, threads = min(per_node, ranks), threads or device.threads
    # Memory: features take what weights and waiting inputs leave of a rank's part; what does not fit makes batches.
    weights, features = work.memory(work.inputs / ranks, device.copy_bytes_per_second is not None)
    batches, memory, fits = 1, weights + features, True
    if device.memory_bytes is not None:
        room, one_tile = device.memory_bytes / per_node - weights, 2 * device.tiles[-1] * work.row_bytes.max()
        batches, fits = max(1, math.ceil(features / max(room, one_tile))), bool(room >= min(one_tile, features))
    # Imbalance: the rows of each rank where their order is known, else of the slowest one that is to be expected.
    mean, rows = work.rows / ranks, _worst(work, ranks)[None] if shares is None else shares * work.rows
    uneven, even = (device.layers(work, per_rank, batches) for per_rank in (rows, mean))
    # Communication: the outcome is collected, and where ranks may rebalance they compare their rows in between.
    before, communication = work.layers, messages.collective(ranks, work.survivors[-1] * CATEGORY_BYTES)
    if ranks > 1 and (partition == "rebalanced" or work.searches):
        communication += work.comparisons * (EXCHANGE_SECONDS + messages.collective(ranks, EXCHANGE_BYTES * ranks))
    if partition == "rebalanced" and ranks > 1:
        # Rebalancing: the surplus of the slowest rank moves once, before the layer where the run then ends soonest:
        # what the slowest has done by then, the exchange, and even rows. Of equal ends the last: never.
        surplus = (rows.max(axis=0) - mean) * work.row_bytes
        moving = messages.message(surplus) + surplus / PACKED_BYTES_PER_SECOND
        elapsed = np.append(np.zeros((len(uneven), 1)), np.cumsum(uneven, axis=1), axis=1).max(axis=0)
        remaining = np.append(np.cumsum(even[::-1])[::-1], 0.0)
        before = even.size - int(np.argmin((elapsed + remaining + np.append(moving, 0.0))[::-1]))
        communication += float(np.append(moving, 0.0)[before])
    # Time of each rank alone: uneven rows up to the exchange, even ones after it, and what each input costs.
    each = work.inputs / ranks * device.seconds_per_input
    alone, usual = uneven[:, :before].sum(axis=1) + even[before:].sum() + each, float(even.sum()) + each
    if shares is None and per_node > 1:
        # The ranks other than the slowest have what it leaves of the work, where all are on its node.
        others = max(0.0, (ranks * usual - alone[0]) / (ranks - 1)) if per_node == ranks else usual
        alone = np.append(alone, np.full(per_node - 1, others))
    # Ranks of a node share its cores; the run ends with the last of all, and the others wait for it.
    serial = device.seconds_per_run * max(1.0, per_node / (device.cores or per_node))
    ends = np.concatenate([device.together(node, threads) for node in alone.reshape(-1, per_node)])
    last = float(ends.max()) + serial
    typical = ends.mean() if alone.size == ranks else device.together(np.full(per_node, usual), threads)[0]
    computing = min(last, float(typical) + serial)
    seconds = last + communication
    single = seconds if ranks == 1 else predict(work, device, ranks=1, threads=threads).seconds
    parts = _parts(work, device, batches, ranks) | {IMBALANCE: last - computing, COMMUNICATION: communication}
    efficiency = single / ranks / seconds if seconds else 1.0
    return Prediction(ranks, work.inputs, seconds, efficiency, parts, memory, batches, fits)


def _check(work: Work, ranks: int, partition: str, per_node: int, shares: np.ndarray | None) -> None:
    if partition not in PARTITIONS:
        raise InputError(f"partition {partition[:40]!r} must be one of {', '.join(PARTITIONS)}")
    if min(ranks, per_node, work.inputs, work.layers) < 1:
        raise InputError(
            f"{ranks} ranks, {per_node} on a node, {work.inputs} inputs, {work.layers} layers: each must be 1 or more"
        )
    if shares is None:
        return
    some = per_node == 1 and 1 <= len(shares) <= ranks
    nodes = len(shares) == ranks and ranks % min(ranks, per_node) == 0  # fewer ranks than a node has: all on one
    if shares.shape[1:] != (work.layers,) or not (some or nodes):
        raise InputError(
            f"shares of shape {shares.shape} for {ranks} ranks, {per_node} on a node, and {work.layers} layers"
        )


def _worst(work: Work, ranks: int) -> np.ndarray:
    """Rows of the rank that has most, expected: a binomial's mean and so many standard deviations above it.

    A rank has no more than its inputs, and where rows are left at all, some rank has one. Source: Blom, 1958 (the
    expected maximum of normal variables).
    """
    mean, most = work.rows / ranks, np.maximum(work.inputs, work.rows) / ranks
    deviations = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    spread = np.sqrt(mean * (1 - np.minimum(1.0, work.rows / work.inputs)) * (1 - 1 / ranks))
    return np.where(mean > 0, np.clip(mean + deviations * spread, np.minimum(most, 1.0), most), 0.0)


def _parts(work: Work, device: DeviceCosts, batches: int, ranks: int) -> dict[str, float]:
    """Seconds of a rank with the mean of the rows, by cause; weights are what is left when the others are taken off."""
    rows = work.rows / ranks
    rates = work.edges * device.rates(work.layers)
    computing, padded = float((rows * rates).sum()), float(((device.lanes(rows) - rows) * rates).sum())
    launches = batches * device.seconds_per_layer * int((rows > 0).sum())
    streamed = float(device.layers(work, rows, batches).sum()) - computing - padded - launches
    return {
        ROWS: computing + work.inputs / ranks * device.seconds_per_input,
        TILE: padded,
        FIXED: launches + device.seconds_per_run,
        WEIGHTS: streamed,
    }


def enough(
    work: Work,
    device: DeviceCosts,
    messages: MessageCosts = FREE,
    partition: str = "rebalanced",
    *,
    order: Callable[[int], np.ndarray | None] = lambda ranks: None,
    **options,
) -> Prediction:
    """The fewest ranks (a power of two, up to one an input) that come within HELPS of the least time any number has;
    `order`: the shares of that many ranks; `options`: further ones of `predict`."""
    # Powers of two are enough: the time falls with the ranks until communication and full tiles stop it.
    counts = [1 << power for power in range(min(MOST_PLANNED, work.inputs).bit_length())]
    predicted = [predict(work, device, messages, ranks, partition, shares=order(ranks), **options) for ranks in counts]
    least = min((row.seconds for row in predicted if row.fits), default=math.inf)
    return next((row for row in predicted if row.fits and row.seconds <= HELPS * least), predicted[-1])
