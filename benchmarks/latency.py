"""A pruned network for `spdnn bench`, what its calls take at best on this machine, and the first call of all.

    python benchmarks/latency.py net.safetensors [--widths W ...] [--density D] [--batches N ...] [--zeros Z]
                                 [--threads T]
    spdnn bench model net.safetensors --zeros 0.8

The network, stored in net.safetensors, has ReLU between its layers and logits at its end; Z of the values of its inputs
are 0. `limit` is what this machine needs at best for what a call goes through, on T threads: a multiply-add for each
edge and input, or its bytes at the measured rate of the second-level cache (of weights 6, once for every 32 inputs; 4
of features for each edge and input). The first call is that of the stored network in a new process, from the end of
`import spdnn` to the outputs, on the wall and in processor seconds; SciPy is imported in it. See
docs/explanation/latency.md.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

import numpy as np
import scipy.sparse as sp

import spdnn
from spdnn.bench.calls import draw_rows
from spdnn.core.resources import usable_cores
from spdnn.engines.cpu import ceilings
from spdnn.formats.store import write_network

TILE, WEIGHT_BYTES = 32, 6  # inputs that go through a layer side by side; of an edge: a 16-bit index and a float32
FIRST = """import sys, time, numpy as np, spdnn
wall, processor = time.perf_counter(), time.process_time()
model = spdnn.compile(spdnn.open_network(sys.argv[1]))
model(np.zeros((1, model.inputs), np.float32))
print(time.perf_counter() - wall, time.process_time() - processor)"""


def pruned(widths: list[int], density: float, seed: int = 0) -> list[sp.csc_array]:
    """Layers (inputs, outputs) of random weights at random places."""
    rng = np.random.default_rng(seed)
    layers = []
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        layer = sp.random_array((inputs, outputs), density=density, rng=rng, dtype=np.float32).tocsc()
        layer.data[:] = rng.normal(0, np.sqrt(2 / max(1, density * inputs)), layer.nnz)
        layers.append(layer)
    return layers


def limit_seconds(layers: list[sp.csc_array], features: list[np.ndarray], limits) -> float:
    """Of a call, whose layers take `features`. One input skips the weights that its zeros would meet; tiles do not."""
    count, seconds = len(features[0]), 0.0
    for layer, x in zip(layers, features, strict=True):
        by_input = np.bincount(layer.indices, minlength=layer.shape[0])
        edges = int(by_input[x[0] != 0].sum()) if count == 1 else layer.nnz
        moved = edges * (WEIGHT_BYTES * -(-count // TILE) + 4 * count)
        seconds += max(edges * count / limits.fma_per_second, moved / limits.l2_load_bytes_per_second)
    return seconds


def first_call(path: str) -> tuple[float, float]:
    """(wall, processor) seconds from the end of the import to the first outputs, in a new process; medians of 5."""
    processes = [subprocess.run([sys.executable, "-c", FIRST, path], check=True, capture_output=True, text=True)
            for _ in range(5)]  # fmt: skip
    wall, processor = zip(*(map(float, process.stdout.split()) for process in processes), strict=True)
    return statistics.median(wall), statistics.median(processor)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("output", metavar="net.safetensors")
    options.add_argument("--widths", type=int, nargs="+", default=[784, 2048, 2048, 10])
    options.add_argument("--density", type=float, default=0.05)
    options.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 512, 4096])
    options.add_argument("--zeros", type=float, default=0.8, help="of the inputs (default: 0.8, as of digits)")
    options.add_argument("--threads", type=int, default=usable_cores())
    args = options.parse_args()
    layers = pruned(args.widths, args.density)
    biases = [np.random.default_rng(k).normal(0, 0.1, layer.shape[1]).astype(np.float32)
              for k, layer in enumerate(layers)]  # fmt: skip
    network = spdnn.from_matrices(layers, biases, last="none")
    write_network(args.output, network)
    print(f"{args.output}: {'-'.join(map(str, args.widths))} at {args.density:.3g}, {network.edges:,} edges")
    limits = ceilings.measure(args.threads, 1.0)
    x, features = draw_rows(max(args.batches), args.widths[0], args.zeros), []
    for layer, bias in zip(layers, biases, strict=True):
        features.append(x)
        x = np.maximum(x @ layer + bias, 0)
    for batch in args.batches:
        least = limit_seconds(layers, [feature[:batch] for feature in features], limits)
        print(f"limit of a call with {batch} inputs, {args.threads} threads: {1e6 * least:.1f} us")
    wall, processor = first_call(args.output)
    print(f"first call of the stored network after import: {wall:.3f} s, {processor:.3f} s of the processor")


if __name__ == "__main__":
    main()
