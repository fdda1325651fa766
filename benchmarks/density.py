"""One layer on features from almost empty to full: the sparse-sparse kernels against the fused layer on tiles.

    python benchmarks/density.py [--accumulators] [--seconds S] [--threads T] [--neurons N ...]

The clock holds one layer's kernel: features and weights in memory, bias and clip included, no reductions. The features
are uniformly random at each density, so that neighbouring rows have as little in common as they can: the worst case
for the panel accumulator. The layer is a permuted one of the RadiX-Net with 32 nonzeros a neuron. Each setting is
compared with SciPy's float64 product before it is timed; settings are timed alternately, and medians are
printed in microseconds a row, so that a busy machine slows all alike. `gain` above 1: spgemm wins against cpu. With
--accumulators, each accumulator of spgemm has a column of its own; one that does not take such rows shows what it gives
way to. They are where the thresholds in spdnn/kernels/cpu/spgemm.cpp come from.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from spdnn.core.features import Inputs
from spdnn.core.network import Layer, MemoryNetwork
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import usable_cores
from spdnn.engines.spgemm import session as spgemm
from spdnn.engines.spgemm.rows import Buffer
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels import tiles as layouts

DENSITIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
FEATURE_BYTES = 1 << 25  # of the rows, were they dense
BIAS = -0.05  # so small that outputs of sparse rows are not all zero


def compare(got: np.ndarray, rows: np.ndarray, layer: Layer) -> None:
    """Compare a layer's outputs (rows, neurons) with SciPy's float64 product."""
    product = sp.csr_array(rows.astype(np.float64)) @ sp.csr_array(layer.matrix(np.float64))
    expected = np.clip(product.toarray() + layer.bias, 0, layer.activation.high)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def fused(layer: Layer, rows: np.ndarray, threads: int) -> Callable[[], None]:
    """The fused layer on tiles, compared and ready to time."""
    level, (count, neurons) = dispatch.level(), rows.shape
    tile = layouts.best_tile(level, count, neurons)
    tiles, bound = ceil_div(count, tile), layouts.bind(layer, share=True)
    source, target = layouts.tile_rows(rows, tile), layouts.buffer(count, neurons, tile)
    active, got = np.zeros((1, tiles), np.uint64), np.empty_like(rows)

    def run() -> None:
        level.layers([bound], source, target, count, tile, 1, active, threads)

    run()
    level.take(target, tile, np.arange(len(got)), got, threads)
    compare(got, rows, layer)
    return run


def sparse(layer: Layer, rows: np.ndarray, threads: int) -> Callable[[int], tuple]:
    """The sparse-sparse kernel as a function of the accumulator, compared with each and ready to time."""
    level, (count, neurons), every = spgemm.level(), rows.shape, slice(0, rows.shape[0])
    buffers = [Buffer(count, neurons) for _ in range(2)]
    source = buffers[0].rows(every)
    level.load(layouts.bind_inputs(Inputs(rows)), np.arange(count), source, threads)
    network, got = MemoryNetwork([layer]), np.empty_like(rows)
    bound, scratch = spgemm.bind(network, 0), spgemm.workspace(network, level.panel, threads)

    def run(accumulator: int) -> tuple:
        return level.layer(bound, source, buffers[1].rows(every), scratch, accumulator)

    for accumulator in range(spgemm.BEST, len(spgemm.ACCUMULATORS)):
        run(accumulator)
        level.expand(buffers[1].rows(every), got, threads)
        compare(got, rows, layer)
    return run


def timed(run: Callable, *arguments) -> float:
    start = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - start


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--accumulators", action="store_true", help="time each accumulator of spgemm too")
    options.add_argument("--seconds", type=float, default=1.0, help="for each line (default: 1)")
    options.add_argument("--threads", type=int, default=usable_cores())
    options.add_argument("--neurons", type=int, nargs="+", default=[1024, 16384])
    args = options.parse_args()
    names = spgemm.ACCUMULATORS if args.accumulators else ()
    print(f"{args.threads} threads, {dispatch.level().name}; microseconds a row and layer, median")
    print(
        f"{'neurons':>8}{'density':>9}{'cpu':>9}{'spgemm':>9}{'gain':>7}  {'chosen':<16}", *(f"{n:>8}" for n in names)
    )
    for neurons in args.neurons:
        network = RadixNet(neurons, 20, BIAS)
        layer = network.layer(network.block + 1)
        count = FEATURE_BYTES // (4 * neurons)
        for density in DENSITIES:
            rng = np.random.default_rng(0)
            rows = (rng.random((count, neurons)) < density) * rng.random((count, neurons), np.float32)
            ways = {"cpu": (fused(layer, rows, args.threads),)}
            run = sparse(layer, rows, args.threads)
            taken = run(spgemm.BEST)[2]
            ways |= {"spgemm": (run, spgemm.BEST), **{name: (run, k) for k, name in enumerate(names)}}
            samples = {name: [] for name in ways}
            end = time.perf_counter() + args.seconds
            while time.perf_counter() < end or not samples["spgemm"]:
                for name, way in ways.items():
                    samples[name].append(timed(*way) / count * 1e6)
            median = {name: statistics.median(found) for name, found in samples.items()}
            line = f"{neurons:>8}{density:>9.1%}{median['cpu']:>9.2f}{median['spgemm']:>9.2f}"
            line += f"{median['cpu'] / median['spgemm']:>7.2f}  {spgemm.ACCUMULATORS[int(np.argmax(taken))]:<16}"
            print(line, *(f"{median[name]:>8.2f}" for name in names), flush=True)


if __name__ == "__main__":
    main()
