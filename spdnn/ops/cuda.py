"""The operations on an NVIDIA GPU: kernels of spdnn/kernels/cuda through the contract of `Device`.

Launches go to the caller's current CuPy stream, and the host does not wait. Exceptions: a topology or permutation is
copied to the device once, and settings are timed once for each class of shapes (tuning.py). While a graph is captured
neither is possible: a topology that is not on the device is refused (call each operation once before), and settings
without a stored choice are the usual ones. A call takes the host tens of microseconds; `bind` saves that for repeated
calls on the same arrays.

NaN is not searched for, since that would be a wait: where the processor's backend raises, here it propagates.
"""

import hashlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.kernels.cuda.declarations import source
from spdnn.kernels.cuda.device import Device
from spdnn.ops import cuda_launches, tuning
from spdnn.ops.backend import Backend
from spdnn.ops.cuda_launches import DeviceTopology, Epilogue, Launch, LaunchPlan
from spdnn.ops.topology import Topology

BIAS = {"spmm": 2, "depthwise": 1}  # its index after the first argument; where there is none, a zero represents all
_here = threading.local()  # a backend's current stream is its own, so threads have backends of their own


def current() -> "CudaBackend":
    """The backend of CuPy's current device, for its current stream.

    Raises:
        Unavailable: CuPy or the device are missing; see open_device.
    """
    from spdnn.kernels.cuda import cupy_device
    from spdnn.ops.arrays import cupy

    cuda = cupy().cuda
    ordinal = int(cuda.Device().id)
    backends = vars(_here).setdefault("backends", {})
    if ordinal not in backends:
        backends[ordinal] = CudaBackend(cupy_device.open_device(ordinal), cuda.get_current_stream)
    return backends[ordinal]


