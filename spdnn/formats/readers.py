"""Networks and inputs from files of any format: the store, the official text, other people's matrices."""

import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, Literal

from spdnn.common import door, files
from spdnn.common.errors import InputError
from spdnn.formats import (
    container,
    foreign,
    images,
    inputs,
    matrices,
    onnx_files,
    store,
    tensors,
    text,
    torch_files,
)  # fmt: skip
from spdnn.formats.categories import read_categories, write_categories
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network

__all__ = ["import_network", "open_inputs", "open_network", "read_categories", "write_categories"]

USUAL: Final = "usual"  # a clip of 32 for the challenge's text form, none for the other formats
ARCHIVES = (".tar", ".tar.gz", ".tgz")


@door.releasing()
def open_network(
    path: str | PathLike,
    bias: float | Sequence | None = None,
    clip: float | Literal["usual"] | None = USUAL,
    layers: int | None = None,
    last: str | None = None,
    neurons: int | None = None,
    rows: str | None = None,
) -> Network:
    """The network in a file or folder, by its content and name.

    A store and an ONNX model state all that there is to know; for them nothing below but `layers` and `neurons` can be
    given. Official text has ReLU after its last layer. Other files hold weights alone, and `last` must be given.

    Args:
        path: a store (.safetensors; a formula: .json); an ONNX model (.onnx); a state dict (.safetensors, the index of
            several, .npz, .pt, .pth, .pth.tar); text layers (a folder of n{N}-l{k}.tsv, or a .tar, .tar.gz, .tgz of
            them); matrices (.mtx, .mtx.gz, .npz, a folder of either, a .txt list).
        bias: one number for all layers, or a list of a number or a vector for each, where the format has none; by
            default, official for text and 0 for others.
        clip: YMAX, None for a plain ReLU, or 'usual': 32 for text, none for other formats.
        layers: how many of the first layers to take; all by default.
        last: the last layer's activation, 'relu' or 'none'. For ONNX, 'none' leaves out a softmax at the end.
        neurons: the width that the inputs of the network must have.
        rows: what a row of a weight matrix is, 'inputs' or 'outputs'; by default as the format has it: outputs in a
            state dict, inputs in other matrices. It must be given for those that fit both ways.

    Raises:
        InputError: one sentence with the file, and the line where there are lines; also where what must be stated of
            weights is not, or something is stated that the file says itself.
        Unavailable: a package that this format needs is missing.
    """
    path = files.existing(path, "network")
    kind = _kind(path)
    if kind == "store":
        network = store.read_network(path)
        if bias is not None or clip != USUAL or last is not None or rows is not None:
            raise InputError(f"{path}: a store has its own bias, clip and last activation; none can be given")
        if layers is not None:
            network = _first(network, layers, path)
    elif kind == "text":
        ymax = challenge.YMAX if clip == USUAL else clip
        if rows is not None:
            raise InputError(f"{path}: official text has an input and an output on each line; rows cannot be given")
        return text.TextNetwork(path, bias, ymax, layers, last or "relu", neurons)  # which checks the neurons
    elif kind == "onnx":
        if bias is not None or clip != USUAL or rows is not None:
            raise InputError(f"{path}: an ONNX model has its own bias, clip and rows; none can be given")
        network = onnx_files.network(path, onnx_files.read_steps(path), last, layers)
    else:
        network = matrices.read_network(path, bias, None if clip == USUAL else clip, layers, last, rows)
    if neurons is not None and network.inputs != neurons:
        raise InputError(f"{path}: a network of {network.inputs} input neurons, not {neurons}")
    return network


@door.releasing()
def import_network(
    path: str | PathLike,
    output: str | PathLike,
    bias: float | Sequence | None = None,
    clip: float | Literal["usual"] | None = USUAL,
    layers: int | None = None,
    last: str | None = None,
    neurons: int | None = None,
    rows: str | None = None,
    what: str = "import network",
) -> Network:
    """Read the network at `path`, store its layers at `output` (.safetensors), and open that.

    Text goes through a layer at a time, in one pass over the source, in whatever order its files lie. The
    arguments are those of open_network; `what` is what progress calls it.

    Raises:
        InputError: as open_network; or `output` is a file that is read.
        SpdnnError: the store cannot be written.
    """
    files.check_outputs([output], network_files(path))
    network = open_network(path, bias, clip, layers, last, neurons, rows)
    if isinstance(network, text.TextNetwork):
        store.write_layers(output, network.stream(), {"source": "text", "path": network.path.name}, layers, what)
    else:
        store.write_network(output, network, what=what)
    return store.read_network(output)


