"""Every Python process that finds this on its PYTHONPATH has CUDA devices: SHIM_DEVICES of the CPU shim; the engine
cusparse is on NumPy there."""

import os
import sys
from pathlib import Path

sys.path += [f"{Path(__file__).resolve().parents[2]}{folder}" for folder in ("/cuda", "", "/engines")]
import shim

node = shim.Node()
for module, name, value in shim.stand_ins([shim.ShimDevice(node=node) for _ in range(int(os.environ["SHIM_DEVICES"]))]):
    setattr(module, name, value)
if "cusparse" in sys.orig_argv:
    import stand_in_cupy

    from spdnn.bench.engines import cusparse

    cusparse.modules, cusparse.TRIAL_NEURONS, cusparse.TRIAL_INPUTS = stand_in_cupy.modules, 40, 3
