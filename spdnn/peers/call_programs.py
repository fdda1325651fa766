"""Programs that take a model's inputs to its outputs: a compiled model, and the same model in other libraries.

Dense programs multiply the zeros too. Each is made once, and `settle` makes what depends on the shapes of inputs.
"""

import abc
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp

from spdnn.api import compile as compiled
from spdnn.common.errors import Unavailable, install
from spdnn.common.resources import available_bytes
from spdnn.formats import onnx_files
from spdnn.kernels import dispatch
from spdnn.peers.product_base import DENSE, OURS, SPARSE
from spdnn.peers.product_programs import blas_version
from spdnn.problem.network import Layer, Network

COPIES = 3  # of dense weights that a library holds at most, while it makes its own layout
MEMORY_SHARE = 0.8  # of what is free
MOST_ONNX = 2**31  # bytes of a model that protobuf can hold


SPARSE_RATE = "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"  # OpenVINO decompresses weights with more zeros than this part
RATE = 0.75


class OnnxFile(NamedTuple):
    """An ONNX model that is no chain of pruned layers; nbytes: of its weights."""

    path: str
    nbytes: int


class Program(abc.ABC):
    """A model in one library.

    Attributes:
        takes: types of models that it runs.
        name, kind: as records have them; needs: by module, the extra that installs it.
        version: of the library; notes: how threads were set, layout; values that JSON can hold.
        threads_used: one where a library has no threads.
        matrix_bytes: of all weights, as the program holds them.
    """

    name: str
    kind: str
    takes: tuple[type, ...] = (Network,)
    needs: Mapping[str, str] = MappingProxyType({})
    version: str
    notes: dict
    threads_used: int
    matrix_bytes: int

    @classmethod
    def missing(cls) -> str | None:
        """None when it can run here, else one sentence."""
        for module, extra in cls.needs.items():
            if importlib.util.find_spec(module) is None:
                return f"the package {module} is not installed; {install(extra)} brings it"
        return None

    @abc.abstractmethod
    def __init__(self, network: Any, threads: int): ...

    @abc.abstractmethod
    def __call__(self, x: Any) -> Any:
        """The outputs of what `taken` gave."""

    def settle(self, *x: np.ndarray) -> None:  # noqa: B027  most programs have nothing to settle
        """Get ready for calls of inputs of these shapes."""

    def taken(self, *x: np.ndarray) -> Any:
        """The inputs of a call as the library takes them; of a network, rows of float32 (inputs, neurons)."""
        return x[0]

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        """The outputs of a call."""
        return [out]

    def close(self) -> None:  # noqa: B027
        """Give back what the garbage collector does not."""


class Ours(Program):
    name, kind, takes = "ours", OURS, (Network, OnnxFile)

    @classmethod
    def missing(cls) -> str | None:
        return dispatch.missing()

    def __init__(self, network: Network | OnnxFile, threads: int):
        self.file, self.matrix_bytes = network if isinstance(network, OnnxFile) else None, network.nbytes
        self.version, self.threads_used = f"spdnn {importlib.metadata.version('spdnn')}", threads
        self.notes: dict[str, Any] = {"threads_set": f"{threads} of the model"}
        self.model: Any = None
        if isinstance(network, Network):
            self.model = compiled(network, threads=threads)
            self.notes["layout"] = f"compiled model, reductions: {'+'.join(self.model.reductions) or 'none'}"

    def settle(self, *x: np.ndarray) -> None:
        if self.file:
            self.close()
            self.model = compiled(self.file.path, threads=self.threads_used, example=x)
            self.notes["layout"] = repr(self.model)

    def taken(self, *x: np.ndarray) -> tuple:
        return x

    def __call__(self, x: tuple) -> Any:
        return self.model(*x)

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        return out if isinstance(out, tuple) else [out]

    def close(self) -> None:
        if self.model is not None:
            self.model.close()


