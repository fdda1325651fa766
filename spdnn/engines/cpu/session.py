"""A session of the engine `cpu`: batches through the layers, one after the other, their rows in tiles."""

import numpy as np

from spdnn.core import progress
from spdnn.core.features import Inputs
from spdnn.core.result import LastRows, Result
from spdnn.core.threads import in_order
from spdnn.engines.base import Counters, Options, Prepared
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import BatchKernels, TileCounters
from spdnn.engines.cpu.rows import TiledRows
from spdnn.engines.execute import BatchSession
from spdnn.kernels.tiles import buffer, touch


class CpuSession(BatchSession):
    """Weights of all layers, or a way to stream them, and two feature buffers for one batch of inputs.

    Args:
        max_pass_layers: layers of a pass at most.
        tile: of the features, always; None: what fits the rows that are left.
    """

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
        for memory in self.buffers:
            touch(memory, self.threads)  # here, not on the clock

    def begin(self, numbers: np.ndarray, counters: Counters) -> TiledRows:
        assert isinstance(counters, TileCounters)
        return TiledRows(self.work, numbers, counters, self.threads, *self.buffers, self.batch, self.max_pass_layers)

    def result(self, parts: list[LastRows], counters: Counters, size: int) -> Result:
        assert isinstance(counters, TileCounters)
        return self.work.result(parts, counters, {"batch_inputs": size})
