"""Inputs in text form: `sparse-images-{N}.tsv`, lines `i<TAB>j<TAB>value` (image, pixel; from 1).

Images of zeros and ones, as the official ones are, go straight into packed bits: 65,536 pixels x 60,000
images take 0.5 GB, however long the text is.
"""

import contextlib
import gzip
import re
from pathlib import Path

import numpy as np

from spdnn.core import challenge, files, progress, safe_open
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.features import BITS_BYTES, Inputs
from spdnn.formats import lines
from spdnn.formats.checks import SPARSE, check_widths

NAME = re.compile(r"sparse-images-([1-9]\d{0,8})\.tsv(\.gz)?", re.ASCII)
MOST_IMAGES = 10_000_000  # allowed where nothing says how many there are: a number beyond is a slip, not an image
MANY_IMAGES = 1 << 17  # images that any file may name; beyond, there must be a pixel for every SPARSE of them
UNPACKED_BITS = 1 << 24  # bits unpacked at a time


def open_inputs(path, neurons: int | None = None, count: int | None = None, block: int = lines.PARSED_BYTES) -> Inputs:
    """Inputs from a text file, gzip or not; bits when all values are 1, else CSR.

    Args:
        neurons: pixels of an image; by default the N of the file's name, which it must equal when there is one.
        count: how many images there are, those without any pixel included. By default 60,000 when the name is
            an official one and no image number is higher, else the highest image number.
        block: bytes of text parsed at a time.

    Raises:
        InputError: `path:line: ...` for a line that is wrong, a number out of range, or a pixel given twice;
            an empty file; gzip data cut short; no width in the name and none given, or another one.
    """
    path = Path(path)
    name = NAME.fullmatch(path.name)
    if neurons is not None and name and int(name[1]) != neurons:
        raise InputError(f"{path}: its name says {name[1]} neurons, not {neurons}")
    if neurons is None:
        if not name:
            raise InputError(f"{path}: its name does not say how many neurons an image has; give them (--neurons)")
        neurons = int(name[1])
    if neurons < 1 or (count is not None and count < 1):
        raise InputError(f"{path}: {count} images of {neurons} neurons; there must be at least one of each")
    check_widths(path, neurons)
    form = lines.LineFormat("image", "pixel", count or MOST_IMAGES, neurons)
    images = _Images(neurons)
    with safe_open.open_file(path) as stream:
        for text, first_line in progress.bar(lines.blocks(stream, block), "read inputs", unit="block"):
            rows, columns, values = lines.parse(text, str(path), form, first_line)
            images.check_size(f"{path}:{first_line}", rows, count)
            if (again := images.add(rows, columns, values)) is not None:
                raise InputError(
                    f"{path}:{lines.line_of(text, again, first_line)}: pixel {columns[again] + 1} of image "
                    f"{rows[again] + 1} is given twice; each is allowed once"
                )
    if not images.count:
        raise InputError(f"{path}: the file is empty; there must be at least one image")
    if count is None:
        official = name and neurons in challenge.WIDTHS
        count = challenge.INPUTS if official and images.count <= challenge.INPUTS else images.count
    inputs = images.inputs(count)
    inputs.description = {"source": "text", "path": path.name, "count": count, "sha256": inputs.sha256}
    return inputs


