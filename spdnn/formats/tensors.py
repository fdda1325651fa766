"""Named arrays in .safetensors or .npz files: read one at a time, written whole or not at all."""

import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from spdnn.core import arrays, files, safe_open
from spdnn.core.errors import InputError
from spdnn.core.validation import json_of, quote, shorten
from spdnn.formats import container

TYPES = ("F16", "BF16", "F32", "F64")
KINDS = "biufcSU"  # of the arrays that NumPy may read, of fixed size and without Python objects
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as NumPy writes; others may take any memory to unpack
ENDINGS = (".safetensors", ".npz")
NUMBERED = re.compile(r"(.*-)\d{5}(-of-(\d{5})\.safetensors)", re.ASCII)  # as Hugging Face's libraries number files


class Safetensors(container.Tensors):
    """The tensors of a .safetensors file, by name; a tensor is read when it is asked for.

    A tensor that several names share may be there once: the metadata have the others, as `save_model` writes them.

    Raises:
        InputError: no sound .safetensors file; and when a tensor is asked for, another type than float16, bfloat16,
            float32 and float64.
    """

    def __init__(self, path):
        super().__init__(path)
        self._names = {name: name for name in self._tensors} | shared(self.metadata, self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return super().shape(self._names[name])

    def __getitem__(self, name: str) -> np.ndarray:
        """float32 or float64, of its shape; float16 and bfloat16 become float32."""
        name = self._names[name]
        if (kind := self.types[name]) not in TYPES:
            raise InputError(f"{self.path}: {name} is of type {kind}; it must be one of {', '.join(TYPES)}")
        return container.owned(super().__getitem__(name), kind == "BF16")


def shared(metadata: Mapping, names: Mapping) -> dict[str, str]:
    """By the names in metadata of tensors that are stored under another name, that name, one of `names`."""
    texts = ((name, stored) for name, stored in metadata.items() if isinstance(stored, str))
    return {name: stored for name, stored in texts if stored in names and name not in names}


class Shards(container.Named):
    """The tensors of several .safetensors files beside an index, model.safetensors.index.json, by name.

    The index is a JSON object whose `weight_map` names the file of each tensor, as Hugging Face's libraries write it.

    Raises:
        InputError: no such index, a file that is not in its folder, a tensor that is not in its file, or one or a file
            of several that the index leaves out; and as Safetensors.
    """

    def __init__(self, path):
        self.path = Path(path)
        index = json_of(safe_open.text(self.path, "file index"), str(self.path), "file index")
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
            raise InputError(f"{self.path}: its weight_map must name the .safetensors file of each tensor")
        shards = {}
        for file in set(names.values()):
            if Path(file).name != file:
                raise InputError(f"{self.path}: {quote(file)} must be a file in the folder of the index")
            shards[file] = Safetensors(self.path.parent / file)
        self._shard_of = {name: shards[file] for name, file in names.items()}
        if absent := [name for name, file in names.items() if name not in shards[file]]:
            raise InputError(f"{self.path}: {names[absent[0]]} has no tensor {quote(absent[0])}")
        metadata = [index.get("metadata"), *(shard.metadata for shard in shards.values())]
        self._names = {name: name for name in names}
        for said in filter(lambda said: isinstance(said, dict), metadata):
            self._names |= shared(said, names)
        # What the index leaves out would be missing without a word: a bias, or a whole file.
        for file, shard in shards.items():
            if unnamed := [name for name in shard if name not in self._names]:
                raise InputError(f"{self.path}: it does not name tensor {quote(unnamed[0])}, which is in {file}")
            if of := NUMBERED.fullmatch(file):
                parts = (f"{of[1]}{k:05}{of[2]}" for k in range(1, int(of[3]) + 1))
                if missing := next((part for part in parts if part not in shards), None):
                    raise InputError(f"{self.path}: it does not name {quote(missing)}, one of its {int(of[3])} files")

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shard_of[self._names[name]].shape(self._names[name])

    def __getitem__(self, name: str) -> np.ndarray:
        return self._shard_of[self._names[name]][self._names[name]]


class NpzArchive(container.Named):
    """The arrays of an .npz file, by name; one is read when it is asked for.

    No array is larger than its file says, and no file larger than so many packed bytes may hold.

    Raises:
        InputError: no sound .npz file; and when an array is asked for, a damaged one or one of other than real numbers.
    """

    def __init__(self, path):
        self.path = safe_open.check_file(path)
        with safe_open.keep_open(self.path, self) as file, safe_open.sound(f"{self.path}: this is no sound .npz file"):
            self._file = np.load(file, allow_pickle=False)
            if not isinstance(self._file, np.lib.npyio.NpzFile):
                raise ValueError("one array, and no archive of arrays")
            self._check_members(self._file.zip)
            self._names = list(self._file.files)

    def _check_members(self, archive: zipfile.ZipFile) -> None:
        """Raise ValueError where a member would take more memory than its bytes."""
        members = archive.infolist()
        if len(members) > safe_open.MEMBERS:
            raise ValueError(f"{len(members):,} members")
        size, most = sum(member.file_size for member in members), safe_open.most_unpacked(self.path.stat().st_size)
        if size > most:
            raise ValueError(f"{size:,} bytes when unpacked, more than {most:,}")
        if odd := [member.filename for member in members if member.compress_type not in PACKED]:
            raise ValueError(f"{odd[0][:40]!r} is packed in a way that NumPy does not use")

    def __getitem__(self, name: str) -> np.ndarray:
        """As it is stored; float16 becomes float32."""
        array = self.any(name)
        if array.dtype.kind not in "fiu":
            raise InputError(f"{self.path}: {name} is of {array.dtype}; it must be of real numbers")
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def any(self, name: str) -> np.ndarray:
        """An array of any type, as it is stored, but in this machine's byte order."""
        if name not in self._names:
            raise KeyError(name)
        self.shape(name)
        with safe_open.sound(f"{self.path}: {shorten(name, 30)} cannot be read"):
            return arrays.native(self._file[name])

    def only(self, several: str) -> str:
        """The name of the only array. Raises InputError, which ends with `several`: there are several, or none."""
        if len(self) != 1:
            names = shorten(", ".join(self), 60)
            raise InputError(f"{self.path}: {len(self)} arrays ({names}); {several}")
        return self._names[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """As the header of an array has it. Raises InputError: it is damaged, or its bytes cannot hold the array."""
        with safe_open.sound(f"{self.path}: {shorten(name, 30)} cannot be read"):
            stored = self._file.zip.NameToInfo.get(f"{name}.npy") or self._file.zip.getinfo(name)
            with self._file.zip.open(stored) as stream:
                return check_header(stream, stored.file_size)


def read_array(path) -> np.ndarray:
    """The array in a .npy file, in this machine's byte order; InputError where it is not sound or has no numbers."""
    path = safe_open.check_file(path)
    with safe_open.sound(f"{path}: this is no sound .npy file of plain numbers"), open(path, "rb") as stream:
        check_header(stream, path.stat().st_size)
        stream.seek(0)
        return arrays.native(np.lib.format.read_array(stream, allow_pickle=False))


def check_header(stream, size: int) -> tuple[int, ...]:
    """The shape of the array that a header tells. Raises ValueError: `size` bytes of the format .npy cannot hold it."""
    version = np.lib.format.read_magic(stream)
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in headers:
        raise ValueError(f"version {version} of the format")
    shape, _, kind = headers[version](stream)
    if kind.kind not in KINDS or not kind.itemsize:
        raise ValueError(f"an array of type {str(kind)[:40]}")
    if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize > size:
        raise ValueError(f"an array of shape {str(shape)[:60]} in {size:,} bytes")
    return shape


def open_tensors(path) -> Mapping[str, np.ndarray]:
    """The tensors of a file, by the ending of its name. Raises InputError as the classes above do."""
    return Safetensors(path) if _ending(path) == ".safetensors" else NpzArchive(path)


def write_tensors(path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write float32 arrays to a .safetensors or .npz file, by the ending of its name; InputError for another ending,
    and what files.replacing raises.
    """
    arrays = {name: np.asarray(array, np.float32, order="C") for name, array in tensors.items()}
    if _ending(path) == ".npz":
        with files.replacing(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, **arrays)
        return
    names = sum(map(len, arrays)) * 6 + 200 * len(arrays)  # as JSON, with their shapes and offsets
    with container.creating(path, {}, reserve=names) as writer:
        for name, array in arrays.items():
            writer.write(name, array)


def _ending(path) -> str:
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: the name must end with {' or '.join(ENDINGS)}")
    return ending
