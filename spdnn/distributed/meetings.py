"""Where ranks meet between layers: rows that are equal on several are merged, and rows move to where there are fewer.

Every rank knows what all of them hold from one small allgather, and comes to the same decisions; so only rows move.
An exchange is made when the predicted gain, edges of the busiest rank saved until the end, exceeds the predicted cost.
Both are counted in edges that a rank goes through, never measured: a run repeats whatever the machine does.

Source of what it mends: Hidayetoglu et al., HPEC 2020, section IV.C (static parts; imbalance limits 1024 neurons).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from spdnn.distributed import partition
from spdnn.distributed.world import World
from spdnn.engines.meetings import HeldRows, Meetings, Parcel, parcel

# In edges, of which a core goes through some 3e10 a second (measured on the smallest and the largest messages here).
EXCHANGE = 3_000_000  # an exchange as such: two small messages to all, one large one to some
MOVE = 120  # each neuron of a row that moves: packing, sending, placing
QUIET = 0.02  # of the rows die in a layer: below it, nothing is expected to change soon
LOST = 0.05  # of the rows die in a layer at least, as long as nothing is known


@dataclass
class Exchange:
    """One redistribution of rows, as the record tells it; `gain` and `cost` in edges of one rank."""

    before_layer: int
    rows: int
    bytes: int
    gain: float
    cost: float


@dataclass
class Log:
    """What the meetings of one run did.

    Attributes:
        waiting, communication: seconds of this rank.
        meetings, exchanges, merged: of all ranks; the last in rows that came to be computed once.
        edges_from_exchange: of this rank, inputs x edges from the first exchange of each batch on.
        best: the largest gain, with its cost and layer, that was not worth an exchange.
    """

    waiting: float = 0.0
    communication: float = 0.0
    meetings: int = 0
    exchanges: list[Exchange] = field(default_factory=list)
    merged: int = 0
    sent: int = 0
    received: int = 0
    edges_from_exchange: int | None = None
    best: tuple[float, float, int] = (0.0, 0.0, 0)


@dataclass
class _State:
    """What each rank tells at a meeting; arrays (ranks,)."""

    rows: np.ndarray
    room: np.ndarray
    tile: np.ndarray
    planned: np.ndarray
    looked: np.ndarray
    may_leave: np.ndarray


class RankMeetings(Meetings):
    """The meetings of the ranks that have inputs.

    Args:
        comm: of these ranks.
        rebalanced: whether rows may move for balance.
        merging: whether equal rows are merged across ranks.
    """

    def __init__(self, world: World, comm, rebalanced: bool, merging: bool):
        self.world, self.comm, self.rebalanced, self.merging = world, comm, rebalanced, merging
        self.log = Log()
        self.begin()

    def begin(self) -> None:
        """Another run."""
        self.log, self._mark = Log(), None

    def first(self, planned: int, depth: int, count: int) -> int:
        start = time.perf_counter()
        told = self._gather([planned if count else depth, count])
        self.depth, self._since, self._total, self._distance = depth, 0, int(told[:, 1].sum()), 1
        self._mark = None
        self.log.communication += time.perf_counter() - start
        return max(1, int(told[:, 0].min()))

    def meet(self, k: int, held: HeldRows) -> int:
        start = time.perf_counter()
        self.world.wait(self.comm.Ibarrier())
        arrived = time.perf_counter()
        self.log.waiting += arrived - start
        self.log.meetings += 1
        state = self._state(held)
        deaths = self._deaths(k, int(state.rows.sum()))
        changed = 0
        if self.merging and state.looked.any():
            changed = self._merge(held)
            state = self._state(held) if changed else state
        if self.rebalanced and state.may_leave.all():
            changed += self._balance(k, held, state, deaths)
        self._since, self._total = k, int(state.rows.sum())
        self.log.communication += time.perf_counter() - arrived
        return self._next(k, state, changed, deaths)

    def end(self, edges: int) -> None:
        if self._mark is not None:
            self.log.edges_from_exchange = (self.log.edges_from_exchange or 0) + edges - self._mark

    def _gather(self, numbers: list) -> np.ndarray:
        """float64 (ranks, numbers): what every rank gives."""
        mine = np.array(numbers, dtype=np.float64)
        found = np.empty((self.comm.size, mine.size))
        self.comm.Allgather(mine, found)
        return found

    def _state(self, held: HeldRows) -> _State:
        told = self._gather([held.count, held.capacity, held.tile, held.planned, held.looked, held.may_leave])
        rows, room, tile, planned, looked, may_leave = told.T
        return _State(
            rows.astype(int), room.astype(int), tile.astype(int), planned.astype(int), looked > 0, may_leave > 0
        )

    def _deaths(self, k: int, rows: int) -> float:
        """The share of all rows that left in a layer since the last meeting."""
        return 1 - (rows / max(1, self._total)) ** (1 / max(1, k - self._since))

    def _next(self, k: int, state: _State, changed: int, deaths: float) -> int:
        """The next meeting: after as many layers as any rank wants to go; twice as many when nothing changes."""
        if state.rows.sum() <= 1:
            return self.depth
        self._distance = 1 if changed or deaths > QUIET else 2 * self._distance
        busy = state.rows > 0
        return min(self.depth, k + max(1, int(state.planned[busy].min()), self._distance))

    def _balance(self, k: int, held: HeldRows, state: _State, deaths: float) -> int:
        """Redistribute the rows when that pays; how many moved."""
        wanted = partition.targets(state.rows, state.room)
        moving = partition.moves(state.rows, wanted)
        tile = int(state.tile.max())
        padded = lambda rows: -(-int(rows) // tile) * tile  # noqa: E731
        ahead = float(held.work[k:] @ (1 - max(0.0, deaths)) ** np.arange(self.depth - k))
        gain = (padded(state.rows.max()) - padded(wanted.max())) * ahead
        cost = EXCHANGE + MOVE * held.neurons * float(max(moving.sum(axis=0).max(), moving.sum(axis=1).max()))
        gain, cost = (float(number) for number in self._gather([gain, cost])[0])  # of one rank, so that all agree
        if gain <= cost:
            if gain > self.log.best[0]:
                self.log.best = (gain, cost, k)
            return 0
        if self._mark is None:
            self._mark = held.edges
        rank = self.comm.rank
        leaving, outgoing = np.zeros(held.count, bool), {}
        free = np.arange(held.count)
        for other in np.flatnonzero(moving[rank]):
            # Spread over all that are left, so that rows of every kind go.
            chosen = free[np.linspace(0, free.size - 1, moving[rank, other]).round().astype(int)]
            leaving[chosen] = True
            outgoing[int(other)] = parcel(held, chosen)
            free = np.setdiff1d(free, chosen, assume_unique=True)
        arrived = self._swap(outgoing)
        if outgoing or arrived:
            held.replace(~leaving, _joined(list(arrived.values())))
        sent = sum(_nbytes(one) for one in outgoing.values())
        total = int(self._gather([sent])[:, 0].sum())
        self.log.sent += int(leaving.sum())
        self.log.received += sum(one.sizes.size for one in arrived.values())
        self.log.exchanges.append(Exchange(k + 1, int(moving.sum()), total, gain, cost))
        return int(moving.sum())

    def _merge(self, held: HeldRows) -> int:
        """Rows that are equal to another rank's leave to it; how many did, on all ranks together.

        A group of equal hashes has an owner among the ranks that hold one of it. The others send it theirs, it
        compares them bit by bit, and answers which are equal: those leave, and their inputs are the owner's.
        """
        hashes = held.hashes()
        own, places = np.unique(hashes, return_index=True)
        sizes = self._gather([own.size])[:, 0].astype(int)
        everyone = np.empty(int(sizes.sum()), np.uint64)
        self.comm.Allgatherv(own, [everyone, sizes])
        ranks = np.repeat(np.arange(sizes.size), sizes)
        kinds, kind = np.unique(everyone, return_inverse=True)
        holders = np.bincount(kind, minlength=kinds.size)
        first = np.concatenate([[0], np.cumsum(holders)[:-1]])
        ordered = ranks[np.argsort(kind, kind="stable")]  # of each kind, its ranks, ascending
        owner = ordered[first + (kinds % holders.astype(np.uint64)).astype(int)]
        mine = np.searchsorted(kinds, own)
        away = (holders[mine] > 1) & (owner[mine] != self.comm.rank)
        outgoing, asked = {}, {}
        for other in np.unique(owner[mine][away]):
            asked[int(other)] = places[away & (owner[mine] == other)]
            outgoing[int(other)] = parcel(held, asked[int(other)])
        # The hashes travel as well, in the order of the rows, so that the owner finds its own.
        told = {other: hashes[rows] for other, rows in asked.items()}
        arrived, which = self._swap(outgoing), self._send(told, np.uint64)
        answers, came = {}, []
        for other, theirs in arrived.items():
            rows = places[np.searchsorted(own, which[other])]
            answers[other], numbers = _absorbed(held, rows, theirs)
            came.append(numbers)
        equal = self._send(answers, np.uint8)
        leaving = np.zeros(held.count, bool)
        for other, rows in asked.items():
            leaving[rows[equal[other].astype(bool)]] = True
        inputs = held.inputs()
        for numbers, rows in came:
            inputs.add(numbers, rows, held.count)
        if leaving.any():
            held.replace(~leaving, _joined([]))
        merged = int(leaving.sum())
        held.merged(merged)
        total = int(self._gather([merged])[:, 0].sum())
        self.log.merged += total
        return total

    def _swap(self, outgoing: dict[int, Parcel]) -> dict[int, Parcel]:
        """The parcels that come from other ranks, by rank."""
        blobs = {other: _blob(one) for other, one in outgoing.items()}
        return {other: _unblob(blob) for other, blob in self._send(blobs, np.uint8).items()}

    def _send(self, outgoing: dict[int, np.ndarray], dtype) -> dict[int, np.ndarray]:
        """Arrays from other ranks, by rank; an empty one is not sent."""
        lengths, come = np.zeros(self.comm.size, np.int64), np.empty(self.comm.size, np.int64)
        for other, array in outgoing.items():
            lengths[other] = array.size
        self.comm.Alltoall(lengths, come)
        found = {int(other): np.empty(come[other], dtype) for other in np.flatnonzero(come)}
        requests = [self.comm.Irecv(array, source=other) for other, array in found.items()]
        requests += [self.comm.Isend(array, dest=other) for other, array in outgoing.items() if array.size]
        for request in requests:
            self.world.wait(request)
        return found


def _absorbed(held: HeldRows, rows: np.ndarray, theirs: Parcel) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Which of the rows of a parcel are equal to ours at `rows`, as bytes; and (inputs, our rows) of those."""
    sizes, data = held.pack(rows)
    ours, others = np.split(data, np.cumsum(sizes)[:-1]), np.split(theirs.data, np.cumsum(theirs.sizes)[:-1])
    equal = np.array([np.array_equal(one, other) for one, other in zip(ours, others, strict=True)], bool)
    of_equal = equal[theirs.row_of]
    return equal.astype(np.uint8), (theirs.numbers[of_equal], rows[theirs.row_of[of_equal]])


