"""Engine `jax`: a compiled (XLA) step around jax.experimental.sparse.BCSR on the CPU.

Layout: see columns.py; W^T as BCSR times blocks of columns, the one product that has a CPU kernel of its own. Compiled
once for each shape, before the clock starts, so rows do not leave between layers: each new number of them would compile
anew.
Threads: XLA makes its pool once in a process, of as many threads as NPROC says when JAX starts.
"""

import os
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.columns import Columns
from spdnn.bench.engines.library import Weights
from spdnn.core.errors import InputError, absent


class JaxEngine(Columns):
    name = "jax"
    summary = "JAX: compiled BCSR product with dense features on the CPU"
    offers = ()
    compiles = True
    started: int | None = None

    def missing(self) -> str | None:
        return absent("jax", "peers")

    def start(self, threads: int) -> dict:
        if JaxEngine.started not in (None, threads):
            raise InputError(
                f"JAX runs with {JaxEngine.started} threads since it started in this process; "
                f"{threads} need another process"
            )
        # XLA reads the number of threads once, when its client starts; later changes have no effect.
        os.environ["NPROC"], os.environ["JAX_PLATFORMS"] = str(threads), "cpu"
        import jax

        jax.devices()  # the pool begins here
        JaxEngine.started = threads
        return {"library": f"JAX {jax.__version__}", "layout": "blocks of columns", "threads_set": f"NPROC={threads}"}

    def matrix(self, rows: sp.csr_array) -> Any:
        from jax.experimental.sparse import BCSR

        arrays = rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
        return BCSR(tuple(map(self.native, arrays)), shape=rows.shape, indices_sorted=True, unique_indices=True)

    def native(self, array: np.ndarray) -> Any:
        import jax.numpy

        return jax.numpy.asarray(array)

    def array(self, block: Any) -> np.ndarray:
        return np.asarray(block)

    def step(self, features: list, weights: Weights, spare: list | None = None) -> list:
        import jax

        return jax.block_until_ready(super().step(features, weights, spare))

    def block_step(self, block: Any, weights: Weights, out: Any) -> Any:
        return _compile()[0](block, weights.matrix, weights.bias, weights.low, weights.high)

    def block_alive(self, block: Any, signed: bool) -> np.ndarray:
        return np.asarray(_compile()[1](block))


@cache
def _compile() -> tuple:
    """(the step, which inputs have a nonzero value), as XLA compiles them."""
    import jax

    def step(block, matrix, bias, low, high):
        return jax.numpy.clip(matrix @ block + bias, low, high)

    return jax.jit(step), jax.jit(lambda block: (block != 0).any(axis=0))