def network_files(path: str | PathLike) -> Iterator[Path]:
    """The files that open_network reads at `path`, those that an ONNX model or an index names among them; none where
    there is nothing.

    Raises:
        InputError: a list of matrices (.txt) that is not sound.
    """
    path = Path(path)
    if path.is_dir():
        files = door.listing(path)
        yield from (file for file in files if text.NAME.fullmatch(file.name) or file.name.endswith(matrices.LAYERS))
    elif path.is_file():
        yield path
        if path.suffix == ".txt":
            yield from matrices.sources(path)
        elif path.suffix == ".onnx" or path.name.endswith(tensors.INDEX):
            yield from _named(path.parent, door.whole(path))


def _named(folder: Path, content: bytes) -> Iterator[Path]:
    """The files in `folder`, and in folders below, whose names are in `content`, as those of the folders are."""
    with door.reading(folder):
        paths = [path for path in folder.iterdir() if os.fsencode(path.name) in content]
    for path in paths:
        yield from _named(path, content) if path.is_dir() and not path.is_symlink() else [path]


@door.releasing()
def open_inputs(path: str | PathLike, neurons: int | None = None, count: int | None = None) -> Inputs:
    """The inputs in a file: a store (.safetensors), text (.tsv, .tsv.gz), .npz, .npy, .mtx or .mtx.gz.

    Args:
        neurons: the width; for text, by default the N of its name; elsewhere, what the file must have.
        count: the number of inputs. For text, of those that the file describes (see images.read_images);
            elsewhere, the first `count`, repeated when there are fewer (see Inputs.counted).

    Raises:
        InputError: one sentence with the file, and the line where there are lines.
    """
    path = files.existing(path, "file of inputs")
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; inputs are one file")
    if path.name.endswith((".tsv", ".tsv.gz")):
        return images.read_images(path, neurons, count)
    if container.is_store(path):
        opened = inputs.read_inputs(path)
    elif path.name.endswith((*matrices.LAYERS, ".npy")):
        opened = matrices.read_inputs(path)
    else:
        raise InputError(f"{path}: inputs are .safetensors (a store), .tsv, .tsv.gz, .npz, .npy, .mtx or .mtx.gz files")
    if neurons is not None and opened.neurons != neurons:
        raise InputError(f"{path}: inputs of {opened.neurons} neurons, not {neurons}")
    return opened if count is None else opened.counted(count)


def _kind(path: Path) -> str:
    """'store', 'text', 'onnx' or 'matrices'."""
    if path.name.endswith(tensors.INDEX) or (path.is_file() and torch_files.is_one(path)):
        return "matrices"
    if not path.is_dir() and container.is_store(path):
        return "store"
    foreign.refuse(path)
    if path.is_dir():
        names = [file.name for file in door.listing(path)]
        named = any(text.NAME.fullmatch(name) for name in names)
        others = any(name.endswith(matrices.LAYERS) for name in names)
        if named and others:
            raise InputError(f"{path}: it holds .tsv layers and other matrices; a network's layers are of one kind")
        return "text" if named else "matrices"
    if path.name.endswith(ARCHIVES):
        return "text"
    if path.suffix == ".onnx":
        return "onnx"
    if path.name.endswith((*matrices.LAYERS, ".txt", ".safetensors")):
        return "matrices"
    raise InputError(
        f"{path}: a network is a store (.safetensors, .json), a model (.onnx), n{{N}}-l{{k}}.tsv files (a folder, "
        ".tar, .tar.gz), matrices (.mtx, .npz, a folder or .txt list) or a state dict (.safetensors, .npz, .pt)"
    )


def _first(network: Network, layers: int, path: Path) -> Network:
    try:
        return network.first(layers)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
