"""One fused layer on dense features: edges per second by width, tile and instruction-set level.

    python benchmarks/fused_layer.py [--seconds S] [--threads T]

The clock holds the kernel alone: features and weights in memory, bias and clip included, no reductions. Settings are
timed alternately, again and again, and medians are printed, so that a busy machine slows all alike. Outputs
that read the same inputs share a list of them, 16 in every layer here, so that a load serves several edges. The band is
a layer whose outputs share no list and read 32 neighbouring inputs, all in the first-level cache: an edge gathers one
float32 per input there, and billion edges/s x 4 is the load bandwidth in GB/s.
Every setting is compared with SciPy before it is timed.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import scipy.sparse as sp

from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.core.resources import usable_cores
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels import tiles as layouts

FEATURE_BYTES = 1 << 28  # per buffer, at most


def check(level, layer, tile: int) -> None:
    """Compare one tile with SciPy's float64 product."""
    rng = np.random.default_rng(0)
    rows = rng.random((tile, layer.inputs)).astype(np.float32)
    out, got = layouts.buffer(tile, layer.outputs, tile), np.empty((tile, layer.outputs), np.float32)
    stored = layouts.bind_inputs(Inputs(rows))
    level.layers_stored(
        [layouts.bind(layer, share=True)], stored, np.arange(tile), out, tile, 1, np.zeros((1, 1), np.uint64), 1
    )
    level.take(out, tile, np.arange(tile), got, 1)
    expected = np.clip(rows.astype(np.float64) @ layer.matrix(np.float64) + layer.bias, 0, layer.activation.high)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def band(neurons: int, width: int = 32) -> Layer:
    """A layer whose output j reads the inputs j .. j + width - 1 (mod neurons): every gather hits the nearest cache."""
    columns = np.repeat(np.arange(neurons), width)
    rows = (columns + np.tile(np.arange(width), neurons)) % neurons
    return Layer.from_matrix(
        sp.coo_array((np.full(rows.size, 1 / 16), (rows, columns)), shape=(neurons, neurons)), -0.3
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3.0, help="for each width (default: 3)")
    options.add_argument("--threads", type=int, default=usable_cores())
    args = options.parse_args()
    print(f"{args.threads} threads; billion edges/s, median; 32 nonzeros a neuron, permuted layer")
    for neurons in (1024, 4096, 16384, 65536):
        network = RadixNet(neurons, 20)
        layer = network.layer(network.block + 1)
        alone = layouts.bind(band(neurons))
        bound, count = layouts.bind(layer, share=True), FEATURE_BYTES // (4 * neurons)
        source, target = (layouts.buffer(count, neurons, 64) for _ in range(2))
        source[:] = np.random.default_rng(0).random(source.size, dtype=np.float32)
        target[:] = 0
        settings = [(level, tile, bound) for level in dispatch.levels() for tile in layouts.TILES]
        for level, tile, _ in settings:
            check(level, layer, tile)
        settings.append((dispatch.level(), layouts.best_tile(dispatch.level(), count, neurons), alone))
        samples = {setting: [] for setting in settings}
        end = time.perf_counter() + args.seconds
        while time.perf_counter() < end or not samples[settings[-1]]:
            for level, tile, weights in settings:
                active = np.zeros((1, count // tile), np.uint64)
                start = time.perf_counter()
                level.layers([weights], source, target, count // tile * tile, tile, 1, active, args.threads)
                samples[level, tile, weights].append(count * layer.edges / (time.perf_counter() - start) / 1e9)
        for (level, tile, weights), rates in samples.items():
            what = "band" if weights is alone else "layer"
            rate = statistics.median(rates)
            print(f"{neurons:>6}  {level.name:<10} tile {tile}  {what:<5} {rate:6.1f}", flush=True)


if __name__ == "__main__":
    main()
