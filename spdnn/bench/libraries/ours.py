"""Our own programs: the kernels of spdnn.ops on one product, those of the engine on a layer, and a compiled model."""

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from spdnn.api import compile as compiled
from spdnn.bench.libraries.base import OURS, Product, TimedProgram
from spdnn.bench.libraries.onnx import OnnxFile, precision_of
from spdnn.core.network import Layer, Network
from spdnn.core.numbers import ceil_div
from spdnn.kernels import dispatch, tiles
from spdnn.ops.cpu import CpuBackend
from spdnn.ops.onnx_model import OnnxModel

# Threads that wait for work stay awake for about 1 ms, ours as oneMKL's (bench/engines/mkl.py): long enough for the
# next call to find them so. libgomp reads it when the kernels are loaded, and counts some 27 ns each (measured).
SPINS = "40000"


def stay_awake() -> None:
    """Let our waiting threads stay awake as long as other libraries' do, where the user has not said otherwise."""
    if "OMP_WAIT_POLICY" not in os.environ and "spdnn.kernels._cpu" not in sys.modules:
        os.environ["GOMP_SPINCOUNT"] = SPINS


class OurProgram(TimedProgram):
    """What our own programs share."""

    name, kind = "ours", OURS

    @classmethod
    def missing(cls) -> str | None:
        return dispatch.missing()

    @property
    def version(self) -> str:
        return f"spdnn {importlib.metadata.version('spdnn')}"


class OurProduct(OurProgram):
    """The kernels of spdnn.ops, into an output that was allocated before."""

    swizzle = True

    def __init__(self, product: Product, threads: int):
        self.product, self.threads_used = product, threads
        self.backend = CpuBackend(threads, swizzle=self.swizzle)
        self.topology, self.values = product.topology, product.values[None]
        self.matrix_bytes = self.topology.nbytes + self.topology.order.nbytes
        if product.operation == "spmm":
            self.matrix_bytes += product.values.nbytes
        self.out = self.backend.empty((1, *product.shape), np.float32)
        self.out.fill(0)  # the pages are touched here, not on the clock
        spins = os.environ.get("GOMP_SPINCOUNT", "not set")
        self.notes = {"threads_set": f"{threads} of each call, GOMP_SPINCOUNT={spins}"}

    def __call__(self, x: Any = None) -> np.ndarray:
        product = self.product
        if product.operation == "spmm":
            self.backend.spmm(self.topology, self.values, product.first[None], None, -np.inf, np.inf, self.out)
        else:
            self.backend.sddmm(self.topology, product.first[None], product.second[None], 1.0, self.out)
        return self.out

    def array(self, out: np.ndarray) -> np.ndarray:
        return out[0]

    def imbalance(self) -> float | None:
        self.notes |= {name: self.backend.notes[name] for name in ("instruction_set", "setting", "swizzle")}
        self.threads_used = len(self.backend.notes["busy_seconds"])  # one where a call is too small to share
        return _spread(self.backend.notes["busy_seconds"])

    def nonzero_imbalance(self) -> float | None:
        from spdnn.kernels import _cpu

        shares = getattr(_cpu, f"{self.product.operation}_shares", None)
        setting = self.backend.notes.get("setting")
        if shares is None or not isinstance(setting, tuple | list):
            return None
        order = self.topology.order if self.swizzle else np.arange(self.topology.rows, dtype=np.int32)
        where = self.backend.level, self.topology.offsets, order
        return _spread(shares(*where, self.product.width, 1, setting[0], self.threads_used))


class OurProductInOrder(OurProduct):
    """The same with rows assigned in their own order, for comparison with the swizzle."""

    name, swizzle = "ours-in-order", False


class OurLayer(OurProgram):
    """The kernel on one layer: features, given as float32 (count, inputs), tiled already."""

    sparse = False  # as Library has it

    def __init__(self, layer: Layer, rows: np.ndarray, threads: int):
        self.level, self.count, self.outputs, self.threads_used = dispatch.level(), len(rows), layer.outputs, threads
        self.tile = tiles.best_tile(self.level, self.count, max(layer.inputs, layer.outputs))
        self.tiles = ceil_div(self.count, self.tile)
        self.bound = tiles.bind(layer, share=True)
        self.source = tiles.tile_rows(rows, self.tile)
        self.target = tiles.buffer(self.count, layer.outputs, self.tile)
        self.target.fill(0)  # the pages are touched here, not on the clock
        self.edges = self.tiles * self.tile * layer.edges
        self.notes = {"instruction_set": self.level.name, "tile": self.tile}

    def __call__(self, x: Any = None) -> np.ndarray:
        active = np.zeros((1, self.tiles), np.uint64)
        self.level.layers([self.bound], self.source, self.target, self.count, self.tile, 1, active, self.threads_used)
        return self.target

    def array(self, out: np.ndarray) -> np.ndarray:
        rows = np.empty((self.count, self.outputs), np.float32)
        self.level.take(out, self.tile, np.arange(len(rows)), rows, self.threads_used)
        return rows


class OurModel(OurProgram):
    """A compiled model."""

    takes = (Network, OnnxFile)

    def __init__(self, network: Network | OnnxFile, threads: int):
        self.file, self.matrix_bytes = network if isinstance(network, OnnxFile) else None, network.nbytes
        self.threads_used, self.notes = threads, {"threads_set": f"{threads} of the model"}
        self.precision = precision_of(network)
        self.model: Any = None
        if isinstance(network, Network):
            self.model = compiled(network, threads=threads)
            self.notes["layout"] = f"compiled model, reductions: {'+'.join(self.model.reductions) or 'none'}"

    def prepare_shapes(self, *x: np.ndarray) -> None:
        if self.file:
            self.close()
            # Whether the choice of products still holds is part of what is measured.
            self.model = compiled(self.file.path, threads=self.threads_used, example=x, tune="again")
            self.notes["layout"] = repr(self.model)
            if isinstance(self.model, OnnxModel):
                self.notes["choice"] = " ".join(self.model.choice.splitlines())

    def convert_inputs(self, *x: np.ndarray) -> tuple:
        return x

    def __call__(self, x: tuple) -> Any:
        return self.model(*x)

    def arrays(self, out: Any) -> Sequence[np.ndarray]:
        return out if isinstance(out, tuple) else [out]

    def findings(self, x: tuple) -> dict:
        return {"profile": self.model.profile(*x)} if isinstance(self.model, OnnxModel) else {}

    def close(self) -> None:
        if self.model is not None:
            self.model.close()


def _spread(parts: Any) -> float | None:
    """Maximum over mean; None where nothing was done."""
    mean = float(np.mean(parts))
    return max(1.0, float(np.max(parts)) / mean) if mean > 0 else None
