"""Named arrays in a .safetensors or an .npz file: read one at a time, written whole or not at all."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from spdnn.common import files
from spdnn.common.errors import InputError
from spdnn.formats import container
from spdnn.formats.checks import sound

TYPES = ("F16", "BF16", "F32", "F64")
ENDINGS = (".safetensors", ".npz")


class Safetensors(Mapping):
    """The tensors of a .safetensors file, by name; the file is mapped, and a tensor is read when it is asked for.

    Raises:
        InputError: no sound .safetensors file; and when a tensor is asked for, another type than float16, bfloat16,
            float32 and float64.
    """

    def __init__(self, path):
        self._tensors = container.Tensors(path)

    def __getitem__(self, name: str) -> np.ndarray:
        """float32 or float64, of its shape; float16 and bfloat16 become float32."""
        array, kind = self._tensors[name], self._tensors.types[name]
        if kind not in TYPES:
            raise InputError(f"{self._tensors.path}: {name} is of type {kind}; it must be one of {', '.join(TYPES)}")
        if kind == "BF16":  # the upper half of a float32
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array.astype(np.float32) if kind == "F16" else array.copy()  # SciPy knows no float16

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class Archive(Mapping):
    """The arrays of an .npz file, by name; one is read when it is asked for.

    Raises:
        InputError: no sound .npz file; and when an array is asked for, a damaged one or one of other than real numbers.
    """

    def __init__(self, path):
        self.path = files.existing(path, "file")
        with sound(f"{self.path}: this is no sound .npz file"):
            self._file = np.load(self.path, allow_pickle=False)
            self._names = list(self._file.files)

    def __getitem__(self, name: str) -> np.ndarray:
        """As it is stored; float16 becomes float32."""
        if name not in self._names:
            raise KeyError(name)
        with sound(f"{self.path}: {name} cannot be read"):
            array = np.asarray(self._file[name])
        if array.dtype.kind not in "fiu":
            raise InputError(f"{self.path}: {name} is of {array.dtype}; it must be of real numbers")
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def open_tensors(path) -> Mapping[str, np.ndarray]:
    """The tensors of a file, by the ending of its name. Raises InputError as the classes above do."""
    return Safetensors(path) if _ending(path) == ".safetensors" else Archive(path)


def write_tensors(path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 arrays to a .safetensors or .npz file, by the ending of its name.

    Raises:
        InputError: another ending, or see files.check_target.
        SpdnnError: the disk is full, or the folder cannot be written to.
    """
    arrays = {name: np.asarray(array, np.float32, order="C") for name, array in tensors.items()}
    if _ending(path) == ".npz":
        with files.replacing(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **arrays)
        return
    names = sum(map(len, arrays)) * 6 + 200 * len(arrays)  # as JSON, with their shapes and offsets
    with container.creating(path, reserve=names) as writer:
        for name, array in arrays.items():
            writer.write(name, array)
        writer.finish()


def _ending(path) -> str:
    ending = Path(path).suffix
    if ending not in ENDINGS:
        raise InputError(f"{path}: the name must end with {' or '.join(ENDINGS)}")
    return ending
