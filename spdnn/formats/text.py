"""The Graph Challenge's text form of a network: a file `n{N}-l{k}.tsv` a layer, in a folder or archive.

A line is `i<TAB>j<TAB>value`: input neuron i (row), output neuron j (column), both from 1. The official files
are sorted by j, then i; any order is read. The form holds weights only: bias, activation and clip are the
reader's to say.
"""

import contextlib
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.core import challenge, endings, progress, safe_open
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.locks import Lock, cached_property
from spdnn.core.network import Activation, Header, Layer, Network, common_value, index_dtype, layer_activations
from spdnn.core.resources import usable_cores, use_all_cores
from spdnn.core.threads import in_order
from spdnn.core.validation import quote
from spdnn.formats import checks, container, lines
from spdnn.formats.archive import Member, TarArchive, folder_members
from spdnn.formats.detection import TEXT_LAYER
from spdnn.formats.options import USUAL, ReadOptions
from spdnn.kernels import dispatch

LAYERS = min(4, usable_cores())  # that are read or written at once, each in memory as text


def read_layer(content: bytes, where: str, neurons: int, bias, activation: Activation) -> Layer:
    """One layer from the text of its file; lines with the value 0 are no edges.

    Args:
        content: the text, unpacked.
        where: the file's name, for messages.
        bias: float32, of every output.

    Raises:
        InputError: `where:line: ...` for a line that is wrong, an index out of range, a value that is not
            finite in float32, an edge given twice; or a file without any line.
    """
    if (layer := _usual_layer(content, where, neurons, bias, activation)) is not None:
        return layer
    form = lines.LineFormat("input neuron", "output neuron", neurons, neurons)
    rows, columns, values = lines.parse(content, where, form)
    if not rows.size:
        raise InputError(f"{where}: the file is empty; a layer has at least one line")
    checks.check_widths(where, neurons, entries=rows.size)
    keys = columns * neurons + rows
    if (again := lines.find_repeated(keys)) is not None:
        raise InputError(
            f"{where}:{lines.line_of(content, again)}: the edge from input neuron {rows[again] + 1} to "
            f"output neuron {columns[again] + 1} is given twice; each is allowed once"
        )
    if not (keys[1:] > keys[:-1]).all():
        order = np.argsort(keys)
        rows, columns, values = rows[order], columns[order], values[order]
    if not values.all():
        edges = values != 0
        rows, columns, values = rows[edges], columns[edges], values[edges]
    offsets = np.zeros(neurons + 1, np.int64)
    np.cumsum(np.bincount(columns, minlength=neurons), out=offsets[1:])
    indices, values = rows.astype(index_dtype(neurons)), common_value(values)
    return Layer.frozen(neurons, neurons, offsets, indices, values, np.float32(bias), activation).check(where)


def _usual_layer(content: bytes, where: str, neurons: int, bias, activation: Activation) -> Layer | None:
    """The layer of a text whose lines ascend by output, then input, and have one value, as those of the official files:
    compiled, in one pass. None for any other text, or where nothing is compiled. Arguments as read_layer.
    """
    compiled = dispatch.find_module()
    if compiled is None or neurons > checks.WIDE:  # a wide layer is checked before it gets its offsets
        return None
    indices = np.empty(compiled.count_lines(content) + 1, index_dtype(neurons))
    offsets = np.empty(neurons + 1, np.int64)
    edges, value = compiled.read_layer(content, offsets, indices)
    if edges < 1:
        return None
    values, fields = np.float32(value), (np.float32(bias), activation)
    return Layer.frozen(neurons, neurons, offsets, indices[:edges], values, *fields).check(where)


def _open_again(digest: str, path: str, *stated: Any) -> "TextNetwork":
    """The network that was pickled. Raises InputError: its files are gone, or hold another one."""
    network = TextNetwork(path, *stated)
    if network.description["sha256"] != digest:
        raise InputError(f"{path}: {container.PICKLED}")
    return network


