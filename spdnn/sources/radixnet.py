"""RadiX-Net by formula: the twelve official networks, and any N = 16 * 2^m, layer by layer, exactly.

With m = log2(N / 16) and K = N / 16, block t holds the m layers k = 0..m-1; p_0 is the identity and p_t the stable
argsort of N numbers of MATLAB's default generator (Mersenne Twister, seed 5489), drawn once per block in order:
    W[p_t[i], j] = 1/16  iff  (i - j) mod K is 0 or 2^k.
Source: Kepner and Robinett, "RadiX-Net: Structured Sparse Matrices for Deep Neural Networks", 2019; the
permutations were found by comparison with the official files, which this reproduces byte for byte.
"""

from __future__ import annotations

import numpy as np

from spdnn import challenge
from spdnn.errors import InputError
from spdnn.network import Activation, Header, Layer, Network, index_dtype

MAX_LAYERS = 2**31 - 1
GROUP = 16  # input neurons of one class, and output neurons that share their inputs


class RadixNet(Network):
    """The RadiX-Net of `neurons` x `layers`; nothing but one block's permutation is kept in memory.

    Args:
        neurons: 16 * 2^m with m >= 1, at most challenge.MAX_WIDTH.
        layers: any depth up to MAX_LAYERS; depths share their first layers.
        bias: one number; by default the official one of that width.
        ymax: the clip, or None.
        seed: of the permutations; 5489 gives the official networks.

    Raises:
        InputError: a size that the formula does not define, or a width without an official bias and none given.
    """

    def __init__(
        self,
        neurons: int,
        layers: int,
        bias: float | None = None,
        ymax: float | None = challenge.YMAX,
        seed: int = challenge.SEED,
    ):
        blocks, rest = divmod(neurons, GROUP)
        if rest or blocks < 2 or blocks & (blocks - 1):
            raise InputError(f"{neurons} neurons: a RadiX-Net has 16 * 2^m of them (32, 64, ..., 1024, 2048, ...)")
        if neurons > challenge.MAX_WIDTH:
            raise InputError(f"{neurons} neurons: at most {challenge.MAX_WIDTH} are possible here")
        if layers < 1:
            raise InputError(f"{layers} layers: a network has at least 1")
        if layers > MAX_LAYERS:
            raise InputError(f"{layers} layers: at most {MAX_LAYERS} are possible here")
        if not 0 <= seed < 2**32:
            raise InputError(f"seed {seed}: the generator takes 0 to {2**32 - 1}")
        if bias is None:
            if neurons not in challenge.BIAS:
                raise InputError(f"{neurons} neurons have no official bias; give one (--bias)")
            bias = challenge.BIAS[neurons]
        self.neurons, self.classes, self.block = neurons, blocks, blocks.bit_length() - 1
        self._layers, self.seed = layers, seed
        with np.errstate(over="ignore"):
            self.bias, self.activation = np.float32(bias), Activation("relu", ymax)
        if not np.isfinite(self.bias):
            raise InputError(f"bias {bias}: it must be a finite number")
        self.description = {
            "source": "radixnet",
            "neurons": neurons,
            "layers": layers,
            "seed": seed,
            "bias": float(self.bias),
            "ymax": self.activation.ymax,
        }
        self._offsets = np.arange(neurons + 1, dtype=np.int64) * (2 * GROUP)
        self._restart()

    def _restart(self) -> None:
        self._random, self._drawn = np.random.RandomState(self.seed), 0
        self._block_number, self._groups = 0, self._grouped(np.arange(self.neurons))

    def _grouped(self, permutation: np.ndarray) -> np.ndarray:
        """(classes, 16): the input neurons p_t[i] of each class i mod K, ascending."""
        groups = permutation.reshape(GROUP, self.classes).T.astype(index_dtype(self.neurons))
        return np.sort(groups, axis=1)

    def _groups_of(self, t: int) -> np.ndarray:
        if t < self._block_number:
            self._restart()
        if t > self._block_number:
            while self._drawn < t:
                numbers = self._random.random_sample(self.neurons)
                self._drawn += 1
            self._groups = self._grouped(np.argsort(numbers, kind="stable"))
            self._block_number = t
        return self._groups

    @property
    def depth(self) -> int:
        return self._layers

    def header(self, k: int) -> Header:
        return Header(self.neurons, self.neurons, 2 * GROUP * self.neurons, self.bias, self.activation, True)

    def layer(self, k: int) -> Layer:
        """Layer k. Cheapest in ascending order: going back draws the permutations anew."""
        if not 0 <= k < self._layers:
            raise InputError(f"layer {k}: the network has layers 0 to {self._layers - 1}")
        groups, shift = self._groups_of(k // self.block), 1 << (k % self.block)
        distinct = np.sort(np.concatenate([groups, np.roll(groups, -shift, axis=0)], axis=1), axis=1)
        indices = np.tile(distinct, (GROUP, 1)).reshape(-1)
        return Layer(
            self.neurons,
            self.neurons,
            self._offsets,
            indices,
            np.float32(challenge.WEIGHT),
            self.bias,
            self.activation,
        )

    def first(self, depth: int) -> Network:
        if not 1 <= depth <= self._layers:
            return super().first(depth)
        ymax = self.activation.ymax
        return RadixNet(self.neurons, depth, float(self.bias), ymax, self.seed)
