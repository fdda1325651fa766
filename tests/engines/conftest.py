"""Fixtures of the engines' tests."""

import pytest
from stand_in_cupy import modules

from spdnn.engines import registry
from spdnn.engines.libraries import cusparse
from spdnn.kernels.cuda import cupy_device


@pytest.fixture
def gpu(monkeypatch):
    """Engine `cusparse` on a stand-in for CuPy with two devices, which is what this gives."""
    found = modules(devices=2)
    monkeypatch.setattr(cupy_device, "missing", lambda: None)
    monkeypatch.setattr(cupy_device, "count", lambda: 2)
    monkeypatch.setattr(cusparse, "modules", lambda: found)
    monkeypatch.setattr(cusparse, "TRIAL_NEURONS", 40)
    monkeypatch.setattr(cusparse, "TRIAL_INPUTS", 3)
    registry._load.cache_clear()
    return found.array