class TextNetwork(Network):
    """A network in text form, read a layer at a time; nothing is unpacked to disk or kept.

    To use one more than once, import it into a store (formats.import_network): headers and the description,
    which holds a digest, take a reading of every file.

    Args:
        path: a folder, or an archive (.tar, .tar.gz, .tgz), its files in any order.
        bias: one number, or a list of one for each layer; by default the official one of the width.
        clip: YMAX of the clipped ReLU, or None for a plain ReLU.
        layers: how many of the first layers to take; all by default.
        last: the last layer's activation, 'relu' or 'none'.
        neurons: the N that the names must have.

    Raises:
        InputError: here, or when the files are first listed or read: no layer files, several N, a number
            missing or twice, fewer than `layers`, a width without an official bias, or what read_layer and
            Archive refuse.
        SpdnnError: a file was written to since it was first read.
    """

    def __init__(
        self,
        path,
        bias: float | Sequence[float] | None = None,
        clip: float | None = challenge.YMAX,
        layers: int | None = None,
        last: str = "relu",
        neurons: int | None = None,
    ):
        if layers is not None and layers < 1:
            raise InputError(f"{layers} layers asked for; a network has at least 1")
        for number in bias if isinstance(bias, (list, tuple)) else [] if bias is None else [bias]:
            with np.errstate(over="ignore"):
                real = np.ndim(number) == 0 and np.asarray(number).dtype.kind in "fiub"
                if not real or not np.isfinite(np.float32(number)):
                    raise InputError(f"bias {quote(number)}: it must be a finite number")
        bias = [*map(float, bias)] if isinstance(bias, (list, tuple)) else None if bias is None else float(bias)
        self.path = safe_open.existing(path, "network")
        self._stated = os.path.abspath(path), bias, clip, layers, last, neurons
        self._archive = None if self.path.is_dir() else TarArchive(self.path)
        self._bias, self._layers, self._expected = bias, layers, neurons
        self._usual, self._final = layer_activations(2, clip, last)
        self._members: dict[int, Member] = {}
        self._states: dict[int, tuple[int, int]] = {}  # of the files of a folder, as _members
        self._neurons, self._listed, self._headers, self._latest = None, False, {}, (-1, None)
        self._lock = Lock()
        if self._archive is None:
            self._list()

    def __reduce__(self):
        """Pickled as its path and its digest, for which all files are read, and opened again."""
        return _open_again, (self.description["sha256"], *self._stated)

    def __deepcopy__(self, memo: dict) -> "TextNetwork":
        return self  # what changes in it is no part of the network

    @property
    def depth(self) -> int:
        self._list()
        return self._layers or len(self._members)

    @property
    def inputs(self) -> int:
        """The N of the files' names."""
        self._list()
        return self._neurons

    outputs = inputs

    @cached_property
    def description(self) -> dict:
        """Its `sha256` is of the layers; the first use reads them all."""
        return {"source": "text", "path": self.path.name, "sha256": self.sha256()}

    def header(self, k: int) -> Header:
        """Layer k's header. Reads the layer the first time: text tells nothing ahead of it."""
        if k not in self._headers:
            self._headers[k] = self.layer(k).header
        return self._headers[k]

    def layer(self, k: int) -> Layer:
        self._list()
        if not 0 <= k < self.depth:
            raise InputError(f"{self.path}: layer {k + 1} asked for; there are 1 to {self.depth}")
        with self._lock:
            number, layer = self._latest
            if number != k:
                _, layer = self._parse(self._read(k, self._members[k + 1]))
                self._latest = k, layer
            return layer

    def stream(self) -> Iterator[tuple[int, Layer]]:
        """Every (k, layer) once, in the order in which the source holds them, in one pass."""
        if self._final != self._usual or isinstance(self._bias, (list, tuple)):
            self._list()  # the depth must be known
        files = list(self._members.items()) if self._listed else self._finding()
        return in_order(self._parse, self._contents(files), LAYERS)

    # Methods and no closures: a closure would keep the archive open as long as an error that came through it.
    def _contents(self, files: Iterable[tuple[int, Member]]) -> Iterator[tuple[int, str, bytes]]:
        for k, member in files:
            if self._layers is None or k <= self._layers:
                yield self._read(k - 1, member)

    def _read(self, k: int, member: Member) -> tuple[int, str, bytes]:
        """What `_parse` takes: the content of a layer's file, which must stay what it was when it was found."""
        _, where, content = member
        item = k, where, content()
        if not self._archive:
            safe_open.check_state(where, where, self._states[k + 1])
        return item

    def _parse(self, item: tuple[int, str, bytes]) -> tuple[int, Layer]:
        k, where, content = item
        last = self._final != self._usual and k == self.depth - 1  # which an archive knows at its end
        activation = self._final if last else self._usual
        return k, read_layer(content, where, self._neurons, self._bias_of(k), activation)

    def _bias_of(self, k: int) -> float:
        if isinstance(self._bias, (list, tuple)):
            if len(self._bias) != self.depth:
                raise InputError(f"{self.path}: {len(self._bias)} biases for {self.depth} layers; give one for each")
            return self._bias[k]
        if self._bias is not None:
            return self._bias
        if self._neurons not in challenge.BIAS:
            raise InputError(f"{self.path}: {self._neurons} neurons have no official bias; give one (--bias)")
        return challenge.BIAS[self._neurons]

    def _list(self) -> None:
        with self._lock:
            if not self._listed:
                deque(self._finding(), maxlen=0)

    def _finding(self) -> Iterator[tuple[int, Member]]:
        """Find the layers one by one, and check that together they are a network."""
        self._members, self._neurons = {}, None
        for member in self._archive.members() if self._archive else folder_members(self.path):
            if name := TEXT_LAYER.fullmatch(member[0].rpartition("/")[2]):
                self._take(int(name[1]), int(name[2]), member)
                yield int(name[2]), member
                if self._layers is not None and all(k in self._members for k in range(1, self._layers + 1)):
                    break
        self._check_numbers()
        self._listed = True

    def _take(self, neurons: int, k: int, member: Member) -> None:
        if self._expected not in (None, neurons):
            raise InputError(f"{member[1]}: a layer of {neurons} neurons, not of {self._expected}")
        if self._neurons not in (None, neurons):
            raise InputError(
                f"{member[1]}: a layer of n{neurons} among layers of n{self._neurons}; only one N is allowed"
            )
        checks.check_widths(member[1], neurons)
        if k < 1:
            raise InputError(f"{member[1]}: layer number {k}; layers are numbered from 1")
        if k in self._members:
            raise InputError(f"{member[1]}: layer {k} is there twice; the other is {self._members[k][1]}")
        self._neurons, self._members[k] = neurons, member
        if not self._archive:
            with safe_open.reading(member[1]):
                self._states[k] = safe_open.state(member[1])

    def _check_numbers(self) -> None:
        if not self._members:
            raise InputError(f"{self.path}: no layers in it; their files are named n{{N}}-l{{k}}.tsv")
        count, most = len(self._members), max(self._members)
        last = most if self._layers is None else min(self._layers, most)
        if missing := [k for k in range(1, last + 1) if k not in self._members]:
            raise InputError(
                f"{self.path}: layer file n{self._neurons}-l{missing[0]}.tsv is missing, though that of layer {most} "
                "is there"
            )
        if self._layers is not None and count < self._layers:
            raise InputError(f"{self.path}: {self._layers} layers asked for; it has {count}")


