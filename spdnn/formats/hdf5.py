"""HDF5 files of ours: written whole or not at all, checked when opened, and every fault one sentence."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator

import h5py
import numpy as np

from spdnn import files
from spdnn.errors import InputError

VERSION = 1
SIGNATURE = b"\x89HDF\r\n\x1a\n"
BROKEN = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


class _Disk:
    """A new file that HDF5 can always write, as it must: HDF5 crashes when a write fails while it closes things.

    After the first fault, what is written stays in memory (little, since `check` is called often) and `check` raises
    that fault.
    """

    def __init__(self, path):
        self._file, self._at = open(path, "r+b", buffering=0), 0  # noqa: SIM115 (closed by `creating`)
        self._fault: BaseException | None = None
        self._late: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise the fault of an earlier write, an OSError or an interrupt, when there was one."""
        files.check_ended()
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        self._file.close()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset if whence == io.SEEK_SET else self._file.seek(offset, whence)
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data) -> int:
        data = memoryview(data).cast("B")
        try:
            self.check()
            self._file.seek(self._at)
            done = 0
            while done < len(data):
                done += self._file.write(data[done:])
        except BaseException as fault:
            self._fault = fault
            self._late.append((self._at, bytes(data)))
        self._at += len(data)
        return len(data)

    def readinto(self, buffer) -> int:
        self._file.seek(self._at)
        count = self._file.readinto(buffer)
        for start, data in self._late:
            first, last = max(start, self._at), min(start + len(data), self._at + len(buffer))
            if first < last:
                buffer[first - self._at : last - self._at] = data[first - start : last - start]
                count = max(count, last - self._at)
        self._at += count
        return count

    def truncate(self, size: int) -> int:
        try:
            self.check()
            self._file.truncate(size)
        except BaseException as fault:
            self._fault = fault
        return size

    def flush(self) -> None:
        pass


@contextlib.contextmanager
def creating(path, form: str) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """A new file of format `form`, under a temporary name until it is whole.

    Yields:
        the file, and a function to call after every few megabytes: it raises when an earlier write failed.

    Raises:
        SpdnnError: it cannot be written (a full disk, a folder without permission...); nothing is left behind.
    """
    with files.replacing(path) as temporary, contextlib.closing(_Disk(temporary)) as disk:
        with h5py.File(str(temporary), "w", driver="fileobj", fileobj=disk) as file:
            file.attrs["format"] = form
            file.attrs["version"] = VERSION
            yield file, disk.check
        disk.check()


def opening(path, form: str) -> h5py.File:
    """The file, open for reading, when it is HDF5 of format `form` and of a version known here.

    Raises:
        InputError: no such file, not HDF5, cut short, another format, a newer version.
    """
    path = files.existing(path, "file")
    if path.is_dir():
        raise InputError(f"{path}: this is a folder, not an HDF5 file")
    try:
        with open(path, "rb") as stream:
            ours = stream.read(len(SIGNATURE)) == SIGNATURE
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from error
    if not ours:
        raise InputError(f"{path}: this is not an HDF5 file")
    with telling(path):
        file = h5py.File(path, "r", locking="best-effort")
    try:
        found, version = file.attrs.get("format"), file.attrs.get("version")
    except BROKEN:
        found = version = None
    if found != form:
        file.close()
        raise InputError(f"{path}: its format is {found!r}, not {form!r}")
    if not isinstance(version, (int, np.integer)) or not 1 <= version <= VERSION:
        file.close()
        raise InputError(f"{path}: version {version} of {form}; versions 1 to {VERSION} are read here")
    return file


@contextlib.contextmanager
def telling(path, part: str = "") -> Iterator[None]:
    """Tell what HDF5 stumbles over in a file as one InputError; `part` names what was being read."""
    try:
        with np.errstate(over="ignore"):  # a number that float32 cannot hold is found and told later
            yield
    except BROKEN as error:
        where = f"{path}: {part} " if part else f"{path}: the file "
        raise InputError(f"{where}is damaged, cut short or not as it must be ({_brief(error)})") from error


def text(group: h5py.Group, name: str) -> str:
    """An attribute that must be text."""
    value = group.attrs[name]
    if not isinstance(value, str):
        raise ValueError(f"attribute {name!r} is not text")
    return value


def whole(group: h5py.Group, name: str) -> int:
    """An attribute that must be a whole number."""
    value = group.attrs[name]
    if not isinstance(value, (int, np.integer)):
        raise ValueError(f"attribute {name!r} is not a whole number")
    return int(value)


def number(group: h5py.Group, name: str) -> float | None:
    """An attribute that must be a real number, or None when it is absent."""
    if name not in group.attrs:
        return None
    value = group.attrs[name]
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"attribute {name!r} is not a number")
    return float(value)


def dictionary(group: h5py.Group, name: str) -> dict:
    """An attribute that must hold a JSON object."""
    value = json.loads(text(group, name))
    if not isinstance(value, dict):
        raise ValueError(f"attribute {name!r} is not a JSON object")
    return value


def _brief(error: BaseException) -> str:
    said = str(error.args[0] if error.args else error).strip() or type(error).__name__
    return said.splitlines()[0][:160]
