"""A CUDA device as the engines see it: memory, checked launches, the clock of its events.

The engines know this contract alone, so that the same host code drives a GPU through CuPy (cupy_device.py) and, in the
tests, kernels that were compiled for the CPU.
"""

import abc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.core.errors import SpdnnError
from spdnn.core.resources import CEILING_SHARE
from spdnn.kernels.cuda.declarations import Kernel

MOST_BLOCKS = 2**31 - 1  # of a one-dimensional grid
LEAD_BYTES, LEAD_FILLS = 1 << 27, 8  # that a device writes while the host gets ahead of it: some 0.3 ms of an H200


@dataclass(frozen=True)
class Properties:
    """What a device is.

    Attributes:
        name: the vendor's; capability: 90 for compute capability 9.0.
        multiprocessors: how many; threads: that one of them holds at most.
        shared_per_block: bytes of shared memory that a block may ask for (opting in); shared: of a multiprocessor.
        l2_bytes: of the second-level cache; memory_bytes: of the device.
        software: driver, runtime and compiler, as a record names them.
    """

    name: str
    capability: int
    multiprocessors: int
    threads: int
    shared_per_block: int
    shared: int
    l2_bytes: int
    memory_bytes: int
    software: str


class Event(abc.ABC):
    """A moment in the work of a stream: when all that was there before the last `Device.record` of it is done.

    One that was never recorded is done.
    """

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether it has come; does not wait. Raises as Device.read does."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait on the host until it has come. Raises as Device.read does."""


