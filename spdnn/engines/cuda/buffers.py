"""Room for one batch on a device, and every launch that takes it through the layers that the device has.

Data flow of a batch, all of it on the device:

    inputs (bits, dense or CSR) -> words or features -> pass of layers -> next rows -> pass -> ... -> statistics
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import limits
from spdnn.core.endings import check_ended
from spdnn.core.errors import past_float32
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.result import KeptInputs, LastLayer, LastRows, LayerWork, Result
from spdnn.engines.base import Prepared
from spdnn.engines.cuda import schedule
from spdnn.engines.cuda.choice import LATER, ROWS_MARGIN, choose, rows_left
from spdnn.engines.cuda.layers import LayerLayout, widths
from spdnn.engines.cuda.rows import TILE, DeviceInputs, DeviceRows, Launch
from spdnn.engines.cuda.schedule import BITS, PERSISTENT, LayerPass, SubBatches
from spdnn.kernels.cuda.device import Device, Properties

STATE_BYTES = 192  # of an input, besides its features: where its row is, hashes and their table, statistics


class LayoutSize(NamedTuple):
    """Of a layer as it is laid out: neurons in and out, the edges that one load serves at most, bytes of weights."""

    inputs: int
    outputs: int
    shared: int
    nbytes: int

    @classmethod
    def of(cls, layout: LayerLayout) -> "LayoutSize":
        return cls(layout.inputs, layout.outputs, layout.shared, layout.nbytes)


class KernelPlan:
    """The kernel of each layer of a network, chosen on `device` before anything but the inputs is there.

    Args:
        kind: as `choose` takes it.

    Attributes:
        kinds, valued: of each layer its kernel, and whether its edges have values; choice: how they were chosen.
        l2_bytes: of the device's second-level cache.
        neurons: of an input; outputs: of a row at the end; widest: of features in memory.
        leaving: rows may leave between passes, from `dead_from` on; searching: identical ones are merged.
        steady: the layer from which on all features are as wide as `outputs`.
        ahead: as schedule.passes takes it; edges: int64 (depth,).
    """

    def __init__(self, device: Device, prepared: Prepared, inputs: Inputs, kind: str | None):
        network, widths, depth = prepared.network, prepared.widths, prepared.network.depth
        self.depth, self.neurons, self.outputs, self.last = depth, network.inputs, network.outputs, LastLayer(network)
        self.dead_from, self.edges, self.l2_bytes = prepared.dead_from, prepared.edges, device.properties.l2_bytes
        self.ahead = [edges / neurons for edges, neurons in zip(prepared.edges_ahead, widths, strict=True)]
        self.searching = "inputs" in prepared.reductions
        self.leaving = self.searching or "dead" in prepared.reductions
        # Inputs of bits have a kernel of their own for the first layer; the others are chosen by timing.
        first, tiles = 1 if inputs.kind == "bits" else 0, ceil_div(inputs.count, TILE)
        self.choice = choose(device, network, first, tiles, kind, rows_left(tiles, self.leaving, self.searching))
        # The layers and features of the timing are gone: their memory goes back, so that what is free is in one piece.
        device.trim()
        self.kinds = [BITS] * first + self.choice.kinds[first:]
        self.valued = [not network.header(k).single_value for k in range(depth)]
        self.steady = 1 + max((k for k in range(depth) if widths[k] != network.outputs), default=-1)
        self.widest = max(widths[first:])

    @property
    def tile_bytes(self) -> int:
        """Of device memory, for each tile of a batch: two rows of features of each input, what is kept of it, and a
        bit for each layer and each input neuron."""
        return TILE * (2 * 4 * self.widest + STATE_BYTES) + 4 * (self.depth + self.neurons)

    def passes(self, breaks: Sequence[int] = ()) -> list[LayerPass]:
        """All layers, in order; `breaks` as schedule.passes takes it."""
        return schedule.passes(self.kinds, self.valued, self.leaving, self.searching, self.ahead, breaks)

    def sub_batches(self, properties: Properties, tiles: int, size: int | None = None) -> SubBatches | None:
        """The sub-batches in which the rows of a batch go through the layers that have few left; None: all at once.

        Args:
            tiles: of the batch; size: of a sub-batch, in tiles; 0: no sub-batches; None: as many as fit L2, where that
                saves memory traffic and was timed as faster.
        """
        # All features must be equally wide, so that a row is at one place of the two buffers in every layer.
        rows, first = rows_left(tiles, self.leaving, self.searching), max(LATER, self.steady)
        if rows is None or first >= self.depth or (size is None and not self.choice.sub_batches):
            return None
        parts = [part for part in self.passes([first]) if part.first >= first]
        weights = sum(self.edges[k] * schedule.LAYOUT_BYTES[self.valued[k]] for k in range(first, self.depth))
        rows = min(rows + rows // ROWS_MARGIN, TILE * tiles)
        return schedule.sub_batches(properties, parts, 4 * self.outputs, weights, rows, size)

    def result(
        self, inputs: Inputs, parts: Sequence[tuple[np.ndarray, dict[str, Any]]], layouts: Sequence[LayoutSize],
        passes: Sequence[LayerPass], notes: dict, keep: KeptInputs, sub: SubBatches | None = None,
    ) -> Result:  # fmt: skip
        """The result of a run, from the outcomes of its batches; `notes` are added to.

        Args:
            parts: of each batch, the numbers of its inputs, and what BufferSlot.finish gave.
            layouts: of each layer; passes: that a batch went through; sub: sub-batches with which it went on, or None.
        """
        batches = []
        for numbers, outcome in parts:
            # Inputs whose row is left are the categories; several of them may have one row.
            alive = np.flatnonzero(outcome["row_of"] >= 0)
            row_of = outcome["row_of"][alive].astype(np.int64)
            values = outcome.get("kept"), outcome.get("values")
            batches.append(LastRows(numbers[alive], row_of, outcome["statistics"], *values))
        # Work: the device counted rows of each layer; edges, and loads that outputs share, follow from the layers.
        work = np.sum([outcome["work"] for _, outcome in parts], axis=0, dtype=np.int64)
        edges_computed = work * self.edges
        loads = work * (self.edges // np.array([layout.shared for layout in layouts], np.int64))
        if inputs.kind == "bits":
            loads[0] //= 4  # a word has four inputs of a thread
        common = {"batches": len(parts), "rows_merged": int(sum(outcome["merged"] for _, outcome in parts)), **notes}
        survivors = np.sum([outcome["survivors"] for _, outcome in parts], axis=0, dtype=np.int64)
        # Rows to compute: those of whole tiles, or the inputs that go into the layer, where these are fewer.
        into = np.where(np.arange(self.depth) < max(1, self.dead_from), inputs.count, np.roll(survivors, 1))
        return self.last.result(
            inputs.total, batches, keep, survivors=survivors, edges_computed=int(edges_computed.sum()),
            counts=LayerWork(np.minimum(work, into), self.edges, edges_computed), notes=common,
            bytes_loaded=4 * int(loads.sum()),
            bytes_moved=self._bytes_moved(work / len(parts), inputs.kind, layouts, passes, sub) * len(parts),
        )  # fmt: skip

    def _bytes_moved(
        self, rows: np.ndarray, kind: str, layouts: Sequence[LayoutSize], passes: Sequence[LayerPass],
        sub: SubBatches | None,
    ) -> int:  # fmt: skip
        """Bytes between memory and L2 of a batch, of which so many rows went through each layer."""
        # A launch reads the features of its rows and writes those of the next layer; one of the persistent kernel has
        # those between in shared memory, and those of sub-batches stay in L2.
        first, end = (sub.first, self.depth) if sub else (self.depth, self.depth)
        spans = [(part.first, part.last) for part in passes if part.first < first and part.kind == PERSISTENT]
        single = (part for part in passes if part.first < first and part.kind != PERSISTENT)
        spans += [(k, k + 1) for part in single for k in range(part.first, part.last)]
        spans += [(first, end)] if sub else []
        sizes = [4.0 * layout.inputs for layout in layouts]
        sizes[0] *= 1 / 32 if kind == "bits" else 1
        launches = [rows[k] * sizes[k] + rows[last - 1] * 4 * layouts[last - 1].outputs for k, last in spans]
        # Each sub-batch reads the weights of its layers, where L2 does not hold all of them.
        weights = [layout.nbytes * (sub.count if sub and k >= first else 1) for k, layout in enumerate(layouts)]
        weights = weights if sum(layout.nbytes for layout in layouts) > self.l2_bytes else [0]
        return limits.past_cache(launches, limits.L2_SHARE * self.l2_bytes) + int(sum(weights))


class DevicePart:
    """What a device has of a run, shared by its buffer slots.

    Args:
        layers: by their numbers; inputs: None where it has none of its own.

    Attributes:
        table: uint64, a row (LayerLayout.row) for each of the network's layers; zeros for layers without one.
    """

    def __init__(
        self, device: Device, plan: KernelPlan, layers: Mapping[int, LayerLayout], inputs: DeviceInputs | None
    ):
        self.device, self.plan, self.layers, self.inputs = device, plan, layers, inputs
        table = np.zeros((plan.depth, 8), np.uint64)
        for k, layer in layers.items():
            if layer.kind == PERSISTENT:
                table[k] = layer.row(device)
        self.table = device.upload(table.reshape(-1))


class BufferSlot:
    """Two feature buffers, the rows of the batch in them, and the launches that take it through the layers.

    Which passes there are is planned before a run, and how many rows are left only the device knows. So the launches of
    a batch are bound once, in their order, and every run replays them. Each method returns the launches that follow
    those bound so far.

    Args:
        tiles: that there is room for.
        buffers: float32, two of `tiles` x 32 x the plan's `widest`.

    Attributes:
        features: those that the launches bound so far end with.
    """

    kind_of_rows = DeviceRows

    def __init__(self, part: DevicePart, tiles: int, buffers: Sequence[Any]):
        device, plan = part.device, part.plan
        self.device, self.plan, self.tiles, self.inputs = device, plan, tiles, part.inputs
        self.layers, self.table = part.layers, part.table
        bits = self.inputs and plan.kinds[0] == BITS
        self.words = device.empty(tiles * plan.neurons, np.uint32) if bits else None
        self.rows = self.kind_of_rows(device, tiles, plan.depth, plan.dead_from, plan.last, plan.searching)
        self.features, self._target = buffers

    def launches(self, passes: Sequence[LayerPass], sub: SubBatches | None = None) -> list[Launch]:
        """All launches of a batch, through these passes of all layers.

        Args:
            sub: sub-batches in which it goes on from the pass that begins with `sub.first`; None: all rows at once.
        """
        whole = [one for one in passes if not sub or one.first < sub.first]
        launches = [*self.begin(), *self.go_through(whole)]
        if sub:
            launches += [*self.boundary(whole[-1]), *self._in_sub_batches(sub, passes[len(whole) :])]
        return [*launches, *self.end(passes[-1])]

    def begin(self) -> list[Launch]:
        """The inputs of the batch that `rows.batch` tells of become rows, and words or features."""
        return [*self.rows.begin(), *self.inputs.launches(self.rows, self.words, self.features)]

    def go_through(self, passes: Sequence[LayerPass]) -> list[Launch]:
        """These passes, and between two of them what finds the rows that go on."""
        launches = self._pass(passes[0])
        for before, following in pairwise(passes):
            launches += [*self.boundary(before), *self._pass(following)]
        return launches

    def boundary(self, before: LayerPass) -> list[Launch]:
        """What finds the rows that go on after a pass."""
        return self.rows.boundary(before, self.features, self.layers[before.last - 1].outputs)

    def end(self, last: LayerPass) -> list[Launch]:
        """After the last pass: the rows that are left, their statistics, and the row of every input."""
        launches = self.boundary(last)
        launches.append(self.rows.statistics(self.features, self.plan.outputs))
        return launches + self.rows.resolve(self.plan.depth)

    def _in_sub_batches(self, sub: SubBatches, passes: Sequence[LayerPass]) -> list[Launch]:
        """These passes, for one sub-batch after the other.

        A sub-batch has its own part of each buffer. Only its first layer reads rows behind this part, where no
        sub-batch before it wrote: rows move to the front alone.
        """
        whole, buffers = self.rows, (self.features, self._target)
        cut, parts = whole.cut(sub, passes[-1].first)
        launches = [cut]
        for start, rows in zip(sub.starts, parts, strict=True):
            at = start * TILE * self.plan.outputs
            own, origin = [buffer[at:] for buffer in buffers], rows.origins[0]
            (self.features, self._target), self.rows = own, rows
            launches += self.go_through(passes)
        # All sub-batches end in the same buffer and the same list.
        self.features, self._target = buffers if self.features is own[0] else buffers[::-1]
        if rows.origins[0] is not origin:
            whole.origins.reverse()
        self.rows = whole
        return launches

    def _pass(self, part: LayerPass) -> list[Launch]:
        """One pass, which takes `features` on."""
        check_ended()  # a kernel may be compiled here
        # One launch a layer, its two buffers alternating; only the first layer reads rows where they lay before.
        layers, launches = [self.layers[k] for k in range(part.first, part.last)], []
        run, rows = self.rows.run, self.rows.into(part.first)
        if part.kind != PERSISTENT:
            for k, layer in enumerate(layers, part.first):
                source = self.words if part.kind == BITS else self.features
                launches.append(run.layer(k, layer, source, self._target, rows))
                self.features, self._target, run = self._target, self.features, self.rows.inside
            return launches
        # Persistent: one launch takes all layers of the pass, at a setting for each range of rows that may be left.
        variants = schedule.variants(self.device.properties, *widths(layers))
        if part.first < schedule.EARLY:
            variants = [variants[-1].for_any_rows()]
        self.features, self._target = self._target, self.features
        return [
            run.layers(part.first, self.table, setting, layers, self._target, self.features, rows)
            for setting in variants
        ]

    def finish(self, outcome: dict[str, Any], keep: KeptInputs, numbers: np.ndarray) -> dict[str, Any]:
        """The outcome of a batch, with the values of its rows that are kept, read from the device.

        Args:
            numbers: int64, of the batch's inputs.

        Raises:
            SpdnnError: a sum is not finite.
        """
        if outcome["failed"] < self.plan.depth:
            raise past_float32(outcome["failed"])
        # Kept values: rows are in tiles, so each tile that has a kept row is read once and its lanes are taken out.
        if keep:
            alive, size = outcome["row_of"] >= 0, TILE * self.plan.outputs
            rows = keep.rows(numbers[alive], outcome["row_of"][alive].astype(np.int64), outcome["rows"])
            places = self.device.read(self.rows.list[: outcome["rows"]])[rows]
            values = np.empty((rows.size, self.plan.outputs), np.float32)
            for tile in np.unique(places // TILE):
                of_tile = places // TILE == tile
                tile_values = self.device.read(self.features[tile * size : (tile + 1) * size]).reshape(-1, TILE)
                values[of_tile] = tile_values[:, places[of_tile] % TILE].T
            outcome |= {"kept": rows, "values": values}
        return outcome


def launch_all(launches: Sequence[Launch]) -> None:
    """Launch them all, in order."""
    for launch in launches:
        launch()


def batch_table(device: Device, count: int, size: int) -> np.ndarray:
    """int32 (batches, 2), pinned: of all inputs in batches of `size`, what DeviceRows.batch takes."""
    firsts = np.arange(0, count, size)
    table = device.pinned_array(2 * firsts.size, np.int32).reshape(-1, 2)
    table[:, 0], table[:, 1] = firsts, np.minimum(firsts + size, count) - firsts
    return table