class ScipySparse(Program):
    """csr_array @ columns, layer by layer, with bias and activation in place."""

    name, kind = "scipy", SPARSE

    def __init__(self, network: Network, threads: int):
        self.layers = [(sp.csr_array(layer.matrix().T), *_after(layer)) for layer in network.layers()]
        self.matrix_bytes = sum(one.data.nbytes + one.indices.nbytes + one.indptr.nbytes for one, *_ in self.layers)
        self.version, self.threads_used = f"SciPy {scipy.__version__}", 1
        self.notes = {"threads_set": "it has one", "layout": "CSR by output, features by column"}

    def __call__(self, x: np.ndarray) -> np.ndarray:
        y = x[0] if len(x) == 1 else np.ascontiguousarray(x.T)
        for weights, bias, low, high in self.layers:
            y = weights @ y
            y += bias if y.ndim == 1 else bias[:, None]
            _clip(y, low, high)
        return np.ascontiguousarray(y.T).reshape(len(x), -1)


class NumpyDense(Program):
    """numpy.matmul, so the BLAS that NumPy was built with."""

    name, kind = "blas", DENSE

    def __init__(self, network: Network, threads: int):
        self.matrix_bytes = check_memory(network)
        self.layers = [(dense(layer), *_after(layer)) for layer in network.layers()]
        self.threads_used = threads
        self.version, self.notes = blas_version(threads)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        for weights, bias, low, high in self.layers:
            x = x @ weights
            x += bias
            _clip(x, low, high)
        return x


class Torch(Program):
    """torch.nn.Linear and ReLU, in inference mode."""

    name, kind, needs = "torch", DENSE, MappingProxyType({"torch": "torch"})

    def __init__(self, network: Network, threads: int):
        import torch

        self.matrix_bytes = check_memory(network)
        torch.set_num_threads(threads)
        self.torch, modules = torch, []
        for layer in network.layers():
            linear = torch.nn.Linear(layer.inputs, layer.outputs, device="meta")
            linear.weight = torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(dense(layer).T)), False)
            linear.bias = torch.nn.Parameter(torch.from_numpy(_after(layer)[0]), False)
            modules.append(linear)
            if layer.activation.name == "relu":
                ymax = layer.activation.ymax
                modules.append(torch.nn.ReLU() if ymax is None else torch.nn.Hardtanh(0.0, ymax))
        self.model: Callable = torch.nn.Sequential(*modules).eval()
        self.version, self.threads_used = f"PyTorch {torch.__version__}", threads
        self.notes = {"threads_set": f"torch.set_num_threads({threads})", "layout": "dense, torch.nn.Linear"}

    def __call__(self, x: Any) -> Any:
        with self.torch.inference_mode():
            return self.model(x)

    def taken(self, *x: np.ndarray) -> Any:
        return self.torch.from_numpy(x[0])

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        return [out.numpy()]


class TorchCompiled(Torch):
    """The same through torch.compile, for each number of inputs anew, with weights frozen."""

    name = "torch-compile"

    def __init__(self, network: Network, threads: int):
        super().__init__(network, threads)
        self.plain = self.model
        self.notes["layout"] = "dense, torch.compile with frozen weights"

    def settle(self, *x: np.ndarray) -> None:
        self.torch.compiler.reset()
        self.model = self.torch.compile(self.plain, dynamic=False, options={"freezing": True})

    def __call__(self, x: Any) -> Any:
        with self.torch.no_grad():  # weights are not frozen in inference mode
            return self.model(x)


class OnnxRuntime(Program):
    """The file itself, or a graph of Gemm, Relu and Clip, which is made in memory, on the processor."""

    name, kind, takes = "onnxruntime", DENSE, (Network, OnnxFile)
    needs = MappingProxyType({"onnx": "onnx", "onnxruntime": "peers"})

    def __init__(self, network: Network | OnnxFile, threads: int):
        model, self.matrix_bytes = _onnx(network)
        self.session = onnx_files.session(model, lambda options: setattr(options, "intra_op_num_threads", threads))
        self.names = [one.name for one in self.session.get_inputs()]
        self.version, self.threads_used = f"ONNX Runtime {onnx_files.runtime().__version__}", threads
        self.notes = {"threads_set": f"intra_op_num_threads = {threads}", "layout": "dense"}

    def taken(self, *x: np.ndarray) -> dict:
        return dict(zip(self.names, x, strict=True))

    def __call__(self, x: dict) -> list:
        return self.session.run(None, x)

    def arrays(self, out: list) -> Sequence[np.ndarray]:
        return out


