"""The official inputs: the 60,000 MNIST training images, resized as one wide image and made binary.

The images lie side by side in one 28 x 28n array, which is resized to s x s*n by padding its Fourier
transform with zeros; a pixel is one where the modulus exceeds half of the one largest modulus. In MATLAB:
    F = fft2(reshape(X, 28, 28*n));
    G = zeros(s, s*n);  G([1:15, s-12:s], [1:14*n+1, s*n-14*n+2 : s*n]) = F;
    Y = abs(ifft2(G));  B = Y > 0.5*max(Y(:));  B = reshape(B, s*s, n).';
Both Nyquist bins stay on the positive side, so Y is the modulus of complex numbers.

Algorithm: neither F nor G is ever held. Horizontally: 28 real transforms of length 28n, and 28 inverse ones of 32n or
64n; plus the Nyquist bin nu[r] * exp(2 pi i 14 c/s), which is all of the imaginary part. The columns come in P = s/32
phases (columns p, p+P, p+2P...). Where P > 2, a row is a trigonometric polynomial of degree below 14n that is known at
64n points, 2.3 times as dense as it must be: any other column is a sum over 16 points around it, with a Kaiser-Bessel
kernel by whose transform the spectrum was divided before. What such a kernel of 16 points folds back is below 1e-16
(Jackson et al., IEEE Trans. Med. Imaging 1991; the sum is a type 2 nonuniform FFT, Dutt and Rokhlin 1993).
Vertically: a small matrix D = R + i u v', R
real; only its Nyquist bin has no partner, so its imaginary part is rank one. For a column h = a + i nu sin,
    real = R a - u (v'nu) sin,    imaginary = (R nu) sin + u (v'a).
Two bounds save work and change nothing. Rows of D have norm 1, so |y| <= |h|: a column with |h| below the
threshold is all zero. And y is a trigonometric polynomial of degree 14 in the row, so its maximum over all
rows is at most its maximum over 64 of them / cos(14 pi/64) (Ehlich and Zeller, 1964).
Two passes (the largest modulus, then the bits) compute the columns twice instead of keeping 3.4 GB at s = 256.

The formula comes from a comparison with the official images, whose bits it gives at every size.
"""

import contextlib
import gzip
import hashlib
import math
import os
import struct
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from spdnn.common.errors import InputError, SpdnnError
from spdnn.common.files import existing
from spdnn.common.progress import Stage
from spdnn.kernels import dispatch
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.sources.fetch import cache_folder, fetch

NAME = "mnist-train-images"  # in config/data.tsv
SIDE = 28
MAGIC = 0x803  # idx: unsigned bytes, three dimensions
GRID = 32  # every official side is a multiple of it
COARSE = 64  # rows whose maximum bounds that of all rows
CHUNK = 1 << 15  # modulus values computed at a time, so that real and imaginary parts stay in the L2 cache
BLOCK = 1 << 13  # columns of a phase that one task of the thread pool takes
FIRST = 1 << 6  # columns of a block that are checked before the others
TAPS = 16  # points that the kernel reaches
REACH = TAPS // 4  # pairs of points on either side
SHAPE = math.pi * TAPS * (1 - SIDE / (4 * GRID))  # of the kernel: its main lobe ends where frequencies fold back


def locate_mnist(path: str | os.PathLike | None = None, folder: str | os.PathLike | None = None) -> Path:
    """The MNIST training images on this machine: `path` unless None, else fetched once into `folder`.

    Args:
        path: an idx file, plain or .gz, accepted by the digest of its content.
        folder: where downloads are kept; by default $SPDNN_DATA, or ~/.cache/spdnn.

    Raises:
        InputError: `path` is not that file.
        SpdnnError: it could not be fetched; the sentence lists what was tried.
    """
    if path is None:
        return fetch(NAME, cache_folder() if folder is None else folder)
    read_idx(path)
    return Path(path)


def read_idx(path: str | os.PathLike, sha256: str | None = challenge.MNIST_SHA256) -> np.ndarray:
    """The images of an idx file, plain or gzip: uint8 (images, 28, 28), row by row as stored, upright.

    Args:
        path: the file; gzip is recognized by its first bytes, not by its name.
        sha256: what the digest of the uncompressed content must be; None takes any images of 28 x 28.

    Raises:
        InputError: no such file, not idx or gzip, cut short, other dimensions, or another digest.
    """
    file = existing(path, "file of MNIST images")
    try:
        content = file.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read ({error}); expected MNIST images, plain or gzip") from error
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
    bits = resized_bits(read_idx(mnist_path), math.isqrt(neurons))
    inputs = Inputs(bits, neurons, None, {"source": "mnist", "official_sha256": challenge.INPUT_SHA256[neurons]})
    if inputs.sha256 != challenge.INPUT_SHA256[neurons]:
        raise SpdnnError(
            f"the MNIST inputs of {neurons} neurons came out with SHA-256 {inputs.sha256}, not the official "
            f"{challenge.INPUT_SHA256[neurons]}; NumPy or SciPy computes wrongly on this machine"
        )
    return inputs


