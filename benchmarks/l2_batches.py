"""Batches whose features stay in the L2 of a GPU, beside all inputs at once: the engine cuda with dead inputs alone.

    PYTHONPATH=. python benchmarks/l2_batches.py --mnist FILE > l2_batches.json

The question: from 4096 neurons on, two feature buffers of all active inputs exceed L2, so that every layer streams them
through memory. Are smaller batches, taken one after the other through all layers, faster? Weights are laid out once for
all batches of a network, and the kernels are those that are chosen for all inputs. The categories are compared with the
official ones, and every batch size must give the same digest. Samples are wall seconds of a session's run.
"""

import argparse
import json
import sys
import time
from unittest import mock

import numpy as np

from spdnn.core.provenance import environment
from spdnn.engines.base import Options, Prepared
from spdnn.engines.cuda import session
from spdnn.engines.cuda.rows import TILE
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda.cupy_device import open_device
from spdnn.runs.verify.judging import judge

# Inputs of a batch, of 60,000. The last repeats the first, to show what the machine did meanwhile.
CASES = {
    (4096, 480): (60000, 30016, 20000, 12000, 7520, 60000),
    (16384, 480): (60000, 12000, 6016, 3008, 60000),
    (65536, 120): (60000, 6016, 3008, 1504, 60000),
}
REPEATS = 5


def measure(prepared: Prepared, inputs, sizes) -> list[dict]:
    """A row for each batch size of one network."""
    runner, kept, digests, rows = engine("cuda"), {}, set(), []

    def once(make):
        """`make`, called once: what it returned is returned again."""
        return lambda *given: kept[make] if make in kept else kept.setdefault(make, make(*given))

    for size in sizes:

        def buffers(self, size=size):
            tiles = -(-size // TILE)
            return tiles, [self.device.empty(tiles * TILE * self.plan.widest, np.float32) for _ in range(2)]

        with (
            mock.patch.object(session, "_upload_layers", once(session._upload_layers)),
            mock.patch.object(session.KernelPlan, "of", once(session.KernelPlan.of)),
            mock.patch.object(session.CudaSession, "_feature_buffers", buffers),
        ):
            opened = runner.open(prepared, inputs, Options(16))
        seconds = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            result = opened.run()
            seconds.append(time.perf_counter() - begin)
        digests.add(result.digest)
        verdict = judge(prepared.source, inputs, result)
        assert verdict.passed, f"batches of {size}: {verdict.reasons}"
        assert len(digests) == 1, f"batches of {size}: another digest"
        network = f"{prepared.source.inputs} x {prepared.source.depth}"
        rows.append({"network": network, "batch": size, "batches": opened.batches, "seconds": seconds})
        print(rows[-1], file=sys.stderr, flush=True)
        opened = None
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", required=True, metavar="FILE", help="the MNIST training images")
    args = parser.parse_args()
    rows = []
    for (neurons, layers), sizes in CASES.items():
        runner = engine("cuda")
        prepared = runner.prepare(RadixNet(neurons, layers), parse_reductions("dead", runner.offers))
        rows += measure(prepared, mnist_inputs(neurons, args.mnist), sizes)
    gpu = open_device().properties.name
    print(json.dumps({"environment": environment("python benchmarks/l2_batches.py", gpu), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
