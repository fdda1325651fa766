"""The rung of `staged_layer` that copies in bulk, against the one that does not: gpu-check runs it in a process of its
own, for what never comes would be waited for without end.

Exit status: 0 the same bits, 77 it cannot run here, else wrong.
"""

import sys

import correctness

from spdnn.common.errors import InputError, Unavailable
from spdnn.engines.base import Options
from spdnn.engines.cuda import layers
from spdnn.engines.registry import engine
from spdnn.kernels.cuda import cupy_device, settings
from spdnn.reductions.registry import parse_reductions
from spdnn.sources.radixnet import RadixNet

NOT_HERE = 77


def main(ordinal: int | None = None) -> int:
    try:
        capability = cupy_device.open_device(ordinal).properties.capability
    except (Unavailable, InputError) as error:
        print(error)
        return NOT_HERE
    if capability not in settings.BULK:
        print(f"compute capability {capability / 10}, for which there are no bulk copies")
        return NOT_HERE
    network, inputs = RadixNet(1024, 12), correctness.rows(1000, 1024, 1, "bits")
    runner, options = engine("cuda-staged"), Options(device=ordinal)
    for reductions in ("none", "dead,inputs"):
        prepared, found = runner.prepare(network, parse_reductions(reductions, runner.offers)), []
        for layers.BULK in (False, True):
            found.append(runner.open(prepared, inputs, options).run().digest)
        if found[0] != found[1]:
            print(f"{reductions}: other bits with bulk copies")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
