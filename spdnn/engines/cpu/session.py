"""Engine `cpu`: the fused sparse product + bias + activation on tiled features, with all three exact reductions.

Algorithm: the inputs of a batch, in tiles, pass through as many layers as their features stay in the cache, tile by
tile; between passes, rows that died leave (*dead*) and rows that became identical share one representative (*inputs*),
when that pays; what is left moves to fewer, at last to smaller tiles. *neurons* is done in `prepare`. Batches are as
large as the memory allows; weights stay in memory when they fit, else the next layer is read while one is computed.
Source: Hidayetoglu et al., HPEC 2020, section III (fusion, compaction, streamed weights).
"""

from __future__ import annotations

import contextlib

import numpy as np

from spdnn.common import progress
from spdnn.common.files import check_ended
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, Session
from spdnn.engines.compiled import CompiledEngine, read_ahead
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import CpuWork, Part, Tally
from spdnn.engines.cpu.exchange import CpuRows
from spdnn.engines.cpu.rows import Rows
from spdnn.engines.exchange import Meetings
from spdnn.kernels.layouts.tiles import bind, buffer, tiles_of, touch
from spdnn.problem.features import Inputs, Result


class CpuEngine(CompiledEngine):
    name = "cpu"
    summary = "fused sparse product, bias and clip in C++ on tiled features, all threads"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options)


class TiledEngine(CpuEngine):
    name = "tiled"
    summary = "rung of the ladder: as cpu, but all inputs go through one layer before the next"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, most=1)


class CsrEngine(CpuEngine):
    name = "csr"
    summary = "rung of the ladder: a plain loop over the rows of CSR weights, one input at a time, row-major features"
    offers = ()

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, most=1, tile=1)


class CpuSession(Session):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs.

    Args:
        most: layers of a pass.
        tile: of the features, always; None: what fits the rows that are left.
    """

    meets = True

    def __init__(
        self,
        prepared: Prepared,
        inputs: Inputs,
        options: Options,
        most: int = plan.MOST_LAYERS,
        tile: int | None = None,
    ):
        super().__init__(prepared)
        self.work, self.threads, self.most = CpuWork(prepared, inputs, options, tile), options.threads, most
        self.course = prepared.course()
        network, widest, tile = prepared.network, self.work.widest, self.work.tile
        self.batch, resident = plan.batches(network, inputs, widest, self.work.last.outputs, options, tile)
        self.span = RESIDENT if resident else STREAMED
        layers = progress.bar(network.layers(), "weights", network.depth)
        self.layers = [bind(layer) for layer in layers] if resident else None
        self.buffers = [buffer(self.batch, widest, tile) for _ in range(2)]
        for memory in self.buffers:
            touch(memory, self.threads)  # here, not on the clock

    @property
    def batches(self) -> int:
        return -(-self.work.inputs.count // self.batch)

    def run(self, meetings: Meetings | None = None) -> Result:
        work, turns = self.work, self.turns or self.batches
        size = min(self.batch, tiles_of(-(-work.inputs.count // turns), work.tile) * work.tile)
        tally = work.tally()
        with progress.Inference(self.course, work.inputs.count, turns) as stage:
            parts = [self._batch(turn * size, size, tally, stage, meetings) for turn in range(turns)]
        work.note(tally, self.found)
        return work.result(parts, tally, {"batch_inputs": size})

    def _batch(self, start: int, size: int, tally: Tally, stage: progress.Inference, meetings: Meetings | None) -> Part:
        """One batch through all layers."""
        work, depth = self.work, self.work.depth
        numbers = work.inputs.numbered(start, start + size)
        rows, looks = work.begin(numbers, self.threads, *self.buffers), work.looks()
        slots = np.arange(numbers.size)
        stage.begin(numbers.size, lambda k: (tally.edges, rows.lanes))
        meeting = meetings.first(self.depth(0, rows, looks), depth, numbers.size) if meetings else depth
        with contextlib.closing(read_ahead(depth, lambda k: bind(work.network.layer(k)))) as stream:
            k = 0
            while k < depth:
                check_ended()
                most = min(self.depth(k, rows, looks), meeting - k) if rows.count else meeting - k
                layers = self.layers[k : k + most] if self.layers else [next(stream) for _ in range(most)]
                if rows.count:
                    slots = work.through(k, layers, rows, tally)
                k += most
                stage.at(k, rows.left)
                if k == depth:
                    break
                if k == meeting:
                    held = CpuRows(self, k, rows, slots, looks, tally)
                    meeting = meetings.meet(k, held)
                    held.settle()
                    slots = np.arange(rows.count)
                else:
                    slots = work.compact(k, rows, slots, looks, tally)
                if not rows.count:
                    slots = np.empty(0, np.int64)
                    if meeting == depth:
                        stage.at(depth, 0)
                        break
        if meetings:
            meetings.end(tally.edges)
        return work.finish(rows, slots)

    def depth(self, k: int, rows: Rows, looks: plan.Looks) -> int:
        """How many layers the next pass has, from layer k on."""
        if self.layers is None or not rows.count:
            return 1
        work = self.work
        wait = work.wait(k, rows, looks) or self.most
        return work.costs.layers(k, rows.tiles, rows.tile, work.deaths(k, rows), min(wait, self.most))
