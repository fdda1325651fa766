"""The rung of `staged_layer` that copies in bulk, against the one that does not: gpu-check runs it in a process of its
own, for what never comes would be waited for without end.

Exit status: 0 the same bits, 4 it cannot run here, else wrong.
"""

import sys
from collections.abc import Iterator

import correctness
import numpy as np
import scipy.sparse as sp

from spdnn.common.errors import InputError, Unavailable
from spdnn.engines.base import Options
from spdnn.engines.cuda import layers
from spdnn.engines.registry import engine
from spdnn.kernels.cuda import cupy_device, settings
from spdnn.kernels.cuda.groups import SHARED
from spdnn.problem.network import Network, from_matrices
from spdnn.reductions.registry import parse_reductions
from spdnn.sources.radixnet import RadixNet

NOT_HERE = 4
DEGREE = 32  # edges of an output


def networks(degree: int) -> Iterator[tuple[str, Network]]:
    """Of every number of outputs that may share a load, without and with values; of one stage a part and of more."""
    yield "RadiX-Net", RadixNet(1024, 12)
    rng = np.random.default_rng(1)
    for valued in (False, True):
        for alike in SHARED:
            neurons = 1024 if alike > 1 else 3000
            some = sp.random_array((neurons, neurons // alike), density=degree / neurons, rng=rng, dtype=np.float32)
            weights = sp.hstack([some] * alike).tocsc()
            weights.data[:] = rng.normal(size=weights.nnz) if valued else 1 / degree
            yield f"{alike} outputs alike{', values' * valued}", from_matrices([weights] * 3, 0.0, last="relu")


def main(ordinal: int | None = None, degree: int = DEGREE) -> int:
    try:
        capability = cupy_device.open_device(ordinal).properties.capability
    except (Unavailable, InputError) as error:
        print(error)
        return NOT_HERE
    if capability not in settings.BULK:
        print(f"compute capability {capability / 10}, for which there are no bulk copies")
        return NOT_HERE
    runner, options = engine("cuda-staged"), Options(device=ordinal)
    for name, network in networks(degree):
        inputs = correctness.rows(1000, network.inputs, 1, "bits")
        for reductions in ("none", "dead,inputs"):
            prepared, found = runner.prepare(network, parse_reductions(reductions, runner.offers)), []
            for layers.BULK in (False, True):
                found.append(runner.open(prepared, inputs, options).run().digest)
            if found[0] != found[1]:
                print(f"{name}, {reductions}: other bits with bulk copies")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
