"""Networks, devices and comparisons that the tests of the CUDA engines share."""

import numpy as np
from engine_cases import assert_equal
from shim import ShimDevice

from spdnn.api import infer
from spdnn.core.features import Inputs
from spdnn.core.network import MemoryNetwork, from_matrices
from spdnn.engines import oracle as reference

RUNGS = ("cuda-csr", "cuda-ell", "cuda-staged", "cuda-persistent")
ENGINES = ("cuda", *RUNGS)
SAME_BITS = ("none", "dead", "inputs", "dead,inputs")  # reductions that change no bit

LITTLE = 9 << 10  # bytes of shared memory, a little more than row_statistics takes

# Name: the ShimDevice. Small ones take few inputs a block, several stages, and loops of blocks over their items.
DEVICES = {
    "large": {},
    "one multiprocessor": {"multiprocessors": 1},
    "copies wait": {"multiprocessors": 1, "capability": 70},
    "200 multiprocessors": {"multiprocessors": 200},
    "little shared memory": {"shared_per_block": LITTLE, "multiprocessors": 1},
    "descending": {"order": 1},
    "permuted": {"order": 2, "multiprocessors": 1},
    "permuted, little shared memory": {"order": 3, "shared_per_block": LITTLE},
}


def exact_network(rng, widths, density=0.4, biases=(-2, 3), clip=None, last="relu", single=None, inputs=None):
    """Weights and biases of few bits; with `inputs`, only as many layers as float32 and float64 agree on."""
    matrices = [
        np.where(rng.random((a, b)) < density, rng.integers(-3, 4, (a, b)) / 4 if single is None else single, 0)
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]
    biases = [rng.integers(*biases, b) / 8 for b in widths[1:]]
    network = from_matrices(matrices, biases, clip, last=last)
    if inputs is None:
        return network
    depth = exact_depth(network, inputs)
    return from_matrices(matrices[:depth], biases[:depth], clip, last=last)


def exact_depth(network, inputs) -> int:
    """Layers, from the first on, in which float32 rounds no sum, in whatever order it is added up."""
    values = inputs.dense(np.arange(inputs.count), np.float64)
    for k, layer in enumerate(network.layers()):
        weights, bias = layer.matrix(np.float64), np.broadcast_to(layer.bias, layer.outputs).astype(np.float64)
        unit = min(_unit(values) * _unit(weights.data), _unit(bias))
        if (abs(values) @ abs(weights) + abs(bias)).max() > unit * 2**24:
            return k
        values = reference.forward(MemoryNetwork([layer]), values)[0]
    return network.depth


def _unit(values: np.ndarray) -> float:
    """The largest power of two, at most 1, of which all values are multiples."""
    mantissas, exponents = np.frexp(values[values != 0])
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    return np.ldexp((whole & -whole).astype(float), exponents - 53).min(initial=1.0)


def assert_exact(name, network, inputs, **options):
    """An engine's values, categories and survivors are the oracle's to the bit; its result."""
    assert exact_depth(network, inputs) == network.depth
    got = infer(network, inputs, name, values=True, **options)
    expected = reference.infer(network, inputs, values=True)
    assert_equal(got, expected, to_the_bit=False)
    return got


def repeated(rng, distinct: np.ndarray, count: int) -> Inputs:
    """`count` inputs, each one of the `distinct` rows, in any order; all of these are there, where they can be."""
    chosen = rng.permutation(np.concatenate([np.arange(len(distinct)), rng.integers(0, len(distinct), count)])[:count])
    return Inputs.from_array(distinct[chosen].astype(np.float32))


def scarce(on_shim, open_session, **device):
    """A session on a device of about the least memory in which it opens; and every sentence that refused less."""
    from spdnn.core.errors import MemoryTooSmall

    refused, memory = [], 20_000
    while True:
        found: ShimDevice = on_shim(memory_bytes=int(memory), **device)
        try:
            return open_session(), refused, found
        except MemoryTooSmall as error:
            refused.append(str(error))
        memory *= 1.07