class CudaBackend(Backend):
    """The operations on one device.

    Args:
        device: arrays are its own.
        stream: gives the stream to launch on, asked at every call; by default the device's main one.
    """

    def __init__(self, device: Device, stream: Callable[[], Any] | None = None):
        self.device = device
        self.notes: dict = {}
        self._stream = stream or (lambda: device.main)
        self._placed: dict[int, Any] = {}  # by the id of a topology or a permutation, as long as that lives
        self._late: list = []  # what was kept, and may still be read on another stream than its memory goes back to
        self._first, self._several = None, False  # the first stream that was launched on; whether there were others
        self._settings: dict[tuple, Any] = {}  # settings, of calls alike: asked for once
        self._zero = device.upload(np.zeros(1, np.float32))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if self._capturing():
            raise InputError("the current stream is captured, where no memory can be taken: give the result with out=")
        with self.device.on(self._stream()):
            return self.device.empty(int(np.prod(shape, dtype=np.int64)), dtype).reshape(shape)

    def spmm(self, topology, values, b, bias, low, high, out) -> None:
        self._run("spmm", topology, values, b, bias, low, high, out)

    def sddmm(self, topology, q, k, scale, out) -> None:
        self._run("sddmm", topology, q, k, scale, out)

    def softmax(self, topology, values, scale, out) -> None:
        self._run("softmax", topology, values, scale, out)

    def gather(self, values, permutation, out) -> None:
        self._run("gather", values, permutation, out)

    def attention(self, topology, q, k, v, scale, out) -> None:
        self._run("attention", topology, q, k, v, scale, out)

    def depthwise(self, x, weights, bias, low, high, stride, nhwc, out) -> None:
        self._run("depthwise", x, weights, bias, low, high, stride, nhwc, out)

    def candidates(self, operation: str, *arguments: Any) -> tuple:
        """The settings that suit an operation (a method's name) with a method's arguments; the first is the usual."""
        return self._plan(operation, *arguments).settings

    def bind(self, operation: str, *arguments: Any, setting: Any = None) -> Callable[[], None]:
        """A launch of an operation, checked and compiled now; calling it launches on the stream that is current then.

        Args:
            operation: a method's name; arguments: what the method takes. The arrays are kept.
            setting: one of `candidates`; by default what a call would take.

        Raises:
            SpdnnError: see Device.bind.
        """
        plan = self._plan(operation, *arguments)
        return self._bind(plan.launch(self._choose(operation, plan, arguments) if setting is None else setting))

    def seconds(self, launch: Callable[[], None]) -> float:
        """Call a bound launch, and wait; the seconds between two events around it."""
        with self.device.on(self._stream()):
            return self.device.seconds(launch)

    def _run(self, operation: str, *arguments: Any) -> None:
        plan = self._plan(operation, *arguments)
        setting = self._choose(operation, plan, arguments)
        launch = plan.launch(setting)
        self._bind(launch)()
        self.notes = {"operation": operation, "kernel": str(launch.kernel), "setting": setting}

    def _bind(self, launch: Launch) -> Callable[[], None]:
        kernel, blocks, arguments, sizes = launch
        with self.device.on(self._stream()):
            bound = self.device.bind(kernel, blocks, arguments, sizes=sizes)

        def call() -> None:
            with self.device.on(self._now()):
                bound()

        return call

    def _choose(self, operation: str, plan: LaunchPlan, arguments: tuple) -> Any:
        dtype, topology = arguments[-1].dtype, arguments[0] if isinstance(arguments[0], Topology) else None
        call = operation, plan.settings, plan.sizes, plan.operations, dtype
        if call not in self._settings:
            if len(plan.settings) > 1 and self._capturing():
                return plan.settings[0]
            shape = tuning.shape_class(*plan.sizes, sparsity=topology.sparsity if topology else None)
            bits = f"/{topology.index_bits}" if topology else ""
            properties, file = self.device.properties, plan.launch(plan.settings[0]).kernel.file
            code = hashlib.sha256(source(file).encode()).hexdigest()[:16]
            usual = plan.settings[0]  # which depends on the loads that addresses and the width allow
            key = f"{properties.name} {properties.software} {code} {operation} {dtype}{bits} {shape} {usual}"
            with self.device.on(self._stream()):
                self._settings[call] = tuning.choose(key, plan.settings, plan.operations, self._timer(plan))
        return self._settings[call]

    def _timer(self, plan: LaunchPlan) -> Callable[[Any], float]:
        """What times a setting, on the current stream."""
        lead: list = []

        def seconds(setting: Any) -> float:
            lead[:] = lead or [self.device.lead()]
            return self.device.seconds_ahead(self._bind(plan.launch(setting)), *lead)

        return seconds

    def _plan(self, operation: str, *arguments: Any) -> LaunchPlan:
        first, *others = arguments
        if not all(self.device.holds(array) for array in arguments if hasattr(array, "dtype")):
            raise InputError(
                f"{operation}: an array is on another GPU than CuPy's current one ({self.device.properties.name}); move"
                " it, or call inside `with cupy.cuda.Device(number)`"
            )
        make = getattr(cuda_launches, operation)
        if operation == "gather":
            values, permutation, out = arguments
            placed = self._once(permutation, lambda: self.device.upload(permutation))
            return make(self.device, values, placed, out)
        if operation in BIAS:
            epilogue = slice(BIAS[operation], BIAS[operation] + 3)
            bias, low, high = others[epilogue]
            others[epilogue] = [Epilogue(self._zero, 0, low, high) if bias is None else Epilogue(bias, 1, low, high)]
        if isinstance(first, Topology):
            return make(self.device, self._once(first, lambda: DeviceTopology(self.device, first)), first, *others)
        return make(self.device, first, *others)

    def _once(self, owner: Any, make: Callable[[], Any]) -> Any:
        """What `make` makes of a topology or a permutation, made once while that lives."""
        if id(owner) not in self._placed:
            if self._capturing():
                raise InputError(
                    "the current stream is captured, and a topology is not on the device yet; call the operation once"
                    " before the capture begins"
                )
            if self._late:  # wait for whoever reads it, as placing does anyway
                late, self._late = self._late, []
                self.device.idle()
                del late
            with self.device.on(self._now()):
                self._placed[id(owner)] = make()
            weakref.finalize(owner, _forget, weakref.ref(self), id(owner))  # not our own keeper, or threads' stay
        return self._placed[id(owner)]

    def _capturing(self) -> bool:
        """Whether the current stream is being captured; False where it does not say."""
        is_capturing = getattr(self._stream(), "is_capturing", None)
        try:
            return is_capturing is not None and bool(is_capturing())
        except RuntimeError:  # of the default stream, where a stream is captured that waits for it
            return True

    def _now(self) -> Any:
        """The stream to launch on."""
        stream = self._stream()
        if self._first is None:
            self._first = stream
        self._several = self._several or stream != self._first
        return stream


def _forget(backend: weakref.ref, owner: int) -> None:
    """Give back what was placed for an owner that is no more.

    CuPy's pool gives the memory out again on the stream where it was taken, in that stream's order. Work on another
    stream may still read it: then it goes back when something is placed the next time.
    """
    own = backend()
    if own is not None:
        placed = own._placed.pop(owner, None)
        if own._several:
            own._late.append(placed)
