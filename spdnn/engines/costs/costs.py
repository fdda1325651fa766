"""What a layer, a message and a copy cost: the primitives of the cost model, and of whatever simulates runs.

Rows are computed in whole tiles at a rate of their layer; messages cost latency + bytes / rate (Hockney, 1994).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from spdnn.engines.memory import RunSizes


@dataclass(frozen=True)
class DeviceCosts:
    """What one rank computes on.

    Attributes:
        seconds_per_edge: of one row through one edge, by layer; the last one holds for all deeper layers.
        seconds_per_input: of each input, besides: closing gaps, searching for identical rows.
        seconds_per_layer: of each layer, whatever it computes: launches, synchronisation.
        seconds_per_run: of each run, on one thread.
        tiles: sizes of a tile, ascending: rows are padded to the first that holds them, or to a multiple of the last.
        memory_bytes: of the device, or of the node whose ranks share it; None: not known.
        copy_bytes_per_second: of weights streamed for each layer; None: weights stay in memory.
        cores: that all ranks of a node share; None: what other ranks do slows none.
        threads: that the rates were measured with.
    """

    seconds_per_edge: tuple[float, ...]
    seconds_per_input: float = 0.0
    seconds_per_layer: float = 0.0
    seconds_per_run: float = 0.0
    tiles: tuple[int, ...] = (1,)
    memory_bytes: float | None = None
    copy_bytes_per_second: float | None = None
    cores: int | None = None
    threads: int = 1

    def rates(self, layers: int) -> np.ndarray:
        """`seconds_per_edge` of that many layers, float64 (layers,)."""
        return np.array((self.seconds_per_edge + self.seconds_per_edge[-1:] * layers)[:layers])

    def lanes(self, rows: np.ndarray | float) -> np.ndarray:
        """The rows computed for `rows` rows (any shape): whole tiles, and never less than one of them."""
        # Padding: whole tiles of the largest size, but one smaller tile where that holds all rows.
        rows, last = np.asarray(rows, float), self.tiles[-1]
        lanes = last * np.ceil(rows / last - 1e-9)
        for tile in reversed(self.tiles[:-1]):
            lanes = np.where(rows <= tile, float(tile), lanes)
        return np.where(rows > 0, lanes, 0.0)

    def copy(self, nbytes: np.ndarray | float) -> np.ndarray | float:
        """Seconds that bringing so many bytes of weights takes."""
        return nbytes / self.copy_bytes_per_second if self.copy_bytes_per_second else 0.0 * nbytes

    def layers(self, work: "Work", rows: np.ndarray, batches: int = 1, streamed: bool = True) -> np.ndarray:
        """Seconds of each layer for `rows` rows in each, (..., layers): the cost of a layer on this device.

        Args:
            batches: that the rows come in; each pays for launches and weights anew.
            streamed: with what weights that are streamed take; else they have a clock of their own.
        """
        # Double buffering: where weights are streamed, the slower of copying and computing counts.
        computing = self.lanes(rows) * work.edges * self.rates(work.layers)
        copying = batches * self.copy(work.weight_bytes) if streamed else 0.0
        return np.where(rows > 0, np.maximum(computing, copying) + batches * self.seconds_per_layer, 0.0)

    def together(self, seconds: np.ndarray, threads: int) -> np.ndarray:
        """When ranks that start together on one node end, (ranks,), when each alone would need `seconds`.

        Ranks that still run share the cores evenly, and none uses more than its threads.
        """
        if self.cores is None:
            return seconds
        # Processor sharing: from one end to the next all ranks that still run have the same speed, which rises as fewer
        # of them share the cores, up to what their threads can use.
        order = np.argsort(seconds)
        running = np.arange(seconds.size, 0, -1)
        speed = np.minimum(threads, self.cores / running) / min(self.threads, self.cores)
        ends = np.empty(seconds.size)
        ends[order] = np.cumsum(np.diff(seconds[order], prepend=0.0) / speed)
        return ends


@dataclass(frozen=True)
class MessageCosts:
    """What a message costs: latency + bytes / rate."""

    latency_seconds: float
    bytes_per_second: float

    def message(self, nbytes: float) -> float:
        """Seconds of one message of so many bytes between two ranks."""
        return self.latency_seconds + nbytes / self.bytes_per_second

    def collective(self, ranks: int, nbytes: float) -> float:
        """Seconds of a collective operation in a tree, when one rank sends or takes so many bytes in all."""
        if ranks == 1:
            return 0.0
        return math.ceil(math.log2(ranks)) * self.latency_seconds + nbytes / self.bytes_per_second


FREE = MessageCosts(0.0, math.inf)


@dataclass(frozen=True)
class Work:
    """What must be computed, by layer: float64 (layers,) each.

    Attributes:
        inputs: that the other counts hold for.
        edges: that one row goes through.
        rows: computed in all, dead ones that had not left yet included.
        survivors: inputs that are alive before the layer.
        row_bytes: of one row of features.
        weight_bytes: of the layer.
        input_bytes: of one input as it waits in memory.
        merged: identical rows were merged, so more inputs bring fewer new rows.
        comparisons: how often ranks compare what they have left, where they may.
        searches: whether ranks exchange rows in any partition, to find rows that are equal on several.
    """

    inputs: int
    edges: np.ndarray
    rows: np.ndarray
    survivors: np.ndarray
    row_bytes: np.ndarray
    weight_bytes: np.ndarray
    input_bytes: float
    merged: bool = False
    comparisons: int = 0
    searches: bool = False

    @property
    def layers(self) -> int:
        return self.edges.size

    def of(self, inputs: int) -> "Work":
        """The same work for another number of inputs of the same kind.

        Merged rows are taken as drawn evenly from classes, as many as leave the rows seen: few distinct rows stay
        few, and rows that were all different stay so.
        """
        if inputs == self.inputs:
            return self
        # Occupancy: n inputs drawn from c classes leave c (1 - exp(-n / c)) rows; the rows seen give c.
        factor = inputs / self.inputs
        rows = self.rows * factor
        if self.merged:
            # Fullness n / c: (1 - exp(-n / c)) / (n / c) is the share of rows that differ; it falls from 1 to 0, so
            # that bisection finds n / c.
            distinct = self.rows / np.maximum(self.survivors, 1.0)
            low, high = np.zeros(distinct.shape), 2 / np.maximum(distinct, 1e-12)
            for _ in range(100):
                middle = (low + high) / 2
                above = -np.expm1(-middle) > distinct * middle
                low, high = np.where(above, middle, low), np.where(above, high, middle)
            fullness = np.where(distinct < 0.999, low, 0.0)
            crowded = fullness > 0
            classes = self.survivors[crowded] / fullness[crowded]
            rows[crowded] = classes * -np.expm1(-fullness[crowded] * factor)
        return replace(self, inputs=inputs, rows=rows, survivors=self.survivors * factor)

    def sizes(self, device: DeviceCosts) -> RunSizes:
        """What a run takes of a device, as the cost model knows it: engines know more of their layouts."""
        weights = tuple(math.ceil(nbytes) for nbytes in self.weight_bytes)
        held = math.ceil(self.inputs * self.input_bytes)
        return RunSizes(self.inputs, device.tiles[-1], weights, math.ceil(2 * self.row_bytes.max()), held)

    def memory(self, inputs: float, streamed: bool) -> tuple[float, float]:
        """(bytes held all the time, bytes of features) of a rank with so many inputs; weights whole or two layers."""
        weights = 2 * self.weight_bytes.max() if streamed else self.weight_bytes.sum()
        return float(weights + inputs * self.input_bytes), float(2 * inputs * self.row_bytes.max())
