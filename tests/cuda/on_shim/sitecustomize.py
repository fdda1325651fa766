"""Every Python process that finds this on its PYTHONPATH has CUDA devices: SHIM_DEVICES of the CPU shim."""

import os
import sys
from pathlib import Path

sys.path += map(str, Path(__file__).resolve().parents[1:3])  # tests/cuda, tests
import shim

node = shim.Node()
for module, name, value in shim.stand_ins([shim.ShimDevice(node=node) for _ in range(int(os.environ["SHIM_DEVICES"]))]):
    setattr(module, name, value)
