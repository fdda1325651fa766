"""The file that holds tensors: .safetensors, and our records of what is in it.

Tensors are read into memory when they are asked for. No file is mapped: `cp` and rsync --inplace write into the file
that is there, and what a map shows then is another network, or a bus error.

A file is 8 bytes (the header's length), a header in JSON (each tensor's type, shape and offset) and the tensors' bytes.
Ours begin at a multiple of 64 and hold, in the header's metadata, a record (JSON: format, version, kind and what else a
reader must know) and the BLAKE3 of it and of all tensors but those of OWN.

Source: the format of the safetensors package, whose readers take these files (tests/formats/test_tensors.py).
"""

import contextlib
import io
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from spdnn.core import arrays, files, progress, safe_open
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.numbers import ceil_div
from spdnn.core.threads import in_order
from spdnn.core.validation import quote, shorten
from spdnn.formats.checks import SWAPPED

FILE_VERSION = 3  # of files of networks and inputs
FILE_ALIGNMENT = 64  # bytes, of each array in a file
MOST_HEADER = 100_000_000  # bytes, as the format says
DIMENSIONS = 8  # of a tensor
DIGESTED_BYTES = 1 << 24  # bytes written or digested at a time
PART = 1 << 25  # bytes that a thread reads: to copy them, and to find memory for them, takes longer than to wake it
TYPES = {
    "BOOL": "<u1", "U8": "<u1", "I8": "<i1", "F8_E4M3": "<u1", "F8_E5M2": "<u1", "F8_E8M0": "<u1", "U16": "<u2",
    "I16": "<i2", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8",
    "F64": "<f8", "C64": "<c8", "F8_E4M3FNUZ": "<u1", "F8_E5M2FNUZ": "<u1",
}  # fmt: skip
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}  # of the other types of the format: numbers that share bytes
NAMES = {np.dtype(TYPES[name]): name for name in ("U8", "I32", "F32", "I64", "F64")}  # those that ours have
KEY, DIGEST = "spdnn", "blake3"  # of the record and its digest in the metadata
OWN = ("data", "indices", "indptr")  # large tensors, of which the format has other digests
PICKLED = "it was changed since its network was pickled; pickle that anew"  # the end of a sentence on a file


class Named(Mapping):
    """The arrays of a file by name; `_names` has the names, for none is read before it is asked for."""

    _names: Collection[str]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    __eq__, __hash__ = object.__eq__, object.__hash__


def owned(array: np.ndarray, bfloat16: bool) -> np.ndarray:
    """A copy; of float16, and of bfloat16 (its bits, as uint16), as float32, for SciPy knows neither."""
    if bfloat16:  # the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32 if array.dtype == np.float16 else array.dtype, order="C")


