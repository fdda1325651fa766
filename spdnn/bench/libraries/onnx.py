"""ONNX Runtime and OpenVINO: a model's own file, or the graph of a network with dense weights, made in memory."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from spdnn.bench.libraries.base import DENSE, TimedProgram, after, check_memory, dense
from spdnn.core.errors import Unavailable
from spdnn.core.network import Network
from spdnn.formats import onnx_files

MOST_ONNX = 2**31  # bytes of a model that protobuf can hold
SPARSE_RATE = "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE"  # OpenVINO decompresses weights with more zeros than this part
RATE = 0.75
PRECISION, PRECISIONS = "INFERENCE_PRECISION_HINT", {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


class OnnxFile(NamedTuple):
    """An ONNX model that is no chain of pruned layers; nbytes: of its weights; precision: the type of most of them."""

    path: str
    nbytes: int
    precision: str = "float32"


class OnnxRuntime(TimedProgram):
    """The file itself, or a graph of Gemm, Relu and Clip, which is made in memory, on the processor."""

    name, kind, takes = "onnxruntime", DENSE, (Network, OnnxFile)
    needs = MappingProxyType({"onnx": "onnx", "onnxruntime": "peers"})

    def __init__(self, network: Network | OnnxFile, threads: int):
        model, self.matrix_bytes = _onnx(network)
        self.precision = precision_of(network)
        self.session = onnx_files.session(model, lambda options: setattr(options, "intra_op_num_threads", threads))
        self.names = [argument.name for argument in self.session.get_inputs()]
        self.version, self.threads_used = f"ONNX Runtime {onnx_files.runtime().__version__}", threads
        self.notes = {"threads_set": f"intra_op_num_threads = {threads}", "layout": "dense"}

    def convert_inputs(self, *x: np.ndarray) -> dict:
        return dict(zip(self.names, x, strict=True))

    def __call__(self, x: dict) -> list:
        return self.session.run(None, x)

    def arrays(self, out: list) -> Sequence[np.ndarray]:
        return out


class OpenVino(TimedProgram):
    """The same models as users run them, compiled for the shapes of each batch: on processors with instructions for
    bfloat16, OpenVINO computes in it unless it is asked not to. Weights with many zeros are decompressed.
    """

    name, kind, takes = "openvino", DENSE, (Network, OnnxFile)
    needs = MappingProxyType({"onnx": "onnx", "openvino": "openvino"})
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, network: Network | OnnxFile, threads: int):
        sys.modules.setdefault("openvino_telemetry", None)  # else the import writes into the home folder
        import openvino

        model, self.matrix_bytes = _onnx(network)
        self.core = openvino.Core()
        self.model = self.core.read_model(model)
        shared = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", SPARSE_RATE: RATE}
        self.options = shared | self.options
        self.version, self.threads_used = f"OpenVINO {openvino.__version__}", threads
        self.notes: dict[str, Any] = {"threads_set": f"INFERENCE_NUM_THREADS = {threads}"}

    def prepare_shapes(self, *x: np.ndarray) -> None:
        self.model.reshape({number: list(array.shape) for number, array in enumerate(x)})
        self.compiled = self.core.compile_model(self.model, "CPU", self.options)
        rate = float(self.compiled.get_property(SPARSE_RATE))
        self.notes["layout"] = f"dense, {SPARSE_RATE} = {rate:.3g}"
        chosen = self.compiled.get_property(PRECISION).to_string()
        self.precision = PRECISIONS.get(chosen, chosen)

    def convert_inputs(self, *x: np.ndarray) -> list:
        return list(x)

    def __call__(self, x: list) -> Any:
        return self.compiled(x)

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        return [out[port] for port in self.compiled.outputs]


class OpenVinoFloat32(OpenVino):
    """The same, asked to compute in float32."""

    name, options = "openvino-f32", MappingProxyType({PRECISION: "f32"})


def precision_of(network: Network | OnnxFile) -> str:
    """The type that a library computes in which takes that of the model."""
    return network.precision if isinstance(network, OnnxFile) else "float32"


def _onnx(network: Network | OnnxFile) -> tuple[str | bytes, int]:
    """An ONNX model as libraries read it, and the bytes of its weights."""
    if isinstance(network, OnnxFile):
        return network.path, network.nbytes
    size = check_memory(network)
    if size >= MOST_ONNX:
        raise Unavailable(f"{size:,} bytes of dense weights; a graph in memory holds {MOST_ONNX:,}")
    return onnx_graph(network), size


def model_file(network: Network | OnnxFile, folder: str) -> tuple[Path, int]:
    """The file of an ONNX model, written to `folder` where there is none, and the bytes of its weights."""
    model, nbytes = _onnx(network)
    if isinstance(model, str):
        return Path(model).absolute(), nbytes
    path = Path(folder, "model.onnx")
    path.write_bytes(model)
    return path, nbytes


def onnx_graph(network: Network) -> bytes:
    """The network as an ONNX model with dense weights, from `x` (inputs, neurons) to `y`."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights, last = [], [], "x"
    for k, layer in enumerate(network.layers()):
        bias, low, high = after(layer)
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
