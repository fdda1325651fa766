"""The operations on the processor: the compiled kernels on all threads, with tiles chosen by timing (tuning.py)."""

import math
import os
import time
import weakref
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from spdnn.core.arrays import aligned
from spdnn.core.errors import InputError
from spdnn.core.provenance import cpu_name
from spdnn.kernels import dispatch
from spdnn.ops import tuning
from spdnn.ops.backend import Backend
from spdnn.ops.topology import Topology

LEAST_SHARED = 1_000_000  # multiply-adds of a call that are worth waking threads for, some 30 us each (measured)
FEW_USES = 25  # of a row of B, below which copying it costs more than it saves (measured)
# Of each operation the settings worth trying, the best default first: (tile, packed), or a tile alone. Measured with 16
# lanes (benchmarks/spmm.py --tiles): (64, packed) is best or nearly so where each row of B is used by 25 nonzeros or
# more; (32, packed) where a panel of 64 columns does not fit L2, or half as many columns fit L1; (128, packed) at 95 %
# and more, for rows are short; B where it lies, (128, not packed), where a row of B is used less, or B is small.
SETTINGS = {
    "spmm": [(64, True), (128, False), (32, True), (64, False), (128, True)],
    "spmm_by_rows": [64, 32, 128, 16],  # 32 where a panel of 64 does not fit L2
    "sddmm": [(512, True), (1024, True), (0, True), (0, False)],
    "attention": [512, 1024, 256],
}
_settings: weakref.WeakKeyDictionary[Topology, dict] = weakref.WeakKeyDictionary()  # of calls alike


@cache
def _load(level: str | None) -> tuple[ModuleType, str]:
    """The compiled kernels and the name of their level; cached, for a call may take less time than this search."""
    name = dispatch.level(level).name
    from spdnn.kernels import _cpu

    return _cpu, name


class CpuBackend(Backend):
    """The kernels of one instruction-set level.

    Args:
        threads: of each call.
        swizzle: deal rows out by descending length; without, in their own order.
        refuse_nan: a NaN in a result is an error; else it is left there.
    """

    def __init__(self, threads: int, swizzle: bool = True, refuse_nan: bool = True):
        self.refuse_nan = refuse_nan
        self.kernels, self.level = _load(os.environ.get("SPDNN_ISA"))
        self.threads, self.swizzle = threads, swizzle
        self.notes: dict = {}

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return aligned(size).view(dtype).reshape(shape)

    def spmm(self, topology, values, b, bias, low, high, out) -> None:
        bias = np.zeros(topology.rows, np.float32) if bias is None else bias
        sizes = b.shape[2], b.shape[0]
        self._run_tuned("spmm", topology, sizes, "the product", *self._where(topology), values, b, bias, low, high, out)

    def linear(self, topology, values, x, bias, low, high, out) -> None:
        bias = np.zeros(topology.rows, np.float32) if bias is None else bias
        arguments = topology.offsets, topology.columns, values, x, bias, low, high, out
        self._run_tuned("spmm_by_rows", topology, (len(x), 1), "the product", *arguments)

    def sddmm(self, topology, q, k, scale, out) -> None:
        sizes = q.shape[2], q.shape[0]
        self._run_tuned("sddmm", topology, sizes, "Q K^T", *self._where(topology), q, k, scale, out)

    def softmax(self, topology, values, scale, out) -> None:
        outcome = self.kernels.softmax(self.level, topology.offsets, values, scale, out, self.threads)
        self._note("softmax", None, outcome, "a row's softmax (all of its values are -inf, or +inf is among them)")

    def gather(self, values, permutation, out) -> None:
        self.kernels.gather_values(self.level, values, permutation, out, self.threads)
        self.notes = {"operation": "gather"}

    def attention(self, topology, q, k, v, scale, out) -> None:
        sizes = q.shape[2] + v.shape[2], q.shape[0]
        self._run_tuned("attention", topology, sizes, "attention", *self._where(topology), q, k, v, scale, out)

    def depthwise(self, x, weights, bias, low, high, stride, nhwc, out) -> None:
        bias = np.zeros(len(weights), np.float32) if bias is None else bias
        outcome = self.kernels.depthwise(self.level, x, weights, bias, low, high, stride, nhwc, out, self.threads)
        self._note("depthwise", None, outcome, "the convolution")

    def bias_activation(self, x: np.ndarray, bias: np.ndarray, low: float, high: float) -> None:
        """In place: bias (M,) is added to the rows of x (batch, M, N) float32, then clipped.

        What follows a dense product, where one is compared with `spmm`.
        """
        self.kernels.bias_activation(self.level, x, bias, low, high, self.threads)

    def _where(self, topology: Topology) -> tuple[np.ndarray, ...]:
        order = topology.order if self.swizzle else np.arange(topology.rows, dtype=np.int32)
        return topology.offsets, topology.columns, order

    def _run_tuned(self, operation: str, topology: Topology, sizes: tuple[int, int], what: str, *call: Any) -> None:
        """Run with the setting of the class of shapes that the call belongs to, small work on one thread.

        Args:
            sizes: multiply-adds of a nonzero; matrices of the batch.
            what: is NaN, in the error's sentence.
            call: the arguments of the kernel; the last is the output.
        """
        kernel, work, dtype = getattr(self.kernels, operation), topology.nnz * math.prod(sizes), call[-1].dtype
        threads = self.threads if work >= LEAST_SHARED else 1

        def run(setting: Any) -> tuple[np.ndarray, bool]:
            parameters = setting if isinstance(setting, tuple) else (setting,)
            return kernel(self.level, *call, *parameters, threads)

        def seconds(setting: Any) -> float:
            began = time.perf_counter()
            run(setting)
            return time.perf_counter() - began

        cached = _settings.setdefault(topology, {})
        alike = operation, sizes, dtype.char, self.level, threads, os.environ.get("SPDNN_TUNING")
        if alike not in cached:
            shape = tuning.shape_class(*topology.shape, *sizes, sparsity=topology.sparsity)
            kind, code = f"{dtype}/{topology.index_bits}", self.kernels.source_digest[:16]
            key = f"{cpu_name()} {self.level} t{threads} {code} {operation} {kind} {shape}"
            cached[alike] = tuning.choose(key, self._candidates(operation, topology, sizes[0]), 2 * work, seconds)
        self._note(operation, cached[alike], run(cached[alike]), what)

    def _candidates(self, operation: str, topology: Topology, width: int) -> list:
        """The settings that suit an operation, the usual one first."""
        settings = SETTINGS[operation]
        if operation == "spmm":
            # B is read in place when its rows are used few times (measured): that setting is tried first.
            few = topology.nnz < FEW_USES * topology.shape[1] and width % 16 == 0
            settings = sorted(settings, key=lambda setting: setting[1] == few)
        return settings

    def _note(self, operation: str, setting: Any, outcome: tuple[np.ndarray, bool], what: str) -> None:
        """Keep the kernel's outcome.

        Raises:
            InputError: a result was NaN.
        """
        busy, nan = outcome
        self.notes = {
            "operation": operation, "instruction_set": self.level, "setting": setting, "swizzle": self.swizzle,
            "busy_seconds": busy.tolist(),
        }  # fmt: skip
        if nan and self.refuse_nan:
            raise InputError(f"{what} is NaN somewhere: an operand holds NaN, or infinities that cancel")
