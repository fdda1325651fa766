"""Engine `spgemm`: sparse features times sparse weights, row by row, bias and activation in the emission of each row.

Algorithm: Gustavson's. Features are sparse rows in one of two buffers, weights are rows by input neuron; an output row
is the sum of the weight rows that its nonzeros select, kept in an accumulator that is chosen by the density expected of
the output row (kernels/cpu/spgemm.cpp). Exact zeros are dropped. The values do not depend on threads, batches,
accumulators or the instruction set. `edges_computed` counts the multiply-adds really done: for each nonzero of the
features, the length of its weight row; on sparse rows that is far less than inputs x edges.

Reductions: `dead`, rows that became empty leave while no later bias revives them; `inputs`, rows that became identical
share one representative (spdnn/engines/reductions/inputs.py). Leaving costs nothing, as rows are reached by index.
Source: Ellis and Rajamanickam, "Scalable Inference for Sparse Deep Neural Networks using Kokkos Kernels", HPEC 2019.
"""

import numpy as np

from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.engines.base import Options, Prepared, Session
from spdnn.engines.cpu.engine import CompiledEngine
from spdnn.engines.spgemm.session import SpgemmSession, by_input


class SpgemmEngine(CompiledEngine):
    name = "spgemm"
    summary = "sparse features times sparse weights (Gustavson) in C++, on all threads"

    def layout(self, layer: Layer) -> tuple[np.ndarray, ...]:
        return by_input(layer)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return SpgemmSession(prepared, inputs, options)
