"""What CupyDevice does on streams: events, copies during other work, graphs, moves between devices, whose fault it was.

Launches are not waited for, so a later call raises an error of CUDA, and names the last launch that it can be of.
With SPDNN_CUDA_SYNCHRONIZE=1 in the environment nothing is captured, each launch is waited for, and the error names the
one that failed.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError
from spdnn.kernels.cuda.device import Device, Event

SYNCHRONIZE = "SPDNN_CUDA_SYNCHRONIZE"
PEERS_ALREADY = 704  # cudaErrorPeerAccessAlreadyEnabled
NOT_YET = 600  # cudaErrorNotReady
POOLED = 1 << 20  # bytes: CuPy's pool of pinned memory rounds them up to a power of two


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python's garbage is collected before this block and not in it: freeing memory of CUDA can spoil a capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CupyEvent(Event):
    """An event of CUDA: `cupy_event` is CuPy's."""

    def __init__(self, device: "CupyStreams", cupy_event: Any):
        self.device, self.cupy_event = device, cupy_event

    def done(self) -> bool:
        # CuPy's Event.done takes any fault of the device for an event that has not come, and it never would.
        runtime = self.device._cupy.cuda.runtime
        with self.device._working():
            status = runtime.eventQuery(self.cupy_event.ptr)
            if status not in (0, NOT_YET):
                raise runtime.CUDARuntimeError(status)
        return status == 0

    def synchronize(self) -> None:
        with self.device._working():
            self.cupy_event.synchronize()


