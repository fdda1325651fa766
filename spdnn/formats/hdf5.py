"""HDF5 files of ours: written whole or not at all, checked when opened, and every fault one sentence."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import h5py
import numpy as np

from spdnn import files
from spdnn.errors import InputError, SpdnnError

VERSION = 1
SIGNATURE = b"\x89HDF\r\n\x1a\n"
BROKEN = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


@contextlib.contextmanager
def creating(path, form: str) -> Iterator[h5py.File]:
    """A new file of format `form`, under a temporary name until it is whole.

    Raises:
        SpdnnError: it cannot be written (a full disk, a folder without permission...); nothing is left
            behind.
    """
    with files.replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w") as file:
                file.attrs["format"] = form
                file.attrs["version"] = VERSION
                yield file
        except RuntimeError as error:  # how HDF5 tells of a write that failed while it closed something
            raise SpdnnError(f"{path}: it cannot be written ({error}), so nothing was written") from error


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
