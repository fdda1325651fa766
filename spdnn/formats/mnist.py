"""The official inputs: the 60,000 MNIST training images, resized as one wide image and made binary.

The images lie side by side in one 28 x 28n array, which is resized to s x s*n by padding its Fourier
transform with zeros; a pixel is one where the modulus exceeds half of the one largest modulus. In MATLAB:
    F = fft2(reshape(X, 28, 28*n));
    G = zeros(s, s*n);  G([1:15, s-12:s], [1:14*n+1, s*n-14*n+2 : s*n]) = F;
    Y = abs(ifft2(G));  B = Y > 0.5*max(Y(:));  B = reshape(B, s*s, n).';
Both Nyquist bins stay on the positive side, so Y is the modulus of complex numbers.

Algorithm: neither F nor G is ever held. Horizontally, two of the 28 rows are one complex signal: a transform of length
28n, and an inverse one of 32n or 64n, each in two short steps (Bailey, J. Supercomputing 1990); the first ends in the
order that the second begins with, so nothing is turned over. To that comes the Nyquist bin nu[r] * exp(2 pi i 14 c/s),
which is all of the imaginary part. The columns come in P = s/32 phases (columns p, p+P, p+2P...). Where P > 2, a row is
a trigonometric polynomial of degree below 14n that is known at 64n points, 2.3 times as dense as it must be: any other
column is a sum over 16 points around it, with a Kaiser-Bessel kernel by whose transform the spectrum was divided
before. What such a kernel of 16 points folds back is below 1e-16 (Jackson et al., IEEE Trans. Med. Imaging 1991; the
sum is a type 2 nonuniform FFT, Dutt and Rokhlin 1993).
Vertically: a small matrix D = R + i u v', R real; only its Nyquist bin has no partner, so its imaginary part is rank
one. For a column h = a + i nu sin,
    real = R a - u (v'nu) sin,    imaginary = (R nu) sin + u (v'a).
Three bounds save work and change nothing. Rows of D have norm 1, so |y| <= |h|: a column with |h| below the
threshold is all zero. y is a trigonometric polynomial of degree 14 in the row, so its maximum over all rows is at most
its maximum over 64 of them / cos(14 pi/64) (Ehlich and Zeller, 1964). And |y|^2 in single precision is wrong by less
than a bound: only what is nearer to the threshold is taken in double precision.
Two passes (the largest modulus, then the bits) compute the columns twice instead of keeping 3.4 GB at s = 256. Of the
official images the largest modulus is known (challenge.LARGEST_SQUARE), so that they take one pass; the digest of their
bits is checked. The passes are compiled (spdnn/kernels/cpu/resize.cpp).

The formula comes from a comparison with the official images, whose bits it gives at every size.
"""

import contextlib
import hashlib
import math
import os
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.fft import fft, ifft

from spdnn.core import challenge, safe_open
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.files import cache_folder
from spdnn.core.numbers import ceil_div
from spdnn.core.progress import Stage
from spdnn.core.resources import usable_cores, use_all_cores
from spdnn.core.safe_open import existing
from spdnn.formats.catalog import read_sources
from spdnn.formats.fetch import fetch
from spdnn.kernels import dispatch

NAME = "mnist-train-images"  # in config/data.tsv
SIDE = 28
MAGIC = 0x803  # idx: unsigned bytes, three dimensions
GRID = 32  # every official side is a multiple of it
COLUMNS = 1 << 13  # columns of each phase that one task of the thread pool takes
TAPS = 16  # points that the kernel reaches
TAP_REACH = TAPS // 4  # pairs of points on either side
SHAPE = math.pi * TAPS * (1 - SIDE / (4 * GRID))  # of the kernel: its main lobe ends where frequencies fold back


def locate_mnist(path: str | os.PathLike | None = None) -> Path:
    """The MNIST training images on this machine: `path`, an idx file, plain or .gz, that has their digest; else fetched
    once.

    Raises:
        InputError: `path` is not that file.
        SpdnnError: it could not be fetched; the sentence lists what was tried.
    """
    if path is None:
        return fetch(NAME, cache_folder())
    read_idx(path)
    return Path(path)


