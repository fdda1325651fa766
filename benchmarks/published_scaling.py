"""The cost model beside at-scale's published scaling on 1 to 768 V100 (Hidayetoglu et al., HPEC 2020, Table I).

    python benchmarks/published_scaling.py [--json FILE]

Their parameters: a static partition of the 60,000 inputs in their order, dead inputs dropped by the host after every
layer, rows in minibatches of 12, weights streamed while a layer is computed, 16 GB. What is fitted: to the three
figures of a width on one GPU, its two rates; to those of 1024 neurons, the fixed seconds of a layer; and to one more
figure, COPIES, the rate of copies. Every other figure tests the model.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from spdnn.core import challenge
from spdnn.core.files import write_text
from spdnn.engines.costs.costs import DeviceCosts
from spdnn.engines.costs.official import official_shares, official_work
from spdnn.engines.costs.prediction import predict
from spdnn.runs.records.published import read_baselines

SYSTEM, HARDWARE = "at-scale SpDNN (Hidayetoglu)", "NVIDIA V100 16GB"
MEMORY_BYTES = 16e9
MINIBATCH = 12  # rows that a block of threads holds in registers (MINIBATCH in their code)
COPIES = (65536, 1920, 768)  # the figure that the rate of copies is fitted to
LAUNCHES = (1024, 1920, 768)  # the figure that the fixed seconds are fitted to, when both are


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
    device = DeviceCosts((0.0,), tiles=(MINIBATCH,), memory_bytes=MEMORY_BYTES)
    device = replace(device, seconds_per_layer=on_one(device, published, challenge.WIDTHS[0], 0.0)[0])

    @cache
    def shares(neurons: int, layers: int, ranks: int) -> np.ndarray:
        return official_shares(official_work(neurons, layers), neurons, ranks, "static", distinct=True)

    def predicted(key: tuple[int, int, int], device: DeviceCosts) -> float:
        neurons, layers, ranks = key
        _, first, deeper = on_one(device, published, neurons, device.seconds_per_layer)
        found = replace(device, seconds_per_edge=(first,) * first_block(neurons) + (deeper,))
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


def first_block(neurons: int) -> int:
    """Layers of the first block of an official network, the one that is not permuted: its rows lie side by side."""
    return int(math.log2(neurons // 16))


def on_one(device: DeviceCosts, published: dict, neurons: int, fixed: float) -> tuple[float, float, float]:
    """(fixed seconds of a layer, seconds per edge in the first block, and in deeper layers) that explain one GPU.

    Three depths, relative least squares. Where the fixed seconds are given, they are kept; where not (0), both rates
    are taken as one: rows of few neurons fit a block of threads, permuted or not.
    """
    depths = sorted(layers for width, layers, ranks in published if width == neurons and ranks == 1)
    seconds, block = np.array([published[neurons, layers, 1] for layers in depths]), first_block(neurons)
    work = [official_work(neurons, layers) for layers in depths]
    edges = [device.lanes(layer.rows) * layer.edges for layer in work]
    first, deeper = (np.array([edge[part].sum() for edge in edges]) for part in (slice(block), slice(block, None)))
    columns = [first, deeper] if fixed else [np.array(depths, float), first + deeper]
    left = seconds - fixed * np.array(depths)
    found = np.linalg.lstsq(np.stack(columns, axis=1) / seconds[:, None], left / seconds, rcond=None)[0]
    return (fixed, *map(float, found)) if fixed else (float(found[0]), float(found[1]), float(found[1]))


def _fitted(device: DeviceCosts, name: str, slow: float, fast: float, predicted: Callable, key: tuple, published: dict):
    """The device whose attribute `name`, between slow and fast, brings the prediction of `key` to its figure."""
    for _ in range(25):
        middle = math.sqrt(slow * fast)
        device = replace(device, **{name: middle})
        slow, fast = (middle, fast) if predicted(key, device) > published[key] else (slow, middle)
    return device


def _show(scaling: Scaling, both: bool) -> dict:
    """Print how far off the predictions are, with one fitted constant each of them; returns what JSON holds."""
    errors = scaling.errors()
    worst = max((row for row in scaling.rows if not row.calibration), key=lambda row: abs(row.error))
    print(
        f"{'two fitted constants' if both else 'one fitted constant beside one GPU'}: "
        f"{scaling.seconds_per_layer * 1e6:.1f} us a layer, copies at {scaling.copy_bytes_per_second / 1e9:.1f} GB/s; "
        f"{len(errors)} figures predicted, error: median {statistics.median(errors):.1%}, "
        f"worst {errors[-1]:.1%} ({worst.neurons}-{worst.layers} on {worst.devices})"
    )
    for (neurons, layers), rows in groupby([] if both else scaling.rows, key=lambda row: (row.neurons, row.layers)):
        print(f"\n{neurons}-{layers}\n{'devices':>9} {'predicted':>11} {'published':>11} {'error':>7}")
        for row in rows:
            used = "  calibration" if row.calibration else ""
            times = f"{row.predicted_seconds:>9.4f} s {row.published_seconds:>9.4f} s"
            print(f"{row.devices:>9} {times} {row.error:>+7.1%}{used}")
    return asdict(scaling) | {"median_error": statistics.median(errors), "worst_error": errors[-1]}


def main(words: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE", help="write all figures")
    args = options.parse_args(words)
    content = {"one_constant": _show(at_scale(), False), "two_constants": _show(at_scale(both=True), True)}
    if args.json:
        write_text(args.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
