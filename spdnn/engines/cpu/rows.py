"""The rows of one batch in tiles, and which inputs each represents.

Rows that died leave, rows that became identical merge, and the others close the gaps.
"""

import time

import numpy as np

from spdnn.core.errors import past_float32
from spdnn.core.numbers import ceil_div
from spdnn.core.result import LastRows, RowStatistics
from spdnn.engines.base import MovableRows, Parcel
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import LOGGED, BatchKernels, TileCounters
from spdnn.engines.reductions.inputs import representatives
from spdnn.kernels.tiles import active_indices


class TiledRows(MovableRows):
    """Row i of `source` is row i of `inputs`, also while it is dead: a row keeps its index until gaps are closed.

    Args:
        work: the kernels and costs that the batches of a run share; `threads` run them.
        source, target: buffers of features; the next pass reads the first and writes the other.
        max_pass_layers: layers of a pass at most.
        block: tiles of a block, where the first pass goes through its inputs in blocks, and rows that died leave after
            each: the rest of both buffers is then never written to; 0: it does not.

    Attributes:
        tile: of the features in `source`.
        indices: int64, ascending, of the rows that were nonzero after the last pass; `alive`: how many these were, and
            `deaths`: the share of the rows that died in each of its layers.
        wasted: work on dead rows since gaps were last closed.
        places: int64, ascending, where the rows of `inputs` lie while gaps are open: dead rows have left, and it is not
            yet known which others go to other ranks.
    """

    def __init__(
        self, work: BatchKernels, numbers: np.ndarray, counters: TileCounters, threads: int, source: np.ndarray,
        target: np.ndarray, capacity: int, max_pass_layers: int = plan.MOST_LAYERS, block: int = 0,
    ):  # fmt: skip
        super().__init__(work.prepared, numbers, counters, ceil_div(capacity, work.tile) * work.tile)
        self.counters: TileCounters = counters
        self.kernels, self.threads, self.max_pass_layers, self.block = work, threads, max_pass_layers, block
        self.level, self.tile, self.source, self.target = work.kernels, work.tile, source, target
        self.indices, self.places = np.arange(numbers.size), None
        self.alive, self.deaths, self.wasted = numbers.size, plan.FIRST_DEATHS, 0.0

    @property
    def tiles(self) -> int:
        return ceil_div(self.count, self.tile)

    @property
    def lanes(self) -> int:
        """Rows that a layer goes through: those of whole tiles."""
        return self.tiles * self.tile

    @property
    def gaps(self) -> bool:  # type: ignore[override]
        places = self.places
        return places is not None and bool(places.size and places[-1] >= places.size)

    def plan_pass(self) -> int:
        # What is here now stays here until the next meeting.
        self._close_gaps()
        self.places = None
        return self._plan()

    def _plan(self) -> int:
        if not self.count:
            return 1
        return self.kernels.costs.layers(self.layer, self.tiles, self.tile, self._deaths(), self.longest_pass())

    def longest_pass(self) -> int:
        """Layers of the next pass, at most."""
        return min(self.layers_to_search() or self.max_pass_layers, self.max_pass_layers)

    def compute(self, layers: list) -> None:
        start, work, tally = time.perf_counter(), self.kernels, self.counters
        k, lanes, size = self.layer, self.lanes, self.count
        span = slice(k, k + len(layers))
        inwards = 4 * lanes * self.neurons
        outwards = 4 * lanes * int(work.costs.outputs[span.stop - 1])
        # Fused pass: the kernel takes each tile through all these layers while its features are in the cache, and gives
        # a mask of the active rows after each. Outputs that no cache holds until they are read are written past it.
        # It begins at zero, so that a tile that no layer wrote to counts as dead and not computed.
        active, streamed = np.zeros((len(layers), self.tiles), np.uint64), outwards > work.cache
        rest = (self.tile, max(0, work.dead_from - k), active, self.threads, streamed)
        blocks = k == 0 < self.block < self.tiles and span.stop >= work.dead_from
        if blocks:
            failed = self._in_blocks(layers, *rest)
        elif k == 0:  # the first layer reads the inputs as they are stored, so that no copy in tiles is made
            rows = work.inputs.stored_rows(self.inputs.numbers)
            failed = self.level.layers_stored(layers, work.stored, rows, self.target, *rest)
        else:
            failed = self.level.layers(layers, self.source, self.target, size, *rest)
        if failed >= 0:
            raise past_float32(k + failed)
        self.source, self.target = self.target, self.source
        # Edges computed: the kernel skips a tile that is zero after layer dead_from - 1 or a later one. The mask
        # (layers, tiles) says what it computed.
        run = np.ones(active.shape, bool)
        run[1:] = (active[:-1] != 0) | (np.arange(k, k + len(layers) - 1) < work.dead_from)[:, None]
        edges = self.tile * run.sum(axis=1) * work.edges[span]
        loaded = 4 * self.tile * int(run.sum(axis=1) @ [layer.gathers for layer in layers])
        if k == 0 and work.inputs.kind == "bits":  # the first layer gathers bits, not floats
            loaded -= lanes * int(layers[0].gathers) * 31 // 8  # 1 bit in place of 32: 31/8 bytes less a gather
            inwards //= 32
        # Memory traffic: features, or all weights, that fit the last-level cache do not pass it.
        tally.moved += inwards + outwards if inwards + outwards > work.cache else 0
        tally.moved += int(work.costs.nbytes[span].sum()) if int(work.costs.nbytes.sum()) > work.cache else 0
        tally.passes += 1
        tally.edges[span] += edges
        tally.loaded += loaded
        # Active rows: lanes past the last row are padding that a positive bias makes active; their bits are cleared.
        self.indices = active_indices(active[-1], self.tile, size)
        filled = self.tile - (self.tiles * self.tile - size)
        active[:, -1] &= np.uint64((1 << filled) - 1)
        alive = np.bitwise_count(active).sum(axis=1, dtype=np.int64)
        # Survivors are inputs: a row that represents several of them counts as often.
        inputs = alive
        if (self.inputs.weights != 1).any():
            bits = np.unpackbits(active.view(np.uint8).reshape(len(layers), -1, 8), axis=2, bitorder="little")
            inputs = bits[:, :, : self.tile].reshape(len(layers), -1)[:, :size].astype(np.int64) @ self.inputs.weights
        tally.survivors[span] += inputs
        self.left = inputs[-1]
        nonzero = np.concatenate([[self.alive], alive[:-1]])
        tally.rows[span] += np.where(np.arange(span.start, span.stop) < work.dead_from, size, nonzero)
        # Waste (in units of Costs.work, of whole tiles) and death rate decide when gaps are closed and how long the
        # next pass is.
        needed = ceil_div(alive, self.tile)
        self.wasted += float(((self.tiles - needed) * work.costs.work[span]).sum())
        self.deaths = max(0.0, 1 - (self.indices.size / max(1, self.alive)) ** (1 / len(layers)))
        self.alive = self.indices.size
        if len(tally.log) < LOGGED:
            tally.log.append([k, len(layers), lanes, int(edges.sum()), time.perf_counter() - start])
        if blocks:  # those that died have left
            self._let_go(self.indices)
            self.indices, self.wasted = np.arange(self.count), 0.0
            if (tile := work.tile_for(self.count)) != self.tile:
                self._close(self.indices, tile, int(work.costs.outputs[span.stop - 1]))

    def _in_blocks(self, layers, tile: int, still: int, active: np.ndarray, threads: int, streamed: bool) -> int:
        """The pass that reads the inputs, block by block; as the kernel `layers_stored`, but rows that died leave."""
        work, neurons = self.kernels, int(self.kernels.costs.outputs[len(layers) - 1])
        rows, size = work.inputs.stored_rows(self.inputs.numbers), neurons * tile
        # `source` holds nothing yet: it takes a tile of rows that wait until they are a whole tile, then a block.
        done = waiting = 0
        for first in range(0, self.tiles, self.block):
            part = rows[first * tile : (first + self.block) * tile]
            masks = np.zeros((len(layers), ceil_div(part.size, tile)), np.uint64)
            block = work.stored, part, self.source[size:], tile, still, masks, threads, streamed
            if (failed := self.level.layers_stored(layers, *block)) >= 0:
                return failed
            active[:, first : first + self.block] = masks
            alive = np.concatenate([np.arange(waiting), tile + active_indices(masks[-1], tile, part.size)])
            to = self.target[done * size :]
            self.level.compact(self.source, tile, to, tile, neurons, alive, threads)
            done, waiting = done + alive.size // tile, alive.size % tile
            if waiting:
                self.source[:size] = to[alive.size // tile * size :][:size]
        return -1

    def compact(self, meeting: bool) -> None:
        if meeting:
            # Dead rows leave the count of rows now; their gaps stay until it is known which rows go to other ranks.
            self.places = np.arange(self.count)
            if self.may_leave and self.indices.size < self.count:
                self._let_go(self.indices)
                self.places = self.indices
            # Equal rows are merged before the exchange, so that none is sent twice.
            self.searched = self.layers_to_search(meeting) == 0
            if self.searched:
                self._close_gaps()
                self.merge_identical(meeting)
                self.places = np.arange(self.count)
            self.indices, self.planned = np.arange(self.count), self._plan()
            return
        # Dead inputs: gaps are closed when dead rows have wasted as much work as moving the rows that are left costs
        # (BOUNDARY for each neuron and tile).
        before, needed = self.count, ceil_div(self.indices.size, self.tile)
        if self.may_leave and self.wasted > plan.BOUNDARY * self.neurons * needed:
            start = time.perf_counter()
            self.keep(self.indices)
            self.counters.closing += time.perf_counter() - start
        # Identical inputs: merged after the dead ones have left, for a search costs as much for them.
        self.merge_identical(meeting)
        if self.count < before:
            self.indices = np.arange(self.count)

    def _deaths(self) -> float:
        """The share of the rows that leave in a layer; none while they may not. What is dead then is identical."""
        return self.deaths if self.may_leave else 0.0

    def search_costs(self, meeting: bool) -> tuple[float, float, float]:
        return self._deaths(), *self.kernels.costs.search(self.layer, self.count, self.kernels.lanes, meeting)

    def merge(self) -> int:
        # Hashes of a sample of neurons come first: most rows differ there, and hashing whole rows reads all features.
        before, neurons = self.count, self.neurons
        for step in sorted({max(1, neurons // plan.SIGNED_NEURONS), 1}, reverse=True):
            hashes = np.empty(before, np.uint64)
            self.level.row_hashes(self.source, neurons, step, self.tile, hashes, self.threads)
            candidates = before - np.unique(hashes).size
            if not candidates or (step > 1 and not self.kernels.costs.compares(self.layer, before, candidates)):
                return 0

        def same(rows: np.ndarray, first: np.ndarray) -> np.ndarray:
            others, differs = np.arange(before), np.empty(before, np.uint8)
            others[rows] = first
            self.level.rows_differ(self.source, neurons, others, self.tile, differs, self.threads)
            return differs[rows] == 0

        # Equal hashes are confirmed value by value; then the representatives close up. Rows that died and have not left
        # are identical, and became one row of zeros, which is not alive.
        zeros, kept = self.alive < before, self.inputs.merge(representatives(hashes, same))
        if self.count < before:
            self._close(np.flatnonzero(kept))
            self.alive = self.count - int(zeros)
        return before - self.count

    def keep(self, indices: np.ndarray) -> None:
        """Let all rows but those at `indices` (int64, ascending), and the inputs that they represent, go."""
        self._let_go(indices)
        self._close(indices)

    def take(self, indices: np.ndarray, spare: bool) -> np.ndarray:
        """float32 (indices, neurons): the rows at `indices` (int64); `spare`: it may lie in `target`."""
        size = indices.size * self.neurons
        fits = spare and size <= self.target.size
        values = (self.target[:size] if fits else np.empty(size, np.float32)).reshape(indices.size, self.neurons)
        self.level.take(self.source, self.tile, indices, values, self.threads)
        return values

    def hashes(self) -> np.ndarray:
        places = self.places
        hashes = np.empty(int(places[-1]) + 1 if places.size else 0, np.uint64)
        self.level.row_hashes(self.source, self.neurons, 1, self.tile, hashes, self.threads)
        return hashes[places]

    def pack(self, rows: np.ndarray, spare: bool = False) -> tuple[np.ndarray, np.ndarray]:
        values = self.take(self.places[rows], spare)
        return np.full(rows.size, 4 * self.neurons), values.reshape(-1).view(np.uint8)

    def scratch(self, nbytes: int) -> np.ndarray:
        memory = self.target.view(np.uint8)
        return memory[:nbytes] if nbytes <= memory.size else np.empty(nbytes, np.uint8)

    def replace(self, kept: np.ndarray, arrived: Parcel) -> None:
        values = arrived.data.view(np.float32).reshape(-1, self.neurons)
        self.inputs.keep(kept)
        gaps, places = self.gaps, self.places[kept]
        count = places.size + len(values)
        self.inputs.add(arrived.numbers, places.size + arrived.row_of, count)
        tile, start = self.kernels.tile_for(count), time.perf_counter()
        # Rows that came may wait in `target`, which closing the gaps writes to: they are saved first.
        if tile != self.tile or (places.size and places[-1] >= places.size):
            values = values.copy() if np.shares_memory(values, self.target) else values
            self._close(places, tile)
        self.counters.closing += time.perf_counter() - start if gaps else 0
        self.level.insert(values, self.source, self.tile, places.size, self.threads)
        self.alive, self.places = count, np.arange(count)
        self.indices = self.places

    def set_merged(self, rows: int) -> None:
        super().set_merged(rows)
        # Rows equal to those of other ranks make the next search worth while, however few were equal here.
        if self.searched and rows:
            self.search.finish(self.layer, 1, rows)

    def finish(self) -> LastRows:
        # Dead rows leave, then sums and hashes of each last row; values only of the rows that were asked for.
        self.keep(self.indices if self.count else self.indices[:0])
        work, inputs, statistics = self.kernels, self.inputs, RowStatistics.empty(self.count)
        self.level.row_statistics(
            self.source, work.last.counts, work.last.weights, self.tile, *statistics, self.threads
        )
        kept = work.keep.rows(inputs.numbers, inputs.row_of, self.count)
        return LastRows(inputs.numbers, inputs.row_of, statistics, kept, self.take(kept, spare=False))

    def _let_go(self, indices: np.ndarray) -> None:
        kept = np.zeros(self.count, bool)
        kept[indices] = True
        self.inputs.keep(kept)

    def _close_gaps(self) -> None:
        """Close the gaps that are open."""
        if self.gaps:
            start = time.perf_counter()
            self._close(self.places)
            self.counters.closing += time.perf_counter() - start

    def _close(self, indices: np.ndarray, tile: int | None = None, neurons: int | None = None) -> None:
        """The rows at `indices` (int64, ascending), those that `inputs` knows, close up in tiles of `tile`; `neurons`:
        of the rows, where they are not before `layer`."""
        # Fewer rows take smaller tiles at last, so that all threads have one; the rows change buffers on the way.
        tile, neurons = tile or self.kernels.tile_for(indices.size), neurons or self.neurons
        self.level.compact(self.source, self.tile, self.target, tile, neurons, indices, self.threads)
        self.source, self.target, self.tile, self.wasted = self.target, self.source, tile, 0.0
