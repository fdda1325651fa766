"""One compiled model against SciPy and dense BLAS, by batch: verified, then timed alternately.

    python benchmarks/latency.py [--widths W ...] [--density D] [--batches N ...] [--zeros Z] [--threads T]
                                 [--seconds S] [--first]

The network has ReLU between its layers and logits at its end; Z of the values of its inputs are 0. SciPy takes the same
sparse weights, `dense` the same weights as matrices for NumPy's BLAS on T threads. Each program's outputs are compared
with float64 before it is timed, and again afterwards. Programs take turns. A turn is some calls with other inputs each,
after one that is not timed; times of a call are medians over turns, on the wall and in processor seconds, which a
busy machine disturbs less (of a thread that still runs, Linux counts them some milliseconds late). A ratio is the
median over turns of the other's time over the model's, with its 95 % interval. `limit` is what this machine needs at
best for what a call goes through, measured in the same run on T threads: a multiply-add for each edge and input, or its
bytes at the rate of the second-level cache (of weights 6, once for every 32 inputs; 4 of features for each edge and
input). See docs/explanation/latency.md.

--first    also the first call of a stored network in a new process, from the end of `import spdnn` to the outputs, on
           the wall and in processor seconds; SciPy is imported in it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import spdnn
from spdnn.common.statistics import ratios
from spdnn.engines.registry import usable_cores
from spdnn.formats.store import write_network
from spdnn.measure import machine

TOLERANCE = 1e-5  # of the largest output
TILE, WEIGHT_BYTES = 32, 6  # inputs that go through a layer side by side; of an edge: a 16-bit index and a float32
LEAST_TURNS, MOST_TURNS = 7, 300
CALLS = 64  # of one input in a turn; fewer of more
FIRST = """import sys, time, numpy as np, spdnn
wall, processor = time.perf_counter(), time.process_time()
model = spdnn.compile(spdnn.open_network(sys.argv[1]))
model(np.zeros((1, model.inputs), np.float32))
print(time.perf_counter() - wall, time.process_time() - processor)"""
Program = Callable[[np.ndarray], np.ndarray]


def pruned(widths: list[int], density: float, seed: int = 0) -> list[sp.csc_array]:
    """Layers (inputs, outputs) of random weights at random places."""
    rng = np.random.default_rng(seed)
    layers = []
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        layer = sp.random_array((inputs, outputs), density=density, rng=rng, dtype=np.float32).tocsc()
        layer.data[:] = rng.normal(0, np.sqrt(2 / max(1, density * inputs)), layer.nnz)
        layers.append(layer)
    return layers


def layer_by_layer(product: Callable, weights: list, biases: list) -> Program:
    """A program that multiplies, adds the bias and, but for the last layer, takes the ReLU in place."""

    def run(x: np.ndarray) -> np.ndarray:
        for k, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
            x = product(x, weight)
            x += bias
            if k < len(weights):
                np.maximum(x, 0, out=x)
        return x

    return run


def programs(layers: list[sp.csc_array], biases: list[np.ndarray], model: spdnn.Model) -> dict[str, Program]:
    transposed = [sp.csr_array(layer.T) for layer in layers]
    dense = [np.ascontiguousarray(layer.toarray()) for layer in layers]

    def scipy(x: np.ndarray) -> np.ndarray:
        columns = np.ascontiguousarray(x.T)
        return np.ascontiguousarray(by_columns(columns[:, 0] if len(x) == 1 else columns).T).reshape(len(x), -1)

    def by_columns(y: np.ndarray) -> np.ndarray:
        for k, (layer, bias) in enumerate(zip(transposed, biases, strict=True), 1):
            y = layer @ y
            y += bias if y.ndim == 1 else bias[:, None]
            if k < len(transposed):
                np.maximum(y, 0, out=y)
        return y

    return {"model": model, "scipy": scipy, "dense": layer_by_layer(np.matmul, dense, biases)}


def check(name: str, got: np.ndarray, expected: np.ndarray) -> None:
    difference = abs(got - expected).max() / abs(expected).max()
    if not difference <= TOLERANCE:
        sys.exit(f"{name}: outputs differ by {difference:.2g} of the largest; {TOLERANCE:g} is allowed")


def timed(runs: dict[str, Program], x: np.ndarray, batch: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """(wall, processor) seconds of a call with `batch` rows of x, in turns."""
    parts = [x[first : first + batch] for first in range(0, len(x) - batch + 1, batch)]
    calls = max(1, min(len(parts) - 1, CALLS // batch))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    began = time.perf_counter()
    while (turns := len(samples["model"])) < MOST_TURNS:
        if turns >= LEAST_TURNS and time.perf_counter() - began > seconds:
            break
        chosen = [parts[(turns * calls + call) % len(parts)] for call in range(calls)]
        for name, run in runs.items():
            run(chosen[-1])  # what others left in the caches, and threads asleep, are not its own
            wall, processor = time.perf_counter(), time.process_time()
            for part in chosen:
                run(part)
            taken = time.perf_counter() - wall, time.process_time() - processor
            samples[name].append((taken[0] / calls, taken[1] / calls))
    return samples


def limit_seconds(layers: list[sp.csc_array], features: list[np.ndarray], limits) -> float:
    """Of a call, whose layers take `features`. One input skips the weights that its zeros would meet; tiles do not."""
    count, seconds = len(features[0]), 0.0
    for layer, x in zip(layers, features, strict=True):
        by_input = np.bincount(layer.indices, minlength=layer.shape[0])
        edges = int(by_input[x[0] != 0].sum()) if count == 1 else layer.nnz
        moved = edges * (WEIGHT_BYTES * -(-count // TILE) + 4 * count)
        seconds += max(edges * count / limits.fma_per_second, moved / limits.l2_load_bytes_per_second)
    return seconds


def first_call(network: spdnn.Network) -> tuple[float, float]:
    """(wall, processor) seconds from the end of the import to the first outputs, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.safetensors"
        write_network(path, network)
        told = [subprocess.run([sys.executable, "-c", FIRST, str(path)], check=True, capture_output=True, text=True)
                for _ in range(5)]  # fmt: skip
    wall, processor = zip(*(map(float, one.stdout.split()) for one in told), strict=True)
    return statistics.median(wall), statistics.median(processor)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--widths", type=int, nargs="+", default=[784, 2048, 2048, 10])
    options.add_argument("--density", type=float, default=0.05)
    options.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 512, 4096])
    options.add_argument("--zeros", type=float, default=0.8, help="of the inputs (default: 0.8, as of digits)")
    options.add_argument("--threads", type=int, default=usable_cores())
    options.add_argument("--seconds", type=float, default=4.0, help="for each batch (default: 4)")
    options.add_argument("--first", action="store_true")
    chosen = options.parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != str(chosen.threads):  # read when the library is loaded
        # OpenBLAS's threads wait for its next call; so they leave the core to the next program sooner.
        settings = {"OPENBLAS_THREAD_TIMEOUT": "18", "OPENBLAS_NUM_THREADS": str(chosen.threads)}
        os.execvpe(sys.executable, [sys.executable, *sys.argv], os.environ | settings)
    layers = pruned(chosen.widths, chosen.density)
    biases = [np.random.default_rng(k).normal(0, 0.1, layer.shape[1]).astype(np.float32)
              for k, layer in enumerate(layers)]  # fmt: skip
    network = spdnn.from_matrices(layers, biases, last="none")
    limits = machine.measure(chosen.threads, 1.0)
    rng = np.random.default_rng(1)
    x = rng.random((max(4 * CALLS, *chosen.batches), chosen.widths[0]), dtype=np.float32)
    x[rng.random(x.shape) < chosen.zeros] = 0
    expected, between = x.astype(np.float64), []
    for k, (layer, bias) in enumerate(zip(layers, biases, strict=True), 1):
        between.append(expected)
        expected = expected @ layer.astype(np.float64) + bias
        expected = np.maximum(expected, 0) if k < len(layers) else expected
    widths = "-".join(map(str, chosen.widths))
    print(f"network {widths} at {chosen.density:.3g}, {network.edges:,} edges; {chosen.threads} threads")
    print(f"{'batch':>6} {'program':>8} {'wall us':>10} {'cpu us':>10}  {'over the model':>22}  {'limit us':>9}")
    with spdnn.compile(network, threads=chosen.threads, batch=chosen.batches[0]) as model:
        runs = programs(layers, biases, model)
        for batch in chosen.batches:
            part = np.ascontiguousarray(x[:batch])
            for when in ("before", "after"):
                for name, run in runs.items():
                    check(f"{name}, batch {batch}, {when} timing", run(part), expected[:batch])
                if when == "before":
                    samples = timed(runs, x, batch, chosen.seconds)
            ours = [wall for wall, _ in samples["model"]]
            for name, taken in samples.items():
                wall, processor = (statistics.median(one) * 1e6 for one in zip(*taken, strict=True))
                row = f"{batch:>6} {name:>8} {wall:>10.1f} {processor:>10.1f}"
                if name == "model":
                    least = limit_seconds(layers, [one[:batch] for one in between], limits) * 1e6
                    print(f"{row}  {'':>22}  {least:>9.1f} ({100 * least / wall:.0f} %)")
                else:
                    ratio = ratios(ours, [wall for wall, _ in taken])
                    print(f"{row}  {ratio.median:>6.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
    if chosen.first:
        wall, processor = first_call(network)
        print(f"first call of a stored network after import: {wall:.3f} s, {processor:.3f} s of the processor")


if __name__ == "__main__":
    main()
