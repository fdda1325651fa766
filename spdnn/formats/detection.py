"""Which format a file has, by its first bytes or else its name, and the module that reads it; models in memory.

A format is a module and a line of NETWORKS or INPUTS. It is imported when a file has that format.
"""

import os
import re
import sys
from collections.abc import Mapping
from os import PathLike, fsdecode
from pathlib import Path
from typing import IO, Any, Protocol

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.validation import shorten
from spdnn.formats.checks import SWAPPED

TEXT_LAYER = re.compile(r"n([1-9]\d{0,8})-l(\d{1,9})\.tsv(\.gz)?", re.ASCII)  # the name of a file of official text
MATRICES = (".mtx", ".mtx.gz", ".npz")  # how names of files end that hold a matrix, a layer or inputs
INDEX = ".safetensors.index.json"  # of the tensors of several files
ZIP, PICKLE = b"PK\x03\x04", b"\x80\x02"  # the beginnings of what torch writes, and wrote before 1.6
OF_TORCH = (".tar", ".ckpt", ".bin")  # endings of torch's files that other files have, too

# The module that reads a format as a network, `open_network(path, options)`, and how names of such files end: the first
# that fits counts. FOREIGN comes before.
NETWORKS = {
    "spdnn.formats.state_dicts": (INDEX,),
    "spdnn.formats.store": (".safetensors",),
    "spdnn.formats.torch_files": (".pt", ".pth"),
    "spdnn.formats.text": (".tar", ".tar.gz", ".tgz"),
    "spdnn.formats.onnx_files": (".onnx",),
    "spdnn.formats.matrices": (*MATRICES, ".txt", "/"),
}
# The module that reads a format as inputs, `open_inputs(path, neurons, count)`.
INPUTS = {
    "spdnn.formats.images": (".tsv", ".tsv.gz"),
    "spdnn.formats.inputs": (".safetensors",),
    "spdnn.formats.matrices": (*MATRICES, ".npy", ".csv"),
}
ONNX, TEXT = "spdnn.formats.onnx_files", "spdnn.formats.text"
NO_NETWORK = (
    "this is no model file; use .safetensors, .onnx, .pt, matrices (.mtx, .npz, a folder or .txt list) or official "
    "text (n{N}-l{k}.tsv in a folder, .tar or .tar.gz)"
)
NO_INPUTS = "inputs are .safetensors, .tsv, .tsv.gz, .npz, .npy, .mtx, .mtx.gz or .csv files"

# Where a file has which bytes, and how names of its format end: it is read as such, whatever its own name is.
BEGINNINGS = (
    (4, b"\0\0\0\0{", ".safetensors"), (0, b"\x89HDF\r\n\x1a\n", ".h5"), (0, b"GGUF", ".gguf"),
    (0, b"MATLAB 5", ".mat"), (4, b"TFL3", ".tflite"),
)  # fmt: skip
LONGEST_PATH = 4096  # bytes of a path
NO_FILE = "this ONNX model"  # how messages call one that is no file

# Files of other programs that are not read: how their names end, what such a file is, and what to do.
FOREIGN = (
    ((".h5", ".hdf5"), "HDF5", 'export a Keras model to ONNX: model.export("model.onnx", format="onnx")'),
    ((".keras",), "a Keras model", 'export it to ONNX: model.export("model.onnx", format="onnx")'),
    (("saved_model.pb",), "a TensorFlow model", "python -m tf2onnx.convert --saved-model makes an ONNX model of it"),
    ((".pb",), "a TensorFlow graph", "python -m tf2onnx.convert --graphdef makes an ONNX model of it"),
    ((".tflite", ".lite"), "a TFLite model", "python -m tf2onnx.convert --tflite makes an ONNX model of it"),
    (
        (".pkl", ".pickle", ".joblib"),
        "a pickle",
        "it may run code. Load it, and spdnn.compile takes an MLPClassifier or MLPRegressor of scikit-learn",
    ),
    (
        (".pt2", ".ptl", ".ckpt", ".bin"),
        "a model or checkpoint of PyTorch",
        'torch.save(model.state_dict(), "model.pt") writes what is read, and spdnn.compile takes the module itself',
    ),
    ((".msgpack",), "a checkpoint of Flax", "safetensors.flax.save_file writes what is read"),
    ((".mat",), "a MATLAB file", "scipy.io.loadmat reads it, and scipy.sparse.save_npz writes its matrices"),
    ((".csv",), "CSV", "give its matrices to spdnn.from_matrices: numpy.loadtxt(path, delimiter=',') reads one"),
    ((".gguf",), "a GGUF file", "language models are not run here"),
    (
        (".xml", ".pmml", ".mlmodel", ".mlpackage", ".ort", ".engine", ".plan", ".trt", ".pdmodel", ".caffemodel"),
        "a model for another runtime",
        "export the model that it was made of to ONNX",
    ),
)


