"""Engine `cpu`: the fused sparse product + bias + activation on tiled features, dead inputs dropped on the way.

Algorithm: all inputs of a batch pass layer by layer through two buffers; a bit per input says whether its row is still
nonzero; when the work wasted on rows that died reaches the cost of closing the gaps, they are closed. Batches are as
large as the memory allows; weights stay in memory when they fit, else the next layer is read while one is computed.
Source: Hidayetoglu et al., HPEC 2020, section III (fusion, compaction, streamed weights).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spdnn import kernels, progress, reduce
from spdnn.engines.base import RESIDENT, STREAMED, Engine, Options, Prepared, Session
from spdnn.engines.memory import limit_bytes, resident_bytes
from spdnn.errors import InputError, SpdnnError
from spdnn.features import Inputs, Result, projection_weights
from spdnn.layouts import active_slots, best_tile, bind, buffer, feature_bytes, tiles_of
from spdnn.network import Network

# Closing the gaps in a tile costs 0.9 (1024 neurons) to 0.45 (65536) of computing it through one layer (measured); runs
# take the same time with anything from 0.1 to 0.6 here, and 2 % more with 1.
COMPACTION_COST = 0.6


class CpuEngine(Engine):
    name = "cpu"
    summary = "fused sparse product, bias and clip in C++ on tiled features, all threads"
    offers = ("dead",)

    def missing(self) -> str | None:
        return kernels.missing()

    def prepare(self, network: Network, reductions: tuple[str, ...]) -> Prepared:
        found = {"dead": {"layers_that_revive_zeros": reduce.reviving(network)}} if "dead" in reductions else {}
        return Prepared(network, reductions, found)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options)


class CpuSession(Session):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__()
        network = prepared.network
        inputs.check_width(network.inputs)
        self.network, self.inputs = network, inputs
        self.threads, self.keep_values = options.threads, options.values
        self.kernels = kernels.level()
        self.tile = best_tile(self.kernels, inputs.count)
        self.dead_from = network.depth
        if "dead" in prepared.reductions:
            self.dead_from = reduce.dead_from(prepared.found["dead"]["layers_that_revive_zeros"], network.depth)
            self.found["dead"] = {"rows_may_leave_before_layer": self.dead_from + 1}
        widest = max(network.header(k).outputs for k in range(network.depth))
        self.batch, resident = _plan(network, inputs, widest, options, self.tile)
        self.span = RESIDENT if resident else STREAMED
        self.layers = [bind(layer) for layer in network.layers()] if resident else None
        self.buffers = [buffer(self.batch, widest, self.tile) for _ in range(2)]
        for memory in self.buffers:
            memory.fill(0)  # the pages are touched here, not on the clock
        self.weights = projection_weights(network.outputs)
        self.edges = [network.header(k).edges for k in range(network.depth)]
        if inputs.kind == "csr":
            data = inputs.data
            self.rows = (data.indptr.astype(np.int64), data.indices.astype(np.int64), data.data)

    def run(self) -> Result:
        starts = range(0, self.inputs.count, self.batch)
        advance, close = progress.ticker("inference", len(starts) * self.network.depth, " layers")
        try:
            parts = [self._batch(start, advance) for start in starts]
        finally:
            close()
        alive, hashes, sums, projections, mins, maxs = (np.concatenate([part[i] for part in parts]) for i in range(6))
        digest = hashlib.sha256(alive.tobytes() + hashes.tobytes()).hexdigest()
        values = np.concatenate([part[6] for part in parts]) if self.keep_values else None
        notes = {
            "instruction_set": self.kernels.name,
            "tile": self.tile,
            "batches": len(parts),
            "batch_inputs": self.batch,
        }
        return Result(
            self.inputs.count,
            self.network.outputs,
            alive,
            sums,
            projections,
            mins,
            maxs,
            sum(part[7] for part in parts),
            digest,
            sum(part[8] for part in parts),
            values,
            notes,
        )

    def _layers(self) -> Iterator:
        """The layers in order: from memory, or each read while the one before it is computed."""
        if self.layers is not None:
            yield from self.layers
            return
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self.network.layer, 0)
            for k in range(self.network.depth):
                layer = ahead.result()
                if k + 1 < self.network.depth:
                    ahead = reader.submit(self.network.layer, k + 1)
                yield bind(layer)

    def _first(self) -> Callable:
        """The kernel that takes this kind of inputs, with its data."""
        if self.inputs.kind == "csr":
            return lambda layer, *rest: self.kernels.first_layer_csr(layer, *self.rows, *rest)
        run = self.kernels.first_layer_bits if self.inputs.kind == "bits" else self.kernels.first_layer_dense
        return lambda layer, *rest: run(layer, self.inputs.data, *rest)

    def _batch(self, start: int, advance: Callable[[int], None]) -> tuple:
        """One batch through all layers."""
        numbers = np.arange(start, min(start + self.batch, self.inputs.count), dtype=np.int64)
        source, target = self.buffers
        survivors, computed, wasted = np.zeros(self.network.depth, np.int64), 0, 0.0
        with contextlib.closing(self._layers()) as layers:
            for k, layer in enumerate(layers):
                tiles = tiles_of(numbers.size, self.tile)
                active = np.zeros(tiles, np.uint64)
                if k == 0:
                    rows = self.inputs.stored(numbers)
                    finite = self._first()(layer, rows, target, self.tile, active, self.threads)
                else:
                    finite = self.kernels.layer(layer, source, target, tiles, self.tile, active, self.threads)
                if not finite:
                    raise SpdnnError(
                        f"a value of layer {k + 1} passed the range of float32; the network needs smaller weights"
                    )
                computed += tiles * self.tile * self.edges[k]
                slots = active_slots(active, self.tile, numbers.size)
                survivors[k] = slots.size
                source, target = target, source
                advance(1)
                if k + 1 >= self.dead_from and k + 1 < self.network.depth:
                    needed = tiles_of(slots.size, self.tile)
                    wasted += tiles - needed
                    if wasted > COMPACTION_COST * needed:
                        self.kernels.compact(source, target, layer.outputs, slots, self.tile, self.threads)
                        source, target = target, source
                        numbers, wasted = numbers[slots], 0.0
        return (*self._finish(source, target, numbers, slots), survivors, computed)

    def _finish(self, source, target, numbers, slots) -> tuple:
        """(alive, hashes, sums, projections, mins, maxs, values) of the rows that are nonzero at the end."""
        count = slots.size
        self.kernels.compact(source, target, self.network.outputs, slots, self.tile, self.threads)
        sums, projections, hashes = np.empty(count), np.empty(count), np.empty(count, np.uint64)
        mins, maxs = np.empty(count, np.float32), np.empty(count, np.float32)
        self.kernels.row_statistics(
            target, self.weights, self.tile, sums, projections, mins, maxs, hashes, self.threads
        )
        values = None
        if self.keep_values:
            values = np.empty((count, self.network.outputs), np.float32)
            self.kernels.untile(target, values, self.tile, self.threads)
        return numbers[slots], hashes, sums, projections, mins, maxs, values


def _plan(network: Network, inputs: Inputs, widest: int, options: Options, tile: int) -> tuple[int, bool]:
    """(inputs in a batch, whether all weights stay in memory) within the memory allowed.

    Raises:
        InputError: not even one tile fits; the sentence says the least that does.
    """
    held, limit = resident_bytes(), limit_bytes(options.memory)
    weights = network.nbytes
    largest = max(network.header(k).nbytes for k in range(network.depth))
    scratch = options.threads * feature_bytes(1, network.inputs, tile)
    extra = (inputs.nbytes if inputs.kind == "csr" else 0) * 2 + scratch
    one_tile = 2 * feature_bytes(1, widest, tile)
    # Values of the batches, and of all when they are put together; as many rows as there are inputs may survive.
    kept = 8 * inputs.count * network.outputs if options.values else 0
    room = limit - held - extra - kept
    # All weights, when what is left still takes a few tiles for each thread; else the one in use, the next one, and
    # the arrays that reading it needs.
    resident = weights + min(tiles_of(inputs.count, tile), 4 * options.threads) * one_tile <= room
    room -= weights if resident else 4 * largest
    if room < one_tile:
        least = held + extra + kept + 4 * largest + one_tile
        raise InputError(
            f"memory of {limit:,} bytes is too small for one tile of {tile} inputs; this network, these inputs and "
            f"{options.threads} threads need at least {least:,} (--memory)"
        )
    tiles = min(tiles_of(inputs.count, tile), room // one_tile)
    batches = -(-tiles_of(inputs.count, tile) // tiles)
    return min(inputs.count, -(-tiles_of(inputs.count, tile) // batches) * tile), resident