def find_downloaded() -> Path | None:
    """The file that `locate_mnist` fetched before, not checked again; None where there is none."""
    with contextlib.suppress(OSError, Unavailable):  # no home folder, or one that may not be read
        path = cache_folder() / read_sources()[NAME].path
        return path if path.is_file() else None
    return None


def read_idx(path: str | os.PathLike, sha256: str | None = challenge.MNIST_SHA256) -> np.ndarray:
    """The images of an idx file, plain or gzip: uint8 (images, 28, 28), row by row as stored, upright.

    Args:
        path: the file; gzip is recognized by its first bytes, not by its name.
        sha256: what the digest of the uncompressed content must be; None takes any images of 28 x 28.

    Raises:
        InputError: no such file, not idx or gzip, cut short, other dimensions, or another digest.
    """
    file = existing(path, "file of MNIST images")
    with safe_open.name_errors(file, "MNIST images, plain or gzip, cannot be read from it"):
        content = safe_open.whole(file, safe_open.TEXT, any_name=True)
    if len(content) < 16 or struct.unpack(">I", content[:4])[0] != MAGIC:
        raise InputError(f"{file}: not an idx file of images; it does not begin with {MAGIC:#010x}")
    count, rows, columns = struct.unpack(">III", content[4:16])
    if (rows, columns) != (SIDE, SIDE) or count < 1:
        raise InputError(f"{file}: {count} images of {rows} x {columns}; there must be some, of {SIDE} x {SIDE}")
    if len(content) != 16 + count * SIDE * SIDE:
        expected = 16 + count * SIDE * SIDE
        raise InputError(f"{file}: {len(content)} bytes of content; its header promises {expected}")
    if sha256 is not None and (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise InputError(f"{file}: the SHA-256 of its content is {digest}, not {sha256} as of MNIST")
    return np.frombuffer(content, dtype=np.uint8, offset=16).reshape(count, SIDE, SIDE)


def mnist_inputs(neurons: int, mnist_path: str | os.PathLike) -> Inputs:
    """The 60,000 official inputs of that width, as bits, checked against their official digest.

    Pixels are column-major: neuron = column * s + row, with s = sqrt(neurons).

    Raises:
        InputError: a width that is not official, or a file that is not MNIST.
        SpdnnError: the bits computed here are not the official ones.
    """
    if neurons not in challenge.WIDTHS:
        allowed = ", ".join(map(str, challenge.WIDTHS))
        raise InputError(f"{neurons} neurons: the MNIST inputs exist for {allowed}")
    # The largest modulus of the official images is known; that the bits are right is checked below.
    images, digest = read_idx(mnist_path), hashlib.sha256()
    bits = resize_to_bits(images, math.isqrt(neurons), challenge.LARGEST_SQUARE[neurons], digest.update)
    described = {"source": "mnist", "official_sha256": challenge.INPUT_SHA256[neurons], "stored": "largest modulus"}
    inputs = Inputs(bits, neurons, None, described).owned()
    inputs.known_sha256 = digest.hexdigest()
    if inputs.sha256 != challenge.INPUT_SHA256[neurons]:
        raise SpdnnError(
            f"the MNIST inputs of {neurons} neurons came out with SHA-256 {inputs.sha256}, not the official "
            f"{challenge.INPUT_SHA256[neurons]}; NumPy computes wrongly on this machine"
        )
    return inputs


def resize_to_bits(
    images: np.ndarray, side: int, largest: float | None = None, take: Callable | None = None
) -> np.ndarray:
    """Resize `images` together as the module says and compare with half their largest modulus.

    Args:
        images: uint8 (n, 28, 28), any n >= 1.
        side: s, a multiple of 32.
        largest: the square of their largest modulus; None: it is found first, in a pass of its own.
        take: called with the rows of bits that are complete, in their order, while others are computed.

    Returns:
        uint8 (n, s*s/8): packed bits, column-major within an image. Double precision throughout.
    """
    # Columns of a large image are phases of the columns of the 32 x 32 grid: each phase resamples alike.
    count, phases = len(images), side // GRID
    blocks = ceil_div(GRID * count, COLUMNS)
    workers = usable_cores()
    work, level = dispatch.compiled_module(), dispatch.level().name
    passes, name = 1 if largest else 2, f"inputs, MNIST at {side} x {side}"
    with Stage(name, passes * blocks, "block") as stage, ThreadPoolExecutor(workers, initializer=use_all_cores) as pool:
        # The horizontal transform, of all images as one line, as the definition has it.
        lines, nyquist = _lines(images, min(2, phases), phases > 2, pool)
        # How a column is made of the points around it (it may be one of them): float64 (phases, points, 9).
        taps = np.eye(phases)[:, :, None] * (np.arange(-TAP_REACH, TAP_REACH + 1) == 0)
        if phases > 2:
            phase = np.arange(phases)[:, None, None]
            taps = _kernel(2 * np.arange(-TAP_REACH, TAP_REACH + 1) + np.array([[0], [1]]) - 2 * phase / phases)
        # Cosine and sine of the Nyquist angle of a phase's columns, which repeat: float64 (phases, 2, 32).
        column = np.arange(GRID) * phases + np.arange(phases)[:, None]
        angle = 2 * np.pi * (SIDE // 2 * column % (GRID * phases)) / (GRID * phases)
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        columns = level, lines, taps, nyquist, waves, *_vertical(side, nyquist)
        # The largest modulus, for the threshold is half of it over all images.
        starts = range(0, GRID * count, COLUMNS)
        if largest is None:
            largest = 0.0
            most = lambda start: work.largest_square(*columns, start, min(COLUMNS, GRID * count - start), largest)  # noqa: E731
            for square in pool.map(most, starts):
                largest = max(largest, square)  # which the next tasks begin with
                stage.advance()
        # The values, once more where that was looked for, compared and packed: keeping them would take gigabytes.
        bits = np.zeros((count * side, side // 8), dtype=np.uint8)

        def above(start: int) -> None:
            work.above_threshold(*columns, start, 0.25 * largest, bits[start * phases : (start + COLUMNS) * phases])

        for start, _ in zip(starts, pool.map(above, starts), strict=True):
            if take:
                take(bits[start * phases : (start + COLUMNS) * phases])
            stage.advance()
    return bits.reshape(count, side * side // 8)


def _vertical(side: int, nyquist: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The vertical transform: `real` (29, s) and `imaginary` (2, s), float64, of the values of a column.

    Its first 28 are the real parts of the rows, then the sine of its Nyquist angle, then the real parts against v.
    """
    row, old = np.arange(side)[:, None], np.arange(SIDE)
    shift = row / side - old / SIDE
    sign = (-1.0) ** old
    # The Nyquist bin has no conjugate partner: its sine is the imaginary part, of rank one.
    u = np.sin(2 * np.pi * (SIDE // 2) * row / side) / SIDE
    matrix = 1 + sign * np.cos(2 * np.pi * (SIDE // 2) * row / side)
    # The other bins come in conjugate pairs: twice the real part.
    for k in range(1, SIDE // 2):
        matrix += 2 * np.cos(2 * np.pi * k * shift)
    matrix /= SIDE
    return np.vstack([matrix.T, -u.T * (sign @ nyquist)]), np.vstack([matrix @ nyquist, u[:, 0]])


def _lines(images: np.ndarray, points: int, corrected: bool, pool: ThreadPoolExecutor) -> tuple[np.ndarray, np.ndarray]:
    """Each row without its Nyquist bin at `points` * 32n points, and that (real) bin, in the scale of the images.

    Args:
        corrected: divided by the transform of the kernel that a row is resampled with.

    Returns:
        float64 (28, points, 32n + 8): those between two columns of a phase apart, and a few more at both ends; (28,).
    """
    count = len(images)
    length, width = SIDE * count, GRID * count
    lines, nyquist = np.empty((SIDE, points, width + 2 * TAP_REACH)), np.empty(SIDE)
    # A frequency is f = k + rows * l, at [k, l]; a point p = m * columns + j, at [m, j].
    # A transform of the whole line by rows and columns (Bailey, 1990), whose parts stay in the cache.
    rows = next(size for size in range(2 * math.isqrt(length) // 3, 0, -1) if 2 * count % size == 0)
    half, old, new = length // rows // 2, length // rows, points * width // rows
    there, back = _twiddles(rows, old, -1), _twiddles(rows, new, 1)
    correction = None
    # Resampling with a kernel damps high frequencies; the spectrum is divided by its transform.
    if corrected:
        frequency = np.arange(rows)[:, None] + rows * np.arange(old)
        below = np.minimum(frequency, length - frequency)
        below[0, half] = 0  # the Nyquist bin, which is apart
        # The Fourier transform of `_kernel` at these frequencies, in periods a point.
        root = np.sqrt(SHAPE**2 - (np.pi * TAPS * (below / (2 * width))) ** 2)
        correction = 1 / (TAPS * np.sinh(root) / (root * np.i0(SHAPE)))
    own = threading.local()  # of each thread, what it transforms in place

    def transform(r: int) -> None:
        if not hasattr(own, "padded"):
            own.pair, own.padded = np.empty((rows, old), complex), np.empty((rows, new), complex)
        pair = own.pair.reshape(count, SIDE)
        # Two real rows are one complex transform.
        pair.real, pair.imag = images[:, r], images[:, r + 1]
        spectrum = fft(own.pair, axis=0, norm="forward", out=own.pair)
        there(spectrum)
        spectrum = fft(spectrum, axis=1, norm="forward", out=spectrum)
        # The Nyquist bin has no pair, so it is taken out and resampled by its own formula.
        nyquist[r], nyquist[r + 1] = spectrum[0, half].real, spectrum[0, half].imag
        spectrum[0, half] = 0
        if correction is not None:
            spectrum *= correction
        # Zeros between the halves of the spectrum: more points of the same trigonometric polynomial.
        own.padded[:, :half], own.padded[:, -half:] = spectrum[:, :half], spectrum[:, half:]
        own.padded[:, half:-half] = 0
        both = ifft(own.padded, axis=1, norm="forward", out=own.padded)
        back(both)
        both = ifft(both, axis=0, norm="forward", out=both).reshape(-1)
        # Ends are repeated, as the line is periodic and the kernel reaches past them.
        for k in range(points):
            for row, part in ((r, both.real[k::points]), (r + 1, both.imag[k::points])):
                line = lines[row, k]
                line[TAP_REACH:-TAP_REACH], line[:TAP_REACH], line[-TAP_REACH:] = (
                    part,
                    part[-TAP_REACH:],
                    part[:TAP_REACH],
                )

    list(pool.map(transform, range(0, SIDE, 2)))
    return lines, nyquist


def _twiddles(rows: int, columns: int, sign: int) -> Callable[[np.ndarray], None]:
    """A function that multiplies complex (rows, columns) by exp(sign * 2 pi i kj / (rows * columns)) at [k, j]."""
    step = math.isqrt(rows) + 1
    column = np.arange(columns)
    # Products of few exponentials: as exact as one for each entry, much faster, and the caches hold them.
    coarse, fine = (
        np.exp(sign * 2j * np.pi * (k[:, None] * column % (rows * columns)) / (rows * columns))
        for k in (np.arange(0, rows, step), np.arange(step))
    )

    def multiply(values: np.ndarray) -> None:
        for of_block, start in zip(coarse, range(0, rows, step), strict=True):
            block = values[start : start + step]
            block *= of_block * fine[: len(block)]

    return multiply


def _kernel(distance: np.ndarray) -> np.ndarray:
    """The Kaiser-Bessel kernel at some distances, in points; zero from TAPS / 2 on."""
    inside = np.maximum(0, 1 - (2 * distance / TAPS) ** 2)
    return np.where(inside > 0, np.i0(SHAPE * np.sqrt(inside)), 0) / np.i0(SHAPE)
