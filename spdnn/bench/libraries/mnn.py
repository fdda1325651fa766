"""MNN: the same models, converted to its own format; of pruned weights its converter may choose kernels for them."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from spdnn.bench.libraries.base import SPARSE, TimedProgram
from spdnn.bench.libraries.onnx import OnnxFile, model_file
from spdnn.core.errors import Unavailable
from spdnn.core.network import Network

# MNN.tools.mnnconvert installs a package and sends facts on the model to MNN's makers; the converter itself does not.
CONVERT = "import sys, _tools; _tools.mnnconvert(sys.argv)"


class Mnn(TimedProgram):
    """A module of MNN, in its high precision, which is float32; it takes on the shapes of each batch by itself."""

    name, kind, takes = "mnn", SPARSE, (Network, OnnxFile)
    needs = MappingProxyType({"onnx": "onnx", "MNN": "mnn"})

    def __init__(self, network: Network | OnnxFile, threads: int):
        import onnx

        with _silent():
            import MNN
            import MNN.expr
            import MNN.nn

        self.expr = MNN.expr
        with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
            source, _ = model_file(network, folder)
            graph = onnx.load(str(source), load_external_data=False).graph
            constants = {tensor.name for tensor in graph.initializer}
            names = [value.name for value in graph.input if value.name not in constants]
            converted = _convert(source, Path(folder, "model.mnn"))
            with _silent():
                self.module = MNN.nn.load_module_from_file(
                    str(converted), names, [value.name for value in graph.output], backend=self.expr.Backend.CPU,
                    precision_mode=self.expr.PrecisionMode.High, thread_num=threads,
                )  # fmt: skip
            self.matrix_bytes = converted.stat().st_size
        self.version, self.threads_used = f"MNN {MNN.version()}", threads
        layout = "its own, sparse where its converter chooses that"
        self.notes = {"threads_set": f"thread_num = {threads}", "layout": layout}

    def convert_inputs(self, *x: np.ndarray) -> list:
        """Variables of MNN, which knows integers of 32 bits and floats of 32 bits."""
        made, expr = [], self.expr
        for array in x:
            real = array.dtype.kind == "f"
            values = np.ascontiguousarray(array, np.float32 if real else np.int32)
            kind = expr.dtype.float if real else expr.dtype.int
            made.append(expr.const(values, list(values.shape), expr.data_format.NCHW, kind))
        return made

    def __call__(self, x: list) -> list:
        return [out.read().copy() for out in self.module.forward(x)]  # the next call writes to the same memory

    def arrays(self, out: list) -> Sequence[np.ndarray]:
        return out


def _convert(source: Path, target: Path) -> Path:
    """The model in MNN's format; Unavailable, with what the converter said last, where it makes none."""
    words = ["-f", "ONNX", "--modelFile", source, "--MNNModel", target, "--bizCode", "x", "--detectSparseSpeedUp", "1"]
    # -P: the folder that the command is called in has no modules of it.
    done = subprocess.run([sys.executable, "-P", "-c", CONVERT, *words], capture_output=True, text=True, check=False)
    if not target.is_file():
        *_, last = ["nothing", *(line for line in (done.stdout + done.stderr).splitlines() if line.strip())]
        raise Unavailable(f"its converter makes no model of this one; it says: {last}")
    return target


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed in this block, by compiled code neither."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(nowhere)
