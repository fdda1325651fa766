"""Default inputs that need no download: 60,000 binary images made of scikit-learn's 1,797 bundled 8 x 8 digits.

Image i is digit i mod 1797, stretched by one of several cell sizes in each direction, moved, resized by linear
interpolation and made binary at a level of its own; all of that is drawn once, so image i is the same picture at
every size. Pixels are column-major, as in the official inputs: neuron = column * s + row, s = sqrt(neurons).

The bits are the same on every machine: the draws are of NumPy's frozen RandomState, interpolation weights are
multiples of 1/64 and grey levels whole numbers to 16, so every product and sum is exact in float32, in any order.
Spread, levels and seed were chosen so that, as of the MNIST inputs, about a tenth of the pixels are ones and a few
images in a hundred survive the official networks: 2986, 1999, 1259 and 702 of 60,000 at 1024 to 65536 neurons; the
last to die at 1024 do so at layer 25.
"""

import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError, Unavailable, install
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.progress import bar

DIGITS_SEED = 12  # of the places, sizes and thresholds of the digits
FIELD = 256  # units of the picture's side at any size
CELLS = (20, 21, 22, 23, 24, 25, 26)  # units that one of the 8 cells of a digit may be stretched to
SHIFTS = 33  # positions in a direction, evenly over the room that is left
LEVELS = (336, 1024)  # the range of a picture's threshold, in 1/64 of a grey level
SIDES = (16, 32, 64, 128, 256)
BATCH = 1 << 22  # pixels computed at a time


def digits_inputs(neurons: int, count: int = challenge.INPUTS) -> Inputs:
    """The digits as binary inputs.

    Args:
        neurons: s * s with s = 16, 32, 64, 128 or 256.
        count: the first `count` of the 60,000 images.

    Raises:
        InputError: another width, or a count not from 1 to 60,000.
        Unavailable: scikit-learn is not installed.
    """
    side = math.isqrt(max(neurons, 0))
    if side * side != neurons or side not in SIDES:
        allowed = ", ".join(str(s * s) for s in SIDES)
        raise InputError(f"{neurons} neurons: the digit inputs exist for {allowed}")
    if not 1 <= count <= challenge.INPUTS:
        raise InputError(f"{count} digit inputs asked for; there are 1 to {challenge.INPUTS:,}")
    digits = _load_digits()
    horizontal, vertical, level = _draws(count)
    weights = _weights(side)
    bits = np.empty((count, neurons // 8), dtype=np.uint8)
    step = max(1, BATCH // neurons)
    for start in bar(range(0, count, step), f"inputs, digits at {side} x {side}", ceil_div(count, step), "batch"):
        part = slice(start, min(start + step, count))
        cells = digits[np.arange(part.start, part.stop) % len(digits)]
        # (images, columns, rows): columns first, as neurons are numbered.
        grey = weights[horizontal[part]] @ cells.transpose(0, 2, 1) @ weights[vertical[part]].transpose(0, 2, 1)
        ones = grey > level[part, None, None]
        bits[part] = np.packbits(ones.reshape(len(cells), neurons), axis=1)
    described = {"source": "digits", "neurons": neurons, "seed": DIGITS_SEED, "count": count}
    return Inputs(bits, neurons, None, described).owned()


def _load_digits() -> np.ndarray:
    """float32 (1797, 8, 8): scikit-learn's digits, row by row, whole numbers from 0 to 16."""
    # Its file of them is read, for importing scikit-learn takes a second.
    package = find_spec("sklearn")
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz" if package else None
    if not file or not file.exists():
        raise Unavailable(f"the digit inputs need scikit-learn; {install('full')}")
    pixels = np.loadtxt(file, np.float32, delimiter=",", usecols=range(64))  # the column after them is the class
    return pixels.reshape(-1, 8, 8)


def _draws(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(horizontal, vertical, level) of the first `count` pictures: rows of `_weights`, and float32 grey levels."""
    random = np.random.RandomState(DIGITS_SEED)
    size = (challenge.INPUTS, 2)
    stretch, shift = (random.randint(several, size=size, dtype=np.int64) for several in (len(CELLS), SHIFTS))
    level = random.randint(*LEVELS, size=challenge.INPUTS, dtype=np.int64).astype(np.float32) / 64
    rows = (stretch * SHIFTS + shift)[:count]
    return rows[:, 0], rows[:, 1], level[:count]


def _weights(side: int) -> np.ndarray:
    """float32 (stretches * shifts, side, 8): the share of each of the 8 cells in each pixel, in 64ths.

    Pixel i is centred at (2 i + 1) * FIELD / side half units, cell k of a digit at (2 k + 1) * cell half units from
    its position; the share falls linearly to zero at the centre of the next cell, and at the edge.
    """
    centre = (2 * np.arange(side) + 1) * (FIELD // side)
    shares = []
    for cell in CELLS:
        room = FIELD - 8 * cell
        for index in range(SHIFTS):
            start = room * index // (SHIFTS - 1)
            position = (centre - 2 * start - cell) * 64 // (2 * cell)  # in 64ths of a cell, 0 at the first's centre
            shares.append(np.maximum(64 - np.abs(position[:, None] - 64 * np.arange(8)), 0))
    return (np.array(shares) / 64).astype(np.float32)
