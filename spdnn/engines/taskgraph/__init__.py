"""Engine `taskgraph`: the inference as a graph of tasks (spdnn/taskgraph), run on parts of the processor.

Importing this needs neither CuPy nor a driver.
"""

from __future__ import annotations

from spdnn.engines.base import Options, Prepared, Session
from spdnn.engines.compiled import CompiledEngine
from spdnn.features import Inputs


class TaskgraphEngine(CompiledEngine):
    """A device is a part of the threads, with feature buffers and buffers of weights of its own."""

    name = "taskgraph"
    summary = "the kernels of cpu as a graph of tasks: batches, streamed weights, pipelines on parts of the processor"
    cuts = True

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        from spdnn.engines.taskgraph.cpu import CpuGraphSession

        return CpuGraphSession(prepared, inputs, options)
