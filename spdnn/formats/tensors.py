"""Named arrays in a .safetensors or an .npz file: read one at a time, written whole or not at all."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from spdnn import files
from spdnn.errors import InputError, Unavailable

TYPES = {"F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
ENDINGS = (".safetensors", ".npz")


class Safetensors(Mapping):
    """The tensors of a .safetensors file, by name; the file is mapped, and a tensor is read when it is asked for.

    Raises:
        InputError: no sound .safetensors file; and when a tensor is asked for, another type than float16, bfloat16,
            float32 and float64.
        Unavailable: the safetensors package is missing.
    """

    def __init__(self, path):
        self.path = files.existing(path, "file")
        self._check()
        self._content = np.memmap(self.path, np.uint8, "r")
        start = 8 + int(self._content[:8].view("<u8")[0])
        self._told = json.loads(self._content[8:start].tobytes())
        self._told.pop("__metadata__", None)
        self._start = start

    def __getitem__(self, name: str) -> np.ndarray:
        """float32 or float64, of its shape; float16 and bfloat16 become float32."""
        told = self._told[name]
        kind = told["dtype"]
        if kind not in TYPES:
            raise InputError(f"{self.path}: {name} is of type {kind}; it must be one of {', '.join(TYPES)}")
        content = self._content[self._start :][slice(*told["data_offsets"])]
        array = np.frombuffer(content.tobytes(), TYPES[kind]).reshape(told["shape"])
        if kind == "BF16":  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32) if kind == "F16" else array  # SciPy knows no float16

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def _check(self) -> None:
        """The package checks the header."""
        try:
            with _package(self.path).safe_open(self.path, framework="np"):
                pass
        except (_package(self.path).SafetensorError, OSError, ValueError) as error:
            raise InputError(f"{self.path}: this is no sound .safetensors file ({error})") from error


class Archive(Mapping):
    """The arrays of an .npz file, by name; one is read when it is asked for.

    Raises:
        InputError: no sound .npz file; and when an array is asked for, a damaged one or one of other than real numbers.
    """

    def __init__(self, path):
        self.path = files.existing(path, "file")
        try:
            self._file = np.load(self.path, allow_pickle=False)
            self._names = list(self._file.files)
        except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path}: this is no sound .npz file ({error})") from error

    def __getitem__(self, name: str) -> np.ndarray:
        """As it is stored; float16 becomes float32."""
        if name not in self._names:
            raise KeyError(name)
        try:
            array = self._file[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path}: {name} cannot be read ({error})") from error
        if array.dtype.kind not in "fiu":
            raise InputError(f"{self.path}: {name} is of {array.dtype}; it must be of real numbers")
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def open_tensors(path) -> Mapping[str, np.ndarray]:
    """The tensors of a file, by the ending of its name. Raises InputError and Unavailable as the classes above do."""
    return Safetensors(path) if _ending(path) == ".safetensors" else Archive(path)


def write_tensors(path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 arrays to a .safetensors or .npz file, by the ending of its name.

    Raises:
        InputError: another ending, or see files.check_target.
        Unavailable: the safetensors package is missing.
        SpdnnError: the disk is full, or the folder cannot be written to.
    """
    arrays = {name: np.asarray(array, np.float32, order="C") for name, array in tensors.items()}
    if _ending(path) == ".npz":
        with files.replacing(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **arrays)
        return
    _package(path)
    from safetensors.numpy import save

    with files.replacing(path) as temporary:
        temporary.write_bytes(save(arrays))


def _ending(path) -> str:
    ending = Path(path).suffix
    if ending not in ENDINGS:
        raise InputError(f"{path}: the name must end with {' or '.join(ENDINGS)}")
    return ending


def _package(path):
    try:
        import safetensors
    except ImportError as error:
        raise Unavailable(f"{path}: this needs the safetensors package (pip install 'spdnn[full]')") from error
    return safetensors
