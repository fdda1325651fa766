"""Engines `taskgraph` and `taskgraph-cuda`: the inference as a graph of tasks (`spdnn.engines.taskgraph`).

The first runs it on parts of the processor, the second on NVIDIA GPUs. Importing this needs neither CuPy nor a driver.
"""

from msgspec.structs import replace

from spdnn.core.features import Inputs
from spdnn.core.limits import RATES, Machine
from spdnn.engines.base import Options, Prepared, Session
from spdnn.engines.cpu.engine import CompiledEngine
from spdnn.engines.cuda.engine import CudaEngine
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.kernels.cuda import cupy_device


class TaskgraphEngine(CompiledEngine):
    """A device is a part of the threads, with feature buffers and buffers of weights of its own."""

    name = "taskgraph"
    summary = "the kernels of cpu as a task graph: batches, streamed weights, pipelines"
    settings = TaskgraphSettings

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        from spdnn.engines.taskgraph.cpu.session import CpuGraphSession

        return CpuGraphSession(prepared, inputs, options)


class TaskgraphCudaEngine(CudaEngine):
    """A device is a GPU; the kernels are those of the engine `cuda`."""

    name = "taskgraph-cuda"
    summary = "the kernels of cuda as a task graph: captured graphs, streamed weights, several GPUs"
    settings = TaskgraphSettings

    def ceilings(self, options: Options, seconds: float, together: int = 1) -> Machine | None:
        """Of as many devices as were requested, all taken to be like the first."""
        single, count = super().ceilings(options, seconds), options.settings.devices if options.settings else 1
        rates = {name: [count * rate for rate in getattr(single, name)] for name in RATES}
        return replace(single, **rates)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        from spdnn.engines.taskgraph.cuda.session import CudaGraphSession

        self.check_count(inputs)
        count, first = options.settings.devices if options.settings else 1, options.device or 0
        devices = [cupy_device.open_device(first + i) for i in range(count)]
        return CudaGraphSession(devices, prepared, inputs, options, self.kind)
