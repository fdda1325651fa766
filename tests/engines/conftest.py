"""Fixtures of the engines' tests."""

import pytest
from stand_in_cupy import modules

from spdnn.bench.engines import cusparse
from spdnn.engines import registry
from spdnn.kernels.cuda import cupy_device


@pytest.fixture
def gpu(set_all):
    """Engine `cusparse` on a stand-in for CuPy with two devices, which is what this gives."""
    found = modules(devices=2)
    set_all(cupy_device, missing=lambda: None, count=lambda: 2)
    set_all(cusparse, modules=lambda: found, TRIAL_NEURONS=40, TRIAL_INPUTS=3)
    registry._load.cache_clear()
    return found.array
