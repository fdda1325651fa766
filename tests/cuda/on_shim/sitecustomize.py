"""Every Python process that finds this on its PYTHONPATH has CUDA devices: SHIM_DEVICES of the CPU shim.

On rank SHIM_WRONG_RANK, each weight value has another last bit.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path += map(str, Path(__file__).resolve().parents[1:3])  # tests/cuda, tests
import shim

from spdnn.engines.cuda import layers

node = shim.Node()
for module, name, value in shim.stand_ins([shim.ShimDevice(node=node) for _ in range(int(os.environ["SHIM_DEVICES"]))]):
    setattr(module, name, value)
if os.environ.get("SHIM_WRONG_RANK") == os.environ.get("PMI_RANK", "0"):
    real = layers.lay_out

    def wrong(layer, *given):
        return real(replace(layer, values=np.nextafter(layer.values, np.float32(1))), *given)

    layers.lay_out = wrong
