"""A session of the engine `cpu`: batches through the layers, one after the other, their rows in tiles."""

import contextlib

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.result import LastRows, Result
from spdnn.core.threads import in_order
from spdnn.engines.base import Options, Prepared
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import BatchKernels, TileCounters
from spdnn.engines.cpu.rows import TiledRows
from spdnn.engines.execute import BatchSession
from spdnn.kernels.tiles import buffer, feature_bytes, touch

FIRST_PASS_BYTES = 64 << 20  # of the features of a block, where the first pass goes through its inputs in blocks
SAMPLE_TILES = 8  # of the inputs, that tell how many rows outlive the first pass
FEW_LEFT = 0.5  # part of the inputs: the first pass goes in blocks where no more are left after it
SAMPLE_MARGIN = 1.1  # more rows than the sample says


class CpuSession(BatchSession):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs.

    Pages of the buffers are written to before the clock starts, as many as a run will use.

    Args:
        max_pass_layers: layers of a pass at most.
        tile: of the features, always; None: what fits the rows that are left.
    """

    block = 0  # as TiledRows has it

    def __init__(
        self, prepared: Prepared, inputs: Inputs, options: Options, max_pass_layers: int = plan.MOST_LAYERS,
        tile: int | None = None,
    ):  # fmt: skip
        super().__init__(prepared, inputs)
        self.work = work = BatchKernels(prepared, inputs, options, tile)
        self.bind, self.counters, self.tile, self.threads = work.bind, work.counters, work.tile, options.threads
        network, self.max_pass_layers = prepared.network, 1
        self.batch, resident = plan.batches(network, inputs, work.widest, work.last.outputs, options, work.tile)
        # Weights stay in memory, bound once, where they fit; else each batch streams them, one layer in a pass.
        if resident:
            layers = in_order(work.bind, range(network.depth), options.threads)
            self.layers = work.resident(progress.bar(layers, "weights", network.depth))
            self.max_pass_layers = max_pass_layers
        self.buffers = [buffer(self.batch, work.widest, work.tile) for _ in range(2)]
        self.block, share = self._first_pass()
        for memory in self.buffers:
            touch(memory[: max(int(share * memory.size), self.block * work.tile * work.widest)], self.threads)

    def _first_pass(self) -> tuple[int, float]:
        """(tiles of a block of the first pass, 0 for no blocks; the share of the buffers that is then used)."""
        # Pages that are never written to need not be there: most inputs of the challenge die in the first pass.
        work, numbers = self.work, self.inputs.numbers_of(0, self.inputs.count)
        block = max(8 * self.threads, FIRST_PASS_BYTES // feature_bytes(1, work.widest, work.tile))
        if not self.layers or work.tile == 1 or self.batch <= 4 * block * work.tile:
            return 0, 1.0
        layers = self.layers[: self.begin(numbers[: self.batch], self.counters()).plan_pass()]
        sample = numbers[:: ceil_div(numbers.size, SAMPLE_TILES * work.tile)]
        rows = self.begin(sample, self.counters())
        with contextlib.suppress(SpdnnError):  # the run meets it too
            rows.compute(layers)
        share = rows.alive / sample.size
        if len(layers) < work.dead_from or share > FEW_LEFT:
            return 0, 1.0
        return block, SAMPLE_MARGIN * share + SAMPLE_TILES * work.tile / self.batch

    def begin(self, numbers: np.ndarray, counters: TileCounters) -> TiledRows:
        rest = self.batch, self.max_pass_layers, self.block
        return TiledRows(self.work, numbers, counters, self.threads, *self.buffers, *rest)

    def result(self, parts: list[LastRows], counters: TileCounters, size: int) -> Result:
        return self.work.result(parts, counters, {"batch_inputs": size})
