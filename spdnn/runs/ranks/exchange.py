"""Where ranks meet between layers: rows that are equal on several are merged, and rows move to where there are fewer.

Every rank knows what all of them hold from one small allgather, and comes to the same decisions; so only rows move.
Rows are exchanged when the predicted gain, edges of the busiest rank saved until the end, exceeds the predicted cost.
Both are counted in edges that a rank goes through, never measured: a run repeats whatever the machine does.

Source of what it mends: Hidayetoglu et al., HPEC 2020, section IV.C (static parts; imbalance limits 1024 neurons).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from spdnn.engines.base import MovableRows, Parcel, RowExchange
from spdnn.runs.ranks import partition
from spdnn.runs.records.distribution import Exchange
from spdnn.runs.world import World

# In edges, of which a core goes through 2e10 to 5e10 a second. A small exchange was measured to take 0.1 to 0.5 ms and
# is counted at the lower end, so that ranks are within 5 % of one another also in runs of ten milliseconds.
EXCHANGE = 3_000_000  # an exchange as such: small messages to all, one large one to some, what Python does about it
MOVE = 120  # each neuron of a row that moves: packing, sending, placing
QUIET = 0.02  # of the rows die in a layer: below it, nothing is expected to change soon
SLOWING = 0.75  # how much fewer of the rows die in each layer than in the one before (measured: 0.7 to 0.8, RadiX-Net)

NOTHING = Parcel(*(np.empty(0, kind) for kind in (np.int64, np.uint8, np.int64, np.int64)))


@dataclass
class Log:
    """What the ranks did for each other in one run.

    Attributes:
        waiting, communication: seconds of this rank.
        exchanges, merged: of all ranks; the last in rows that are computed once since.
        edges_from_exchange: of this rank, inputs x edges from the first exchange of each batch on.
        best: the largest gain, with its cost and layer, that was not worth an exchange.
    """

    waiting: float = 0.0
    communication: float = 0.0
    exchanges: list[Exchange] = field(default_factory=list)
    merged: int = 0
    sent: int = 0
    received: int = 0
    edges_from_exchange: int | None = None
    best: tuple[float, float, int] = (0.0, 0.0, 0)


class _RankState(NamedTuple):
    """What each rank sends before an exchange; int64 (ranks,)."""

    rows: np.ndarray
    room: np.ndarray
    planned: np.ndarray
    searched: np.ndarray
    may_leave: np.ndarray


class RankExchange(RowExchange):
    """Meetings of the ranks that have inputs: what is left of rows is compared, and rows move where that pays.

    Args:
        comm: of these ranks.
        rebalanced: whether rows may move for balance.
        merging: whether equal rows are merged across ranks.
    """

    def __init__(self, world: World, comm, rebalanced: bool, merging: bool):
        self.world, self.comm, self.rebalanced, self.merging = world, comm, rebalanced, merging
        self.begin()

    def begin(self) -> None:
        """Another run."""
        self.log, self._mark = Log(), None

    def first(self, planned: int, depth: int, count: int) -> int:
        start = time.perf_counter()
        counts = self._gather([planned if count else depth, count])
        self.depth, self._since, self._total, self._distance = depth, 0, int(counts[:, 1].sum()), 1
        self._mark = None
        self.log.communication += time.perf_counter() - start
        return max(1, int(counts[:, 0].min()))

    def meet(self, rows: MovableRows) -> int:
        # Wait for the slowest rank first, so that waiting is not counted as communication.
        start, k, closing = time.perf_counter(), rows.layer, rows.counters.closing
        self.world.wait(self.comm.Ibarrier())
        arrived = time.perf_counter()
        self.log.waiting += arrived - start
        # One small allgather: every rank knows what all hold, and decides the same from it.
        state = self._state(rows)
        # The share of all rows that died in a layer, as a mean since the last meeting.
        deaths = 1 - (int(state.rows.sum()) / max(1, self._total)) ** (1 / max(1, k - self._since))
        changed = 0
        # Merge before moving: a row that leaves as a duplicate need not travel.
        if self.merging and state.searched.any():
            changed = self._merge(rows)
            state = self._state(rows) if changed else state
        if self.rebalanced and state.may_leave.all():
            changed += self._balance(rows, state, deaths)
        self._since, self._total = k, int(state.rows.sum())
        self.log.communication += time.perf_counter() - arrived - (rows.counters.closing - closing)
        return self._next(k, state, changed, deaths)

    def end(self, edges: int) -> None:
        if self._mark is not None:
            self.log.edges_from_exchange = (self.log.edges_from_exchange or 0) + edges - self._mark

    def _gather(self, numbers: list) -> np.ndarray:
        """float64 (ranks, numbers): what every rank gives."""
        sent = np.array(numbers, dtype=np.float64)
        rows = np.empty((self.comm.size, sent.size))
        self.comm.Allgather(sent, rows)
        return rows

    def _state(self, local: MovableRows) -> _RankState:
        counts = self._gather([local.count, local.capacity, local.planned, local.searched, local.may_leave])
        return _RankState(*counts.astype(np.int64).T)

    def _next(self, k: int, state: _RankState, changed: int, deaths: float) -> int:
        """The next exchange: after as many layers as any rank wants to go; twice as many when nothing changes."""
        if state.rows.sum() <= 1:
            return self.depth
        # While rows die, balance is lost quickly; once nothing changes, meetings only cost.
        self._distance = 1 if changed or deaths > QUIET else 2 * self._distance
        busy = state.rows > 0
        return min(self.depth, k + max(1, int(state.planned[busy].min()), self._distance))

    def _balance(self, local: MovableRows, state: _RankState, deaths: float) -> int:
        """Redistribute the rows when that pays; how many moved."""
        # Even shares, as far as the memory of each rank allows, by moving as few rows as possible.
        targets = partition.targets(state.rows, state.room)
        moving = partition.moves(state.rows, targets)
        # Gain: edges that the busiest rank saves, if ever fewer rows die from layer to layer. Cost: the rank that sends
        # or receives most.
        k, work = local.layer, local.work[local.layer :]
        alive = np.cumprod(1 - max(0.0, deaths) * SLOWING ** np.arange(work.size))
        gain = float(state.rows.max() - targets.max()) * float(work @ alive)
        cost = EXCHANGE + MOVE * local.neurons * float(max(moving.sum(axis=0).max(), moving.sum(axis=1).max()))
        gain, cost = (float(number) for number in self._gather([gain, cost]).max(axis=0))  # so that all agree
        # The best exchange that did not pay is kept, so that the record can say why none happened.
        if gain <= cost:
            if gain > self.log.best[0]:
                self.log.best = (gain, cost, k)
            return 0
        if self._mark is None:
            self._mark = int(local.counters.edges.sum())
        # Choose the rows to send.
        rank = self.comm.rank
        others, chosen = np.flatnonzero(moving[rank]), []
        free = np.arange(local.count)
        for other in others:
            # Spread over all that are left, so that rows of every kind go, or the last ones where that is cheaper.
            count = int(moving[rank, other])
            spread = np.linspace(0, free.size - 1, count).round().astype(int)
            chosen.append(free[spread] if local.gaps else free[free.size - count :])
            free = np.setdiff1d(free, chosen[-1], assume_unique=True)
        keep = np.zeros(local.count, bool)
        keep[free] = True
        # A rank sends or receives, never both, so that one piece of spare memory serves.
        outgoing = dict(zip(others.tolist(), parcels(local, chosen, spare=True), strict=True)) if chosen else {}
        arrived, _ = self._swap(outgoing, local.scratch)
        if outgoing or arrived.sizes.size:
            local.replace(keep, arrived)
        # Bytes of all ranks, which the record of rank 0 has.
        sent = sum(array.nbytes for parcel in outgoing.values() for array in vars(parcel).values())
        total = int(self._gather([sent])[:, 0].sum())
        self.log.sent += int((~keep).sum())
        self.log.received += arrived.sizes.size
        self.log.exchanges.append(Exchange(k + 1, int(moving.sum()), total))
        return int(moving.sum())

    def _merge(self, local: MovableRows) -> int:
        """Rows that are equal to another rank's leave to it; how many did, on all ranks together.

        A group of equal hashes has an owner among the ranks that hold one of it. The others send it theirs, it
        compares them bit by bit, and answers which are equal: those leave, and their inputs are the owner's.
        """
        # Hashes of all ranks: 8 bytes a row travel, and not the rows.
        hashes = local.hashes()
        own, firsts = np.unique(hashes, return_index=True)
        sizes = self._gather([own.size])[:, 0].astype(int)
        everyone = np.empty(int(sizes.sum()), np.uint64)
        self.comm.Allgatherv(own, [everyone, sizes])
        # Choose the owner of each hash that several ranks hold, spread by the hash so that no rank owns most.
        ranks = np.repeat(np.arange(sizes.size), sizes)
        kinds, kind = np.unique(everyone, return_inverse=True)
        holders = np.bincount(kind, minlength=kinds.size)
        first = np.concatenate([[0], np.cumsum(holders)[:-1]])
        ordered = ranks[np.argsort(kind, kind="stable")]  # of each kind, its ranks, ascending
        owner = ordered[first + (kinds % holders.astype(np.uint64)).astype(int)]
        # Send the rows that another rank owns: equal hashes do not prove equal rows.
        kind_of = np.searchsorted(kinds, own)
        away = (holders[kind_of] > 1) & (owner[kind_of] != self.comm.rank)
        requests = {int(other): firsts[away & (owner[kind_of] == other)] for other in np.unique(owner[kind_of][away])}
        outgoing = dict(zip(requests, parcels(local, list(requests.values())), strict=True)) if requests else {}
        # The hashes travel as well, in the order of the rows, so that the owner finds its own.
        asked_hashes = {other: hashes[rows] for other, rows in requests.items()}
        (arrived, counts), (which, _) = self._swap(outgoing), self._send(asked_hashes, np.uint64)
        # As owner: compare bit by bit, and answer.
        rows = firsts[np.searchsorted(own, np.concatenate([own[:0], *(which[other] for other in counts)]))]
        answer, came = _absorb(local, rows, arrived)
        ends = np.cumsum([0, *counts.values()])
        answers = {other: answer[start:end] for other, start, end in zip(counts, ends, ends[1:], strict=False)}
        equal, _ = self._send(answers, np.uint8)
        # Rows that their owner has leave; the inputs of rows that came join ours.
        leaving = np.zeros(local.count, bool)
        for other, rows in requests.items():
            leaving[rows[equal[other].astype(bool)]] = True
        local.inputs.add(*came, local.count)
        if leaving.any():
            local.replace(~leaving, NOTHING)
        merged = int(leaving.sum())
        local.set_merged(merged)
        total = int(self._gather([merged])[:, 0].sum())
        self.log.merged += total
        return total

    def _swap(self, outgoing: dict[int, Parcel], memory: Callable | None = None) -> tuple[Parcel, dict[int, int]]:
        """(the rows that come from all other ranks, how many of them by rank); `memory` (bytes) gives room for them."""
        # Sizes and numbers first, then the features as one message, straight into the memory where they stay.
        heads, _ = self._send({other: _head(parcel) for other, parcel in outgoing.items()}, np.int64)
        _, whole = self._send({other: parcel.data for other, parcel in outgoing.items()}, np.uint8, memory)
        # What `_head` joined, apart again: sizes, numbers, row_of.
        parts = [(head[1 : 1 + head[0]], *np.split(head[1 + head[0] :], 2)) for head in heads.values()]
        counts = {other: sizes.size for other, (sizes, _, _) in zip(heads, parts, strict=True)}
        if not parts:
            return NOTHING, {}
        sizes, numbers, row_of = zip(*parts, strict=True)
        # Each parcel numbers its rows from 0; joined, they follow those of the parcels before.
        shift = np.cumsum([0, *counts.values()])
        rows = [of + start for of, start in zip(row_of, shift, strict=False)]
        return Parcel(np.concatenate(sizes), whole, np.concatenate(numbers), np.concatenate(rows)), counts

    def _send(
        self, outgoing: dict[int, np.ndarray], dtype, memory: Callable | None = None
    ) -> tuple[dict[int, np.ndarray], np.ndarray]:
        """(the arrays from other ranks by rank, all of them as one); an empty one is not sent."""
        lengths, come = np.zeros(self.comm.size, np.int64), np.empty(self.comm.size, np.int64)
        for other, array in outgoing.items():
            lengths[other] = array.size
        # Lengths first, so that every rank can receive into one array of the right size.
        self.comm.Alltoall(lengths, come)
        ends, others = np.cumsum([0, *come]), np.flatnonzero(come)
        whole = np.empty(ends[-1], dtype) if memory is None else memory(int(ends[-1]))
        parts = {int(other): whole[ends[other] : ends[other + 1]] for other in others}
        # Receives are posted before sends, so that no message needs a buffer of the MPI library.
        requests = [self.comm.Irecv(array, source=other) for other, array in parts.items()]
        requests += [self.comm.Isend(array, dest=other) for other, array in outgoing.items() if array.size]
        for request in requests:
            self.world.wait(request)
        return parts, whole


def parcels(local: MovableRows, groups: Sequence[np.ndarray], spare: bool = False) -> list[Parcel]:
    """A parcel of each group of rows (int64, all distinct); `spare` as MovableRows.pack takes it."""
    # Rows are packed once for all ranks that get some, then split: one pass over the features.
    sizes, data = local.pack(np.concatenate(groups), spare)
    sizes = np.split(sizes, np.cumsum([group.size for group in groups])[:-1])
    data = np.split(data, np.cumsum([size.sum() for size in sizes])[:-1])
    inputs = local.inputs
    return [Parcel(size, part, *inputs.of(group)) for size, part, group in zip(sizes, data, groups, strict=True)]


def _absorb(local: MovableRows, rows: np.ndarray, theirs: Parcel) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Which of the rows of a parcel are equal to ours at `rows`, as bytes; and (inputs, our rows) of those."""
    sizes, data = local.pack(rows)
    ours, others = np.split(data, np.cumsum(sizes)[:-1]), np.split(theirs.data, np.cumsum(theirs.sizes)[:-1])
    equal = np.array([np.array_equal(own, other) for own, other in zip(ours, others, strict=True)], bool)
    of_equal = equal[theirs.row_of]
    return equal.astype(np.uint8), (theirs.numbers[of_equal], rows[theirs.row_of[of_equal]])


def _head(parcel: Parcel) -> np.ndarray:
    """All of a parcel but its data: the number of rows, their sizes, the inputs and the rows of these."""
    return np.concatenate([[parcel.sizes.size], parcel.sizes, parcel.numbers, parcel.row_of]).astype(np.int64)