class _Images:
    """Pixels as they come: a bit for each in the file, and apart, the values that are not 1."""

    def __init__(self, neurons: int):
        self.neurons, self.count, self.pixels = neurons, 0, 0
        self._bits = np.zeros((0, (neurons + 7) // 8), np.uint8)
        self._others: list[tuple[np.ndarray, ...]] = []

    def check_size(self, where: str, rows: np.ndarray, count: int | None) -> None:
        """Raise InputError where these pixels would make far more images than the file has pixels."""
        self.pixels += rows.size
        most = int(rows.max(initial=-1)) + 1
        if count is None and most > max(MANY_IMAGES, SPARSE * self.pixels):
            raise InputError(
                f"{where}: image {most} in a file of {self.pixels} pixels so far; if there are as many, give their "
                "number (--count)"
            )
        if (size := (self.neurons + 7) // 8 * most) > max(BITS_BYTES, SPARSE * self.pixels):
            raise InputError(f"{where}: {most} images of {self.neurons} neurons take {size:,} bytes for so few pixels")

    def add(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> int | None:
        """Take in some pixels (int64, int64, float32); or the position of the first that came before."""
        if not rows.size:
            return None
        again = lines.find_repeated(rows * self.neurons + columns)
        self.count = max(self.count, int(rows.max()) + 1)
        self._grow(self.count)
        flat = self._bits.reshape(-1)
        indices = rows * self._bits.shape[1] + (columns >> 3)
        bits = np.uint8(128) >> (columns & 7).astype(np.uint8)
        twice = np.flatnonzero(flat[indices] & bits)[:1].tolist() + [again] * (again is not None)
        if twice:
            return min(twice)
        if (indices[1:] < indices[:-1]).any():
            order = np.argsort(indices, kind="stable")
            indices, bits = indices[order], bits[order]
        starts = np.flatnonzero(np.diff(indices, prepend=-1))
        flat[indices[starts]] |= np.bitwise_or.reduceat(bits, starts)
        if (other := values != 1).any():
            self._others.append((rows[other], columns[other], values[other]))
        return None

    def _grow(self, count: int) -> None:
        if count > len(self._bits):
            larger = np.zeros((max(count, 2 * len(self._bits)), self._bits.shape[1]), np.uint8)
            larger[: len(self._bits)] = self._bits
            self._bits = larger

    def inputs(self, count: int) -> Inputs:
        self._grow(count)
        if not self._others:
            return Inputs(self._bits[:count], self.neurons).owned()
        rows, columns, values = (np.concatenate(parts) for parts in zip(*self._others, strict=True))
        ones = []
        np.bitwise_and.at(self._bits, (rows, columns >> 3), ~(np.uint8(128) >> (columns & 7).astype(np.uint8)))
        step = max(1, UNPACKED_BITS // self.neurons)
        filled = np.flatnonzero(self._bits[:count].any(axis=1))
        for first in range(0, filled.size, step):
            numbers = filled[first : first + step]
            one_rows, one_columns = np.nonzero(np.unpackbits(self._bits[numbers], axis=1, count=self.neurons))
            ones.append((numbers[one_rows], one_columns))
        where = tuple(map(np.concatenate, zip(*ones, (rows, columns), strict=True)))
        everything = np.concatenate([np.ones(len(where[0]) - len(rows), np.float32), values])
        return Inputs.from_array(sp.csr_array((everything, where), shape=(count, self.neurons)))


def write_images(path, inputs: Inputs) -> None:
    """Write inputs of bits as official text, whole or not at all: a line `image<TAB>pixel<TAB>1` for each one, from 1,
    by pixels and then images. gzip where the name ends with .gz.

    Raises:
        InputError: inputs that are no bits, or have no ones.
        SpdnnError: the file cannot be written.
    """
    if inputs.kind != "bits" or not inputs.nonzeros:
        raise InputError(f"{path}: official text has inputs of zeros and ones, and one at least")
    rows = inputs.stored_rows(np.arange(inputs.count))
    with files.replacing(path) as temporary, open(temporary, "wb") as stream, contextlib.ExitStack() as stack:
        if str(path).endswith(".gz"):
            stream = stack.enter_context(gzip.GzipFile(fileobj=stream, filename="", mode="wb", mtime=0))
        # Pixel by pixel: the numbers of all images that have it, between which the rest of the line is the same.
        for byte in progress.bar(range(inputs.data.shape[1]), "write inputs", inputs.data.shape[1], "byte"):
            bits = np.unpackbits(inputs.data[rows, byte, None], axis=1)
            for bit in range(min(8, inputs.neurons - 8 * byte)):
                images = np.flatnonzero(bits[:, bit]) + 1
                rest = f"\t{8 * byte + bit + 1}\t1\n"
                if images.size:
                    stream.write((rest.join(map(str, images.tolist())) + rest).encode("ascii"))
