"""SciPy's CSR product, by itself and layer by layer; one thread, and a new output for every call, for it takes none."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.scipy import ScipyEngine
from spdnn.bench.libraries.base import SPARSE, Product, TimedProgram, after, clip
from spdnn.core.network import Network


class ScipyProduct(TimedProgram):
    """csr_array @ dense."""

    name, kind, engine = "scipy", SPARSE, ScipyEngine

    def __init__(self, product: Product, threads: int):
        self.matrix = sp.csr_array((product.values, *product.csr), shape=product.topology.shape)
        self.dense, self.matrix_bytes = product.first, product.csr_bytes
        self.start(threads, "CSR, 32-bit indices; the output is allocated by it")

    def __call__(self, x: Any = None) -> np.ndarray:
        return self.matrix @ self.dense


class ScipyModel(TimedProgram):
    """csr_array @ columns, layer by layer, with bias and activation in place."""

    name, kind, engine = "scipy", SPARSE, ScipyEngine

    def __init__(self, network: Network, threads: int):
        self.layers = [(sp.csr_array(layer.matrix().T), *after(layer)) for layer in network.layers()]
        self.matrix_bytes = sum(w.data.nbytes + w.indices.nbytes + w.indptr.nbytes for w, *_ in self.layers)
        self.start(threads, "CSR by output, features by column")

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = x[0] if len(x) == 1 else np.ascontiguousarray(x.T)
        for weights, bias, low, high in self.layers:
            y = weights @ y
            y += bias if y.ndim == 1 else bias[:, None]
            clip(y, low, high)
        return np.ascontiguousarray(y.T).reshape(len(x), -1)