class CupyStreams(Device):
    """The part of CupyDevice that knows of streams."""

    def __init__(self, cupy: Any, ordinal: int):
        """`cupy`: the module; the devices are numbered from 0. The calling thread's own stays what it is."""
        self._cupy, self.ordinal = cupy, ordinal
        self._device = cupy.cuda.Device(ordinal)
        with self._device:
            self.main = self._stream = cupy.cuda.Stream(non_blocking=True)
        self._streams = [self.main]
        self._last: str | None = None  # launch
        self.one_by_one = synchronizes()
        self._faults = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)

    def stream(self) -> Any:
        with self._working(), self._device:
            self._streams.append(self._cupy.cuda.Stream(non_blocking=True))
        return self._streams[-1]

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        # The current stream is an attribute, read when a launch is called, so launches are bound once for all streams.
        before, self._stream = self._stream, stream
        try:
            yield
        finally:
            self._stream = before

    def event(self, timed: bool = False) -> CupyEvent:
        with self._working(), self._device:
            return CupyEvent(self, self._cupy.cuda.Event(disable_timing=not timed))

    def record(self, event: CupyEvent) -> None:
        with self._working(), self._device:
            event.cupy_event.record(self._stream)

    def wait(self, event: CupyEvent) -> None:
        with self._working(), self._device:
            self._stream.wait_event(event.cupy_event)

    def elapsed(self, before: CupyEvent, after: CupyEvent) -> float:
        with self._working(), self._device:
            return self._cupy.cuda.get_elapsed_time(before.cupy_event, after.cupy_event) / 1000  # of milliseconds

    def pinned_array(self, size: int, dtype: Any) -> np.ndarray:
        # From CuPy's pool or, where it would round up to much more than was asked for, from CUDA.
        nbytes, cuda = int(size) * np.dtype(dtype).itemsize, self._cupy.cuda
        try:
            with self._working(), self._device:
                if nbytes <= POOLED:
                    pinned = cuda.alloc_pinned_memory(nbytes)
                else:
                    memory = cuda.PinnedMemory(nbytes, cuda.runtime.hostAllocPortable)
                    pinned = cuda.PinnedMemoryPointer(memory, 0)
        except SpdnnError as error:
            raise MemoryTooSmall(f"{nbytes:,} bytes of host memory that devices copy from: {error}", nbytes) from error
        return np.frombuffer(pinned, np.uint8)[:nbytes].view(dtype)  # CuPy gives whole units

    def copy_in(self, array: Any, host: np.ndarray) -> None:
        self._copy(array.data.ptr, host.ctypes.data, self._both(array, host), "HostToDevice")

    def copy_out(self, host: np.ndarray, array: Any) -> None:
        self._copy(host.ctypes.data, array.data.ptr, self._both(array, host), "DeviceToHost")

    def _both(self, array: Any, other: Any) -> int:
        """Bytes of each of two arrays, one of which is copied to the other."""
        if array.nbytes != other.nbytes or not (array.flags.c_contiguous and other.flags.c_contiguous):
            raise SpdnnError(f"{array.nbytes:,} and {other.nbytes:,} bytes: arrays are copied whole and in one piece")
        return int(array.nbytes)

    def _copy(self, target: int, source: int, nbytes: int, way: str) -> None:
        runtime = self._cupy.cuda.runtime
        if nbytes:
            with self._working(), self._device:
                runtime.memcpyAsync(target, source, nbytes, getattr(runtime, f"memcpy{way}"), self._stream.ptr)

    def reach(self, other: "CupyStreams") -> bool:
        runtime = self._cupy.cuda.runtime
        if other.ordinal == self.ordinal:  # which CUDA does not call a peer
            return True
        with self._working(), self._device:
            if not runtime.deviceCanAccessPeer(self.ordinal, other.ordinal):
                return False
            try:
                # Access is opened once for a process, perhaps by another session already.
                runtime.deviceEnablePeerAccess(other.ordinal)
            except self._faults as error:
                if getattr(error, "status", None) != PEERS_ALREADY:
                    raise
        return True

    def move(self, array: Any, other: "CupyStreams", source: Any) -> None:
        # Between devices: directly where one reaches the other (`reach`), else CUDA goes through the host.
        nbytes, runtime = self._both(array, source), self._cupy.cuda.runtime
        if other.ordinal == self.ordinal:
            self._copy(array.data.ptr, source.data.ptr, nbytes, "DeviceToDevice")
        elif nbytes:
            addresses = array.data.ptr, self.ordinal, source.data.ptr, other.ordinal
            with self._working(), self._device:
                runtime.memcpyPeerAsync(*addresses, nbytes, self._stream.ptr)

    def _capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        # Capture: the stream records what it is asked for and does none of it; a capture that failed is ended, for the
        # stream could not be used again, and the first error is the one to tell.
        with self._working("a graph that is captured"), self._current(), _without_collection():
            self._stream.begin_capture()
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):
                    self._stream.end_capture()
                raise
            graph = self._stream.end_capture()
            graph.upload(self._stream)  # which the first launch would do

        def replay() -> None:
            with self._working("a graph's launch"), self._current():
                graph.launch(self._stream)

        return replay

    def synchronize(self) -> None:
        with self._working():
            for stream in self._streams:
                stream.synchronize()

    def idle(self) -> None:
        with self._working(), self._device:
            self._device.synchronize()

    def seconds(self, work: Callable[[], Any]) -> float:
        # Two events on the stream: what the host takes to launch is in their time, its wait at the end is not.
        events = self._cupy.cuda
        with self._working(), self._current():
            before, after = events.Event(), events.Event()
            before.record(self._stream)
            work()
            after.record(self._stream)
            after.synchronize()
            return events.get_elapsed_time(before, after) / 1000  # of milliseconds

    def _up_to(self, launch: str) -> str:
        """What an error is of that this launch or a later one raises."""
        return launch if self.one_by_one else f"in a launch up to {launch} ({SYNCHRONIZE}=1 names it)"

    @contextmanager
    def _current(self) -> Iterator[None]:
        """This device and its stream are those that CuPy uses."""
        with self._device, self._stream:
            yield

    @contextmanager
    def _working(self, launch: str | None = None) -> Iterator[None]:
        """A fault of CUDA in here is an SpdnnError that names this launch, or else those that it can be of."""
        try:
            yield
        except self._faults as error:
            if launch is None:
                launch = "a call of CUDA"
                if self._last:
                    launch += f" after {self._last}" if self.one_by_one else f", or {self._up_to(self._last)}"
            raise SpdnnError(f"{launch}: {line(error)}") from error


def synchronizes() -> bool:
    """Whether each launch is waited for; InputError where the environment says neither yes nor no."""
    value = os.environ.get(SYNCHRONIZE) or "0"
    if value not in ("0", "1"):
        raise InputError(f"{SYNCHRONIZE}={value}: it must be 0 or 1")
    return value == "1"


def line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())
