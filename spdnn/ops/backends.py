"""The backend of an operation, by the device of its arrays. A GPU's is imported only where it is needed."""

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.resources import usable_cores
from spdnn.ops.arrays import CPU
from spdnn.ops.backend import Backend
from spdnn.ops.cpu import CpuBackend

MOST_THREADS = 1024


def backend(device: str, threads: int | None = None) -> Backend:
    """What runs operations on "cpu" (with so many threads) or "cuda" (CuPy's current device).

    Raises:
        InputError: threads out of range, or threads for a GPU.
        Unavailable: the kernels, CuPy or the device are missing.
    """
    if device == CPU:
        return CpuBackend(thread_count(threads))
    if threads is not None:
        raise InputError(f"threads {threads!r}: the arrays are on a GPU, and it has no threads to choose")
    from spdnn.ops.cuda import current

    return current()


def thread_count(threads: int | None) -> int:
    """`threads`, by default all cores of this process. Raises InputError when out of range."""
    if threads is None:
        return min(usable_cores(), MOST_THREADS)
    if not isinstance(threads, (int, np.integer)) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads {threads!r}: an integer from 1 to {MOST_THREADS}")
    return int(threads)
