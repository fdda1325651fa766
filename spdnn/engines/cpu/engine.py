"""Engine `cpu`: the fused sparse product + bias + activation on tiled features, with all three exact reductions.

Algorithm: the inputs of a batch, in tiles, pass tile by tile through as many layers as keep their features in the
cache. Between passes, rows that died leave (*dead*), and rows that became identical share one representative
(*inputs*), when that pays. What is left moves to fewer, at last to smaller tiles. *neurons* is done in `prepare`.
Batches are as large as the memory allows. Weights stay in memory when they fit; else the next layer is read while one
is computed. Source: Hidayetoglu et al., HPEC 2020, section III (fusion, compaction, streamed weights).
"""

from spdnn.core.features import Inputs
from spdnn.engines.base import AnswersCalls, Options, Prepared, Session
from spdnn.engines.compiled import CompiledEngine
from spdnn.engines.cpu.forward import CpuForward
from spdnn.engines.cpu.session import CpuSession


class CpuEngine(CompiledEngine, AnswersCalls):
    name = "cpu"
    summary = "fused sparse product, bias and ReLU in C++, on all threads"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options)

    def forward(self, prepared: Prepared, options: Options) -> CpuForward:
        return CpuForward(prepared, options)


class TiledEngine(CompiledEngine):
    name = "tiled"
    summary = "ablation of cpu: all inputs finish a layer before the next begins"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, most=1)


class CsrEngine(CompiledEngine):
    name = "csr"
    summary = "ablation of tiled: a plain loop over CSR rows, one input at a time"
    offers = ()

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return CpuSession(prepared, inputs, options, most=1, tile=1)
