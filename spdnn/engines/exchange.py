"""What a session that is one rank of several offers between two layers: its rows, to be compared, moved and merged.

A session calls `RowExchange.meet` before the layers that `first` and `meet` name; every rank does so before the same
layers. What happens there (runs/ranks/exchange.py) reaches the rows through HeldRows, so that no engine knows
of messages, and what moves rows knows of no engine.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spdnn.engines.reductions.inputs import Representatives


@dataclass(frozen=True)
class Parcel:
    """Rows on their way from one rank to another.

    Attributes:
        sizes: int64 (rows,), bytes of each; data: uint8, all of them, one after the other.
        numbers: int64, the inputs that they represent; row_of: int64, the row of each of these.
    """

    sizes: np.ndarray
    data: np.ndarray
    numbers: np.ndarray
    row_of: np.ndarray


class HeldRows(abc.ABC):
    """The rows that a session holds before a layer; only those that may still be nonzero, counted from 0.

    Attributes:
        capacity: rows that it has room for.
        may_leave: whether rows of zeros have left, and are not exchanged.
        searched: whether this session has just searched for identical rows.
        planned: layers that it would go through next without a break.
        neurons: of a row, for what moving one costs.
        gaps: whether rows that left have gaps behind them, which `replace` closes: any row may then go as well as
            another, else the last ones leave none.
        closing: seconds that `replace` spent on such gaps; they are the session's own, whoever else there is.
        edges: inputs x edges gone through so far.
        work: float64 (layers,), edges that one row goes through in each layer of the network.
    """

    capacity: int
    may_leave: bool
    searched: bool = False
    planned: int = 1
    neurons: int
    gaps: bool = True
    closing: float = 0.0
    edges: int
    work: np.ndarray

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.inputs().weights.size

    @abc.abstractmethod
    def inputs(self) -> Representatives:
        """Which of the rows represents which inputs; may be written to, for rows that stay."""

    @abc.abstractmethod
    def hashes(self) -> np.ndarray:
        """uint64 (count,), equal for rows that are equal to the bit, on every rank."""

    @abc.abstractmethod
    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(sizes, data) of a Parcel of these rows (int64); equal bytes for equal rows, and for no others.

        Args:
            spare: the data may lie in memory that `scratch` gives as well.
        """

    def scratch(self, nbytes: int) -> np.ndarray:
        """uint8 (nbytes,), for rows that arrive: memory that need not be kept after `replace`, nor before it."""
        return np.empty(nbytes, np.uint8)

    @abc.abstractmethod
    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        """Rows that are not `kept` (bool) leave, and those of the parcel follow the ones that stay."""

    @abc.abstractmethod
    def set_merged(self, rows: int) -> None:
        """So many rows left, or came to represent others', since equal ones were on other ranks."""


class RowExchange(abc.ABC):
    """The other ranks, as a session sees them."""

    @abc.abstractmethod
    def first(self, planned: int, depth: int, count: int) -> int:
        """The layer before which all ranks meet first; the depth for none. Begins a batch of `count` inputs.

        Args:
            planned: layers that this rank would go through without a break.
        """

    @abc.abstractmethod
    def meet(self, k: int, local: HeldRows) -> int:
        """All ranks meet before layer k (0-based); the layer before which they do so next."""

    @abc.abstractmethod
    def end(self, edges: int) -> None:
        """This rank is through with a batch, and has gone through so many inputs x edges since the run began."""


def parcels(local: HeldRows, groups: Sequence[np.ndarray], spare: bool = False) -> list[Parcel]:
    """A parcel of each group of rows (int64, all distinct); `spare` as HeldRows.pack takes it."""
    # Rows are packed once for all ranks that get some, then split: one pass over the features.
    sizes, data = local.pack(np.concatenate(groups), spare)
    sizes = np.split(sizes, np.cumsum([group.size for group in groups])[:-1])
    data = np.split(data, np.cumsum([size.sum() for size in sizes])[:-1])
    inputs = local.inputs()
    return [Parcel(size, part, *inputs.of(group)) for size, part, group in zip(sizes, data, groups, strict=True)]
