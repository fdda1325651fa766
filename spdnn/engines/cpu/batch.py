"""What the batches of a run on the CPU kernels share, and what the run counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.core.result import LastLayer, LastRows, Result
from spdnn.engines.base import Counters, Options, Prepared
from spdnn.engines.cpu import schedule as plan
from spdnn.kernels import dispatch
from spdnn.kernels.caches import UNKNOWN, caches
from spdnn.kernels.tiles import best_tile, bind, bind_inputs

LOGGED = 512  # passes whose cost a run notes


@dataclass(kw_only=True)
class TileCounters(Counters):
    """What one run counted, over all its batches; `edges` are lanes x edges, padding lanes of the last tile included.

    Attributes:
        loaded: bytes gathered for the edges; moved: bytes past the caches.
        passes: how many.
        log: of each of the first LOGGED passes: first layer, layers, lanes, edges, seconds.
    """

    loaded: int = 0
    moved: int = 0
    passes: int = 0
    log: list = field(default_factory=list)

    def note(self, prepared: Prepared, findings: dict) -> None:
        super().note(prepared, findings)
        if "dead" in prepared.reductions:
            findings["dead"]["seconds"] = self.closing


class BatchKernels:
    """What the batches of a run share: the network's costs, the inputs, the kernels. Holds no features. With a `tile`,
    features have that one always, and each output has a list of its own; None: what fits the rows that are left."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options, tile: int | None = None):
        network = prepared.network
        self.prepared, self.network, self.inputs, self.keep = prepared, network, inputs, options.keep
        self.kernels = dispatch.level()
        self.lanes = self.kernels.vector_bytes // 4
        self.cache = (caches() or UNKNOWN)[-1].bytes
        self.depth, self.dead_from, self.edges = network.depth, prepared.dead_from, prepared.edges
        self.costs = plan.Costs.of(network)
        self.last = LastLayer(network)
        self.widest = int(self.costs.outputs.max())
        self.tile_for = lambda count: tile or best_tile(self.kernels, count, self.widest)
        self.tile = self.tile_for(inputs.count)
        self.stored = bind_inputs(inputs)
        self.share_lists = tile is None  # outputs may share a list of inputs

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

    def counters(self) -> TileCounters:
        return TileCounters.zeros(self.depth)

    def result(self, batches: Sequence[LastRows], tally: TileCounters, notes: dict) -> Result:
        """The result of all batches; `notes` are added to those of any run."""
        common = {
            "instruction_set": self.kernels.name,
            "tile": self.tile,
            "batches": len(batches),
            "passes": tally.passes,
            "pass_log": tally.log,
        }
        return self.last.result(
            self.inputs.total, batches, self.keep, **tally.counted(self.prepared), notes=common | notes,
            bytes_moved=tally.moved, bytes_loaded=tally.loaded,
        )  # fmt: skip
