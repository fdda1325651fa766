"""State dicts in the files of torch.save (.pt), read without torch, and without running anything that they name.

A file is a zip archive: `data.pkl`, a pickle of the names, and the bytes of each storage, unpacked. The pickle is read
by the standard library's reader, with those opcodes alone that a state dict needs, and names of storages and tensors in
place of the classes and functions that it asks for; a file that asks for any other is refused. What is allocated is in
proportion to the file.
"""

import io
import math
import pickle
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from spdnn.core import safe_open
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.network import MemoryNetwork
from spdnn.core.validation import quote, shorten
from spdnn.formats import state_dicts
from spdnn.formats.container import Named, owned
from spdnn.formats.options import ReadOptions

TYPES = {
    "FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "BFloat16Storage": "BF16",
    "LongStorage": "<i8", "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1",
    "BoolStorage": "<?",
}  # fmt: skip
MOST_PICKLE = 1 << 26  # bytes
MOST_DIMENSIONS = 8
INSIDE = ("state_dict", "model_state_dict", "model")  # where checkpoints keep a state dict
OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "GLOBAL",
    "STACK_GLOBAL", "REDUCE", "BUILD", "BINPERSID", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2",
    "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
)  # fmt: skip
UNREAD = {  # what tensors are that torch makes by other functions
    "_rebuild_sparse_tensor": "is sparse",
    "_rebuild_meta_tensor_no_storage": "is on the device meta, without data",
    "_rebuild_qtensor": "is quantized",
}


def open_network(path: Path, options: ReadOptions) -> MemoryNetwork:
    """The network in a state dict that torch.save wrote. Raises InputError as read_network and TorchFile."""
    return state_dicts.read_network(TorchFile(path), "pt", options)


class _Unread(SpdnnError):
    """A tensor of a kind, or a file of a byte order, that is not read; the sentence names it."""


class _StorageKind(NamedTuple):
    name: str


class _Storage(NamedTuple):
    member: str
    kind: str
    count: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    negated: bool


def _tensor(storage, offset, shape, strides, _grad=False, _hooks=None, notes=None) -> _Tensor:
    """What stands for torch._utils._rebuild_tensor_v2: the tensor's place, when it lies inside its storage.

    Numbers of which torch notes that they are negated lie there with the other sign.
    """
    if notes not in (None, {}, {"neg": True}):
        raise ValueError("a tensor with notes that are not known")
    whole = type(shape) is type(strides) is tuple and all(type(n) is int and n >= 0 for n in (offset, *shape, *strides))
    if not isinstance(storage, _Storage) or not whole or not len(shape) == len(strides) <= MOST_DIMENSIONS:
        raise ValueError("a tensor whose storage, shape or strides are none")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    count = math.prod(shape)
    if count and (last >= storage.count or count > storage.count):
        raise ValueError(f"a tensor of shape {str(shape)[:60]} outside of its storage of {storage.count}")
    return _Tensor(storage, offset, shape, strides, bool(notes))


class _Reader(pickle._Unpickler):  # the one in Python: the compiled one allocates what an opcode asks for
    dispatch: ClassVar = {code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, n)[0] for n in OPCODES)}

    def __init__(self, content: bytes, sizes: dict[str, int]):
        super().__init__(io.BytesIO(content))
        self._sizes = sizes

    def find_class(self, module: str, name: str):
        substitutes = {
            ("collections", "OrderedDict"): lambda: {},
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_tensor_v3"): lambda *_: None,  # whose type is refused before
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch.storage", "UntypedStorage"): _StorageKind("<u1"),
        }
        if (module, name) in substitutes:
            return substitutes[module, name]
        if module == "torch" and name in TYPES:
            return _StorageKind(TYPES[name])
        what = shorten(f"{module}.{name}", 50)
        rebuilds = module in ("torch._utils", "torch._tensor") and name.startswith("_rebuild")
        # A tensor's name comes before the function that makes it, whose arguments come next.
        stacks = [*self.metastack, [*self.stack, self.find_class] if rebuilds else self.stack]
        names = [key for stack in stacks for key, value in pairwise(stack) if type(key) is str and callable(value)]
        if names and (rebuilds or module == "torch"):
            kind = UNREAD.get(name, "is no plain tensor") if rebuilds else f"is of {what}"
            raise _Unread(
                f"tensor {quote(names[-1])} {kind}; tensors that are read are dense, of float64, float32, float16, "
                "bfloat16, bool, uint8 or int8 to int64"
            )
        raise InputError(
            f"it asks for {what}, and no code of a file is run: "
            "torch.save(model.state_dict(), ...) writes what is read, or export the model as ONNX"
        )

    def persistent_load(self, pid):
        if type(pid) is not tuple or len(pid) != 5 or pid[0] != "storage":
            raise ValueError("a reference that is no storage")
        _, kind, key, _, count = pid
        if type(kind) is not _StorageKind or type(key) is not str or type(count) is not int or key not in self._sizes:
            raise ValueError("a storage that is not there")
        kind = kind.name
        item = 2 if kind == "BF16" else np.dtype(kind).itemsize
        if not 0 <= count * item <= self._sizes[key]:
            raise ValueError(f"a storage of {count} numbers in {self._sizes[key]} bytes")
        return _Storage(key, kind, count)

    def load_setitems(self):
        for key in (items := self.pop_mark())[::2]:
            _check_key(key)
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_setitem(self):
        _check_key(self.stack[-2])
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1].update({key: value})

    def load_build(self):
        self.stack.pop()  # attributes: torch's notes on versions

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem


