"""The engines `cuda...` on the CPU shim: the whole host side and all kernels, without a GPU."""

from __future__ import annotations

import pytest
from shim import ShimDevice

from spdnn.kernels.cuda import cupy_device


@pytest.fixture
def on_shim(monkeypatch):
    """A function that makes every CUDA engine run on a ShimDevice of its arguments; it returns the device."""

    def use(**arguments) -> ShimDevice:
        device = ShimDevice(**arguments)
        monkeypatch.setattr(cupy_device, "missing", lambda: None)
        monkeypatch.setattr(cupy_device, "count", lambda: 1)
        monkeypatch.setattr(cupy_device, "open_device", lambda ordinal=None: device)
        return device

    return use