def open_network(path: Path, options: ReadOptions) -> TextNetwork:
    """The network in official text. Raises InputError: as TextNetwork, or the options state what text states."""
    options.refuse_epsilon(path)
    if options.rows is not None:
        raise InputError(f"{path}: official text has an input and an output on each line; rows cannot be given")
    clip = challenge.YMAX if options.clip == USUAL else options.clip
    return TextNetwork(path, options.bias, clip, options.layers, options.last or "relu", options.neurons)


def write_layers(network: Network, folder) -> list[Path]:
    """Write each layer as `folder/n{N}-l{k}.tsv`, sorted by output, then input, as the official files.

    A value is written `%e` where that is the same float32, else `%.8e`. Bias and activation are not in this
    form. The files appear together once all are whole: whatever an interruption leaves is refused as a
    network, since layer 1 comes last.

    Args:
        folder: made when it is absent, in an existing one; or one without other layers than those to replace.

    Returns:
        the files, in layer order.

    Raises:
        InputError: layers that are not all N x N (names could not tell their widths), a layer without edges
            (its file would look lost), or a folder with other layer files in it.
        SpdnnError: the files cannot be written.
    """
    folder, neurons = Path(folder), network.inputs
    for k in range(network.depth):
        header = network.header(k)
        if (header.inputs, header.outputs) != (neurons, neurons):
            raise InputError(
                f"layer {k + 1} is {header.inputs} x {header.outputs}; the text form names one width, "
                f"so all layers must be {neurons} x {neurons}"
            )
        if not header.edges:
            raise InputError(f"layer {k + 1} has no edges; the text form has no way to write such a layer")
    targets = [folder / f"n{neurons}-l{k}.tsv" for k in range(1, network.depth + 1)]
    names = [target.name for target in targets]
    _check_folder(folder, set(names))
    with stage_folder(folder, names) as stage:

        def export(k: int) -> None:
            text = layer_text(network.layer(k))
            with _writing(folder), open(stage / names[k], "xb") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())  # a file that the disk does not have yet must not get its final name

        with ThreadPoolExecutor(LAYERS, initializer=use_all_cores) as pool:  # at its end nobody writes any more
            exported = pool.map(export, range(network.depth))
            deque(progress.bar(exported, "export network", len(targets), "file"), maxlen=0)
    return targets


