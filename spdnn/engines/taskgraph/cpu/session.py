"""The task graph on the processor: each device is a part of the threads, with feature buffers of its own.

Here the inference is cut within two promises on memory, a device's and the process's; `run` runs it.
"""

import time
from dataclasses import replace

from spdnn.core import progress
from spdnn.core.endings import check_ended
from spdnn.core.errors import InputError, MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import usable_cores
from spdnn.core.result import Result
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, Session
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu.batch import BatchKernels
from spdnn.engines.memory import INPUT_BYTES, SLACK, RunSizes, give_back, limit_bytes, process_sentence
from spdnn.engines.taskgraph.choice import choose, choose_unmeasured
from spdnn.engines.taskgraph.cpu.probe import measure_costs
from spdnn.engines.taskgraph.cpu.run import CpuDevice, CpuGraphRun, copy_layer
from spdnn.engines.taskgraph.decomposition import Decomposition, MemoryRoom, cut
from spdnn.engines.taskgraph.execution import Execution, lanes_of, run_threads
from spdnn.engines.taskgraph.settings import AUTO, STREAM, TaskgraphSettings
from spdnn.engines.taskgraph.timeline import notes, timeline

TASK_BYTES = 1000  # of a task, the ones that wait for it, and when it ran (about 700 measured)


class CpuGraphSession(Session):
    """Feature buffers for the slots of all devices, weights that stay, and a graph to go through in every run."""

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared, inputs)
        self.settings = options.settings or TaskgraphSettings()
        if self.settings.devices > options.threads:
            raise InputError(
                f"{self.settings.devices} devices of {options.threads} threads: each takes one at least (--threads)"
            )
        self.work, self.limit = BatchKernels(prepared, inputs, options), limit_bytes(options.memory)
        work = self.work
        # Decomposition: the schedule that is fastest within the memory.
        self.predicted = None
        self.decomposition, self.why = self._decomposition(options)
        cut = self.decomposition
        self.batches, self.span = cut.batches, STREAMED if cut.streamed else RESIDENT
        # Devices share out the threads; each has its slots, and a pool where batches are joined.
        work.tile = work.tile_for(cut.batch)
        pooled = 0 if cut.joined is None else int(work.costs.outputs[cut.stages[cut.joined][0] - 1])
        each, more = divmod(options.threads, cut.devices)
        self.devices = [
            CpuDevice(each + (device < more), cut, work.widest, work.tile, pooled) for device in range(cut.devices)
        ]
        # Weights: streamed from copies of all layers, or from their source; or bound once, for all devices.
        weights = progress.bar(work.network.layers(), "weights", work.depth)
        self.kept = list(weights) if cut.streamed and self._keeps(cut) else []
        if not cut.streamed:
            layers = work.resident(work.bind(k, layer) for k, layer in enumerate(weights))
            for device, stages in enumerate(cut.ranges * cut.groups):
                self.devices[device].weights = {
                    cut.buffer_of(device, stage): layers[slice(*cut.stages[stage])] for stage in range(*stages)
                }

    def _keeps(self, decomposition: Decomposition) -> bool:
        """Whether the process has room for all layers besides its devices: what is streamed is then copied from there,
        as to a GPU, and else read from its source whenever it is streamed."""
        devices = sum(decomposition.memory(self.room.sizes, device) for device in range(decomposition.devices))
        return self.unread + devices + self.reserved <= self.limit

    def _decomposition(self, options: Options) -> tuple[Decomposition, str]:
        """How the inference is cut, and why so, within what each device may take: its promise, and its part of what the
        process may take, which has weights that stay once for all of them. An error says of which the least is needed.
        """
        devices, self.reserved = self.settings.devices, 0
        try:
            return self._cut(options)
        except MemoryTooSmall as error:
            if error.device:
                raise
            least = int(SLACK * (self.reserved + devices * error.least))
            who = f"{devices} device{'s' * (devices > 1)} of {options.threads} threads"
            raise MemoryTooSmall(process_sentence(self.limit, "", who, least), least) from None

    def _room(self, options: Options) -> MemoryRoom:
        """What the process has for each device now; `sizes` are what a device takes."""
        work, devices = self.work, self.settings.devices
        whole = plan.run_sizes(work.network, work.inputs, work.widest, work.last.outputs, options, work.tile)
        self.sizes = RunSizes(whole.inputs, whole.tile, whole.weights, whole.row_bytes + INPUT_BYTES)
        # Set aside: what is no device's. The process now, the outcome, the kernels' scratch memory, layers being read.
        self.reserved = max(self.reserved, whole.held_bytes + devices * whole.stream_bytes)
        # The rest is shared out evenly; weights that stay are in memory once, so each device bears a part of them.
        self.unread = whole.stay_bytes  # of weights that are not in memory yet
        shared = replace(self.sizes, stay_bytes=ceil_div(self.unread, devices), task_bytes=TASK_BYTES)
        return MemoryRoom(shared, max(0, self.limit - self.reserved) // devices, device=False)

    def _cut(self, options: Options) -> tuple[Decomposition, str]:
        settings, self.room = self.settings, self._room(options)
        memory, leaving = settings.device_memory, bool({"dead", "inputs"} & set(self.work.prepared.reductions))
        limits = {"leaving": leaving, "stage_bytes": plan.PASS_WEIGHTS, "also": self.room}
        # Nothing is measured where costs cannot matter: a schedule was asked for, or only one is left.
        if fixed := choose_unmeasured(settings, self.sizes, memory, **limits):
            return fixed
        if settings.schedule == AUTO and settings.devices == 1 and not settings.buffers:
            decomposition = cut(replace(settings, schedule=STREAM), self.sizes, memory, **limits)
            return decomposition, "stream: the one device has no room for all weights"
        # Costs: measured on a few inputs. Weights are taken to be copied from memory if half of it holds them.
        free, cores = max(0, self.limit - self.reserved), min(options.threads, usable_cores())
        copied = copy_layer if self.unread <= free // 2 else None
        costs = measure_costs(self.work, options.threads, settings.devices, copied, cores, free // 2)
        # The room is found anew, less what measuring has left behind; then every schedule that fits it is simulated.
        give_back()
        self.room = self._room(options)
        limits |= {"also": self.room}
        selection = choose(self.sizes, settings, memory, costs, cores, **limits)
        self.predicted = selection.predicted.seconds
        return selection.decomposition, selection.why

    def run(self, exchange=None) -> Result:
        decomposition, work = self.decomposition, self.work
        # Each lane runs its tasks on a thread of its own, whose tallies are added when all are through.
        execution = Execution(decomposition)
        run, start = CpuGraphRun(work, decomposition, self.devices, self.kept, self.edges_passed), time.process_time()
        with run.stage:
            run_threads(execution, run.do, lanes_of(decomposition), check_ended)
        processor_seconds = time.process_time() - start
        tally = run.tally()
        tally.note(work.prepared, self.findings)
        parts = [run.parts[batch] for batch in sorted(run.parts)]
        own_notes = notes(decomposition, self.sizes, self.settings, self.why, execution.graph)
        own_notes["processor_seconds"] = processor_seconds  # of all threads, in the same run as the timeline
        if self.predicted is not None:
            own_notes["predicted_seconds"] = self.predicted
        if decomposition.streamed:
            own_notes["streamed_from"] = "memory" if self.kept else "the network's source"
        self._spans = run.spans
        return work.result(parts, tally, own_notes)

    def tell(self, result: Result) -> None:
        result.notes |= timeline(self._spans)
