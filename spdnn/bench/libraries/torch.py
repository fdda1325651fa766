"""PyTorch on the processor: its sparse CSR tensors on one product, and dense models, plain and compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spdnn.bench.engines.torch import TorchEngine
from spdnn.bench.libraries.base import DENSE, SPARSE, Product, TimedProgram, after, check_memory, dense
from spdnn.core.network import Network


class TorchProduct(TimedProgram):
    """torch.mm of a sparse CSR tensor into an output, or torch.sparse.sampled_addmm."""

    name, kind, engine = "torch", SPARSE, TorchEngine

    def __init__(self, product: Product, threads: int):
        import torch

        self.start(threads, "CSR, 32-bit indices")
        self.torch, (columns, offsets) = torch, map(torch.from_numpy, product.csr)
        values = product.values if product.operation == "spmm" else np.zeros(product.topology.nnz, np.float32)
        self.matrix = torch.sparse_csr_tensor(
            offsets, columns, torch.from_numpy(values), size=product.topology.shape, check_invariants=False
        )
        self.first, self.second = torch.from_numpy(product.first), None
        if product.operation == "spmm":
            self.out = torch.zeros(product.shape)
        else:
            self.second = torch.from_numpy(product.second).T
        self.matrix_bytes = product.csr_bytes

    def __call__(self, x: Any = None) -> Any:
        if self.second is None:
            return self.torch.mm(self.matrix, self.first, out=self.out)
        return self.torch.sparse.sampled_addmm(self.matrix, self.first, self.second, beta=0.0)

    def array(self, out: Any) -> np.ndarray:
        return out.numpy() if self.second is None else out.values().numpy()


class TorchModel(TimedProgram):
    """torch.nn.Linear and ReLU, in inference mode."""

    name, kind, engine = "torch", DENSE, TorchEngine

    def __init__(self, network: Network, threads: int):
        import torch

        self.matrix_bytes = check_memory(network)
        self.start(threads, "dense, torch.nn.Linear")
        self.torch, modules = torch, []
        for layer in network.layers():
            linear = torch.nn.Linear(layer.inputs, layer.outputs, device="meta")
            linear.weight = torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(dense(layer).T)), False)
            linear.bias = torch.nn.Parameter(torch.from_numpy(after(layer)[0]), False)
            modules.append(linear)
            if layer.activation.name == "relu":
                ymax = layer.activation.ymax
                modules.append(torch.nn.ReLU() if ymax is None else torch.nn.Hardtanh(0.0, ymax))
        self.model: Callable = torch.nn.Sequential(*modules).eval()

    def __call__(self, x: Any) -> Any:
        with self.torch.inference_mode():
            return self.model(x)

    def convert_inputs(self, *x: np.ndarray) -> Any:
        return self.torch.from_numpy(x[0])

    def array(self, out: Any) -> np.ndarray:
        return out.numpy()


class TorchCompiledModel(TorchModel):
    """The same through torch.compile, for each number of inputs anew, with weights frozen."""

    name = "torch-compile"

    def __init__(self, network: Network, threads: int):
        super().__init__(network, threads)
        self.plain = self.model
        self.notes["layout"] = "dense, torch.compile with frozen weights"

    def prepare_shapes(self, *x: np.ndarray) -> None:
        self.torch.compiler.reset()
        self.model = self.torch.compile(self.plain, dynamic=False, options={"freezing": True})

    def __call__(self, x: Any) -> Any:
        with self.torch.no_grad():  # weights are not frozen in inference mode
            return self.model(x)