def layer_text(layer: Layer) -> bytes:
    """The file of a layer."""
    return dispatch.compiled_module().write_entries(layer.offsets, layer.indices, np.atleast_1d(layer.values))


def _check_folder(folder: Path, ours: set[str]) -> None:
    """That layers can be written into the folder, and that no others would lie among them."""
    with safe_open.reading(folder):
        if not folder.is_dir():
            if folder.exists() or not folder.parent.is_dir():
                raise InputError(f"{folder}: layers are written into a folder, and it cannot be made there")
            return
    names = {path.name for path in safe_open.listing(folder)}
    if others := sorted(filter(TEXT_LAYER.fullmatch, names - ours)):
        raise InputError(f"{folder}: it holds other layers ({others[0]}); name an empty folder")


@contextlib.contextmanager
def stage_folder(folder: Path, names: list[str]) -> Iterator[Path]:
    """A hidden folder in `folder` to write the files `names` to; at the end they move to `folder`, the first one last.

    On any error, an interrupt included, the hidden folder is removed, and `folder` too when it was made here. Files
    of these names are replaced, the first one removed before any other: what a process leaves that is killed while
    they move has no file of the first name, and so is no mixture that looks whole.

    Raises:
        SpdnnError: `folder` cannot be made or written to.
    """
    new, stage = not folder.is_dir(), folder / f".export.{os.urandom(4).hex()}.part"

    def discard():
        shutil.rmtree(stage, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # which fails when there is anything in it

    with contextlib.ExitStack() as discarded:
        discarded.callback(discard)
        discarded.enter_context(endings.undone(discard))
        with _writing(folder):
            folder.mkdir(exist_ok=True)
            stage.mkdir()
        yield stage
        with endings.hold_signals(), _writing(folder):
            (folder / names[0]).unlink(missing_ok=True)
            for name in reversed(names):
                os.replace(stage / name, folder / name)
            endings.mark_final()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Tell what the operating system refuses (a full disk, no permission...) as one SpdnnError."""
    try:
        yield
    except OSError as error:
        raise SpdnnError(f"{folder}: {error.strerror or error}, so the layers were not written") from error
