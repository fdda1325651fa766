"""Where an operation runs: the backend of its arrays' device, and on a GPU the stream that its caller uses.

A GPU's backend is imported only where it is needed.
"""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spdnn.core import graphs
from spdnn.core.errors import InputError
from spdnn.core.numbers import whole
from spdnn.core.resources import usable_cores
from spdnn.core.threads import warn_of
from spdnn.ops.arrays import CPU, cupy
from spdnn.ops.backend import Backend
from spdnn.ops.cpu import CpuBackend

MOST_THREADS = 1024

Arguments = ParamSpec("Arguments")  # one to a line: type checkers take no others
Outcome = TypeVar("Outcome")


def backend(device: str, threads: int | None = None) -> Backend:
    """What runs operations on "cpu" (with so many threads) or "cuda" (CuPy's current device).

    Raises:
        InputError: threads out of range, or threads for a GPU.
        Unavailable: the kernels, CuPy or the device are missing.
    """
    if device == CPU:
        return CpuBackend(thread_count(threads))
    if threads is not None:
        raise InputError(f"threads {threads!r}: the arrays are on a GPU, and it has no threads to choose")
    from spdnn.ops.cuda import current

    return current()


def thread_count(threads: int | None, warn: bool = True) -> int:
    """`threads`, by default all cores of this process; warns where there are more. Raises InputError when out of
    range."""
    if threads is None:
        return min(usable_cores(), MOST_THREADS)
    number = whole(threads)
    if number is None or not 1 <= number <= MOST_THREADS:
        raise InputError(f"threads {threads!r}: an integer from 1 to {MOST_THREADS}")
    if warn:
        warn_of(number)
    return number


def on_callers_stream(work: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """`work` with torch's current stream for CuPy's, where an argument is a torch tensor on a GPU.

    So what torch wrote before is there when it is read, and what is written is there for what torch does next, on `out`
    too. Arrays of CuPy are worked on on CuPy's current stream. Dynamo does not trace `work`.
    """

    @functools.wraps(work)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Outcome:
        if graphs.traced():
            return graphs.outside(call, *arguments, **named)
        tensors = (value for value in (*arguments, *named.values()) if type(value).__module__.split(".")[0] == "torch")
        tensor = next((tensor for tensor in tensors if getattr(tensor, "is_cuda", False)), None)
        if tensor is None:
            return work(*arguments, **named)
        cuda, ordinal = cupy().cuda, tensor.device.index
        pointer = sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream
        with cuda.Device(ordinal):
            if not pointer:
                stream = cuda.Stream.null
            elif hasattr(cuda.Stream, "from_external"):  # from CuPy 14 on, where ExternalStream warns
                stream = cuda.Stream.from_external(_Foreign(pointer))
            else:
                stream = cuda.ExternalStream(pointer, ordinal)
            with stream:
                return work(*arguments, **named)

    return call


class _Foreign:
    """A stream of another library, by CUDA's protocol."""

    def __init__(self, pointer: int):
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer  # the protocol's version
