"""What tasks cost on this processor, measured on a few of the inputs before anything is cut.

Measured are the rates of the kernels and of copies, and how many rows are left after each layer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spdnn.core.network import Layer
from spdnn.engines.costs.costs import DeviceCosts, MessageCosts, Work
from spdnn.engines.cpu.batch import BatchKernels, TileCounters
from spdnn.engines.cpu.rows import TiledRows
from spdnn.engines.taskgraph.simulation import PROBED_LAYERS, TaskCosts
from spdnn.kernels.tiles import buffer

PROBED_EDGES = 2e8  # that a layer's rows go through at first: enough that starting the threads is no matter
PROBED_PART = 8  # of so many inputs one is probed at most, but for a tile for each thread
TELLING = 0.25  # of the largest work of a layer, that tells its rate
TELLING_LAYERS = 3  # the last of those that took long enough to be timed: the others get their median rate
LONG_PROBE = 1.0  # seconds of a probe that is not made twice


def measure_costs(
    work: BatchKernels, threads: int, devices: int, copied: Callable[[Layer], Layer] | None, cores: int, room: int
) -> TaskCosts:
    """The costs of tasks on `devices` devices that share out the threads.

    Args:
        copied: how weights in memory get to a device; None: they are read from their source.
        cores: that all threads share.
        room: bytes that features may take.
    """
    # Sample: enough rows that threads have work, few enough that the probe costs a small part of the run.
    enough = int(PROBED_EDGES / max(1, int(work.edges[0])))
    enough = min(enough, work.inputs.count // PROBED_PART, room // (8 * work.widest))
    count = min(work.inputs.count, max(threads * work.tile, enough))
    first = _through(work, count, threads, copied)
    tries = [first]
    if first.seconds.sum() + first.copying.sum() < LONG_PROBE:  # once more: threads have started, pages are touched
        tries.append(_through(work, count, threads, copied))
    # Seconds = rate x edges + fixed: large layers tell the rate, and the first one, which has a kernel of its own; what
    # small ones take beyond the median rate of the last few is the fixed cost of a task.
    edges, seconds = first.edges, np.min([measured.seconds for measured in tries], axis=0)
    telling = edges >= TELLING * edges.max()
    telling[0] = True
    rates = seconds / np.maximum(1.0, edges)
    usual = float(np.median(rates[telling][-TELLING_LAYERS:]))
    rest = (seconds - usual * edges)[~telling]
    rates[~telling] = usual
    fixed = max(0.0, float(np.median(rest))) if rest.size else 0.0
    # Copies at their best rate; rows and survivors of the sample stand for all inputs, the last layer for deeper ones.
    copying = float(np.max([measured.bytes_copied / measured.copying for measured in tries]))
    device = DeviceCosts(
        (*rates.tolist(), usual), tiles=(work.tile,), copy_bytes_per_second=copying, cores=cores, threads=threads
    )
    rows, tally = first.rows, first.tally
    alive = np.append(count, tally.survivors[: len(rows) - 1])
    deeper = work.depth - len(rows)
    rows, alive = (np.pad(np.array(column, float), (0, deeper), mode="edge") for column in (rows, alive))
    of_sample = Work(
        count, work.edges.astype(float), rows, alive, 4.0 * np.append(work.inputs.neurons, work.costs.outputs[:-1]),
        work.costs.nbytes.astype(float), work.inputs.nbytes / work.inputs.base, merged=tally.merged > 0,
    )  # fmt: skip
    # A move closes gaps: it reads and writes rows, as a copy of weights does.
    moves = MessageCosts(0.0, copying)
    return TaskCosts(of_sample.of(work.inputs.count), device, moves, fixed, threads=max(1, threads // devices))


@dataclass
class _Pass:
    """One way of so many inputs through the first layers: arrays of numbers (layers,) of rows computed, edges gone
    through, seconds spent on that, and on copying so many bytes of weights.
    """

    tally: TileCounters
    rows: list[int]
    edges: np.ndarray
    seconds: np.ndarray
    copying: np.ndarray
    bytes_copied: np.ndarray


def _through(work: BatchKernels, count: int, threads: int, copied: Callable[[Layer], Layer] | None) -> _Pass:
    """So many of the inputs, evenly chosen, through the layers one at a time; it ends where none are left."""
    # Every n-th input, for neighbours are alike; memory is touched before the first layer is timed.
    numbers = work.inputs.numbers_of(0, work.inputs.count)[:: work.inputs.count // count][:count]
    buffers = [buffer(count, work.widest, work.tile) for _ in range(2)]
    for memory in buffers:
        memory.fill(0)
    tally = work.counters()
    rows = TiledRows(work, numbers, tally, threads, *buffers, count)
    row_counts, copies = [], []
    depth = min(PROBED_LAYERS, work.depth)
    for k in range(depth):
        start = time.perf_counter()
        layer = work.network.layer(k)
        if copied:
            start = time.perf_counter()
            copied(layer)
        copies.append((layer.nbytes, time.perf_counter() - start))
        row_counts.append(rows.count)
        rows.compute([work.bind(k, layer)])
        rows.layer += 1
        if k + 1 < depth:
            rows.compact(meeting=False)
        if not rows.count:
            break
    edges, seconds = np.array([entry[3:5] for entry in tally.log], float).T
    nbytes, copy_seconds = np.array(copies).T
    return _Pass(tally, row_counts, edges, seconds, copy_seconds, nbytes)
