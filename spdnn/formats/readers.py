"""Networks and inputs from files of any format: the store, the official text, other people's matrices.

`detection` says which module reads a file; only that one is imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spdnn.core import files, safe_open
from spdnn.core.categories import read_categories, write_categories
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.numbers import plain, whole_or_none
from spdnn.core.places import load
from spdnn.formats.detection import (
    INDEX,
    MATRICES,
    ONNX,
    TEXT,
    TEXT_LAYER,
    Source,
    file_name,
    find_inputs,
    find_network,
)
from spdnn.formats.options import USUAL, LastUnknown, ReadOptions, check_rows

if TYPE_CHECKING:
    from spdnn.formats.onnx_files import OnnxGraph

__all__ = ["import_network", "open_inputs", "open_network", "read_categories", "write_categories"]

STORED = "network.safetensors"  # the file of a network that was text, in a folder of its own


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
    found, module = find_network(path)
    network = load(module).open_network(found, ReadOptions(bias, clip, last, rows, layers, neurons, epsilon))
    # Text was opened with the width; others know theirs, which must agree.
    if neurons is not None and module != TEXT and network.inputs != neurons:
        raise InputError(f"{file_name(found)}: a network of {network.inputs} input neurons, not {neurons}")
    return network


@safe_open.releasing()
def open_model(path: Any) -> Network | OnnxGraph:
    """The network in a file that states all of it, or the graph of an ONNX model; of what `is_source` says. Raises as
    open_network."""
    path, module = find_network(path)
    if module == ONNX:
        return load(module).OnnxGraph.read(path)
    try:
        return load(module).open_network(path, ReadOptions())
    except LastUnknown as error:
        call = f"spdnn.open_network({str(path)!r}, last='none')"
        raise InputError(
            f"{path}: it does not say what follows its last layer (the others have ReLU): spdnn.compile({call}), or "
            "last='relu'"
        ) from error


def is_onnx(path: str | PathLike) -> bool:
    """Whether a file is read as an ONNX model. Raises InputError: there is none, or of no known kind."""
    return find_network(path)[1] == ONNX


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
    from spdnn.formats import store

    files.check_outputs([output], network_files(path))
    network, what = open_network(path, **stated), "import network"
    if find_network(path)[1] == TEXT:
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
    found, module = find_network(path)
    network = open_network(found, **stated)
    if module != TEXT:
        return network
    from spdnn.formats import store

    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        _store_text(Path(folder, STORED), network, stated.get("layers"), "read network", durable=False)
        return store.read_network(Path(folder, STORED))


def _store_text(output: str | PathLike, network: Any, depth: int | None, what: str, durable: bool = True) -> None:
    """Store a TextNetwork in one pass; arguments as store.write_layers."""
    # Layers come in the order of the archive, for seeking in compressed data reads it anew.
    from spdnn.formats import store

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
        yield from (file for file in files if TEXT_LAYER.fullmatch(file.name) or file.name.lower().endswith(MATRICES))
    elif path.is_file():
        yield path
        if path.suffix.lower() == ".txt":
            from spdnn.formats.matrices import sources

            yield from sources(path)
        elif path.suffix.lower() == ".onnx" or path.name.lower().endswith(INDEX):
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
        count: the number of inputs. For text, of those that the file describes (see images.open_inputs);
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
    path, module = find_inputs(path)
    # The reader takes the width where the file leaves it open; the file is checked against it in any case.
    result = load(module).open_inputs(path, neurons, count)
    if neurons is not None:
        result.check_width(neurons, str(path))
    return result
