"""NVIDIA's driver, asked without CuPy: how many devices there are, which they are, and what is missing to use one.

Engines ask this before anything heavy is imported.
"""

import ctypes
import importlib.metadata
import importlib.util
import uuid
from typing import Any

from spdnn.core.errors import Unavailable

DRIVER = "libcuda.so.1"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
UUID_BYTES = 16
BRINGS = (
    "make setup CUDA=auto brings it (CUDA=12 or CUDA=13 where there is no driver), or pip install cupy-cuda12x or "
    "cupy-cuda13x, as the driver is"
)


def missing() -> str | None:
    """None where a device can be opened, else one sentence that says what is missing. It does not import CuPy."""
    if without := missing_package():
        return without
    # The driver's own library is asked, for it is there without CuPy and answers in milliseconds.
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return f"NVIDIA's driver is not installed here ({DRIVER} is not found)"
    status = driver.cuInit(0)
    if status not in (0, NO_DEVICE):
        return f"NVIDIA's driver does not start (cuInit gives error {status})"
    if status == NO_DEVICE or not _ask(driver.cuDeviceGetCount):
        return "NVIDIA's driver sees no device here"
    # A wheel of CuPy is built for one major version of CUDA, and an older driver cannot load its kernels.
    version, needed = _ask(driver.cuDriverGetVersion), _cupy_cuda()
    if version < 1000 * needed:
        return (
            f"NVIDIA's driver is for CUDA {dotted_version(version)}, and the CuPy installed needs one for CUDA {needed}"
        )
    return None


def missing_package() -> str | None:
    """None where CuPy is installed, whatever devices there are; else one sentence."""
    return None if importlib.util.find_spec("cupy") else f"the package cupy is not installed; {BRINGS}"


def count() -> int:
    """How many devices there are; 0 where `missing` has something to say."""
    return 0 if missing() else _ask(ctypes.CDLL(DRIVER).cuDeviceGetCount)


def identities() -> tuple[str, ...]:
    """The UUID of each device, by which every process knows it. Raises Unavailable where the driver does not say."""
    devices = []
    for number in range(count()):
        driver = ctypes.CDLL(DRIVER)
        device, octets = ctypes.c_int(0), (ctypes.c_ubyte * UUID_BYTES)()
        # The second version tells parts of one GPU (MIG) apart, which have one PCI address.
        status = driver.cuDeviceGet(ctypes.byref(device), number) or driver.cuDeviceGetUuid_v2(octets, device)
        if status:
            raise Unavailable(f"NVIDIA's driver does not say which device {number} is (error {status})")
        devices.append(str(uuid.UUID(bytes=bytes(octets))))
    return tuple(devices)


def dotted_version(number: int) -> str:
    """CUDA's 12090 as 12.9."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _ask(question: Any) -> int:
    """What a function of the driver writes into its integer argument; 0 when it fails."""
    answer = ctypes.c_int(0)
    return 0 if question(ctypes.byref(answer)) else answer.value


def _cupy_cuda() -> int:
    """The major version of CUDA that the installed wheel of CuPy needs; 0 when it came in another way."""
    for major in (13, 12):
        try:
            importlib.metadata.version(f"cupy-cuda{major}x")
        except importlib.metadata.PackageNotFoundError:
            continue
        return major
    return 0
