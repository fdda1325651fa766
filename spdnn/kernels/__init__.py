"""Compiled kernels and what chooses them: `cpu/` for the processor, `cuda/` for NVIDIA GPUs, `tiles` for both.

`dispatch` chooses the instruction-set level of the CPU kernels. Importing this loads none of them.
"""

import os

# A thread that waits for another gives its core up after about 10 us instead of some ms: the same speed on an idle
# machine (measured), and no standstill on a shared one. libgomp reads this when it is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
