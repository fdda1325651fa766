"""Networks and inputs from files of any format: the store, the official text, other people's matrices."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fsdecode
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from spdnn.core import challenge, files, safe_open
from spdnn.core.categories import read_categories, write_categories
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.numbers import plain, whole_or_none
from spdnn.core.validation import shorten
from spdnn.formats import (
    container,
    images,
    inputs,
    matrices,
    state_dicts,
    store,
    tensors,
    text,
    torch_files,
)  # fmt: skip
from spdnn.formats.onnx_files import NO_FILE, OnnxGraph
from spdnn.formats.steps import USUAL, LastUnknown, ReadOptions, check_rows

__all__ = ["import_network", "open_inputs", "open_network", "read_categories", "write_categories"]

# Where a file has which bytes, and how names of its format end: these tell it, whatever its own name is.
BEGINNINGS = (
    (4, b"\0\0\0\0{", ".safetensors"), (0, b"\x89HDF\r\n\x1a\n", ".h5"), (0, b"GGUF", ".gguf"),
    (0, b"MATLAB 5", ".mat"), (4, b"TFL3", ".tflite"),
)  # fmt: skip

LONGEST = 4096  # bytes of a path
STORED = "network.safetensors"  # the file of a network that was text, in a folder of its own

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


def is_source(value: Any) -> bool:
    """Whether it is the path of a model, or an ONNX model in memory: its bytes, an open file or a ModelProto."""
    return isinstance(value, str | PathLike | bytes | bytearray | memoryview) or _is_file(value) or _is_proto(value)


class Proto(Protocol):
    """An onnx.ModelProto."""

    def SerializeToString(self) -> bytes: ...


Source = str | PathLike | bytes | IO[bytes] | Proto  # of a network: a path, or an ONNX model in memory


@safe_open.releasing()
def open_network(
    path: Source,
    bias: float | Sequence | None = None,
    clip: float | Literal["usual"] | None = USUAL,
    layers: int | None = None,
    last: str | None = None,
    neurons: int | None = None,
    rows: str | None = None,
    epsilon: float | None = None,
) -> Network:
    """The network in a file or folder, by its content and name.

    A model file of spdnn and an ONNX model state everything; for them only `layers` and `neurons` can be given.
    Official text has ReLU after its last layer. Other files hold weights alone, and `last` must be given.

    Args:
        path: of a model file of spdnn (.safetensors); a chain of layers in ONNX (.onnx); a state dict
            (.safetensors, the index of several, .npz, .pt, .pth, .pth.tar); text layers (a folder of n{N}-l{k}.tsv, or
            a .tar, .tar.gz, .tgz of them); matrices (.mtx, .mtx.gz, .npz, a folder of either, a .txt list). Or an ONNX
            model in memory: its bytes, an open file, or a ModelProto.
        bias: one number for all layers, or a list of a number or a vector for each, where the format has none; by
            default, official for text and 0 for others.
        clip: YMAX, None for a plain ReLU, or 'usual': 32 for text, none for other formats.
        layers: how many of the first layers to take; all by default.
        last: the last layer's activation, 'relu' or 'none'. For ONNX, 'none' leaves out a softmax at the end.
        neurons: the width that the inputs of the network must have.
        rows: what a row of a weight matrix is, 'inputs' or 'outputs'; by default as the format has it: outputs in a
            state dict, inputs in other matrices. It must be given for those that fit both ways.
        epsilon: of the BatchNorms of a state dict, which does not hold it; by default 1e-5.

    Raises:
        InputError: one sentence with the file, and the line where there are lines; also where what must be stated of
            weights is not, or something is stated that the file says itself.
        Unavailable: a package that this format needs is missing.

    Example:
        >>> import numpy as np, spdnn
        >>> np.savez("weights.npz", **{"fc1.weight": np.eye(3, 4), "fc2.weight": np.ones((2, 3))})
        >>> spdnn.open_network("weights.npz", last="none")
        MemoryNetwork(4 -> 2, 2 layers, 9 edges)
    """
    check_rows(rows)
    bias, clip, epsilon = plain(bias), plain(clip), plain(epsilon)
    layers, neurons = whole_or_none(layers, "layers"), whole_or_none(neurons, "neurons")
    path, read = _reader(_in_memory(path))
    network = read(path, ReadOptions(bias, clip, last, rows, layers, neurons, epsilon))
    # Text was opened with the width; others know theirs, which must agree.
    if neurons is not None and not isinstance(network, text.TextNetwork) and network.inputs != neurons:
        name = path if isinstance(path, Path) else NO_FILE
        raise InputError(f"{name}: a network of {network.inputs} input neurons, not {neurons}")
    return network


@safe_open.releasing()
def open_model(path: Any) -> Network | OnnxGraph:
    """The network in a file that states all of it, or the graph of an ONNX model; of what `is_source` says. Raises as
    open_network."""
    path, read = _reader(_in_memory(path))
    if read is _onnx:
        return OnnxGraph.read(path)
    try:
        return read(path, ReadOptions())
    except LastUnknown as error:
        call = f"spdnn.open_network({str(path)!r}, last='none')"
        raise InputError(
            f"{path}: it does not say what follows its last layer (the others have ReLU): spdnn.compile({call}), or "
            "last='relu'"
        ) from error


def is_onnx(path: str | PathLike) -> bool:
    """Whether a file is read as an ONNX model. Raises InputError: there is none, or of no known kind."""
    return _reader(path)[1] is _onnx


@safe_open.releasing()
def import_network(path: str | PathLike, output: str | PathLike, **stated: Any) -> Network:
    """Read the network at `path`, store its layers at `output` (.safetensors), and open that.

    Text goes through a layer at a time, in one pass over the source, in whatever order its files lie.

    Args:
        stated: of the network, as open_network takes it.

    Raises:
        InputError: as open_network; or `output` is a file that is read.
        SpdnnError: the store cannot be written.
    """
    files.check_outputs([output], network_files(path))
    network, what = open_network(path, **stated), "import network"
    if isinstance(network, text.TextNetwork):
        _store_text(output, network, stated.get("layers"), what)
    else:
        store.write_network(output, network, what=what)
    return store.read_network(output)


@safe_open.releasing()
def load_network(path: Source, **stated: Any) -> Network:
    """The network at `path`, as open_network, for a run, which reads every layer several times.

    Text is read once, here, into a store in the folder of temporary files (TMPDIR), which takes about a tenth of its
    size. The store has no name any more when this returns, so that the system removes it with the network.

    Raises:
        InputError: as open_network; of text, what is wrong with any of its layers.
        SpdnnError: the store cannot be written.
    """
    network = open_network(path, **stated)
    if not isinstance(network, text.TextNetwork):
        return network
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        _store_text(Path(folder, STORED), network, stated.get("layers"), "read network", durable=False)
        return store.read_network(Path(folder, STORED))


def _store_text(
    output: str | PathLike, network: text.TextNetwork, depth: int | None, what: str, durable: bool = True
) -> None:
    """Store a network of text in one pass; arguments as store.write_layers."""
    # Layers come in the order of the archive, for seeking in compressed data reads it anew.
    description = {"source": "text", "path": network.path.name}
    store.write_layers(output, network.stream(), description, depth, what, durable)


def network_files(path: str | PathLike) -> Iterator[Path]:
    """The files that open_network reads at `path`, those that an ONNX model or an index names among them; none where
    there is nothing.

    Raises:
        InputError: a list of matrices (.txt) that is not sound.
    """
    path = Path(path)
    if path.is_dir():
        files = safe_open.listing(path)
        yield from (
            file for file in files if text.NAME.fullmatch(file.name) or file.name.lower().endswith(matrices.LAYERS)
        )
    elif path.is_file():
        yield path
        if path.suffix.lower() == ".txt":
            yield from matrices.sources(path)
        elif path.suffix.lower() == ".onnx" or path.name.endswith(tensors.INDEX):
            yield from _find_named(path.parent, safe_open.whole(path))


def _find_named(folder: Path, content: bytes) -> Iterator[Path]:
    """The files in `folder`, and in folders below, whose names are in `content`, as those of the folders are."""
    with safe_open.reading(folder):
        paths = [path for path in folder.iterdir() if os.fsencode(path.name) in content]
    for path in paths:
        yield from _find_named(path, content) if path.is_dir() and not path.is_symlink() else [path]


@safe_open.releasing()
def open_inputs(path: str | PathLike, neurons: int | None = None, count: int | None = None) -> Inputs:
    """The inputs in a file: a file of spdnn (.safetensors), text (.tsv, .tsv.gz), .npz, .npy, .mtx, .mtx.gz or .csv.

    Args:
        neurons: the width; for text, by default the N of its name; elsewhere, what the file must have.
        count: the number of inputs. For text, of those that the file describes (see images.read_images);
            elsewhere, the first `count`, repeated when there are fewer (see Inputs.first).

    Raises:
        InputError: one sentence with the file, and the line where there are lines.

    Example:
        >>> import numpy as np, spdnn
        >>> np.save("x.npy", np.eye(3))
        >>> spdnn.open_inputs("x.npy", count=2).dense([0, 1])
        array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
    """
    neurons, count = whole_or_none(neurons, "neurons"), whole_or_none(count, "count")
    path, ending = _ending(
        fsdecode(path) if isinstance(path, bytes) else path,
        "file of inputs (`spdnn inputs make` makes mnist and digits)",
    )
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; inputs are one file")
    # The reader takes the width where the file leaves it open; the file is checked against it in any case.
    result = _of(path, ending, INPUTS, INPUT)(path, neurons, count)
    if neurons is not None:
        result.check_width(neurons, str(path))
    return result


def _ending(path: str | PathLike, what: str) -> tuple[Path, str]:
    """(the path, where there is such a `what`; how names of its format end, '/' for a folder of matrices)."""
    path = safe_open.existing(path, what)
    # The content decides where it can, for a name may be wrong.
    if path.is_dir():
        names = [file.name for file in safe_open.listing(path)]
        layers = any(text.NAME.fullmatch(name) for name in names)
        if layers and any(name.lower().endswith(matrices.LAYERS) for name in names):
            raise InputError(f"{path}: it holds .tsv layers and other matrices; a network's layers are of one kind")
        return path, "saved_model.pb" if "saved_model.pb" in names else ".tar" if layers else f"{path.name}/"
    first, name = safe_open.beginning(path), path.name
    if name.lower().endswith(torch_files.OTHERS) and first.startswith((torch_files.ZIP, torch_files.PICKLE)):
        return path, ".pt"
    # The first bytes of a file tell its format; text and matrices have none, and go by their name.
    return path, next((ending for at, begins, ending in BEGINNINGS if first.startswith(begins, at)), name)


def _is_file(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in ("read", "close"))


def _is_proto(value: Any) -> bool:
    return isinstance(value, getattr(sys.modules.get("onnx"), "ModelProto", ()))


def _is_path(content: bytes) -> bool:
    """Whether bytes are a path, also of what is not there: no model has printable characters alone."""
    if not 0 < len(content) < LONGEST or b"\0" in content:
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
    if not source or other or source.startswith((torch_files.ZIP, torch_files.PICKLE, safe_open.GZIP)):
        kind = f"of a {other} file" if other else "no ONNX model" if source else "empty"
        raise InputError(f"{what}: the content is {kind}; save it as a file, and give the path")
    return source


def _reader(path: Any) -> tuple[Any, Callable[[Any, ReadOptions], Network]]:
    if isinstance(path, bytes) or _is_proto(path):
        return path, _onnx
    path, ending = _ending(path, "model file or folder")
    for endings, what, instead in FOREIGN:
        if ending.rstrip("/").lower().endswith(endings):
            raise InputError(f"{path}: {what} is not read; {instead}")
    return path, _of(path, ending, NETWORKS, NETWORK)


def _of(path: Path, ending: str, formats: Sequence, sentence: str) -> Callable:
    for endings, read in formats:
        if ending.lower().endswith(endings):
            return read
    # Not known here; where the other kind of file is, the sentence says so.
    other = next(table for table in (NETWORKS, INPUTS) if table is not formats)
    swapped = any(ending.lower().endswith(endings) for endings, _ in other)
    raise InputError(f"{path}: {sentence}{container.SWAPPED if swapped else ''}")


def _store(path: Path, options: ReadOptions) -> Network:
    if (
        any(value is not None for value in (options.bias, options.last, options.rows, options.epsilon))
        or options.clip != USUAL
    ):
        raise InputError(f"{path}: leave out --last, --bias, --clip, --rows and --epsilon: this model file states them")
    network = store.read_network(path)
    with safe_open.name_errors(path):
        return network if options.layers is None else network.first(options.layers)


def _safetensors(path: Path, options: ReadOptions) -> Network:
    of_weights = tensors.Safetensors(path)
    if container.KEY in of_weights.metadata:
        return _store(path, options)
    return state_dicts.read_network(of_weights, "safetensors", options)


def _text(path: Path, options: ReadOptions) -> Network:
    state_dicts.refuse_epsilon(path, options)
    if options.rows is not None:
        raise InputError(f"{path}: official text has an input and an output on each line; rows cannot be given")
    clip = challenge.YMAX if options.clip == USUAL else options.clip
    return text.TextNetwork(path, options.bias, clip, options.layers, options.last or "relu", options.neurons)


def _onnx(path: Any, options: ReadOptions) -> Network:
    if options.bias is not None or options.clip != USUAL or options.rows is not None or options.epsilon is not None:
        name = path if isinstance(path, Path) else NO_FILE
        raise InputError(f"{name}: leave out --bias, --clip, --rows and --epsilon: an ONNX model states them")
    return OnnxGraph.read(path).network(options.last, options.layers)


def _take_first(result: Inputs, count: int | None) -> Inputs:
    return result if count is None else result.first(count)


# How names of each format end, and its reader: (path, ReadOptions) -> Network, which refuses what it does not take.
NETWORKS = (
    ((tensors.INDEX,), lambda path, options: state_dicts.read_network(tensors.Shards(path), "safetensors", options)),
    ((".safetensors",), _safetensors),
    (torch_files.ENDINGS, lambda path, options: state_dicts.read_network(torch_files.TorchFile(path), "pt", options)),
    ((".tar", ".tar.gz", ".tgz"), _text),
    ((".onnx",), _onnx),
    ((*matrices.LAYERS, ".txt", "/"), matrices.read_network),
)
NETWORK = (
    "this is no model file; use .safetensors, .onnx, .pt, matrices (.mtx, .npz, a folder or .txt list) or official "
    "text (n{N}-l{k}.tsv in a folder, .tar or .tar.gz)"
)
# As NETWORKS: (path, neurons, count) -> Inputs.
INPUTS = (
    ((".tsv", ".tsv.gz"), images.read_images),
    ((".safetensors",), lambda path, _, count: _take_first(inputs.read_inputs(path), count)),
    ((*matrices.LAYERS, ".npy", ".csv"), lambda path, _, count: _take_first(matrices.read_inputs(path), count)),
)
INPUT = "inputs are .safetensors, .tsv, .tsv.gz, .npz, .npy, .mtx, .mtx.gz or .csv files"
