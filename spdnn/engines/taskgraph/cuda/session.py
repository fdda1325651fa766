"""The task graph on CUDA devices: what is on each of them, how the inference is cut, and a run of it.

Weights stay on the devices, or pass through rolling buffers that asynchronous copies from pinned host memory fill. All
launches are bound, and with the schedule `graph` captured, when the session opens: how many inputs a batch has, and how
many of its rows are left, are numbers in device memory.
Source: SNIG (Lin and Huang, HPEC 2020); out-of-core weights: Hidayetoglu et al., HPEC 2020, section III.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from spdnn.core import progress
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import DEVICE_SHARE
from spdnn.core.result import Result
from spdnn.engines.base import RESIDENT, STREAMED, Options, Prepared, Session
from spdnn.engines.cuda.buffers import KernelPlan, LayoutSize
from spdnn.engines.cuda.layers import LayerLayout, lay_out_ahead
from spdnn.engines.cuda.rows import TILE, DeviceInputs, stored_arrays
from spdnn.engines.cuda.session import device_notes, padding
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.choice import choose, choose_unmeasured
from spdnn.engines.taskgraph.cuda.device import GraphDevice, Graphs, Outcomes, batch_table
from spdnn.engines.taskgraph.cuda.layers import DeviceWeights, block_bytes, move_to_block
from spdnn.engines.taskgraph.cuda.probe import measure_costs
from spdnn.engines.taskgraph.cuda.run import CudaGraphRun, copies_hidden
from spdnn.engines.taskgraph.decomposition import Decomposition, cut
from spdnn.engines.taskgraph.settings import AUTO, GRAPH, STREAM, TaskgraphSettings
from spdnn.engines.taskgraph.timeline import lane_seconds, notes, timeline
from spdnn.kernels.cuda.copies import Copies
from spdnn.kernels.cuda.device import Device

ARRAYS = 40  # of a slot, besides what grows with its rows; each may take up to UNIT bytes more than it needs
UNIT = 512  # bytes, in which a device gives memory


class CudaGraphSession(Session):
    """Weights, slots and launches on as many devices as `options.settings` says, and a graph to go through in every
    run; `kind`: as `choose` takes it."""

    def __init__(
        self, devices: Sequence[Device], prepared: Prepared, inputs: Inputs, options: Options, kind: str | None = None
    ):
        super().__init__(prepared, inputs)
        self.keep, self.settings = options.keep, options.settings or TaskgraphSettings()
        if len(devices) != self.settings.devices:
            raise InputError(f"{len(devices)} devices, and {self.settings.devices} were asked for")
        # Kernels are chosen on the first device, and the layers laid out on the host, for the cut needs their bytes.
        memory = min(self._device_bytes(device) for device in devices)
        copies = [Copies(device) for device in devices]
        device_inputs: dict[int, DeviceInputs] = {0: DeviceInputs(copies[0], inputs)}
        copies[0].finish()  # before kernels are timed
        self.plan = plan = KernelPlan(devices[0], prepared, inputs, kind)
        with closing(lay_out_ahead(prepared.network, plan.kinds, plan.choice.room, options.threads)) as layers:
            laid = list(progress.bar(layers, "weights", plan.depth))
        self.layouts = [LayoutSize.of(layer) for layer in laid]
        reserved = sum(array.nbytes for array in stored_arrays(inputs)) + 64 * plan.depth
        reserved += 2 * (16 * plan.outputs + 8 * 3 * plan.depth + ARRAYS * UNIT)  # of two slots at most
        weights = tuple(map(block_bytes, laid))
        row_bytes = ceil_div(plan.tile_bytes, TILE)
        self.sizes = RunSizes(inputs.count, TILE, weights, row_bytes, reserved + len(weights) * UNIT)
        self.predicted: float | None = None
        self.cut, self.why = self._decomposition(memory, devices, device_inputs[0], laid)
        cut = self.cut
        # Inputs go to the first device of each group, where batches begin; weights to all that compute with them.
        for group in range(1, cut.groups):
            number = cut.device(group, 0)
            device_inputs[number] = DeviceInputs(copies[number], inputs)
        on_devices = [DeviceWeights(device_copies, cut, self.sizes, i, laid) for i, device_copies in enumerate(copies)]
        self.blocks = self._blocks(devices, laid, on_devices, copies)
        self.copy_seconds = max(device_copies.finish() for device_copies in copies)
        # Launches are bound, and captured where the schedule is `graph`, before the clock starts.
        self.passes = parts = plan.passes([first for first, _ in cut.stages])
        self.devices = [
            GraphDevice(device, i, plan, cut, parts, on_devices[i], device_inputs.get(i))
            for i, device in enumerate(devices)
        ]
        self.batch_table = batch_table(devices[0], cut)
        self.outcomes = Outcomes(devices[0], plan, cut)
        self.graphs = Graphs(cut, self.devices, self.blocks) if cut.schedule == GRAPH else None
        self.batches, self.span = cut.batches, STREAMED if cut.streamed else RESIDENT
        self.notes = {
            **device_notes(devices[0], plan),
            "passes": len(parts),
            "padding": padding(plan, laid),
            "captured": self.graphs is not None and not devices[0].one_by_one,
            "moves": self._moves(devices),
            "device_peak_bytes": max(device.held_bytes() for device in devices),
        }
        self.startup_seconds = sum(device.startup_seconds for device in devices)

    def run(self, exchange=None) -> Result:
        cut = self.cut
        run = CudaGraphRun(
            cut, self.devices, self.batch_table, self.outcomes, self.blocks, self.graphs, self.keep,
            self.inputs.numbers_of,
        )  # fmt: skip
        start = time.perf_counter()
        run.run()
        self._last_run, self._seconds = run, time.perf_counter() - start
        parts = run.parts()
        graph_notes = notes(cut, self.sizes, self.settings, self.why, run.execution.graph)
        if self.predicted is not None:
            graph_notes["predicted_seconds"] = self.predicted
        noted = {**self.notes, **graph_notes}
        return self.plan.result(self.inputs, parts, self.layouts, self.passes, noted, self.keep)

    def tell(self, result: Result) -> None:
        cut, seconds, spans = self.cut, self._seconds, self._last_run.spans()
        # By the host's clock, from the first task to the last; and with what opening the session copied.
        spans_seconds = {self.span: seconds} | (
            {} if cut.streamed else {"with host-to-device copies": seconds + self.copy_seconds}
        )
        lanes, by_device = lane_seconds(spans), defaultdict(dict)
        for (device, lane), spent in lanes.items():
            by_device[str(device)][lane] = spent
        busiest = max(lanes.values(), default=0.0)
        result.notes |= timeline(spans) | {
            "busy_seconds": dict(by_device),
            "times_busiest_lane": seconds / busiest if busiest else None,
            "copies_hidden": copies_hidden(spans),
            "spans": spans_seconds,
        }

    def _device_bytes(self, device: Device) -> int:
        """Bytes that this session may take on a device: what was promised, or most of what is free."""
        device.trim()
        promised = self.settings.device_memory
        if promised is None:
            return int(DEVICE_SHARE * device.free_bytes())
        device.promise(promised)
        return device.free_bytes()

    def _decomposition(
        self, memory: int, devices: Sequence[Device], device_inputs: DeviceInputs, laid: list[LayerLayout]
    ) -> tuple[Decomposition, str]:
        """How the inference is cut within so many bytes of each device, and why so. What tasks cost is measured only
        where it can matter: to choose a schedule, or the ranges of a pipeline.
        """
        settings = self.settings
        if fixed := choose_unmeasured(settings, self.sizes, memory, stays=GRAPH, leaving=self.plan.leaving):
            return fixed
        costs = measure_costs(devices, self.plan, self.inputs, device_inputs, laid, self.sizes)
        for device in devices:
            device.trim()
        if costs is None:
            why = "the device has too little memory to measure which schedule is faster"
            settings = replace(settings, schedule=STREAM if settings.schedule == AUTO else settings.schedule)
            return cut(settings, self.sizes, memory, leaving=self.plan.leaving), f"{settings.schedule}: {why}"
        selection = choose(self.sizes, settings, memory, costs, leaving=self.plan.leaving)
        self.predicted = selection.predicted.seconds
        return selection.decomposition, selection.why

    def _blocks(
        self, devices: Sequence[Device], laid: list[LayerLayout], weights: Sequence[DeviceWeights],
        copies: Sequence[Copies],
    ) -> list[np.ndarray]:  # fmt: skip
        """Pinned blocks of all stages, where weights are streamed; else they go to the devices now, none is kept."""
        if self.cut.streamed:
            pinned = partial(devices[0].pinned_array, dtype=np.uint8)
            return [move_to_block(laid, *stage, pinned) for stage in self.cut.stages]
        for k, layer in enumerate(laid):
            for device_weights, device_copies in zip(weights, copies, strict=True):
                for name in layer.arrays if k in device_weights.layers else ():
                    device_copies.copy(device_weights.layers[k].arrays[name], layer.arrays[name])
            laid[k] = replace(layer, arrays={})
        return []

    def _moves(self, devices: Sequence[Device]) -> str | None:
        """How rows get from device to device; None where they do not. Opens the direct way where there is one."""
        cut, length = self.cut, len(self.cut.ranges)
        pairs = [(i, i + 1) for i in range(cut.devices) if (i + 1) % length]
        if not pairs:
            return None
        direct = [devices[b].reach(devices[a]) and devices[a].reach(devices[b]) for a, b in pairs]
        ways = {True: "from device to device", False: "through the host"}
        return ways[direct[0]] if len(set(direct)) == 1 else "some from device to device, some through the host"
