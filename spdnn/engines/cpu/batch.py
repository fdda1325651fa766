"""One batch of inputs on its way through the layers, in tiles on the CPU kernels, a step at a time.

The engine `cpu` and the task graph take these steps: the first layers, a pass, closing gaps, merging rows, the outcome.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spdnn.core.errors import past_float32
from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.core.result import LastLayer, LastRows, Result, RowStatistics
from spdnn.engines.base import Options, Prepared
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.rows import Rows
from spdnn.engines.reductions.inputs import DuplicateSearch, search_note
from spdnn.kernels import dispatch
from spdnn.kernels.caches import UNKNOWN, caches
from spdnn.kernels.tiles import active_indices, best_tile, bind, bind_inputs, tiles_of

LOGGED = 512  # passes whose cost a run notes


@dataclass
class Counters:
    """What one run counted, over all its batches.

    Attributes:
        survivors: int64 (layers,), inputs with a nonzero row after each layer.
        rows: int64 (layers,), rows that each layer had to compute: all before dead_from, then the nonzero ones; merged
            rows count once.
        edges: lanes x edges computed, padding lanes of the last tile included; loaded: bytes gathered for them; moved:
            bytes past the caches.
        passes, searches (for identical rows), merged: how many, the last in rows.
        closing, searching: seconds spent on closing the gaps of dead rows, and on those searches.
        log: of each of the first LOGGED passes: first layer, layers, lanes, edges, seconds.
    """

    survivors: np.ndarray
    rows: np.ndarray
    edges: int = 0
    loaded: int = 0
    moved: int = 0
    passes: int = 0
    searches: int = 0
    merged: int = 0
    closing: float = 0.0
    searching: float = 0.0
    log: list = field(default_factory=list)

    def add(self, other: "Counters") -> None:
        """Count what another one counted as well."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        self.log = self.log[:LOGGED]


