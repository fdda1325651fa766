"""Calls on the caller's stream: torch has a current stream of its own, which CuPy does not know."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spdnn.ops.arrays import cupy

Arguments = ParamSpec("Arguments")  # one to a line: type checkers take no others
Outcome = TypeVar("Outcome")


def on_callers_stream(work: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """`work` with torch's current stream for CuPy's, where an argument is a torch tensor on a GPU.

    So what torch wrote before is there when it is read, and what is written is there for what torch does next, on `out`
    too. Arrays of CuPy are worked on on CuPy's current stream.
    """

    @functools.wraps(work)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Outcome:
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