class Device(abc.ABC):
    """One device. Arrays on it have `dtype`, `size`, `nbytes` and `flags.c_contiguous`, as NumPy's and CuPy's do.

    What is asked for is done in order on the *current* stream: that of the innermost `on`, else `main`. Streams go on
    at the same time, and only events order what is on two of them. Only `upload`, `read`, `seconds`, `synchronize` and
    Event.synchronize wait.

    Attributes:
        main: the stream that is there from the start.
        one_by_one: whether each launch is waited for.
        startup_seconds: so far, of opening the device, and of compiling and loading kernels.
    """

    properties: Properties
    main: Any
    one_by_one = False
    startup_seconds = 0.0

    @abc.abstractmethod
    def stream(self) -> Any:
        """A new stream."""

    @abc.abstractmethod
    def on(self, stream: Any) -> AbstractContextManager:
        """Inside, `stream` is the current one. A launch goes to the stream that is current when it is called, wherever
        it was bound."""

    @abc.abstractmethod
    def event(self, timed: bool = False) -> Event:
        """A new event, not recorded yet; `timed`: for `elapsed`."""

    @abc.abstractmethod
    def record(self, event: Event) -> None:
        """`event`, one of this device, comes when all that is on the current stream now is done."""

    @abc.abstractmethod
    def wait(self, event: Event) -> None:
        """What is asked for on the current stream from now on begins after `event`, as it was recorded last, on
        whatever device. Returns at once."""

    @abc.abstractmethod
    def elapsed(self, before: Event, after: Event) -> float:
        """Seconds between two timed events of this device, both of which have come."""

    @abc.abstractmethod
    def pinned_array(self, size: int, dtype: Any) -> np.ndarray:
        """Host memory for so many elements, uninitialised, which devices copy from and to while the host goes on.

        Raises:
            MemoryTooSmall: the host has no room for it.
        """

    @abc.abstractmethod
    def copy_in(self, array: Any, host: np.ndarray) -> None:
        """Copy `host`, pinned, to `array`, as large; on the current stream, without waiting: until that is done, `host`
        must not change."""

    @abc.abstractmethod
    def copy_out(self, host: np.ndarray, array: Any) -> None:
        """Copy `array` to `host`, pinned and as large; on the current stream, without waiting."""

    @abc.abstractmethod
    def reach(self, other: "Device") -> bool:
        """Let this device access the memory of `other` directly, where it can; whether it does. If not, copies between
        the two go through the host."""

    @abc.abstractmethod
    def move(self, array: Any, other: "Device", source: Any) -> None:
        """Copy `source`, of `other`, to `array`, of this device and as large; on the current stream of this device,
        without waiting."""

    def capture(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """What `work` asks for, as one graph; calling it launches the graph on the current stream and does not wait.
        `work` itself where each launch is waited for.

        `work` is called once, and nothing of it is done. It begins on the current stream, main or another; others take
        part from when they wait for an event that was recorded in here, and must be waited for before it ends. Inside,
        memory may neither be taken nor returned, and nothing may wait on the host. The arrays are the caller's to
        keep.

        Raises:
            SpdnnError: `work` breaks one of these rules.
        """
        return work if self.one_by_one else self._capture(work)

    @abc.abstractmethod
    def _capture(self, work: Callable[[], Any]) -> Callable[[], None]:
        """As `capture`."""

    @abc.abstractmethod
    def promise(self, nbytes: int) -> None:
        """From now on no more than so many bytes of memory are taken, those in use included; what does not fit is
        MemoryTooSmall, and `free_bytes` says no more than is left of them."""

    @abc.abstractmethod
    def upload(self, host: np.ndarray) -> Any:
        """A copy of `host` on the device, C-contiguous, complete when this returns.

        Raises:
            MemoryTooSmall: it does not fit; the sentence says how much was asked for, and what is free.
        """

    @abc.abstractmethod
    def empty(self, size: int, dtype: Any) -> Any:
        """An uninitialised array of so many elements. Raises as `upload` does."""

    @abc.abstractmethod
    def fill(self, array: Any, byte: int) -> None:
        """Every byte of `array` becomes `byte` (0..255)."""

    @abc.abstractmethod
    def read(self, array: Any) -> np.ndarray:
        """A copy of `array` on the host, after everything before it on the current stream is done.

        Raises:
            SpdnnError: a launch failed; the sentence names the last one.
        """

    @abc.abstractmethod
    def address(self, array: Any) -> int:
        """Where the first element of `array` is on the device, for tables of pointers that a kernel reads."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all is done, on every stream. Raises as `read` does."""

    def idle(self) -> None:
        """As synchronize, and for streams of others, too."""
        self.synchronize()

    def holds(self, array: Any) -> bool:
        """Whether `array` is in this device's own memory, as far as its library tells."""
        return True

    @abc.abstractmethod
    def seconds(self, work: Callable[[], Any]) -> float:
        """Call `work`, which launches, and wait; the seconds between an event before and one after it, both on the
        current stream."""

    def lead(self) -> Any:
        """An array for `seconds_ahead`, no larger than a part of what is free."""
        return self.empty(max(1, min(LEAD_BYTES, int(CEILING_SHARE * self.free_bytes()))), np.uint8)

    def seconds_ahead(self, launch: Callable[[], Any], lead: Any) -> float:
        """Seconds of a launch that follows an untimed one of the same, while the host is ahead of the device.

        `seconds` has in it what the host takes to launch, which many a kernel does not take. Here the device first
        writes all of `lead` a few times, so that both launches are in its queue before it comes to them; what is there
        of its second-level cache is then of the untimed launch.
        """
        # Fills keep the device busy until the host has queued both launches; the first of these warms the caches.
        before, after = self.event(timed=True), self.event(timed=True)

        def work() -> None:
            for _ in range(LEAD_FILLS):
                self.fill(lead, 0)
            launch()
            self.record(before)
            launch()
            self.record(after)

        self.seconds(work)  # on the current stream, which libraries take from CuPy; it waits
        return self.elapsed(before, after)

    @abc.abstractmethod
    def free_bytes(self) -> int:
        """Bytes of memory that can still be taken."""

    @abc.abstractmethod
    def held_bytes(self) -> int:
        """Bytes of memory that arrays of this process have, and what is kept for others."""

    @abc.abstractmethod
    def trim(self) -> None:
        """Give back memory, the host's pinned one too, that is kept and that no array uses, so that what is free is in
        one piece."""

    @abc.abstractmethod
    def _bind(self, kernel: Kernel, blocks: int, values: tuple, shared: int) -> Callable[[], None]:
        """As `bind`; arrays and NumPy scalars of the declared types, in order."""

    def bind(
        self,
        kernel: Kernel,
        blocks: int,
        arguments: Mapping[str, Any],
        shared: int = 0,
        sizes: Mapping[str, int] | None = None,
    ) -> Callable[[], None]:
        """A launch, checked and compiled now; calling it launches and does not wait.

        Args:
            blocks: of the grid, one-dimensional.
            arguments: by the names of the kernel's declaration.
            shared: bytes of dynamic shared memory.
            sizes: elements that the kernel reads or writes at most, of arrays whose size is worth checking.

        Raises:
            SpdnnError: an argument, the grid or the shared memory does not fit; or the kernel does not compile, and
                then the compiler's log is the sentence.
        """
        # Checks before any launch: CUDA takes whatever arguments it gets, and a wrong one corrupts memory in silence.
        fault = _launch_fault(self.properties, kernel, blocks, arguments, shared, sizes or {})
        if fault:
            raise SpdnnError(f"kernel {kernel}: {fault}")
        # Numbers become the declared types, for CuPy passes Python's as 64 bits; arrays are passed as they are.
        pairs = [(parameter, arguments[parameter.name]) for parameter in kernel.parameters]
        values = tuple(value if declared.array else declared.dtype.type(value) for declared, value in pairs)
        return self._bind(kernel, blocks, values, shared)


def _launch_fault(
    properties: Properties,
    kernel: Kernel,
    blocks: int,
    arguments: Mapping[str, Any],
    shared: int,
    sizes: Mapping[str, int],
) -> str | None:
    """What is wrong with a launch, or None."""
    # Names, grid and shared memory first, then each argument: a number in its range, an array of its type and size.
    names = [parameter.name for parameter in kernel.parameters]
    if set(names) != set(arguments):
        return f"it takes {', '.join(names)}, and got {', '.join(arguments)}"
    if not 1 <= blocks <= MOST_BLOCKS:
        return f"{blocks} blocks; a grid has 1 to {MOST_BLOCKS:,}"
    if not 0 <= shared <= properties.shared_per_block:
        return f"{shared:,} bytes of shared memory; a block of {properties.name} has {properties.shared_per_block:,}"
    for parameter in kernel.parameters:
        value, name = arguments[parameter.name], parameter.name
        if not parameter.array:
            fault = _number_fault(value, parameter.dtype)
            if fault:
                return f"{name} is {value!r}, {fault}"
        elif not hasattr(value, "dtype") or value.dtype != parameter.dtype or not value.flags.c_contiguous:
            return f"{name} must be a C-contiguous array of {parameter.dtype} on the device, not {_describe(value)}"
        elif value.size < sizes.get(name, 0):
            return f"{name} has {value.size:,} elements, and {sizes[name]:,} are needed"
    return None


def _number_fault(value: Any, dtype: np.dtype) -> str | None:
    if dtype.kind == "f":
        return None if isinstance(value, (int, float, np.floating, np.integer)) else "not a number"
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        return "not an integer"
    bounds = np.iinfo(dtype)
    return None if bounds.min <= value <= bounds.max else f"beyond {dtype}"


def _describe(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{'' if value.flags.c_contiguous else ', not contiguous'}"