def resized_bits(images: np.ndarray, side: int) -> np.ndarray:
    """Resize `images` together as the module says and compare with half their largest modulus.

    Args:
        images: uint8 (n, 28, 28), any n >= 1.
        side: s, a multiple of 32.

    Returns:
        uint8 (n, s*s/8): packed bits, column-major within an image. Double precision throughout.
    """
    count, phases = len(images), side // GRID
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        stage = stack.enter_context(Stage(f"inputs, MNIST at {side} x {side}", 2 * phases, "phase"))
        stack.enter_context(_one_blas_thread())
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        columns = _Columns(images, side, pool)
        vertical = _Vertical(side, columns.nyquist)
        largest = _Largest(vertical)
        for phase in range(phases):
            list(pool.map(lambda start, phase=phase: largest.add(columns.of(phase, start)), columns.starts))
            stage.advance()
        bits = np.zeros((count * side, side // 8), dtype=np.uint8)
        for phase in range(phases):

            def task(start: int, part: np.ndarray = bits[phase::phases], phase: int = phase) -> None:
                _threshold(columns.of(phase, start), vertical, 0.25 * largest.value, part[start : start + BLOCK])

            list(pool.map(task, columns.starts))
            stage.advance()
    return bits.reshape(count, side * side // 8)


class _Vertical:
    """The vertical transforms, from the 30 rows of `_Columns`: `real` (29, s) and `imaginary` (2, s), float64.

    Every `step`-th row is one of the COARSE ones; their largest |y|^2 times `slack` bounds that of all rows.
    """

    def __init__(self, side: int, nyquist: np.ndarray):
        row, old = np.arange(side)[:, None], np.arange(SIDE)
        shift = row / side - old / SIDE
        sign = (-1.0) ** old
        u = np.sin(2 * np.pi * (SIDE // 2) * row / side) / SIDE
        matrix = 1 + sign * np.cos(2 * np.pi * (SIDE // 2) * row / side)
        for k in range(1, SIDE // 2):
            matrix += 2 * np.cos(2 * np.pi * k * shift)
        matrix /= SIDE
        self.nyquist = nyquist
        self.real = np.vstack([matrix.T, -u.T * (sign @ nyquist)])
        self.imaginary = np.vstack([matrix @ nyquist, u[:, 0]])
        self.step = max(1, side // COARSE)
        self.slack = 1.0 if self.step == 1 else math.cos(math.pi * (SIDE // 2) / COARSE) ** -2
        self.coarse = [np.ascontiguousarray(matrix[:, :: self.step]) for matrix in (self.real, self.imaginary)]

    def modulus2(self, columns: np.ndarray, coarse: bool = False) -> np.ndarray:
        """|y|^2, float64 (columns, s or COARSE), of `columns` float64 (30, columns)."""
        real, imaginary = self.coarse if coarse else (self.real, self.imaginary)
        y = columns[: SIDE + 1].T @ real
        z = columns[SIDE:].T @ imaginary
        np.multiply(y, y, out=y)
        np.multiply(z, z, out=z)
        y += z
        return y


class _Columns:
    """The columns of the resized image before the vertical transform, a block of a phase at a time.

    Attributes:
        nyquist: float64 (28,), the (real) Nyquist bin of each row, in the scale of the images.
        starts: the first column of each block, counted within a phase.
    """

    def __init__(self, images: np.ndarray, side: int, pool: ThreadPoolExecutor):
        from scipy.fft import irfft, rfft

        self.side, self.phases, count = side, side // GRID, len(images)
        self.starts = range(0, GRID * count, BLOCK)
        self.nyquist = np.empty(SIDE)
        # Each row at 32n points, or at 64n: those between two columns of a phase apart, and a few more at both ends.
        self.points = min(2, self.phases)
        self.lines = np.empty((SIDE, self.points, GRID * count + 2 * REACH))
        phase = np.arange(self.phases)[:, None]
        angle = 2 * np.pi * (SIDE // 2 * (np.arange(GRID) * self.phases + phase) % side) / side
        self.turns = np.stack([np.cos(angle), np.sin(angle)])
        apart = 2 * np.arange(-REACH, REACH + 1) + np.array([[0], [1]]) - 2 * phase[:, None] / self.phases
        self.taps = _kernel(apart)
        frequency = np.arange(SIDE // 2 * count) / (2 * GRID * count)
        correction = None if self.phases <= 2 else 1 / _transformed_kernel(frequency)

        def transform(r: int) -> None:
            line = np.ascontiguousarray(images[:, r, :], dtype=np.float64).reshape(-1)
            bins = rfft(line, norm="forward", overwrite_x=True)
            self.nyquist[r], bins = bins[-1].real, bins[:-1]
            if correction is not None:
                bins *= correction
            line = irfft(bins, n=self.points * GRID * count, norm="forward", overwrite_x=True)
            for k in range(self.points):
                self.lines[r, k] = np.pad(line[k :: self.points], REACH, mode="wrap")

        list(pool.map(transform, range(SIDE)))

    def of(self, phase: int, start: int) -> np.ndarray:
        """float64 (30, columns), BLOCK columns of a phase or what is left of it.

        Rows 0..27: the real part of a column; 28: sin of its Nyquist angle; 29: the real part against v.
        """
        number = np.arange(start, min(start + BLOCK, self.lines.shape[2] - 2 * REACH))
        block = np.empty((SIDE + 2, number.size))
        if self.phases <= 2:
            block[:SIDE] = self.lines[:, phase, start + REACH : start + REACH + number.size]
        else:
            dispatch.compiled().resample(self.lines, start, self.taps[phase], block[:SIDE])
        cosine, block[SIDE] = self.turns[:, phase, number % GRID]
        block[:SIDE] += self.nyquist[:, None] * cosine
        np.matmul((-1.0) ** np.arange(SIDE), block[:SIDE], out=block[SIDE + 1])
        return block


def _kernel(distance: np.ndarray) -> np.ndarray:
    """The Kaiser-Bessel kernel at some distances, in points; zero from TAPS / 2 on."""
    inside = np.maximum(0, 1 - (2 * distance / TAPS) ** 2)
    return np.where(inside > 0, np.i0(SHAPE * np.sqrt(inside)), 0) / np.i0(SHAPE)


def _transformed_kernel(frequency: np.ndarray) -> np.ndarray:
    """The Fourier transform of `_kernel` at some frequencies, in periods a point, below those that fold back."""
    root = np.sqrt(SHAPE**2 - (np.pi * TAPS * frequency) ** 2)
    return TAPS * np.sinh(root) / (root * np.i0(SHAPE))


def _norm2(columns: np.ndarray, nyquist: np.ndarray) -> np.ndarray:
    """The squared norms of columns (30, m), which bound |y|^2 in each; a little more, for rounding."""
    norm2 = np.einsum("rc,rc->c", columns[:SIDE], columns[:SIDE])
    return (norm2 + (nyquist @ nyquist) * columns[SIDE] ** 2) * (1 + 1e-9)


class _Largest:
    """The largest |y|^2 so far, `value`: of every block, only the columns that may exceed it."""

    def __init__(self, vertical: _Vertical):
        self.vertical, self.value, self.lock = vertical, 0.0, threading.Lock()

    def add(self, block: np.ndarray) -> None:
        bound = _norm2(block, self.vertical.nyquist)
        highest = np.argpartition(bound, -min(FIRST, bound.size))[-min(FIRST, bound.size) :]
        self._raise(block, highest)  # they raise the value that the others must exceed
        bound[highest] = 0
        self._raise(block, np.flatnonzero(bound > self.value))

    def _raise(self, block: np.ndarray, chosen: np.ndarray) -> None:
        size = CHUNK // COARSE
        for start in range(0, len(chosen), size):
            columns = block[:, chosen[start : start + size]]
            coarse = self.vertical.modulus2(columns, coarse=True).max(axis=1)
            largest = coarse.max()
            if self.vertical.step > 1:
                may = columns[:, coarse * self.vertical.slack > self.value]
                largest = self.vertical.modulus2(may).max(initial=largest)
            if largest > self.value:
                with self.lock:
                    self.value = max(self.value, float(largest))


def _threshold(block: np.ndarray, vertical: _Vertical, level: float, bits: np.ndarray) -> None:
    """Set `bits`, uint8 (columns, s/8), a view of the block's columns, where |y|^2 > `level`."""
    columns = np.flatnonzero(_norm2(block, vertical.nyquist) > level)
    dispatch.compiled().threshold(block, columns, vertical.real, vertical.imaginary, level, bits)


def _one_blas_thread() -> contextlib.AbstractContextManager:
    """Keep BLAS from starting threads inside ours, where threadpoolctl is installed."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return contextlib.nullcontext()
    return threadpool_limits(1, user_api="blas")
