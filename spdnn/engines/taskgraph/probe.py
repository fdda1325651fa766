"""What tasks cost here, measured on a few of the inputs before anything is cut: rates of the kernels, of copies, and
how many rows are left after each layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from spdnn.engines.cpu_batch import CpuWork, Tally
from spdnn.layouts import bind, buffer
from spdnn.model import Device, Messages, Work
from spdnn.network import Layer
from spdnn.taskgraph.simulation import TaskCosts

LAYERS = 32  # that are probed; deeper ones are taken to be like the last of them
TRIED = 3  # layers whose copy is timed
EDGES = 2e8  # that a layer's rows go through at first: enough that starting the threads is no matter
MOST = 8  # of so many inputs one is probed at most, but for a tile for each thread
TELLING = 0.25  # of the largest work of a layer: the rate of layers with less is that of the last one with more


def measured(
    work: CpuWork, threads: int, devices: int, copied: Callable[[Layer], Layer] | None, cores: int
) -> TaskCosts:
    """The costs of tasks on `devices` devices that share out the threads.

    Args:
        copied: how weights in memory get to a device; None: they are read from their source.
        cores: that all threads share.
    """
    enough = min(int(EDGES / max(1, int(work.edges[0]))), work.inputs.count // MOST)
    count = min(work.inputs.count, max(threads * work.tile, enough))
    layers, copying = _layers(work, copied)
    _through(work, layers[:2], count, threads)  # threads start, pages are touched
    tally, rows = _through(work, layers, count, threads)
    rates, fixed = _rates(tally)
    device = Device(rates, tiles=(work.tile,), copy_bytes_per_second=copying, cores=cores, threads=threads)
    alive = np.append(count, tally.survivors[: len(rows) - 1])
    deeper = work.depth - len(rows)
    of_sample = Work(
        count,
        work.edges.astype(float),
        np.pad(np.array(rows, float), (0, deeper), mode="edge"),
        np.pad(alive.astype(float), (0, deeper), mode="edge"),
        4.0 * np.append(work.inputs.neurons, work.costs.outputs[:-1]),
        work.costs.nbytes.astype(float),
        work.inputs.nbytes / work.inputs.base,
        merged=tally.merged > 0,
    )
    # A move closes gaps: it reads and writes rows, as a copy of weights does.
    moves = Messages(0.0, copying)
    return TaskCosts(of_sample.of(work.inputs.count), device, moves, fixed, max(1, threads // devices))


def _rates(tally: Tally) -> tuple[tuple[float, ...], float]:
    """(seconds of a row through an edge, by layer; seconds of a task, whatever it computes)."""
    edges, seconds = np.array([entry[3:5] for entry in tally.log], float).T
    telling = edges >= TELLING * edges.max()
    telling[0] = True  # the first layer has a kernel of its own
    rates, last = np.zeros(edges.size), 0.0
    for k in range(edges.size):
        last = seconds[k] / max(1.0, edges[k]) if telling[k] else last
        rates[k] = last
    rest = (seconds - rates * edges)[~telling]
    return tuple(rates.tolist()), max(0.0, float(np.median(rest))) if rest.size else 0.0


def _layers(work: CpuWork, copied: Callable[[Layer], Layer] | None) -> tuple[list, float]:
    """The first layers, bound, and the bytes of weights that are copied or read in a second, at best."""
    network, found, best = work.network, [], 0.0
    for k in range(min(LAYERS, work.depth)):
        begun = time.perf_counter()
        layer = network.layer(k)
        if copied:
            begun = time.perf_counter()
            copied(layer)
        if k < TRIED or not copied:
            best = max(best, layer.nbytes / (time.perf_counter() - begun))
        found.append(bind(layer))
    return found, best


def _through(work: CpuWork, layers: list, count: int, threads: int) -> tuple[Tally, list[int]]:
    """So many of the inputs, evenly chosen, through the layers one at a time: what was counted, and the rows computed
    in each layer; it ends where none are left.
    """
    numbers = work.inputs.numbered(0, work.inputs.count)[:: work.inputs.count // count][:count]
    buffers = [buffer(count, work.widest, work.tile) for _ in range(2)]
    for memory in buffers:
        memory.fill(0)
    rows, looks, tally, computed = work.begin(numbers, threads, *buffers), work.looks(), work.tally(), []
    for k, layer in enumerate(layers):
        computed.append(rows.count)
        slots = work.through(k, [layer], rows, tally)
        if k + 1 == len(layers):
            break
        work.compact(k + 1, rows, slots, looks, tally)
        if not rows.count:
            computed.append(0)
            break
    return tally, computed
