"""Engine `scipy`: SciPy's CSR product with dense features.

Layout: see columns.py; W^T by row times blocks of columns, which SciPy multiplies without a copy. Its product knows one
thread only, and NumPy's additions and clips as well, whatever `--threads` says; the notes of a record tell.
"""

from typing import Any

import numpy as np

from spdnn.bench.engines.columns import Columns
from spdnn.bench.engines.library import Weights


class ScipyEngine(Columns):
    name = "scipy"
    summary = "SciPy: CSR product with dense features, one thread"

    def start(self, threads: int) -> dict:
        import scipy

        return {"library": f"SciPy {scipy.__version__}", "layout": "blocks of columns", "threads_used": 1}

    def block_step(self, block: np.ndarray, weights: Weights, out: Any) -> np.ndarray:
        product = weights.matrix @ block
        product += weights.bias
        return np.clip(product, weights.low, weights.high, out=product)
