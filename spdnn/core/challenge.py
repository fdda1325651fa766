"""The IEEE HPEC Sparse DNN Graph Challenge as data: twelve networks, their biases, inputs and truth.

Source: Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019; truth counts are official,
the digests are of the category lists as text (one number a line, each line ended by a newline).
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from spdnn.core.errors import InputError

WIDTHS = (1024, 4096, 16384, 65536)
DEPTHS = (120, 480, 1920)
MAX_LAYERS = 1920
MAX_WIDTH = 2**27  # neurons of the widest layer or input taken from anywhere: its offsets alone are 1 GiB
INPUTS = 60_000
NONZEROS_PER_NEURON = 32
WEIGHT = 1 / 16
YMAX = 32.0
SEED = 5489  # of the permutations: MATLAB's default

BIAS = {1024: -0.30, 4096: -0.35, 16384: -0.40, 65536: -0.45}

TRUTH_COUNT = {1024: 1812, 4096: 1801, 16384: 1918, 65536: 1994}
TRUTH_SHA256 = {
    1024: "a006e26755ca317ecf629035972137457705f20e3139b7796a2f9e9d58c8f4e1",
    4096: "5ff66a396a73723af800e551214b2c5f89efc77a7062e231e361aecd60f672a0",
    16384: "1964db1f710c271c225b9512f3a13dfeb5e25de4c0f0139ae53b3933b99a60d9",
    65536: "6962e1529586f3dede57d7e1d99565605ef0bbb51cb43789627886644e6c0ef8",
}

# All 60,000 MNIST inputs at each width: the SHA-256 of numpy.packbits(bits, axis=1) in C order.
INPUT_SHA256 = {
    1024: "2ccfa158de2a77480ded7f940a88fa9c6a2487dd0cf1547ed73c7e303e479976",
    4096: "dfa8fb78b59558e76140ad79b4ea9a891f98a15f2712b6639541071580512785",
    16384: "70bf6bcfd9050b52929c4d206598115d65c64ae48a49c320f0fdf8f6d423f085",
    65536: "fbae70e40ecfea3c858cd63c3fd83113b9f9e4d156b4fc5865b6cb7f388e374d",
}
# The square of the largest modulus of the images' values at each width; half of the modulus is the threshold. Stored,
# it saves one of two passes over the official images (docs/explanation/what-time-includes.md).
LARGEST_SQUARE = {
    1024: 136397.6207481439,
    4096: 142481.9218606956,
    16384: 145960.36761947055,
    65536: 148320.85090521685,
}
MNIST_SHA256 = "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"  # uncompressed idx file


@dataclass(frozen=True)
class OfficialProblem:
    """One of the twelve official problems."""

    neurons: int
    layers: int

    @property
    def name(self) -> str:
        return f"{self.neurons}-{self.layers}"

    @property
    def bias(self) -> float:
        return BIAS[self.neurons]

    @property
    def edges(self) -> int:
        """Nonzeros over all layers."""
        return NONZEROS_PER_NEURON * self.neurons * self.layers


PROBLEMS = tuple(OfficialProblem(neurons, layers) for neurons in WIDTHS for layers in DEPTHS)


def problem(neurons: int, layers: int) -> OfficialProblem:
    """The official problem of that size. Raises InputError where it is none of the twelve."""
    official = OfficialProblem(neurons, layers)
    if official not in PROBLEMS:
        raise InputError(
            f"{neurons} neurons x {layers} layers is not an official problem: neurons must be one of "
            f"{', '.join(map(str, WIDTHS))} and layers one of {', '.join(map(str, DEPTHS))}"
        )
    return official


def edges_per_second(inputs: int, edges: int, seconds: float) -> float:
    """The challenge's rate: inputs x edges / seconds, whatever work was really done."""
    return inputs * edges / seconds


def categories_sha256(categories: np.ndarray) -> str:
    """The digest of a category list as the truth digests are taken: one number a line."""
    return hashlib.sha256("".join(f"{number}\n" for number in categories.tolist()).encode()).hexdigest()