def _nbytes(one: Parcel) -> int:
    return one.sizes.nbytes + one.data.nbytes + one.numbers.nbytes + one.row_of.nbytes


def _joined(parcels: list[Parcel]) -> Parcel:
    """All rows of some parcels as one."""
    none, shift = np.empty(0, np.int64), np.cumsum([0, *(one.sizes.size for one in parcels)])
    return Parcel(
        np.concatenate([none, *(one.sizes for one in parcels)]),
        np.concatenate([np.empty(0, np.uint8), *(one.data for one in parcels)]),
        np.concatenate([none, *(one.numbers for one in parcels)]),
        np.concatenate([none, *(one.row_of + start for one, start in zip(parcels, shift, strict=False))]),
    )


def _blob(one: Parcel) -> np.ndarray:
    """A parcel as bytes: the number of rows and of inputs, sizes, inputs, rows, data."""
    head = np.array([one.sizes.size, one.numbers.size], np.int64)
    parts = (head, one.sizes.astype(np.int64), one.numbers.astype(np.int64), one.row_of.astype(np.int64))
    return np.concatenate([*(part.view(np.uint8) for part in parts), one.data])


def _unblob(blob: np.ndarray) -> Parcel:
    rows, inputs = blob[:16].view(np.int64)
    ends = 16 + 8 * np.cumsum([rows, inputs, inputs])
    sizes, numbers, row_of = (part.view(np.int64) for part in np.split(blob[16 : ends[2]], ends[:2] - 16))
    return Parcel(sizes, blob[ends[2] :], numbers, row_of)
