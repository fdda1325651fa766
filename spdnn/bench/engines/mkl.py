"""Engine `mkl`: oneMKL's sparse times dense product through sparse_dot_mkl.

Layout: see columns.py; W^T by row times blocks of columns, C order, into an array that is there already. Features by
row times W took 3 (1024 neurons) to 8 (16384) times as long. Addition and clip are NumPy's, in place, while the block
is in a cache; they use one thread.
"""

import importlib.metadata
import os
from pathlib import Path

import numpy as np

from spdnn.bench.engines.columns import Columns
from spdnn.bench.engines.library import Weights
from spdnn.core.errors import absent, install

# MKL's waiting threads spin for 200 ms by default, on cores that the next program timed needs.
BLOCKTIME = "1"


class MklEngine(Columns):
    name = "mkl"
    summary = "oneMKL through sparse_dot_mkl: CSR product with dense features"

    def missing(self) -> str | None:
        if sentence := absent("sparse_dot_mkl", "peers", "sparse-dot-mkl"):
            return sentence
        if not os.environ.get("MKL_RT") and _runtime() is None:
            return f"the library libmkl_rt is not found; {install('peers')} brings it, or name its file in MKL_RT"
        return None

    def start(self, threads: int) -> dict:
        if not os.environ.get("MKL_RT"):
            os.environ["MKL_RT"] = str(_runtime())  # sparse_dot_mkl does not search a virtual environment
        os.environ.setdefault("KMP_BLOCKTIME", BLOCKTIME)
        import sparse_dot_mkl

        sparse_dot_mkl.mkl_set_num_threads(threads)
        version = sparse_dot_mkl.get_version_string().split("-Product")[0]  # of a whole sentence
        version = version.replace("Intel(R) oneAPI Math Kernel Library Version", "oneMKL")
        return {
            "library": f"sparse_dot_mkl {sparse_dot_mkl.__version__}, {version.strip()}",
            "layout": "blocks of columns",
            "threads_set": f"mkl_set_num_threads({threads}), KMP_BLOCKTIME={os.environ['KMP_BLOCKTIME']}",
        }

    def block_step(self, block: np.ndarray, weights: Weights, out: np.ndarray | None) -> np.ndarray:
        from sparse_dot_mkl import dot_product_mkl

        product = np.empty((weights.outputs, block.shape[1]), np.float32) if out is None else out
        if weights.edges:
            dot_product_mkl(weights.matrix, block, out=product, out_scalar=0.0)
        else:
            product[:] = 0
        # Bias and clip follow while the block is in the cache, in place.
        product += weights.bias
        return np.clip(product, weights.low, weights.high, out=product)


def _runtime() -> Path | None:
    """The file libmkl_rt.so.N of the package mkl, or None."""
    try:
        files = importlib.metadata.files("mkl") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = (Path(file.locate()) for file in files if file.name.startswith("libmkl_rt.so"))
    return next((path.resolve() for path in paths if path.is_file()), None)
