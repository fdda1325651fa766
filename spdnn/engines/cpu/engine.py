"""Engine `cpu`: the fused sparse product + bias + activation on tiled features, with all three exact reductions.

Algorithm: the inputs of a batch, in tiles, pass tile by tile through as many layers as keep their features in the
cache. Between passes, rows that died leave (*dead*), and rows that became identical share one representative
(*inputs*), when that pays. What is left moves to fewer, at last to smaller tiles. *neurons* is done in `prepare`.
Batches are as large as the memory allows. Weights stay in memory when they fit; else the next layer is read while one
is computed. Source: Hidayetoglu et al., HPEC 2020, section III (fusion, compaction, streamed weights).
"""

from collections.abc import Callable

import numpy as np

from spdnn.core.errors import InputError, past_float32
from spdnn.core.features import Inputs
from spdnn.core.limits import Machine
from spdnn.engines.base import AnswersCalls, Options, Prepared, Session, SharesWeights
from spdnn.engines.cpu import ceilings
from spdnn.engines.cpu.session import CpuSession
from spdnn.engines.memory import resident_bytes
from spdnn.kernels import dispatch
from spdnn.kernels.tiles import bind

MOST_PARTS = 8  # of a layer for one input: with more, threads find too few edges of a neuron in theirs
NOT_FINITE = -2  # of the kernel: so was a value of x


class CompiledEngine(SharesWeights):
    """An engine on the compiled kernels: it takes layers by output neuron and offers `dead`, `inputs` and `neurons`."""

    offers = ("dead", "inputs", "neurons")

    def missing(self) -> str | None:
        return dispatch.missing()

    def ceilings(self, options: Options, seconds: float, together: int = 1) -> Machine | None:
        memory = None if options.memory is None else max(0, options.memory - resident_bytes())
        return ceilings.measure(options.threads, seconds, memory, together)


class CpuEngine(CompiledEngine, AnswersCalls):
    name = "cpu"
    summary = "fused sparse product, bias and ReLU in C++, on all threads"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options)

    def forward(self, prepared: Prepared, options: Options) -> Callable[[np.ndarray], np.ndarray]:
        # All layers in one call of the kernels. Memory for features is each thread's own; the first call with one row
        # makes a second copy of the weights, by input neuron.
        network, threads = prepared.network, options.threads
        outputs, classes = network.outputs, network.neuron_classes(network.depth - 1)
        bound = [bind(layer) for layer in network.layers()]
        layers = dispatch.compiled_module().Forward(dispatch.level().name, bound, min(threads, MOST_PARTS))
        del bound

        def rows_through(x: np.ndarray) -> np.ndarray:
            y = np.empty((len(x), outputs), np.float32)
            failed = layers.run(x, y, threads)
            if failed == NOT_FINITE:
                raise InputError("x holds a NaN or an infinity; it must be finite numbers of float32")
            if failed >= 0:
                raise past_float32(failed)
            return y if classes is None else y[:, classes]

        return rows_through


class TiledEngine(CompiledEngine):
    name = "tiled"
    summary = "ablation of cpu: all inputs finish a layer before the next begins"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, max_pass_layers=1)


class CsrEngine(CompiledEngine):
    name = "csr"
    summary = "ablation of tiled: a plain loop over CSR rows, one input at a time"
    offers = ()

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, max_pass_layers=1, tile=1)
