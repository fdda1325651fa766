"""Copies of the host's arrays to a device while the host makes the next ones: pinned buffers, a stream, its clock.

A copy from ordinary memory makes the host wait. Here the host fills a pinned buffer, and goes on while the device reads
it; it waits only for a buffer whose copy is not done.
Source: NVIDIA, CUDA C++ Best Practices Guide, "Asynchronous and Overlapping Transfers with Computation".
"""

from collections import deque
from typing import Any

import numpy as np

from spdnn.kernels.cuda.device import Device

PINNED_BUFFERS, BUFFER_BYTES = 4, 1 << 22  # large enough that what each copy costs besides its bytes does not count


class Copies:
    """Copies to one device, on a `stream` of their own."""

    def __init__(self, device: Device):
        self.device, self.stream, self._seconds = device, device.stream(), 0.0
        self._free = [
            (device.pinned_array(BUFFER_BYTES, np.uint8), device.event(timed=True), device.event(timed=True))
            for _ in range(PINNED_BUFFERS)
        ]
        self._filled: deque[tuple] = deque()  # in the order of their copies

    def upload(self, host: np.ndarray) -> Any:
        """A copy of `host`, one-dimensional and contiguous, on the device, complete after `finish`. Raises as
        Device.upload."""
        with self.device.on(self.stream):  # which then has no earlier work of others in this memory
            array = self.device.empty(host.size, host.dtype)
        self.copy(array, host)
        return array

    def copy(self, array: Any, host: np.ndarray) -> None:
        """Copy `host` to `array`, as large, in which no other stream works; `host` may change when this returns."""
        source, target = host.view(np.uint8), array.view(np.uint8)
        for first in range(0, source.size, BUFFER_BYTES):
            part = slice(first, min(first + BUFFER_BYTES, source.size))
            if not self._free:
                self._await_oldest()
            pinned, before, after = buffer = self._free.pop()
            filled = pinned[: part.stop - first]
            filled[:] = source[part]
            with self.device.on(self.stream):
                self.device.record(before)
                self.device.copy_in(target[part], filled)
                self.device.record(after)
            self._filled.append(buffer)

    def finish(self) -> float:
        """Wait for all copies; the seconds that the device has copied since the start, by its own clock."""
        while self._filled:
            self._await_oldest()
        return self._seconds

    def _await_oldest(self) -> None:
        _, before, after = buffer = self._filled.popleft()
        after.synchronize()
        self._seconds += self.device.elapsed(before, after)
        self._free.append(buffer)
