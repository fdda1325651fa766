"""Engine `torch`: PyTorch's sparse CSR product on the CPU.

Layout: see columns.py; W^T as a sparse CSR tensor times blocks of columns, which PyTorch hands to oneMKL where it was
built with it. Addition and clip are PyTorch's, in place.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.columns import Columns
from spdnn.bench.engines.library import Weights
from spdnn.core.errors import absent


class TorchEngine(Columns):
    name = "torch"
    summary = "PyTorch: sparse CSR product with dense features on the CPU"

    def missing(self) -> str | None:
        return absent("torch", "torch")

    def start(self, threads: int) -> dict:
        import torch

        torch.set_num_threads(threads)
        return {
            "library": f"PyTorch {torch.__version__}",
            "layout": "blocks of columns",
            "threads_set": f"torch.set_num_threads({threads})",
        }

    def matrix(self, rows: sp.csr_array) -> Any:
        import torch

        arrays = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data
        return torch.sparse_csr_tensor(*map(torch.from_numpy, arrays), size=rows.shape)

    def native(self, array: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(array) if np.ndim(array) else float(array)

    def array(self, block: Any) -> np.ndarray:
        return block.numpy()

    def block_step(self, block: Any, weights: Weights, out: Any) -> Any:
        product = weights.matrix @ block
        product.add_(weights.bias)
        return product.clamp_(weights.low, weights.high)

    def block_alive(self, block: Any, signed: bool) -> np.ndarray:
        return (block != 0).any(dim=0).numpy() if signed else (block.amax(dim=0) > 0).numpy()
