"""The cost model beside at-scale's published scaling on 1 to 768 V100 (Hidayetoglu et al., HPEC 2020, Table I).

Their parameters: a static partition of the 60,000 inputs in their order, dead inputs dropped by the host after every
layer, rows in minibatches of 12, weights streamed while a layer is computed, 16 GB. What is fitted: to the three
figures of a width on one GPU, its two rates; to those of 1024 neurons, the fixed seconds of a layer; and to one more
figure, COPIES, the rate of copies. Every other figure tests the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from spdnn.costmodel.costs import Device, Work
from spdnn.costmodel.order import official_shares
from spdnn.costmodel.prediction import predict
from spdnn.problem import challenge
from spdnn.records.published import read_baselines

SYSTEM, HARDWARE = "at-scale SpDNN (Hidayetoglu)", "NVIDIA V100 16GB"
MEMORY_BYTES = 16e9
MINIBATCH = 12  # rows that a block of threads holds in registers (MINIBATCH in their code)
EDGE_BYTES = 6  # streamed: an index of 2 bytes and a value of 4
COPIES = (65536, 1920, 768)  # the figure that the rate of copies is fitted to
LAUNCHES = (1024, 1920, 768)  # the figure that the fixed seconds are fitted to, when both are
# Inputs alive after each layer; the last number holds for all deeper layers. Measured here, in float32.
SURVIVORS = {
    1024: (54687, 40498, 23049, 12010, 6537, 4089, 2773, 2128, 1939, 1874, 1836, 1824, 1820, 1812),
    4096: (54554, 42478, 25926, 15028, 8651, 5008, 3724, 2979, 2426, 2022, 1877, 1836, 1825, 1814, 1810, 1806, 1801),
    16384: (52630, 40991, 26479, 16424, 10401, 6826, 4363, 3448, 2973, 2658, 2277, 2042, 1964, 1918),
    65536: (52502, 37889, 23602, 15354, 9982, 7303, 5192, 3829, 3204, 2852, 2638, 2514, 2264, 2087, 1994),
}


@dataclass(frozen=True)
class Row:
    """One published figure beside its prediction; `calibration`: the model was fitted to it."""

    neurons: int
    layers: int
    devices: int
    predicted_seconds: float
    published_seconds: float
    calibration: bool

    @property
    def error(self) -> float:
        """(predicted - published) / published seconds."""
        return self.predicted_seconds / self.published_seconds - 1


@dataclass(frozen=True)
class Scaling:
    """All rows, by network and devices, and the two constants that all networks share."""

    rows: list[Row]
    seconds_per_layer: float
    copy_bytes_per_second: float

    def errors(self) -> list[float]:
        """The absolute errors of the rows that nothing was fitted to, ascending."""
        return sorted(abs(row.error) for row in self.rows if not row.calibration)


def official_work(neurons: int, layers: int) -> Work:
    """An official problem with all its inputs as at-scale computes it: dead inputs leave after every layer."""
    alive = (challenge.INPUTS, *SURVIVORS[neurons])
    alive = np.array((alive + alive[-1:] * layers)[:layers], float)
    edges = challenge.NONZEROS_PER_NEURON * neurons
    each = [np.full(layers, float(value)) for value in (edges, 4 * neurons, EDGE_BYTES * edges)]
    return Work(challenge.INPUTS, each[0], alive, alive, each[1], each[2], neurons / 8)


def at_scale(path: str | Path | None = None, both: bool = False) -> Scaling:
    """Every published figure beside its prediction.

    Args:
        path: the table of published results; None: config/baselines.csv.
        both: fit the fixed seconds of a layer to LAUNCHES instead of to one GPU: a second fitted constant.
    """
    published = {
        (row.neurons, row.layers, int(row.devices)): row.seconds
        for row in read_baselines(path)
        if row.system == SYSTEM and row.hardware.startswith(HARDWARE)
    }
    device = Device((0.0,), tiles=(MINIBATCH,), memory_bytes=MEMORY_BYTES)
    device = replace(device, seconds_per_layer=_on_one(device, published, challenge.WIDTHS[0], 0.0)[0])

    @cache
    def shares(neurons: int, layers: int, ranks: int) -> np.ndarray:
        return official_shares(official_work(neurons, layers), neurons, ranks, "static", distinct=True)

    def predicted(key: tuple[int, int, int], device: Device) -> float:
        neurons, layers, ranks = key
        _, first, deeper = _on_one(device, published, neurons, device.seconds_per_layer)
        found = replace(device, seconds_per_edge=(first,) * _block(neurons) + (deeper,))
        work = official_work(neurons, layers)
        return predict(work, found, ranks=ranks, partition="static", shares=shares(*key)).seconds

    for _ in range(3 if both else 1):  # each constant hardly moves the other's figure
        device = _fitted(device, "copy_bytes_per_second", 1e9, 1e12, predicted, COPIES, published)
        if both:
            device = _fitted(device, "seconds_per_layer", 1e-3, 1e-6, predicted, LAUNCHES, published)
    fitted = {COPIES, LAUNCHES} if both else {COPIES}
    rows = [
        Row(*key, predicted(key, device), seconds, key[2] == 1 or key in fitted)
        for key, seconds in sorted(published.items())
    ]
    return Scaling(rows, device.seconds_per_layer, device.copy_bytes_per_second)


def _block(neurons: int) -> int:
    """Layers of the first block of an official network, the one that is not permuted: its rows lie side by side."""
    return int(math.log2(neurons // 16))


def _on_one(device: Device, published: dict, neurons: int, fixed: float) -> tuple[float, float, float]:
    """(fixed seconds of a layer, seconds per edge in the first block, and in deeper layers) that explain one GPU.

    Three depths, relative least squares. Where the fixed seconds are given, they are kept; where not (0), both rates
    are taken as one: rows of few neurons fit a block of threads, permuted or not.
    """
    depths = sorted(layers for width, layers, ranks in published if width == neurons and ranks == 1)
    seconds, block = np.array([published[neurons, layers, 1] for layers in depths]), _block(neurons)
    work = [official_work(neurons, layers) for layers in depths]
    edges = [device.lanes(one.rows) * one.edges for one in work]
    first, deeper = (np.array([one[part].sum() for one in edges]) for part in (slice(block), slice(block, None)))
    columns = [first, deeper] if fixed else [np.array(depths, float), first + deeper]
    left = seconds - fixed * np.array(depths)
    found = np.linalg.lstsq(np.stack(columns, axis=1) / seconds[:, None], left / seconds, rcond=None)[0]
    return (fixed, *map(float, found)) if fixed else (float(found[0]), float(found[1]), float(found[1]))


def _fitted(device: Device, name: str, slow: float, fast: float, predicted: Callable, key: tuple, published: dict):
    """The device whose attribute `name`, between slow and fast, brings the prediction of `key` to its figure."""
    for _ in range(25):
        middle = math.sqrt(slow * fast)
        device = replace(device, **{name: middle})
        slow, fast = (middle, fast) if predicted(key, device) > published[key] else (slow, middle)
    return device