class BatchKernels:
    """What the batches of a run share: the network's costs, the inputs, the kernels. Holds no features.

    Args:
        tile: of the features, always, and each output has a list of its own; None: what fits the rows that are left.
    """

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options, tile: int | None = None):
        network = prepared.network
        inputs.check_width(network.inputs)
        self.network, self.inputs, self.keep = network, inputs, options.keep
        self.kernels = dispatch.level()
        self.lanes = self.kernels.vector_bytes // 4
        self.cache = (caches() or UNKNOWN)[-1].bytes
        self.reductions, self.dead_from = prepared.reductions, prepared.dead_from
        self.costs = plan.Costs.of(network)
        self.last = LastLayer(network)
        self.widest = int(self.costs.outputs.max())
        self.tile_for = lambda count: tile or best_tile(self.kernels, count, self.widest)
        self.tile = self.tile_for(inputs.count)
        self.edges = np.array([network.header(k).edges for k in range(network.depth)], dtype=np.int64)
        self.stored = bind_inputs(inputs)
        self.share_lists = tile is None  # outputs may share a list of inputs

    @property
    def depth(self) -> int:
        return self.network.depth

    def bind(self, k: int, layer: Layer | None = None):
        """Layer k as the kernels take it, from the network or a copy of it."""
        return bind(layer or self.network.layer(k), share=self.share_lists)

    def resident(self, bound: Iterable) -> list:
        """All layers, bound, which stay in memory; from now on costs are those of their lists."""
        layers = list(bound)
        edges, gathers, nbytes = np.array([(layer.edges, layer.gathers, layer.nbytes) for layer in layers], np.int64).T
        # Outputs that share a list of inputs save the loads of it, and still multiply and add each edge.
        work = gathers + (plan.ADDED * (edges - gathers)).astype(np.int64) + plan.EPILOGUE * self.costs.outputs
        self.costs = replace(self.costs, work=work, nbytes=nbytes)
        return layers

    def tally(self) -> Counters:
        return Counters(*np.zeros((2, self.depth), np.int64))

    def begin(self, numbers: np.ndarray, threads: int, source: np.ndarray, target: np.ndarray) -> Rows:
        """The rows of the inputs `numbers` (int64, ascending), before the first layer, in two feature buffers."""
        return Rows(self.kernels, threads, self.tile_for, numbers, self.tile, source, target)

    def deaths(self, k: int, rows: Rows) -> float:
        """The share of the rows that leave in a layer; none while they may not. What is dead then is identical."""
        return rows.deaths if k >= self.dead_from else 0.0

    def layers_to_search(self, k: int, rows: Rows, search: DuplicateSearch, stopped: bool = False) -> int | None:
        """Layers until the next search for identical rows, or None; `stopped` as `search.layers_to_search` takes it."""
        if "inputs" not in self.reductions:
            return None
        cost = self.costs.search(k, rows.count, self.lanes, stopped)
        return search.layers_to_search(k, rows.count, self.deaths(k, rows), *cost, stopped)

    def run_pass(self, k: int, layers: list, rows: Rows, tally: Counters) -> np.ndarray:
        """All rows through the layers from k on; the row indices that are nonzero after them.

        Raises:
            SpdnnError: a sum is not finite.
        """
        start, lanes, size = time.perf_counter(), rows.lanes, rows.count
        span = slice(k, k + len(layers))
        inwards = 4 * lanes * (int(self.costs.outputs[k - 1]) if k else self.network.inputs)
        outwards = 4 * lanes * int(self.costs.outputs[span.stop - 1])
        # Fused pass: the kernel takes each tile through all these layers while its features are in the cache, and gives
        # a mask of the active rows after each. Outputs that no cache holds until they are read are written past it.
        active, streamed = np.empty((len(layers), rows.tiles), np.uint64), outwards > self.cache
        rest = (rows.target, rows.tile, max(0, self.dead_from - k), active, rows.threads, streamed)
        if k == 0:  # the first layer reads the inputs as they are stored, so that no copy in tiles is made
            failed = self.kernels.layers_stored(
                layers, self.stored, self.inputs.stored_rows(rows.inputs.numbers), *rest
            )
        else:
            failed = self.kernels.layers(layers, rows.source, rest[0], rows.count, *rest[1:])
        if failed >= 0:
            raise past_float32(k + failed)
        rows.source, rows.target = rows.target, rows.source
        # Edges computed: the kernel skips a tile that is zero after layer dead_from - 1 or a later one. The mask
        # (layers, tiles) says what it computed.
        run = np.ones(active.shape, bool)
        run[1:] = (active[:-1] != 0) | (np.arange(k, k + len(layers) - 1) < self.dead_from)[:, None]
        edges = rows.tile * int(run.sum(axis=1) @ self.edges[span])
        loaded = 4 * rows.tile * int(run.sum(axis=1) @ [layer.gathers for layer in layers])
        if k == 0 and self.inputs.kind == "bits":  # the first layer gathers bits, not floats
            loaded -= lanes * int(layers[0].gathers) * 31 // 8  # 1 bit in place of 32: 31/8 bytes less a gather
            inwards //= 32
        # Memory traffic: features, or all weights, that fit the last-level cache do not pass it.
        tally.moved += inwards + outwards if inwards + outwards > self.cache else 0
        tally.moved += int(self.costs.nbytes[span].sum()) if int(self.costs.nbytes.sum()) > self.cache else 0
        tally.passes += 1
        tally.edges += edges
        tally.loaded += loaded
        # Active rows: lanes past the last row are padding that a positive bias makes active; their bits are cleared.
        indices = active_indices(active[-1], rows.tile, size)
        filled = rows.tile - (rows.tiles * rows.tile - size)
        active[:, -1] &= np.uint64((1 << filled) - 1)
        alive = np.bitwise_count(active).sum(axis=1, dtype=np.int64)
        # Survivors are inputs: a row that represents several of them counts as often.
        inputs = alive
        if rows.merged:
            bits = np.unpackbits(active.view(np.uint8).reshape(len(layers), -1, 8), axis=2, bitorder="little")
            inputs = bits[:, :, : rows.tile].reshape(len(layers), -1)[:, :size].astype(np.int64) @ rows.inputs.weights
        tally.survivors[span] += inputs
        rows.left = inputs[-1]
        nonzero = np.concatenate([[rows.alive], alive[:-1]])
        tally.rows[span] += np.where(np.arange(span.start, span.stop) < self.dead_from, size, nonzero)
        # Waste (in units of Costs.work, of whole tiles) and death rate decide when gaps are closed and how long the
        # next pass is.
        needed = -(-alive // rows.tile)
        rows.wasted += float(((rows.tiles - needed) * self.costs.work[span]).sum())
        rows.deaths = max(0.0, 1 - (indices.size / max(1, rows.alive)) ** (1 / len(layers)))
        rows.alive = indices.size
        if len(tally.log) < LOGGED:
            tally.log.append([k, len(layers), lanes, edges, time.perf_counter() - start])
        return indices

    def merge(self, k: int, rows: Rows, search: DuplicateSearch, tally: Counters) -> None:
        """Search for rows that became identical, and let one of each group represent all."""
        start, size, neurons = time.perf_counter(), rows.count, int(self.costs.outputs[k - 1])
        # Dead rows not yet removed are identical and merge into one row of zeros, which Rows.merge counts as alive: it
        # is subtracted.
        zeros = rows.alive < size
        merged = rows.merge(neurons, lambda candidates: self.costs.compares(k, size, candidates))
        rows.alive -= int(zeros and merged > 0)
        search.finish(k, size, merged)
        tally.searches += 1
        tally.merged += merged
        tally.searching += time.perf_counter() - start

    def compact(self, k: int, rows: Rows, indices: np.ndarray, search: DuplicateSearch, tally: Counters) -> np.ndarray:
        """What is due before layer k: dead rows leave, identical ones are merged; the indices of nonzero rows."""
        before, neurons = rows.count, int(self.costs.outputs[k - 1])
        # Dead inputs: gaps are closed when dead rows have wasted as much work as moving the rows that are left costs
        # (BOUNDARY for each neuron and tile).
        needed = tiles_of(indices.size, rows.tile)
        if k >= self.dead_from and rows.wasted > plan.BOUNDARY * neurons * needed:
            start = time.perf_counter()
            rows.keep(indices, neurons)
            tally.closing += time.perf_counter() - start
        # Identical inputs: merged after the dead ones have left, for a search costs as much for them.
        if rows.count and self.layers_to_search(k, rows, search) == 0:
            self.merge(k, rows, search, tally)
        return indices if rows.count == before else np.arange(rows.count)

    def finish(self, rows: Rows, indices: np.ndarray) -> LastRows:
        """Numbers, statistics and values of the rows that are nonzero at the end."""
        # Dead rows leave, then sums and hashes of each last row; values only of the rows that were asked for.
        count, neurons = indices.size, self.network.outputs
        rows.keep(indices, neurons)
        statistics, last, inputs = RowStatistics.empty(count), self.last, rows.inputs
        self.kernels.row_statistics(rows.source, last.counts, last.weights, rows.tile, *statistics, rows.threads)
        kept = self.keep.rows(inputs.numbers, inputs.row_of, count)
        return LastRows(inputs.numbers, inputs.row_of, statistics, kept, rows.take(kept, neurons, spare=False))

    def note(self, tally: Counters, findings: dict) -> None:
        """Add to Session.findings the findings of a run about the reductions that depend on the inputs."""
        if "dead" in self.reductions:
            findings["dead"]["seconds"] = tally.closing
        if "inputs" in self.reductions:
            findings["inputs"] = search_note(tally.searches, tally.merged, tally.searching)

    def result(self, batches: Sequence[LastRows], tally: Counters, notes: dict) -> Result:
        """The result of all batches; `notes` are added to those of any run."""
        common = {
            "instruction_set": self.kernels.name,
            "tile": self.tile,
            "batches": len(batches),
            "passes": tally.passes,
            "pass_log": tally.log,
            "layer_rows": tally.rows.tolist(),
            "layer_edges": self.edges.tolist(),
        }
        return self.last.result(
            self.inputs.total, batches, self.keep, survivors=tally.survivors, edges_computed=tally.edges,
            notes=common | notes, bytes_moved=tally.moved, bytes_loaded=tally.loaded,
        )  # fmt: skip
