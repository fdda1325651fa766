"""A CUDA device as the engines see it: memory, checked launches, the clock of its events.

The engines know this contract alone, so that the same host code drives a GPU through CuPy (cupy_device.py) and, in the
tests, kernels that were compiled for the CPU.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.errors import SpdnnError
from spdnn.kernels.cuda import Kernel

MOST_BLOCKS = 2**31 - 1  # of a one-dimensional grid


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


class Device(abc.ABC):
    """One device. Arrays on it have `dtype`, `size`, `nbytes` and `flags.c_contiguous`, as NumPy's and CuPy's do.

    Everything is done in order, on one stream of the device; only `read`, `synchronize` and `seconds` wait.
    """

    properties: Properties

    @abc.abstractmethod
    def upload(self, host: np.ndarray) -> Any:
        """A copy of `host` on the device, C-contiguous.

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
        """A copy of `array` on the host, after everything before it is done.

        Raises:
            SpdnnError: a launch failed; the sentence names the last one.
        """

    @abc.abstractmethod
    def address(self, array: Any) -> int:
        """Where the first element of `array` is on the device, for tables of pointers that a kernel reads."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all is done. Raises as `read` does."""

    @abc.abstractmethod
    def seconds(self, work: Callable[[], Any]) -> float:
        """Call `work`, which launches, and wait; the seconds between an event before and one after it."""

    @abc.abstractmethod
    def free_bytes(self) -> int:
        """Bytes of memory that can still be taken."""

    @abc.abstractmethod
    def trim(self) -> None:
        """Give back memory that is kept and that no array uses, so that what is free is in one piece."""

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
        wrong = _wrong(self.properties, kernel, blocks, arguments, shared, sizes or {})
        if wrong:
            raise SpdnnError(f"kernel {kernel}: {wrong}")
        given = [(parameter, arguments[parameter.name]) for parameter in kernel.parameters]
        values = tuple(value if known.array else known.dtype.type(value) for known, value in given)
        return self._bind(kernel, blocks, values, shared)


def _wrong(
    properties: Properties,
    kernel: Kernel,
    blocks: int,
    arguments: Mapping[str, Any],
    shared: int,
    sizes: Mapping[str, int],
) -> str | None:
    """What is wrong with a launch, or None."""
    names = [parameter.name for parameter in kernel.parameters]
    if set(names) != set(arguments):
        return f"it takes {', '.join(names)}, and was given {', '.join(arguments)}"
    if not 1 <= blocks <= MOST_BLOCKS:
        return f"{blocks} blocks; a grid has 1 to {MOST_BLOCKS:,}"
    if not 0 <= shared <= properties.shared_per_block:
        return f"{shared:,} bytes of shared memory; a block of {properties.name} has {properties.shared_per_block:,}"
    for parameter in kernel.parameters:
        value, name = arguments[parameter.name], parameter.name
        if not parameter.array:
            wrong = _wrong_number(value, parameter.dtype)
            if wrong:
                return f"{name} is {value!r}, {wrong}"
        elif not hasattr(value, "dtype") or value.dtype != parameter.dtype or not value.flags.c_contiguous:
            return f"{name} must be a C-contiguous array of {parameter.dtype} on the device, not {_described(value)}"
        elif value.size < sizes.get(name, 0):
            return f"{name} has {value.size:,} elements, and {sizes[name]:,} are needed"
    return None


def _wrong_number(value: Any, dtype: np.dtype) -> str | None:
    if dtype.kind == "f":
        return None if isinstance(value, (int, float, np.floating, np.integer)) else "not a number"
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        return "not an integer"
    bounds = np.iinfo(dtype)
    return None if bounds.min <= value <= bounds.max else f"beyond {dtype}"


def _described(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype}{'' if value.flags.c_contiguous else ', not contiguous'}"
