"""Makes config/truth/survivors.csv: active inputs, of the 60,000 official ones, after each of the first 120 layers.

    python benchmarks/survivors.py --mnist FILE [--neurons 1024] > config/truth/survivors.csv

All in float64, with weights and bias as float32 rounds them (spdnn/engines/oracle.py). Identical neurons are computed
once, which changes no value; errors are drawn as of the 32 edges of an output. Some sums of the official networks are
zero in exact arithmetic, so that rounding decides whether a row lives: a right number is within the range of the exact
run and of COPIES runs with drawn errors, and the width of that range and LEAST beyond both ends. From the last layer
here on the number does not change. 1024 takes a minute on two cores, 65536 a quarter of an hour.
"""

import argparse
import sys

import numpy as np

from spdnn.core import challenge, progress
from spdnn.engines import oracle
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.verify.verdict import SURVIVORS

LAYERS, COPIES, LEAST = 120, 4, 4
CHUNK_BYTES = 256 << 20


def counted(neurons: int, mnist: str, part: int | None = None) -> np.ndarray:
    """int64 (1 + COPIES, LAYERS): survivors of all runs of the first `part` inputs, the exact one first."""
    network, _ = merge_neurons(RadixNet(neurons, LAYERS))
    inputs = mnist_inputs(neurons, mnist)
    rows = inputs.numbers_of(0, part or inputs.count)
    size = max(1, CHUNK_BYTES // (8 * neurons))
    runs = np.zeros((1 + COPIES, LAYERS), np.int64)
    for start in progress.bar(range(0, rows.size, size), f"{neurons} neurons", -(-rows.size // size), "chunk"):
        first = inputs.dense(rows[start : start + size], np.float64)
        found = oracle.forward(network, first, copies=COPIES, seed=start, terms=challenge.NONZEROS_PER_NEURON)
        runs += np.vstack([found.survivors[None], found.drawn_survivors])
    return runs


def table(neurons: int, runs: np.ndarray) -> list[str]:
    """The lines of the table of a width."""
    least, most = runs.min(axis=0), runs.max(axis=0)
    apart = most - least + LEAST
    apart[-1] = 0  # all right runs have the official categories
    columns = np.arange(1, LAYERS + 1), runs[0], np.maximum(least - apart, 0), most + apart
    return [",".join(map(str, (neurons, *row))) for row in zip(*columns, strict=True)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mnist", required=True, help="file of the MNIST training images")
    options.add_argument("--neurons", type=int, action="append", help="only this width; may be given several times")
    args = options.parse_args()
    print(",".join(SURVIVORS))
    for neurons in args.neurons or challenge.WIDTHS:
        print("\n".join(table(neurons, counted(neurons, args.mnist))), flush=True)


if __name__ == "__main__":
    sys.exit(main())
