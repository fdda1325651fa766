"""Sub-batches whose features stay in the L2 of a GPU, beside all rows at once: the engine cuda-staged with dead inputs
alone.

    PYTHONPATH=. python benchmarks/l2_batches.py --mnist FILE > l2_batches.json

The question: from 4096 neurons on, two feature buffers of all active inputs exceed L2, so that every layer streams them
through memory. Once most inputs have died, is it faster to take few rows after others through all remaining layers? The
categories are compared with the official ones, and every size must give the same digest. Samples are wall seconds of a
session's run.
"""

import argparse
import json
import sys
import time

from spdnn.core.provenance import environment
from spdnn.engines.base import Options, Prepared
from spdnn.engines.cuda.rows import TILE
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda.cupy_device import open_device
from spdnn.runs.verify.judging import judge

# Tiles of a sub-batch; 0: none. The last repeats the first, to show what the machine did meanwhile.
CASES = {(4096, 480): (0, 25, 24, 12, 6, 0), (16384, 480): (0, 12, 6, 3, 0), (65536, 120): (0, 2, 1, 0)}
REPEATS = 5


def measure(prepared: Prepared, inputs, sizes) -> list[dict]:
    """A row for each size of sub-batches of one network."""
    runner, digests, rows = engine("cuda-staged"), set(), []
    for size in sizes:
        runner.sub_batch_tiles = size
        opened = runner.open(prepared, inputs, Options(16))
        seconds = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            result = opened.run()
            seconds.append(time.perf_counter() - begin)
        digests.add(result.digest)
        verdict = judge(prepared.source, inputs, result)
        assert verdict.passed, f"sub-batches of {size} tiles: {verdict.reasons}"
        assert len(digests) == 1, f"sub-batches of {size} tiles: another digest"
        network = f"{prepared.source.inputs} x {prepared.source.depth}"
        number = result.notes["sub_batches"]["number"] if size else 1
        rows.append({"network": network, "batch": TILE * size or inputs.count, "batches": number, "seconds": seconds})
        print(rows[-1], file=sys.stderr, flush=True)
        opened = None
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", required=True, metavar="FILE", help="the MNIST training images")
    args = parser.parse_args()
    rows = []
    for (neurons, layers), sizes in CASES.items():
        runner = engine("cuda-staged")
        prepared = runner.prepare(RadixNet(neurons, layers), parse_reductions("dead", runner.offers))
        rows += measure(prepared, mnist_inputs(neurons, args.mnist), sizes)
    gpu = open_device().properties.name
    print(json.dumps({"environment": environment("python benchmarks/l2_batches.py", gpu), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
