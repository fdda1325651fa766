"""The engines `cuda...` on the CPU shim: the whole host side and all kernels, without a GPU."""

import importlib
import os

import pytest
from children import executable
from recorded_cupy import Cuda
from shim import ShimDevice, stand_ins
from stand_in_cupy import modules

from spdnn.bench.engines import cusparse
from spdnn.engines import registry
from spdnn.engines.cuda import choice
from spdnn.engines.taskgraph.cuda import probe
from spdnn.kernels.cuda import device as device_module
from spdnn.kernels.cuda.cupy_device import CupyDevice


@pytest.fixture
def cuda():
    """What stands in for the module cupy."""
    return Cuda()


@pytest.fixture
def device(cuda):
    """The first device behind it."""
    return CupyDevice(cuda, 0)


@pytest.fixture
def on_shim(monkeypatch):
    """A function that makes every CUDA engine run on a ShimDevice of its arguments, or on `devices`; it returns the
    first."""

    def use(devices=None, **arguments) -> ShimDevice:
        there = devices or [ShimDevice(**arguments)]
        for stand_in in stand_ins(there):
            monkeypatch.setattr(*stand_in)
        return there[0]

    return use


@pytest.fixture
def little_measured(set_all):
    """Kernels and products are chosen, and copies are measured, with as few launches and bytes as can be."""
    set_all(choice, WARM=0.0, SAMPLES=1)
    set_all(probe, COPIED=1 << 16)
    set_all(device_module, LEAD_BYTES=1 << 12)


@pytest.fixture
def gpu(root, monkeypatch):
    """A function that imports a module of tests/gpu or benchmarks."""
    for folder in ("tests/gpu", "benchmarks"):
        monkeypatch.syspath_prepend(root / folder)
    return importlib.import_module


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A function that puts a program of this name and script before all others."""
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name, script):
        folder.mkdir(exist_ok=True)
        executable(folder / name, script)

    return put


@pytest.fixture
def vendor(on_shim, set_all):
    """The shim, and beside it the engine cusparse on NumPy, whose trials are small."""
    set_all(cusparse, modules=modules, TRIAL_NEURONS=40, TRIAL_INPUTS=3)
    registry._load.cache_clear()
    return on_shim()


@pytest.fixture
def tally(gpu):
    """One that says nothing."""
    return gpu("tally").Tally(tell=lambda told: None)