class OpenVino(Program):
    """The same models, compiled for the shapes of each batch; weights with many zeros are decompressed."""

    name, kind, takes = "openvino", DENSE, (Network, OnnxFile)
    needs = MappingProxyType({"onnx": "onnx", "openvino": "openvino"})

    def __init__(self, network: Network | OnnxFile, threads: int):
        sys.modules.setdefault("openvino_telemetry", None)  # else the import writes into the home folder
        import openvino

        model, self.matrix_bytes = _onnx(network)
        self.core = openvino.Core()
        self.model = self.core.read_model(model)
        self.options = {
            "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32", SPARSE_RATE: RATE,
        }  # fmt: skip
        self.version, self.threads_used = f"OpenVINO {openvino.__version__}", threads
        self.notes: dict[str, Any] = {"threads_set": f"INFERENCE_NUM_THREADS = {threads}"}

    def settle(self, *x: np.ndarray) -> None:
        self.model.reshape({number: list(one.shape) for number, one in enumerate(x)})
        self.compiled = self.core.compile_model(self.model, "CPU", self.options)
        rate = float(self.compiled.get_property(SPARSE_RATE))
        self.notes["layout"] = f"dense, {SPARSE_RATE} = {rate:.3g}"

    def taken(self, *x: np.ndarray) -> list:
        return list(x)

    def __call__(self, x: list) -> Any:
        return self.compiled(x)

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        return [out[port] for port in self.compiled.outputs]


PROGRAMS: dict[str, type[Program]] = {
    one.name: one for one in (Ours, ScipySparse, NumpyDense, Torch, TorchCompiled, OnnxRuntime, OpenVino)
}
OTHERS = {name: one for name, one in PROGRAMS.items() if one.kind != OURS}


def dense(layer: Layer) -> np.ndarray:
    """float32 (inputs, outputs): the weights of a layer with their zeros."""
    return layer.matrix().toarray(order="C")


def check_memory(network: Network) -> int:
    """Bytes of all weights with their zeros; Unavailable where a library that has them would not fit."""
    size = sum(4 * one.inputs * one.outputs for one in map(network.header, range(network.depth)))
    free = available_bytes()
    if free is not None and COPIES * size > MEMORY_SHARE * free:
        raise Unavailable(
            f"dense weights take {size:,} bytes, {COPIES} times over while they are laid out; {free:,} are free"
        )
    return size


def _onnx(network: Network | OnnxFile) -> tuple[str | bytes, int]:
    """An ONNX model as libraries read it, and the bytes of its weights."""
    if isinstance(network, OnnxFile):
        return network.path, network.nbytes
    size = check_memory(network)
    if size >= MOST_ONNX:
        raise Unavailable(f"{size:,} bytes of dense weights; a graph in memory holds {MOST_ONNX:,}")
    return onnx_graph(network), size


def onnx_graph(network: Network) -> bytes:
    """The network as an ONNX model with dense weights, from `x` (inputs, neurons) to `y`."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights, last = [], [], "x"
    for k, layer in enumerate(network.layers()):
        bias, low, high = _after(layer)
        limits = {f"low{k}": np.float32(low), f"high{k}": np.float32(high)} if np.isfinite(high) else {}
        for name, array in {f"w{k}": dense(layer), f"b{k}": bias, **limits}.items():
            weights.append(numpy_helper.from_array(np.asarray(array), name))
        nodes.append(helper.make_node("Gemm", [last, f"w{k}", f"b{k}"], [f"y{k}"]))
        last = f"y{k}"
        if layer.activation.name == "relu":
            nodes.append(helper.make_node("Clip" if limits else "Relu", [last, *limits], [f"z{k}"]))
            last = f"z{k}"
    nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["inputs", width])
            for name, width in (("x", network.inputs), ("y", network.outputs))]  # fmt: skip
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model.SerializeToString()


def _after(layer: Layer) -> tuple[np.ndarray, float, float]:
    """What follows the product: bias of each output, float32; the least and the largest value."""
    bias = np.ascontiguousarray(np.broadcast_to(layer.bias, layer.outputs), np.float32).copy()
    return bias, layer.activation.low, layer.activation.high


def _clip(y: np.ndarray, low: float, high: float) -> None:
    if np.isfinite(low):
        np.maximum(y, np.float32(low), out=y)
    if np.isfinite(high):
        np.minimum(y, np.float32(high), out=y)
