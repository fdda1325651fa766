"""What tasks cost on this device, measured on a few inputs in the first layers before anything is cut.

Measured are the rates of the kernels, of copies and moves, and how many rows are left after each layer.
"""

from collections.abc import Sequence

import numpy as np

from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import CEILING_SHARE
from spdnn.engines.costs.costs import DeviceCosts, MessageCosts, Work
from spdnn.engines.cuda.buffers import DevicePart, KernelPlan, Launch, batch_table, launch_all
from spdnn.engines.cuda.layers import LayerLayout, to_device
from spdnn.engines.cuda.rows import TILE, DeviceInputs
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.cuda.slot import TaskSlot
from spdnn.engines.taskgraph.simulation import PROBED_LAYERS, TaskCosts
from spdnn.kernels.cuda.device import Device

PROBED_TILES = 4  # of inputs for each multiprocessor
COPIED = 1 << 26  # bytes of a copy that is timed, at most
TIMED_COPIES = 3  # of each kind; the fastest counts


def measure_costs(
    devices: list[Device],
    plan: KernelPlan,
    inputs: Inputs,
    device_inputs: DeviceInputs,
    laid: Sequence[LayerLayout],
    sizes: RunSizes,
) -> TaskCosts | None:
    """The costs of tasks on devices that are like the first, which has the `device_inputs`; None where too little
    memory is free to measure them."""
    device, depth = devices[0], min(PROBED_LAYERS, plan.depth)
    tiles = min(ceil_div(inputs.count, TILE), PROBED_TILES * device.properties.multiprocessors)
    # Sample: enough tiles for all multiprocessors, half as many tiles and layers until the memory has room for them.
    while True:
        try:
            counts, seconds = _through(device, plan, device_inputs, laid, depth, min(tiles * TILE, inputs.count))
            break
        except MemoryTooSmall:
            if tiles == 1 and depth == 1:
                return None
            tiles, depth = ceil_div(tiles, 2), ceil_div(depth, 2)
    # Rates of copies from pinned memory, and of moves to another device where there is one.
    size = int(min(COPIED, max(1, CEILING_SHARE * min(device.free_bytes() for device in devices))))
    array, pinned = device.empty(size, np.uint8), device.pinned_array(size, np.uint8)
    copying = moving = _rate(device, size, lambda: device.copy_in(array, pinned))
    if len(devices) > 1:
        other = devices[1]
        target = other.empty(size, np.uint8)
        moving = _rate(other, size, lambda: other.move(target, device, array))
    rows, survivors = counts
    # Rates of layers by whole tiles; the shortest stands for the fixed cost of a task, the last for deeper layers.
    edges, deeper = plan.edges.astype(float), plan.depth - depth
    fixed = float(seconds.min())
    rates = seconds / np.maximum(1.0, TILE * np.ceil(rows / TILE) * edges[:depth])
    rows, survivors = (np.pad(column, (0, deeper), mode="edge") for column in (rows, survivors))
    neurons = np.array([plan.neurons, *(layer.outputs for layer in laid[:-1])], float)
    count = min(tiles * TILE, inputs.count)
    work = Work(
        count, edges, rows, survivors, 4.0 * neurons, np.array(sizes.weights, float), inputs.nbytes / inputs.base,
        merged=plan.searching,
    )  # fmt: skip
    kernels = DeviceCosts(tuple(rates.tolist()), tiles=(TILE,), copy_bytes_per_second=copying)
    return TaskCosts(work.of(inputs.count), kernels, MessageCosts(0.0, moving), fixed)


def _through(
    device: Device, plan: KernelPlan, device_inputs: DeviceInputs, laid: Sequence[LayerLayout], depth: int, count: int
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """The first inputs through the first layers, each a pass: ((rows, inputs that are alive) before each layer, seconds
    of each), float64 (depth,)."""
    # Each layer is a pass of its own here, with what closes its gaps, so that it has a time of its own.
    layers = {k: to_device(device, layer) for k, layer in enumerate(laid[:depth])}
    tiles, stages = ceil_div(count, TILE), [(k, k + 1) for k in range(depth)]
    buffers = [device.empty(tiles * TILE * plan.widest, np.float32) for _ in range(2)]
    part = DevicePart(device, plan, layers, device_inputs)
    slot = TaskSlot(part, plan.passes(range(plan.depth)), stages, tiles, buffers)
    compact = [*slot.after, slot.collect][:depth]
    seconds = np.zeros(depth)
    table = batch_table(device, count, count)[0]  # pinned: kept until its copies are done
    for _ in range(2):  # kernels are loaded in the first run
        device.copy_in(slot.rows.batch, table)
        launch_all(slot.arrive)
        for k in range(depth):
            seconds[k] = device.seconds(lambda k=k: launch_all([*slot.through[k], *compact[k]]))
    counters = device.read(slot.rows.counters)
    rows = np.array([slot.rows.rows_into(counters, k) for k in range(depth)], float)
    alive = np.append(count, device.read(slot.rows.survivors)[: depth - 1]).astype(float)
    return (rows, alive), seconds


def _rate(device: Device, size: int, copy: Launch) -> float:
    """Bytes a second of the best of a few copies of so many."""
    return size / min(device.seconds(copy) for _ in range(TIMED_COPIES))
