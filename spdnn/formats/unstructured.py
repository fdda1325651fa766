"""Random networks without any of the properties that the exact reductions live on: the control of every gain.

Each output neuron reads LEAST_OF_ONE to MOST_OF_ONE random input neurons (uniform, distinct), with normal weights and
a bias of its own of either sign; ReLU without a clip. So no two neurons are alike, rows of zeros are revived, and no
rows meet.
Weights have variance 2 / mean degree, which keeps the size of the features through the layers (He et al., "Delving Deep
into Rectifiers", ICCV 2015, section 2.2).
"""

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.network import RELU, Header, Layer, Network, index_dtype
from spdnn.core.numbers import check_whole

LEAST_OF_ONE, MOST_OF_ONE = 8, 64  # inputs of an output neuron
BIAS = 0.1  # standard deviation


class Unstructured(Network):
    """`layers` random layers of `neurons` x `neurons`; a layer is drawn anew whenever it is read.

    Args:
        neurons: MOST_OF_ONE to challenge.MAX_WIDTH.
        layers: at least 1.
        seed: 0 to 2^32 - 1; with it and the layer's number the layer is fixed (NumPy's frozen generator).

    Raises:
        InputError: a number out of these ranges.
    """

    def __init__(self, neurons: int, layers: int, seed: int = 0):
        neurons, layers = check_whole(neurons, "neurons"), check_whole(layers, "layers")
        seed = check_whole(seed, "seed")
        if not MOST_OF_ONE <= neurons <= challenge.MAX_WIDTH:
            raise InputError(f"{neurons} neurons: an unstructured network has {MOST_OF_ONE} to {challenge.MAX_WIDTH}")
        if layers < 1:
            raise InputError(f"{layers} layers: a network has at least 1")
        if not 0 <= seed < 2**32:
            raise InputError(f"seed {seed}: the generator takes 0 to {2**32 - 1}")
        self.neurons, self._layers, self.seed = neurons, layers, seed
        self.description = {"source": "unstructured", "neurons": neurons, "layers": layers, "seed": seed}

    @property
    def depth(self) -> int:
        return self._layers

    def _start(self, k: int) -> tuple[np.random.RandomState, np.ndarray, np.ndarray]:
        """(the generator after, bias, inputs of each output) of layer k."""
        random = np.random.RandomState([self.seed, k])
        bias = (BIAS * random.standard_normal(self.neurons)).astype(np.float32)
        return random, bias, random.randint(LEAST_OF_ONE, MOST_OF_ONE + 1, self.neurons)

    def header(self, k: int) -> Header:
        _, bias, degrees = self._start(k)
        return Header(self.neurons, self.neurons, int(degrees.sum()), bias, RELU, False)

    def layer(self, k: int) -> Layer:
        if not 0 <= k < self._layers:
            raise InputError(f"layer {k}: the network has layers 0 to {self._layers - 1}")
        random, bias, degrees = self._start(k)
        offsets = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
        output = np.repeat(np.arange(self.neurons, dtype=np.int64), degrees)
        keys = np.sort(output * self.neurons + random.randint(0, self.neurons, output.size))
        while (twice := np.flatnonzero(keys[1:] == keys[:-1])).size:  # draw those anew
            keys[twice] = keys[twice] // self.neurons * self.neurons + random.randint(0, self.neurons, twice.size)
            keys.sort()
        values = random.standard_normal(output.size) * np.sqrt(4 / (LEAST_OF_ONE + MOST_OF_ONE))
        indices = (keys % self.neurons).astype(index_dtype(self.neurons))
        return Layer.frozen(self.neurons, self.neurons, offsets, indices, values.astype(np.float32), bias, RELU)
