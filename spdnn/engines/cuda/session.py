"""A session of the engine `cuda`: everything on the device, and one graph of all launches, which a run replays.

`DeviceRows.counts` holds how many rows go into each layer; kernels read it, the host does not. Between passes, rows
that died leave (*dead*), and where a search is due, identical ones are merged (*inputs*); `prepare` does *neurons*.
Source: Hidayetoglu et al., HPEC 2020 (fusion, compaction); a graph of launches that needs no host: SNIG (Lin and Huang,
HPEC 2020).
"""

from contextlib import closing
from typing import Any

import numpy as np

from spdnn.core import progress
from spdnn.core.endings import check_ended
from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import DEVICE_SHARE
from spdnn.core.result import Result
from spdnn.engines.base import Options, Prepared, Session
from spdnn.engines.cuda.buffers import BufferSlot, DevicePart, KernelPlan, LayoutSize, batch_table, launch_all
from spdnn.engines.cuda.layers import LayerLayout, lay_out_ahead, to_device
from spdnn.engines.cuda.rows import TILE, DeviceInputs
from spdnn.engines.memory import RunSizes, plan_batches
from spdnn.kernels.cuda.copies import Copies
from spdnn.kernels.cuda.device import Device

MOST_TILES = 2**30 // TILE  # of a batch, so that kernels count its inputs in 32 bits


class CudaSession(Session):
    """Weights and inputs on the device, two feature buffers for one batch of inputs, and all launches captured; `kind`:
    as `choose` takes it; `sub_batch_tiles`: as KernelPlan.sub_batches."""

    def __init__(
        self, device: Device, prepared: Prepared, inputs: Inputs, options: Options, kind: str | None = None,
        sub_batch_tiles: int | None = None,
    ):  # fmt: skip
        super().__init__(prepared, inputs)
        self.device, self.keep = device, options.keep
        # Inputs come first, for the kernels are chosen by how many there are and what memory they leave.
        device.trim()
        copies = Copies(device)
        device_inputs = DeviceInputs(copies, inputs)
        copies.finish()  # before kernels are timed
        self.plan = plan = KernelPlan(device, prepared, inputs, kind)
        # Weights, each layer laid out for its kernel; features get what is left of the memory.
        layers = _upload_layers(copies, prepared.network, plan.kinds, plan.choice.room, options.threads)
        self.copy_seconds = copies.finish()
        tiles, buffers = self._feature_buffers()
        sub = plan.sub_batches(device.properties, tiles, sub_batch_tiles)
        parts = plan.passes([sub.first] if sub else [])
        self.slot = BufferSlot(DevicePart(device, plan, layers, device_inputs), tiles, buffers)
        self.batch_table = batch_table(device, inputs.count, tiles * TILE)
        # Capture: which batch it is, and how many rows are left, are numbers in device memory, so one graph of all
        # launches serves every batch, and the host takes no part between two of them.
        self.launches = launches = self.slot.launches(parts, sub)  # they hold arrays, which a graph does not
        self.launch = device.capture(lambda: launch_all(launches))
        self.sizes, self.passes, self.sub = [LayoutSize.of(layers[k]) for k in range(plan.depth)], parts, sub
        self.notes = {**device_notes(device, plan), "passes": len(parts), "padding": padding(plan, layers.values())}
        if sub:
            self.notes["sub_batches"] = {"from_layer": sub.first + 1, "rows": TILE * sub.tiles, "number": sub.count}
        self.notes["device_peak_bytes"] = device.held_bytes()
        self.startup_seconds = device.startup_seconds

    @property
    def batches(self) -> int:
        return len(self.batch_table)

    def run(self, exchange=None) -> Result:
        """As Session.run. The host knows of a batch when it is through, so progress counts whole batches."""
        seconds, parts = 0.0, []
        with progress.Inference(self.edges_passed, self.inputs.count, len(self.batch_table)) as stage:
            for batch in self.batch_table:
                check_ended()
                seconds += self.device.seconds(lambda batch=batch: self._launch(batch))
                first, count = map(int, batch)
                numbers = self.inputs.numbers_of(first, first + count)
                parts.append((numbers, self.slot.finish(self.slot.rows.read(count), self.keep, numbers)))
                stage.batch(count)(self.plan.depth, int(parts[-1][1]["survivors"][-1]))
        # Of the last run: between two events on the device; and with what opening the session copied to it.
        spans = {"layer loop, resident": seconds, "with host-to-device copies": seconds + self.copy_seconds}
        noted = {**self.notes, "spans": spans}
        return self.plan.result(self.inputs, parts, self.sizes, self.passes, noted, self.keep, self.sub)

    def _launch(self, batch: np.ndarray) -> None:
        self.device.copy_in(self.slot.rows.batch, batch)
        self.launch()

    def _feature_buffers(self) -> tuple[int, list[Any]]:
        """(tiles of a batch, two buffers of as many); fewer than could be where the free memory is in pieces."""
        # Batch size: as many tiles as the memory that weights and inputs left has room for, in batches of equal size.
        plan, free = self.plan, int(DEVICE_SHARE * self.device.free_bytes())
        sizes = RunSizes(ceil_div(self.inputs.count, TILE), 1, (), plan.tile_bytes)
        sentence = (
            f"{self.device.properties.name} has {free:,} bytes of memory left besides weights and inputs, and {TILE} "
            f"inputs of this network need {plan.tile_bytes:,} there; fewer layers (--layers) or inputs (--count) fit"
        )
        tiles, _ = plan_batches(sizes, free, lambda least: sentence, most=MOST_TILES)
        # Free memory in pieces may not hold such a buffer: half as many tiles then, until two buffers fit.
        while True:
            try:
                return tiles, [self.device.empty(tiles * TILE * plan.widest, np.float32) for _ in range(2)]
            except MemoryTooSmall:
                if tiles == 1:
                    raise
                tiles = ceil_div(tiles, 2)


def device_notes(device: Device, plan: KernelPlan) -> dict:
    """What a record says of the device and its kernels."""
    return {
        "device": device.properties.name,
        "capability": device.properties.capability / 10,
        "multiprocessors": device.properties.multiprocessors,
        "software": device.properties.software,
        "kernels": plan.choice.notes,
    }


def padding(plan: KernelPlan, layers) -> float:
    """The share of entries without an edge, of all layers (anything that knows its own, in order)."""
    entries = [edges / (1 - layer.padding) for edges, layer in zip(plan.edges, layers, strict=True) if edges]
    return 1 - float(plan.edges.sum()) / max(1.0, sum(entries))


def _upload_layers(copies: Copies, network, kinds: list[str], room: int, threads: int) -> dict[int, LayerLayout]:
    """All layers on the device once the copies finish, by their numbers, laid out by so many threads."""
    # Threads read and lay out the next layers while one is copied; what is copied is no longer held on the host.
    layers: dict[int, LayerLayout] = {}
    try:
        with closing(lay_out_ahead(network, kinds, room, threads)) as layouts:
            for layer in progress.bar(layouts, "weights to the device", network.depth):
                layers[len(layers)] = to_device(copies, layer)
    except MemoryTooSmall as error:
        total = sum(network.header(k).nbytes for k in range(network.depth))
        raise MemoryTooSmall(
            f"the weights of {network.depth} layers take about {total:,} bytes, more than "
            f"{copies.device.properties.name} has left; "
            f"{f'the first {len(layers)} fit' if layers else 'not one fits'} (--layers), before features",
            max(total, error.least),
        ) from None
    return layers
