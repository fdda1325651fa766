"""The loop over layers: batches whose rows the host counts go through it, alone or between meetings with other ranks.

An engine gives rows (base.MovableRows) and layers, bound: all in memory, or each read ahead of its use.
"""

import abc
import contextlib
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.endings import check_ended
from spdnn.core.numbers import ceil_div
from spdnn.core.result import LastRows, Result
from spdnn.core.threads import in_order
from spdnn.engines.base import RESIDENT, STREAMED, Counters, MovableRows, RowExchange, Session


def advance(
    rows: MovableRows,
    last: int,
    layers: Iterator,
    ranks: RowExchange | None = None,
    tell: Callable[[int, int], None] = lambda layer, left: None,
) -> None:
    """Take a batch through the layers `rows.layer` to `last` - 1. Between two passes dead rows leave and identical ones
    merge, and where ranks meet, rows move.

    Args:
        layers: bound, from `rows.layer` on.
        ranks: the others; all stop before the same layers, since a meeting is collective.
        tell: called after each pass with the next layer, and the inputs that have a nonzero row.
    """
    meeting = ranks.first(rows.plan_pass(), last, rows.count) if ranks else last
    while rows.layer < last:
        check_ended()
        # A pass goes no further than the next meeting. A batch without rows skips its layers, and takes them from the
        # stream all the same, since other ranks may send it rows.
        count = meeting - rows.layer
        if rows.count:
            count = min(count, rows.plan_pass())
        following = list(islice(layers, count))
        if rows.count:
            rows.compute(following)
        rows.layer += count
        tell(rows.layer, rows.left)
        if rows.layer == last:
            break
        rows.compact(rows.layer == meeting)
        if ranks and rows.layer == meeting:
            meeting = ranks.meet(rows)
        if not rows.count and meeting == last:  # no rows are left, and none can come
            rows.layer = last
            tell(last, 0)


class BatchSession(Session):
    """A session that takes batches of its inputs through all layers, one batch after the other.

    Attributes:
        batch: inputs of one, at most; `tile`: a multiple of so many.
        layers: all, bound, in memory; None: `bind`, of a layer's number, reads each while the one before it is
            computed. A session that holds them all has no `bind`.
        least_batches: it makes no fewer, so that ranks make equally many; the last ones may be empty.
    """

    batch: int
    tile: int = 1
    layers: list | None = None
    bind: Callable[[int], Any]
    least_batches: int = 0

    @property
    def span(self) -> str:  # type: ignore[override]
        return STREAMED if self.layers is None else RESIDENT

    @property
    def batches(self) -> int:
        """Into how many batches the memory makes it split its inputs."""
        return ceil_div(self.inputs.count, self.batch)

    def run(self, exchange: RowExchange | None = None) -> Result:
        # Batches of equal size in whole tiles; ranks that exchange rows make equally many, and some may be empty.
        count, depth, counters = max(self.batches, self.least_batches), self.prepared.network.depth, self.counters()
        size = min(self.batch, ceil_div(ceil_div(self.inputs.count, count), self.tile) * self.tile)
        parts: list[LastRows] = []
        with progress.Inference(self.edges_passed, self.inputs.count, count) as stage:
            for start in range(0, count * size, size):
                rows = self.begin(self.inputs.numbers_of(start, start + size), counters)
                with contextlib.closing(self._stream()) as layers:
                    advance(rows, depth, layers, exchange, stage.batch(rows.count))
                if exchange:
                    exchange.end(int(counters.edges.sum()))
                parts.append(rows.finish())
        counters.note(self.prepared, self.findings)
        return self.result(parts, counters, size)

    def survivors_of(self, numbers: np.ndarray) -> np.ndarray | None:
        counters = self.counters()
        for start in range(0, numbers.size, self.batch):
            rows = self.begin(numbers[start : start + self.batch], counters)
            with contextlib.closing(self._stream()) as layers:
                advance(rows, self.prepared.network.depth, layers)
        return counters.survivors

    def _stream(self) -> Generator:
        depth = self.prepared.network.depth
        yield from self.layers or in_order(self.bind, range(depth), threads=1, ahead=2)

    def counters(self) -> Counters:
        """Of a run, at zero."""
        return Counters.zeros(self.prepared.network.depth)

    @abc.abstractmethod
    def begin(self, numbers: np.ndarray, counters: Any) -> MovableRows:
        """The rows of the inputs `numbers` (int64, ascending), before the first layer; `counters`: those of the run."""

    @abc.abstractmethod
    def result(self, parts: list[LastRows], counters: Any, size: int) -> Result:
        """Of all batches, each of `size` inputs at most."""