def _check_key(key) -> None:
    if type(key) not in (str, int):  # a tuple of tuples of tuples may take for ever to hash
        raise ValueError("a name that is no text")


def _are_tensors(value: object) -> bool:
    items = value.items() if isinstance(value, dict) else ()
    return bool(items) and all(type(name) is str and type(tensor) is _Tensor for name, tensor in items)


class TorchFile(Named):
    """The tensors of a state dict that torch.save wrote, by name; one is read when it is asked for.

    Raises:
        InputError: no sound file of torch.save, one that asks for code to be run, none that holds a state dict, or one
            whose tensors are not all read; and when a tensor is asked for, a damaged one.
    """

    def __init__(self, path):
        self.path = safe_open.check_file(path)
        try:
            self._names = self._tensors = self._open()
        except _Unread as error:
            raise InputError(f"{self.path}: {error}") from None

    def _open(self) -> dict[str, _Tensor]:
        refused = safe_open.name_errors(self.path, "this is no state dict of torch.save")
        with refused, safe_open.keep_open(self.path, self) as file:
            with safe_open.sound("it is no sound zip archive, as torch writes since 1.6"):
                self._zip = zipfile.ZipFile(file)
                folder, members = self._members()
                content = self._zip.read(members[f"{folder}data.pkl"])
                order = self._zip.read(members[f"{folder}byteorder"]) if f"{folder}byteorder" in members else b"little"
            if order != b"little":
                raise _Unread(
                    "its numbers are in big-endian order, which is not read: torch.save(torch.load(path), path) writes "
                    "them in the order of this machine"
                )
            self._data = {name.removeprefix(f"{folder}data/"): member for name, member in members.items()}
            with safe_open.sound("its pickle is damaged"):
                try:
                    unpickled = _Reader(content, {name: member.file_size for name, member in self._data.items()}).load()
                except KeyError as error:
                    raise ValueError(f"no state dict has the opcode {error}") from error
            # The tensors by name are what was unpickled, or the part of a checkpoint that holds them.
            if _are_tensors(unpickled):
                return unpickled
            inside = [name for name in INSIDE if isinstance(unpickled, dict) and _are_tensors(unpickled.get(name))]
            if not inside:
                raise InputError("it holds no dictionary of tensors by name")
            beside = [name for name, value in unpickled.items() if type(value) is _Tensor and "." in str(name)]
            if more := inside[1:] + beside:
                raise _Unread(f"it holds {quote(more[0])} beside {quote(inside[0])}; save one state dict alone")
            return unpickled[inside[0]]

    def _members(self) -> tuple[str, dict[str, zipfile.ZipInfo]]:
        """(the folder of the archive, its members), when none takes more memory than its bytes."""
        members = {member.filename: member for member in self._zip.infolist()}
        size = self.path.stat().st_size
        if len(members) > safe_open.MEMBERS:
            raise ValueError(f"{len(members):,} members")
        for member in members.values():
            if (
                member.compress_type != zipfile.ZIP_STORED
                or member.file_size != member.compress_size
                or member.file_size > size
            ):
                raise ValueError(f"{member.filename[:40]!r} is packed, which torch does not do")
        folders = [name.removesuffix("data.pkl") for name in members if name.endswith("data.pkl")]
        if len(folders) != 1 or members[f"{folders[0]}data.pkl"].file_size > MOST_PICKLE:
            raise ValueError(f"{len(folders)} pickles in it, or one that is too long")
        return folders[0], members

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors[name].shape

    def __getitem__(self, name: str) -> np.ndarray:
        """As it is stored, in memory of its own; float16 and bfloat16 become float32."""
        storage, offset, shape, strides, negated = self._tensors[name]
        with safe_open.sound(f"{self.path}: {shorten(name, 30)} cannot be read"):
            half = storage.kind == "BF16"
            flat = np.frombuffer(self._zip.read(self._data[storage.member]), "<u2" if half else storage.kind)
            if math.prod(shape) == 0:
                return np.zeros(shape, np.float32)
            steps = [stride * flat.itemsize for stride in strides]
            array = np.lib.stride_tricks.as_strided(flat[offset : storage.count], shape, steps, writeable=False)
            array = owned(array, half)
            return -array if negated else array
