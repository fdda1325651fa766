"""Engine `cuda`: fused kernels on one NVIDIA GPU with all three exact reductions; and the rungs of the ladder below it.

`spdnn/kernels/cuda` describes kernels and layouts, `schedule` when they are launched, `choice` how they are chosen.
Importing this needs neither CuPy nor a driver.
"""

from spdnn.core.errors import Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.limits import Machine
from spdnn.engines.base import OnDevices, Options, Prepared, Session
from spdnn.engines.cuda.schedule import CSR, ELL, PERSISTENT, STAGED
from spdnn.kernels import dispatch
from spdnn.kernels.cuda import cupy_device, driver

MOST_INPUTS = 2**31 - 1  # that kernels count


class CudaEngine(OnDevices):
    """Every layer gets the kernel that is fastest on it, by timing those that suit (Choice)."""

    name = "cuda"
    summary = "fused kernels on one NVIDIA GPU; times those below and takes the fastest for each layer"
    offers = ("dead", "inputs", "neurons")
    kind: str | None = None
    sub_batch_tiles: int | None = None  # as KernelPlan.sub_batches takes it

    def missing(self) -> str | None:
        return cupy_device.missing() or dispatch.missing()  # compiled code lays out weights

    def device_identities(self) -> tuple[str, ...]:
        return driver.identities()

    def ceilings(self, options: Options, seconds: float, together: int = 1) -> Machine | None:
        from spdnn.engines.cuda import ceilings

        return ceilings.measure(cupy_device.open_device(options.device), seconds)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        from spdnn.engines.cuda.session import CudaSession

        self.check_count(inputs)
        device = cupy_device.open_device(options.device)
        return CudaSession(device, prepared, inputs, options, self.kind, self.sub_batch_tiles)

    def check_count(self, inputs: Inputs) -> None:
        """Raise Unsuitable for more inputs than kernels count."""
        if inputs.count > MOST_INPUTS or inputs.base > MOST_INPUTS:
            raise Unsuitable(f"{inputs.count:,} inputs; the engine {self.name} counts up to {MOST_INPUTS:,}")


class CudaCsrEngine(CudaEngine):
    name = "cuda-csr"
    summary = "ablation of cuda: CSR weights and features in global memory"
    kind = CSR


class CudaEllEngine(CudaEngine):
    name = "cuda-ell"
    summary = "ablation of cuda: weights in coalesced slices (sliced ELL)"
    kind = ELL


class CudaStagedEngine(CudaEngine):
    name = "cuda-staged"
    summary = "ablation of cuda: features staged through shared memory (the at-scale method)"
    kind = STAGED


class CudaPersistentEngine(CudaEngine):
    name = "cuda-persistent"
    summary = "ablation of cuda: features stay in shared memory over several layers"
    kind = PERSISTENT