class Tensors(Named):
    """The tensors of a .safetensors file, by name: read-only arrays, read from any thread when they are asked for.

    Attributes:
        types: the name of each tensor's type, as the format has it; float16 and bfloat16 come as uint16.
        metadata: text by name.

    Raises:
        InputError: no such file, or no sound .safetensors file: a header that is no JSON object, tensors that overlap,
            leave holes, go beyond the file or are of no type of the format.
        SpdnnError: when a tensor is asked for, and the file was written to since it was opened.
    """

    def __init__(self, path):
        self.path = safe_open.check_file(path)
        with (
            safe_open.keep_open(path, self) as self._file,
            safe_open.sound(f"{path}: this is no sound .safetensors file"),
        ):
            self._state = safe_open.state(self._file.fileno())
            self._start, self.metadata, self._tensors = _header(self._file)
        self._names = self.types = {name: kind for name, (kind, _, _) in self._tensors.items()}
        self._held: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._held:
            return self._held[name]
        kind, shape, _ = self._tensors[name]
        if kind in BITS:
            raise InputError(f"{self.path}: {quote(name)} is of type {kind}, whose numbers share bytes; it is not read")
        dtype = np.dtype(TYPES[kind])
        return self.part(name, 0, math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, as the header has it."""
        return self._tensors[name][1]

    def changed_at(self) -> int:
        """When the file, or what is noted of it, changed: also where its time was set back, or it was renamed."""
        return os.fstat(self._file.fileno()).st_ctime_ns

    def hold(self, names: Iterable[str]) -> None:
        """Read these tensors, and keep them in memory."""
        self._held |= {name: self[name] for name in names}

    def part(self, name: str, start: int, stop: int) -> np.ndarray:
        """uint8: bytes of a tensor."""
        content = arrays.aligned(stop - start)
        place = self._start + self._tensors[name][2] + start
        parts = [(content[at : at + PART], place + at) for at in range(0, content.size, PART)]
        with safe_open.reading(self.path):
            missing = sum(in_order(self._read, parts) if len(parts) > 1 else map(self._read, parts))
        # What is written after this look at the file's state is not in what was read.
        safe_open.check_state(self.path, self._file.fileno(), self._state)
        if missing:
            raise InputError(f"{self.path}: it cannot be read (it ends {missing:,} bytes early)")
        return arrays.freeze(content)

    def _read(self, part: tuple[np.ndarray, int]) -> int:
        """Fill an array (uint8) with the bytes from a place of the file on; how many are missing at its end."""
        left, place = memoryview(part[0]), part[1]
        while left and (count := os.preadv(self._file.fileno(), [left], place)):
            left, place = left[count:], place + count
        return len(left)


def _header(file: io.BufferedReader) -> tuple[int, dict, dict]:
    """(where the tensors begin, metadata, (type, shape, first byte) by name). Raises ValueError."""
    # The length of the header comes first, and is not trusted before it fits the file.
    size = os.fstat(file.fileno()).st_size
    if size < 8:
        raise ValueError("it is too short")
    length = int.from_bytes(file.read(8), "little")
    if length > min(MOST_HEADER, size - 8):
        raise ValueError(f"a header of {length} bytes in a file of {size}")
    # Names that are there twice would let two readers see different tensors.
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata is not text by name")
    # Each tensor: a known type, and a shape whose bytes are those of its span.
    tensors, spans = {}, []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"tensor {name[:60]!r} has no dtype, shape and data_offsets, or more than these")
        kind, shape, span = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or kind not in {**TYPES, **BITS}:
            raise ValueError(f"tensor {name[:60]!r} is of a type that is not known, {str(kind)[:60]!r}")
        if not _whole(shape) or not _whole(span) or len(span) != 2:
            raise ValueError(f"tensor {name[:60]!r} has a shape or data_offsets that are no whole numbers")
        if len(shape) > DIMENSIONS:
            raise ValueError(f"tensor {name[:60]!r} has {len(shape)} dimensions, more than {DIMENSIONS}")
        bits = BITS.get(kind) or 8 * np.dtype(TYPES[kind]).itemsize
        if 8 * (span[1] - span[0]) != math.prod(shape) * bits:
            raise ValueError(f"tensor {name[:60]!r} has another size than its shape and type")
        tensors[name] = kind, tuple(shape), span[0]
        spans.append(span)
    # Spans must fill the file: overlaps and holes are how a file hides bytes from its digest.
    end = 0
    for first, stop in sorted(spans):
        if first != end:
            raise ValueError("its tensors overlap or leave holes")
        end = stop
    if 8 + length + end != size:
        raise ValueError(f"tensors of {end} bytes in a file that has {size - 8 - length} for them")
    return 8 + length, metadata, tensors


def _whole(numbers) -> bool:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in numbers)


def _once(pairs: list[tuple]) -> dict:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name in its header is there twice")
    return entries


class Writer:
    """A new .safetensors file whose tensors are written one after the other; the header comes last.

    Attributes:
        record: what the metadata tell, which may be added to until `finish`; empty: there are none.

    Args:
        file: open for writing, empty.
        reserve: bytes for the names and offsets of tensors, and for what is added to the record.
    """

    def __init__(self, file: io.BufferedRandom, record: dict, reserve: int):
        self._file, self._at, self._header, self._sealed, self.record = file, 0, {}, {}, record
        # Room for the header, which is written last, at a multiple of the alignment.
        self._start = padded(8 + len(json.dumps(json.dumps(record))) + reserve)
        file.seek(self._start)

    def reserve(self, size: int) -> None:
        """Have the disk keep room for the next `size` bytes of tensors. Raises OSError."""
        self._file.flush()
        files.reserve(self._file, self._start + self._at + size)

    def append(self, name: str, *arrays: np.ndarray) -> tuple[int, int]:
        """Add arrays to a tensor of bytes, the last of the file, each filled up to a multiple of FILE_ALIGNMENT.

        Returns:
            Where in the tensor they begin, and how many bytes they are.
        """
        entry = self._header.setdefault(name, {"dtype": "U8", "shape": [0], "data_offsets": [self._at, self._at]})
        begin = entry["shape"][0]
        for array in arrays:
            self._file.write(array.reshape(-1).view(np.uint8).data)
            self._file.write(bytes(-array.nbytes % FILE_ALIGNMENT))
            self._at += padded(array.nbytes)
        entry["data_offsets"][1] = self._at
        entry["shape"] = [self._at - entry["data_offsets"][0]]
        return begin, entry["shape"][0] - begin

    def write(self, name: str, array: np.ndarray, what: str | None = None) -> None:
        """Write a whole tensor; `what`: what progress calls it."""
        array = np.asarray(array, order="C")
        content = array.reshape(-1).view(np.uint8)
        self.reserve(content.size)
        for block in blocks(content, what):
            self._file.write(block.data)
        span = [self._at, self._at + content.size]
        self._header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": span}
        self._at = span[1]
        if name not in OWN:
            self._sealed[name] = array

    def finish(self) -> None:
        """Write the header; nothing may follow."""
        header = self._header
        if self.record:
            record = json.dumps({**self.record, "version": FILE_VERSION})
            header = {"__metadata__": {KEY: record, DIGEST: _digest(record, self._sealed)}, **header}
        # The header is padded with blanks, as the format allows, so that the tensors stay where they are.
        text = json.dumps(header, separators=(",", ":")).encode()
        if len(text) > self._start - 8:
            raise SpdnnError(f"a header of {len(text)} bytes where {self._start - 8} were reserved")
        self._file.seek(0)
        self._file.write((self._start - 8).to_bytes(8, "little") + text.ljust(self._start - 8))


@contextlib.contextmanager
def creating(path, record: dict, reserve: int = 1 << 13, durable: bool = True) -> Iterator[Writer]:
    """A Writer of a new file, which has its name once it is whole. Arguments as of Writer and files.replacing."""
    with files.replacing(path, durable) as temporary, open(temporary, "r+b") as file:
        writer = Writer(file, record, reserve)
        yield writer
        writer.finish()


def padded(size: int) -> int:
    """A number of bytes, filled up to a multiple of FILE_ALIGNMENT."""
    return size + -size % FILE_ALIGNMENT


def blocks(content: np.ndarray, what: str | None = None) -> Iterable[np.ndarray]:
    """Parts of bytes, uint8, in a stage of progress of that name."""
    parts = (content[start : start + DIGESTED_BYTES] for start in range(0, content.size, DIGESTED_BYTES))
    return progress.bar(parts, what, ceil_div(content.size, DIGESTED_BYTES), "block") if what else parts


def blake3(*arrays: np.ndarray) -> str:
    """The BLAKE3 of arrays' bytes, in their order, in hexadecimal; Unavailable where the blake3 package is missing."""
    try:
        from blake3 import blake3 as digest
    except ImportError as error:
        raise Unavailable("model files of spdnn need the blake3 package (pip install blake3)") from error
    whole = digest()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return whole.hexdigest()


def _digest(record: str, tensors: Mapping[str, np.ndarray]) -> str:
    parts = [np.frombuffer(record.encode(), np.uint8)]
    for name in sorted(tensors):
        array = tensors[name]
        parts += [np.frombuffer(f"{name} {array.dtype.str} {array.shape}".encode(), np.uint8), array]
    return blake3(*parts)


@safe_open.releasing()
def read_record(path, form: str) -> tuple[dict, Tensors]:
    """The record of a file of format `form`, and its tensors, when both are what the digest says.

    Raises:
        InputError: no such file, none of ours, of another format or version, damaged or cut short.
    """
    tensors = Tensors(path)
    text = tensors.metadata.get(KEY)
    if text is None:
        raise InputError(f"{path}: this .safetensors file was not written by spdnn: its metadata has no {KEY!r}")
    with safe_open.sound(f"{path}: the file is damaged, or was not written by spdnn: its header is no JSON"):
        record = json.loads(text)
    # Format and version before the digest, for another version may digest other things.
    actual = record.get("format") if isinstance(record, dict) else None
    if actual != form:
        swapped = actual in ("spdnn-inputs", "spdnn-network")
        raise InputError(f"{path}: its format is {quote(actual)}, not {form!r}{SWAPPED if swapped else ''}")
    if type(version := record.get("version")) is not int or version != FILE_VERSION:
        raise InputError(f"{path}: version {shorten(repr(version), 20)} of {form}; version {FILE_VERSION} is read here")
    stored = tensors.metadata.get(DIGEST)
    tensors.hold(name for name in tensors if name not in OWN)
    actual = _digest(text, {name: tensors[name] for name in tensors if name not in OWN})
    if actual != stored:
        digest = shorten(str(stored), 19)
        raise InputError(f"{path}: the file is damaged: its BLAKE3 is {actual[:16]}..., it says {digest}")
    return record, tensors