class Proto(Protocol):
    """An onnx.ModelProto."""

    def SerializeToString(self) -> bytes: ...


# Of a network: a path, or an ONNX model in memory.
Source = str | PathLike | bytes | bytearray | memoryview | IO[bytes] | Proto


def is_source(value: Any) -> bool:
    """Whether it is the path of a model, or an ONNX model in memory: its bytes, an open file or a ModelProto."""
    return isinstance(value, str | PathLike | bytes | bytearray | memoryview) or _is_file(value) or _is_proto(value)


def find_network(source: Source) -> tuple[Any, str]:
    """(the path, or an ONNX model in memory as its bytes or ModelProto; the module that reads it).

    Raises:
        InputError: there is none, or of no format that is read.
    """
    source = _in_memory(source)
    if isinstance(source, bytes) or _is_proto(source):
        return source, ONNX
    path, ending = _ending(source, "model file or folder")
    for endings, what, instead in FOREIGN:
        if ending.rstrip("/").lower().endswith(endings):
            raise InputError(f"{path}: {what} is not read; {instead}")
    return path, _module(path, ending, NETWORKS, NO_NETWORK)


def find_inputs(path: str | PathLike) -> tuple[Path, str]:
    """(the path, the module that reads it as inputs). Raises InputError as find_network."""
    what = "file of inputs (`spdnn inputs make` makes mnist and digits)"
    path, ending = _ending(fsdecode(path) if isinstance(path, bytes) else path, what)
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; inputs are one file")
    return path, _module(path, ending, INPUTS, NO_INPUTS)


def _module(path: Path, ending: str, formats: Mapping[str, tuple[str, ...]], sentence: str) -> str:
    for module, endings in formats.items():
        if ending.lower().endswith(endings):
            return module
    # Not known here; where the other kind of file is, the sentence says so.
    others = INPUTS if formats is NETWORKS else NETWORKS
    swapped = any(ending.lower().endswith(endings) for endings in others.values())
    raise InputError(f"{path}: {sentence}{SWAPPED if swapped else ''}")


def _ending(path: str | PathLike, what: str) -> tuple[Path, str]:
    """(the path, where there is such a `what`; how names of its format end, '/' for a folder of matrices)."""
    path = safe_open.existing(path, what)
    # The content decides where it can, for a name may be wrong.
    if path.is_dir():
        names = [file.name for file in safe_open.listing(path)]
        layers = any(TEXT_LAYER.fullmatch(name) for name in names)
        if layers and any(name.lower().endswith(MATRICES) for name in names):
            raise InputError(f"{path}: it holds .tsv layers and other matrices; a network's layers are of one kind")
        return path, "saved_model.pb" if "saved_model.pb" in names else ".tar" if layers else f"{path.name}/"
    first, name = safe_open.beginning(path), path.name
    if name.lower().endswith(OF_TORCH) and first.startswith((ZIP, PICKLE)):
        return path, ".pt"
    # The first bytes of a file tell its format; text and matrices have none, and go by their name.
    return path, next((ending for at, begins, ending in BEGINNINGS if first.startswith(begins, at)), name)


def file_name(source: Any) -> Any:
    """How messages call a path, or an ONNX model in memory."""
    return source if isinstance(source, Path) else NO_FILE


def _is_file(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("read", "close"))


def _is_proto(value: Any) -> bool:
    return isinstance(value, getattr(sys.modules.get("onnx"), "ModelProto", ()))


def _is_path(content: bytes) -> bool:
    """Whether bytes are a path, also of what is not there: no model has printable characters alone."""
    if not 0 < len(content) < LONGEST_PATH or b"\0" in content:
        return False
    return fsdecode(content).isprintable() or os.path.exists(content)


def _in_memory(source: Any) -> Any:
    """A path, or of an ONNX model in memory its bytes or its ModelProto. Raises InputError: what is none of these."""
    what = "these bytes"
    if _is_file(source):
        what = f"this file ({shorten(str(getattr(source, 'name', type(source).__name__)))})"
        with safe_open.sound(f"{what} cannot be read; give its path"):
            source = source.read()
        if isinstance(source, str):
            raise InputError(f"{what} is open as text: open it with 'rb', or give its path")
    elif isinstance(source, bytes) and _is_path(source):
        return fsdecode(source)
    if not isinstance(source, bytes | bytearray | memoryview):
        return source
    source = bytes(source)
    other = next((ending for at, begins, ending in BEGINNINGS if source.startswith(begins, at)), None)
    if not source or other or source.startswith((ZIP, PICKLE, safe_open.GZIP)):
        kind = f"of a {other} file" if other else "no ONNX model" if source else "empty"
        raise InputError(f"{what}: the content is {kind}; save it as a file, and give the path")
    return source
