"""RadiX-Net by formula: the twelve official networks, and any N = 16 * 2^m, layer by layer, exactly.

With m = log2(N / 16) and K = N / 16, block t holds the m layers k = 0..m-1; p_0 is the identity and p_t the stable
argsort of N numbers of MATLAB's default generator (Mersenne Twister, seed 5489), drawn once per block in order:
    W[p_t[i], j] = 1/16  iff  (i - j) mod K is 0 or 2^k.
Source: Kepner and Robinett, "RadiX-Net: Structured Sparse Matrices for Deep Neural Networks", 2019; the
permutations come from a comparison with official files. As text, layers 1 to 120 of 1024 neurons have the official
SHA-256 (tests/formats/test_text.py). Other layers and widths are known by their results: the official inputs
give the official categories, and every value of a survivor is 32.
"""

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.locks import Lock, cached_property
from spdnn.core.network import Activation, Header, Layer, Network, index_dtype
from spdnn.core.numbers import check_whole, real
from spdnn.kernels import dispatch

DEEPEST_NETWORK = 2**31 - 1  # layers, which records and kernels count in 32 bits
GROUP = 16  # input neurons of one class, and output neurons that share their inputs
READERS = 4  # that may go through the layers at different depths without drawing permutations anew


class RadixNet(Network):
    """The RadiX-Net of `neurons` x `layers`; nothing but a few blocks' permutations is kept in memory.

    Args:
        neurons: 16 * 2^m with m >= 1, at most challenge.MAX_WIDTH.
        layers: any depth up to DEEPEST_NETWORK; depths share their first layers.
        bias: one number; by default the official one of that width.
        ymax: the clip, or None.
        seed: of the permutations; 5489 gives the official networks.

    Raises:
        InputError: a size that the formula does not define, or a width without an official bias, and no bias.

    Example:
        >>> import spdnn
        >>> spdnn.RadixNet(1024, 120)
        RadixNet(1024 -> 1024, 120 layers, 3,932,160 edges)
    """

    def __init__(
        self,
        neurons: int,
        layers: int,
        bias: float | None = None,
        ymax: float | None = challenge.YMAX,
        seed: int = challenge.SEED,
    ):
        neurons, layers = check_whole(neurons, "neurons"), check_whole(layers, "layers")
        seed, number = check_whole(seed, "seed"), None if bias is None else real(bias)
        classes, rest = divmod(neurons, GROUP)
        if rest or classes < 2 or classes & (classes - 1):
            raise InputError(f"{neurons} neurons: a RadiX-Net has 16 * 2^m of them (32, 64, ..., 1024, 2048, ...)")
        if neurons > challenge.MAX_WIDTH:
            raise InputError(f"{neurons} neurons: at most {challenge.MAX_WIDTH} are possible here")
        if layers < 1:
            raise InputError(f"{layers} layers: a network has at least 1")
        if layers > DEEPEST_NETWORK:
            raise InputError(f"{layers} layers: at most {DEEPEST_NETWORK} are possible here")
        if not 0 <= seed < 2**32:
            raise InputError(f"seed {seed}: the generator takes 0 to {2**32 - 1}")
        if bias is None:
            if neurons not in challenge.BIAS:
                raise InputError(f"{neurons} neurons have no official bias; give one (--bias)")
            number = challenge.BIAS[neurons]
        self.neurons, self.classes, self.block = neurons, classes, classes.bit_length() - 1  # layers of a block
        self._layers, self.seed = layers, seed
        with np.errstate(over="ignore"):
            self.bias, self.activation = np.float32(np.nan if number is None else number), Activation("relu", ymax)
        if not np.isfinite(self.bias):
            raise InputError(f"bias {bias}: it must be a finite number")
        self.description = {"source": "radixnet", "neurons": neurons, "layers": layers, "seed": seed}
        self.description |= {"bias": float(self.bias), "ymax": self.activation.ymax}
        self._lock = Lock()  # of the next two, for several threads may read layers
        # By a block, a generator that has drawn the numbers of all up to it; the last used is the last.
        self._generators: dict[int, np.random.RandomState] = {}
        self._held: dict[int, np.ndarray] = {}

    @cached_property
    def _offsets(self) -> np.ndarray:
        return np.arange(self.neurons + 1, dtype=np.int64) * (2 * GROUP)

    def _groups_of(self, t: int) -> np.ndarray:
        """(classes, 16): the input neurons p_t[i] of each class i mod K, ascending; those of a few blocks are held."""
        with self._lock:
            # Consecutive layers are of one block: its permutation is drawn once for all of them.
            if t not in self._held:
                if len(self._held) == READERS:
                    self._held.pop(next(iter(self._held)))
                permutation = _order(self._numbers(t)) if t else np.arange(self.neurons)
                groups = permutation.reshape(GROUP, self.classes).T.astype(index_dtype(self.neurons))
                self._held[t] = np.sort(groups, axis=1)
            return self._held[t]

    def _numbers(self, t: int) -> np.ndarray:
        """float64 (neurons,), what orders block t; the first block needs none."""
        # A generator only goes forward, so the one that is nearest before the block goes on.
        drawn = max((before for before in self._generators if before < t), default=0)
        random = self._generators.pop(drawn, None) or np.random.RandomState(self.seed)
        # Numbers of blocks in between are drawn and dropped: a generator cannot skip them.
        for _ in range(drawn, t):
            numbers = random.random_sample(self.neurons)
        self._generators.pop(t, None)
        self._generators[t] = random
        if len(self._generators) > READERS:
            self._generators.pop(next(iter(self._generators)))
        return numbers

    @property
    def depth(self) -> int:
        return self._layers

    @property
    def width(self) -> int:
        return self.neurons

    @property
    def edges(self) -> int:
        return self._layers * self.header(0).edges  # without going through layers that may be 2^31

    @property
    def nbytes(self) -> int:
        return self._layers * self.header(0).nbytes

    def header(self, k: int) -> Header:
        return Header(self.neurons, self.neurons, 2 * GROUP * self.neurons, self.bias, self.activation, True)

    def layer(self, k: int) -> Layer:
        """Layer k. Cheapest in ascending order: going far back draws permutations anew."""
        return self._layer(k, self.neurons)

    def repeated(self, k: int) -> tuple[Layer, np.ndarray]:
        return self._layer(k, self.classes), self._class_of

    @cached_property
    def _class_of(self) -> np.ndarray:
        return (np.arange(self.neurons) % self.classes).astype(np.uint32)

    def _layer(self, k: int, outputs: int) -> Layer:
        """The first outputs of layer k, a multiple of the classes: outputs j and j + classes read the same inputs."""
        k = check_whole(k, "layer")
        if not 0 <= k < self._layers:
            raise InputError(f"layer {k}: the network has layers 0 to {self._layers - 1}")
        # Outputs of one class share their inputs, so rows are made from a table of classes.
        groups, offsets = self._groups_of(k // self.block), self._offsets[: outputs + 1]
        indices = np.empty(2 * GROUP * outputs, groups.dtype)
        dispatch.compiled_module().radixnet_rows(groups, 1 << (k % self.block), indices)
        weight = np.float32(challenge.WEIGHT)
        return Layer.frozen(self.neurons, outputs, offsets, indices, weight, self.bias, self.activation)

    def __reduce__(self):
        """Pickled as its numbers."""
        return RadixNet, (self.neurons, self.depth, float(self.bias), self.activation.ymax, self.seed)

    def first(self, depth: int) -> Network:
        depth = check_whole(depth, "layers")
        if not 1 <= depth <= self._layers:
            return super().first(depth)
        return RadixNet(self.neurons, depth, float(self.bias), self.activation.ymax, self.seed)


def _order(numbers: np.ndarray) -> np.ndarray:
    """The stable argsort of numbers that mostly differ: the faster one that is not stable, unless some are equal."""
    order = np.argsort(numbers)
    # Stability only matters where numbers are equal, which 53 random bits hardly ever are.
    ascending = numbers[order]
    return order if (ascending[1:] > ascending[:-1]).all() else np.argsort(numbers, kind="stable")
