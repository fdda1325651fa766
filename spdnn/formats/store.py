"""Networks in a store: all layers in one .safetensors file, or the formula that defines them.

The record (container.py): format "spdnn-network", kind, description, and
    kind "radixnet": neurons, layers, bias, ymax (null: no clip), seed
    kind "layers":   sha256 (of all layers' digests, Network.sha256), but for a prepared one
    prepared (any kind, optional): what an engine's preparation left

The tensors of kind "layers". `data`: the bytes of each layer, one after the other, its parts at multiples of 64 bytes:
    offsets  int64 (outputs + 1,), but for layers whose outputs all have as many inputs
    bias     float32 (outputs,), unless one serves all outputs
    values   float32 (edges,), unless one serves all edges; or, where they are few different ones, those and
             uint8 (edges,), which of them
    indices  uint16 or uint32 (edges,)
For layer k, a row of each of: `start` and `size` (of its bytes), `inputs`, `outputs`, `edges`, `different`
(values: 0 when they are all kept, -1 when there is one), `value`, `bias` (NaN: one for each output), `uneven` (offsets
are kept), `activation` (0 none, 1 relu), `ymax` (infinite: no clip), `blake3` (of its bytes), and, but for a prepared
network, `sha256` (Layer.sha256): a prepared network goes by its source's, and its own would take half of its writing.
Where identical neurons were merged, `classes` holds what Network.neuron_classes gives, equal arrays once; for each
layer, `classes_start` is the first byte (-1: none), and `classes_size` the number of outputs before.
"""

import math
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from spdnn.core import challenge, progress, safe_open
from spdnn.core.errors import InputError
from spdnn.core.network import Activation, Header, Layer, Network, check_chain, digest_of_layers, index_dtype
from spdnn.core.threads import in_order
from spdnn.core.validation import quote
from spdnn.formats import container
from spdnn.formats.checks import SPARSE, WIDE
from spdnn.formats.options import USUAL, ReadOptions
from spdnn.formats.radixnet import RadixNet

FORMAT = "spdnn-network"
SAMPLED, FEW_VALUES = 1024, 256  # weights of few different values, as merged neurons have, take a quarter
COMPARED_FIRST = 8  # so many of them are compared with every weight
WIDTHS, ANY = (1, challenge.MAX_WIDTH), np.iinfo(np.int64).max  # what numbers of a column may be, and are at most
COLUMNS = {
    "start": np.int64, "size": np.int64, "inputs": np.int64, "outputs": np.int64, "edges": np.int64,
    "different": np.int64, "classes_start": np.int64, "classes_size": np.int64, "ymax": np.float64, "value": np.float32,
    "bias": np.float32, "uneven": np.uint8, "activation": np.uint8, "sha256": np.uint8, "blake3": np.uint8,
}  # fmt: skip


class StoreNetwork(Network):
    """A network of explicit layers in a store, read when they are asked for, from any thread; each is checked against
    its digest when first read.

    Raises:
        InputError: the store is damaged, cut short or incomplete.
    """

    def __init__(self, path, record: dict, tensors: container.Tensors):
        self.path, self._whole_path, self._tensors = path, os.path.abspath(path), tensors
        self._sha256, self.description = record.get("sha256"), record.get("description")
        digested = "prepared" not in record
        if (digested and not isinstance(self._sha256, str)) or not isinstance(self.description, dict):
            raise InputError(f"{path}: the file is damaged: no SHA-256 of its layers, or no description of them")
        self._columns = columns = _columns(path, tensors, digested)
        self._depth = depth = len(columns["start"])
        self._sound, self._headers = [None] * depth, [None] * depth  # changed_at() when a layer was last digested
        self._digests = None
        if digested:
            self.description = {**self.description, "sha256": self._sha256}
            self._digests = [row.tobytes().hex() for row in columns["sha256"]]
            if digest_of_layers(self._digests) != self._sha256:
                why = "its layers' SHA-256 are not those that it was stored with"
                raise InputError(f"{path}: the network is damaged: {why}")
        widths = zip(columns["inputs"][1:].tolist(), columns["outputs"].tolist(), strict=False)
        if any(inputs != outputs for inputs, outputs in widths):
            check_chain([self._header(k, None) for k in range(depth)], str(path))

    @property
    def depth(self) -> int:
        return self._depth

    @property
    def edges(self) -> int:
        return int(self._columns["edges"].sum())  # headers may take layers

    def header(self, k: int) -> Header:
        """As Network.header says. Raises InputError, as `layer`, for a layer with a bias for each output."""
        if self._headers[k] is None:
            # A bias is copied: what is kept of a layer would keep all of its memory.
            bias = self.layer(k).bias.copy() if np.isnan(self._columns["bias"][k]) else None
            self._headers[k] = self._header(k, bias)
        return self._headers[k]

    def _header(self, k: int, bias: np.ndarray | None) -> Header:
        c = self._columns
        ymax = float(c["ymax"][k])
        try:
            activation = Activation("relu" if c["activation"][k] else "none", None if ymax == np.inf else ymax)
        except InputError as error:
            raise InputError(f"{self.path}: layer {k + 1} is damaged ({error})") from error
        inputs, outputs, edges = (int(c[name][k]) for name in ("inputs", "outputs", "edges"))
        return Header(inputs, outputs, edges, c["bias"][k] if bias is None else bias, activation, c["different"][k] < 0)

    def layer(self, k: int) -> Layer:
        """Layer k (0-based), in memory of its own.

        Raises:
            InputError: its data is damaged. SpdnnError: the file was written to since it was opened.
        """
        if not 0 <= k < self._depth:
            raise InputError(f"{self.path}: layer {k + 1} asked for; there are 1 to {self._depth}")
        where = f"{self.path}: layer {k + 1}"
        start, size = int(self._columns["start"][k]), int(self._columns["size"][k])
        content = self._tensors.part("data", start, start + size)
        # Bytes are digested the first time, and again where the file may have been written to and its time set back.
        stored, changed = self._columns["blake3"][k].tobytes().hex(), self._tensors.changed_at()
        if self._sound[k] != changed and (actual := container.blake3(content)) != stored:
            said = f"their BLAKE3 is {actual[:16]}..., the header says {stored[:16]}..."
            raise InputError(f"{where}: its bytes are damaged: {said}")
        try:
            layer = self._parts(k, content)
        except (ValueError, IndexError) as error:
            raise InputError(f"{where} is damaged ({error})") from error
        if self._sound[k] is None:
            layer.check(where)
        self._sound[k] = changed
        return layer

    def _parts(self, k: int, content: np.ndarray) -> Layer:
        at = 0

        def part(kind, count: int) -> np.ndarray:
            nonlocal at
            begin, size = at, count * np.dtype(kind).itemsize
            at += container.padded(size)
            if at > content.size:
                raise ValueError(f"it needs more than its {content.size} bytes")
            return content[begin : begin + size].view(kind)

        # The columns say which arrays were left out because they follow from others.
        c = self._columns
        inputs, outputs, edges, different = (int(c[name][k]) for name in ("inputs", "outputs", "edges", "different"))
        # Offsets are stored only where outputs have different numbers of edges.
        if c["uneven"][k]:
            offsets = part(np.int64, outputs + 1)
        elif edges % outputs:
            raise ValueError(f"{edges} edges cannot be as many for each of {outputs} outputs")
        else:
            offsets = np.arange(outputs + 1, dtype=np.int64) * (edges // outputs)
        bias = part(np.float32, outputs) if np.isnan(c["bias"][k]) else c["bias"][k]
        # Few different values: a byte for each edge, and a table; one value: none at all.
        if different > 0:
            values = part(np.float32, different)[part(np.uint8, edges)]
        else:
            values = c["value"][k] if different else part(np.float32, edges)
        indices = part(index_dtype(inputs), edges)
        if at != content.size:
            raise ValueError(f"it has {content.size} bytes and needs {at}")
        header = self._header(k, bias)
        return Layer.frozen(inputs, outputs, offsets, indices, values, bias, header.activation)

    def __reduce__(self):
        """Pickled as the path of its file and that file's digest, and opened again."""
        return _open_again, (self._whole_path, self._tensors.metadata[container.DIGEST])

    def __deepcopy__(self, memo: dict) -> "StoreNetwork":
        return self  # nothing in it changes, and the file may have another name by now

    def layer_sha256(self, k: int) -> str:
        return self._digests[k] if self._digests else super().layer_sha256(k)

    def identity(self) -> str:
        return self.sha256()

    def sha256(self) -> str:
        """As stored, but for a prepared network; each layer is checked against its own when it is read."""
        return self._sha256 or super().sha256()

    def neuron_classes(self, k: int) -> np.ndarray | None:
        """As Network.neuron_classes says; InputError where the data is damaged, cut short or missing."""
        start, size, outputs = (int(self._columns[name][k]) for name in ("classes_start", "classes_size", "outputs"))
        if start < 0:
            return None
        try:
            classes = np.frombuffer(self._tensors["classes"], index_dtype(outputs), size, start)
        except ValueError as error:
            raise InputError(f"{self.path}: the classes of layer {k + 1} are missing") from error
        if int(classes.max(initial=0)) >= outputs:
            raise InputError(f"{self.path}: the classes of layer {k + 1} are no numbers of outputs")
        return classes


def _open_again(path: str, digest: str) -> StoreNetwork:
    """The network that was pickled. Raises InputError: its file is gone, or holds another one."""
    record, tensors = container.read_record(path, FORMAT)
    if tensors.metadata[container.DIGEST] != digest:
        raise InputError(f"{path}: {container.PICKLED}")
    return StoreNetwork(path, record, tensors)


def _columns(path, tensors: container.Tensors, digested: bool) -> dict[str, np.ndarray]:
    """The columns of a store, when they can be what a writer wrote; `digested`: with the SHA-256 of each layer."""
    # A file may come from anywhere: types, shapes and ranges are checked before a column is used as a size.
    kinds = {name: kind for name, kind in COLUMNS.items() if digested or name != "sha256"}
    if missing := [name for name in (*kinds, "data", "classes") if name not in tensors]:
        raise InputError(f"{path}: the file is damaged: it has no tensor {missing[0]!r}")
    columns = {name: tensors[name] for name in kinds}
    depth = len(columns["start"])
    for name, kind in kinds.items():
        shape = (depth, 32) if name in ("sha256", "blake3") else (depth,)
        if columns[name].dtype != kind or columns[name].shape != shape:
            raise InputError(f"{path}: the file is damaged: {name} is {columns[name].dtype} {columns[name].shape}")
    form = tensors.shape("data")
    size = math.prod(form)
    # Sizes that no network has would make readers ask for memory without end.
    limits = {"start": (0, size), "size": (0, size), "edges": (0, size), "inputs": WIDTHS, "outputs": WIDTHS}
    limits |= {"different": (-1, ANY), "classes_start": (-1, ANY), "classes_size": (0, ANY)}
    for name, (least, most) in limits.items():
        low, high = int(columns[name].min(initial=least)), int(columns[name].max(initial=least))
        if low < least or high > most:
            raise InputError(f"{path}: {name} of a layer is {low if low < least else high}; that is impossible")
    least_edges = (columns["outputs"] - WIDE) // SPARSE  # a wide layer has some, for its offsets take memory
    if (columns["edges"] < least_edges).any():
        raise InputError(f"{path}: a layer of {int(columns['outputs'].max())} outputs with nearly no edges")
    if depth < 1 or int((columns["start"] + columns["size"]).max()) > size or len(form) != 1:
        raise InputError(f"{path}: the file is damaged: {depth} layers in {size} bytes")
    return columns


def open_network(path: Path, options: ReadOptions) -> Network:
    """The network in a .safetensors file: a store, or else a state dict.

    Raises:
        InputError: as read_network, or state_dicts.read_network; the options state what a store states.
    """
    if container.KEY not in container.Tensors(path).metadata:
        from spdnn.formats import state_dicts, tensors

        return state_dicts.read_network(tensors.Safetensors(path), "safetensors", options)
    stated = options.bias, options.last, options.rows, options.epsilon
    if any(value is not None for value in stated) or options.clip != USUAL:
        raise InputError(f"{path}: leave out --last, --bias, --clip, --rows and --epsilon: this model file states them")
    network = read_network(path)
    with safe_open.name_errors(path):
        return network if options.layers is None else network.first(options.layers)


@safe_open.releasing()
def read_network(path) -> Network:
    """The network in a store: a StoreNetwork, or the RadixNet whose formula is stored.

    Raises:
        InputError: no such file, no store, another format or version, damaged or cut short.
    """
    return _read(path)[0]


@safe_open.releasing()
def read_prepared(path) -> tuple[Network, dict]:
    """A prepared network, and what `write_prepared` got with it.

    Raises:
        InputError: as read_network; or the network was not prepared.
    """
    network, info = _read(path)
    if not isinstance(info, dict):
        raise InputError(f"{path}: this network is not a prepared one")
    return network, info


def write_network(path, network: Network, formula_ok: bool = False, what: str = "write network") -> None:
    """Store a network, a layer at a time, whole or not at all.

    Args:
        formula_ok: store a RadixNet as its formula (a kilobyte), not as its layers.
        what: what progress calls it.

    Raises:
        InputError: a layer that is not sound.
        SpdnnError: the file cannot be written.
    """
    _write(path, network, {}, formula_ok, what)


def write_prepared(path, network: Network, info: dict, durable: bool = True) -> None:
    """Store a prepared network (a RadixNet as its formula) with `info`, fit for JSON.

    `durable`: see files.replacing. Raises as write_network.
    """
    _write(path, network, {"prepared": info}, True, "write prepared network", durable)


def write_layers(
    path, layers: Iterable[tuple[int, Layer]], description: dict, depth: int | None, what: str, durable: bool = True
) -> None:
    """Store layers as they come, in any order; the description that is read back has the network's `sha256`.

    Args:
        layers: (k, layer), k from 0, each once; none may be missing at the end.
        depth: how many there will be, or None; what: what progress calls it; durable: see files.replacing.

    Raises:
        InputError: a layer that is not sound, is missing or is there twice, or widths that do not chain.
        SpdnnError: the file cannot be written.
    """
    record = {"format": FORMAT, "description": description}
    _write_layers(path, in_order(lambda item: _lay_out(*item), layers), record, depth, what, durable=durable)


def _write(path, network: Network, record: dict, formula_ok: bool, what: str, durable: bool = True) -> None:
    record = {"format": FORMAT, "description": network.description, **record}
    if formula_ok and type(network) is RadixNet:
        record |= {"kind": "radixnet", "neurons": network.neurons, "layers": network.depth}
        record |= {"bias": float(network.bias), "ymax": network.activation.ymax, "seed": network.seed}
        with container.creating(path, record, durable=durable):
            return
    laid = in_order(partial(_laid_of, network, "prepared" not in record), range(network.depth))
    _write_layers(path, laid, record, network.depth, what, network, durable)


def _write_layers(
    path,
    laid: Iterable,
    record: dict,
    depth: int | None,
    what: str,
    network: Network | None = None,
    durable: bool = True,
) -> None:
    with container.creating(path, {**record, "kind": "layers"}, durable=durable) as writer:
        rows, headers = {}, {}
        writer.append("data")
        # Room on the disk is asked for first, so that a full disk fails now and not after hours.
        if isinstance(network, RadixNet | StoreNetwork):  # whose layers need not be read for their sizes
            known = map(network.header, range(network.depth))
            writer.reserve(sum(header.edges * index_dtype(header.inputs).itemsize for header in known))
        # Layers are written as they come; the columns say where each one lies.
        for k, header, row, parts in progress.bar(laid, what, depth):
            if k in rows:
                raise InputError(f"layer {k + 1} is there twice")
            headers[k], rows[k] = header, row
            row["start"], row["size"] = writer.append("data", *parts)
        order = range(len(rows))
        if not rows or set(rows) != set(order):
            raise InputError(f"{len(rows)} layers were given and not every number of theirs; none may be missing")
        # Only now all layers are known: they must chain.
        check_chain([headers[k] for k in order])
        writer.write("classes", _place_classes(network, rows))
        for name, kind in COLUMNS.items():
            if name in rows[0]:
                writer.write(name, np.array([rows[k][name] for k in order], kind))
        # The identity of the network: of its layers, not of the way they are stored.
        if "sha256" in rows[0]:
            writer.record["sha256"] = digest_of_layers(rows[k]["sha256"].tobytes().hex() for k in order)


# A function of the module: a closure would keep the file open as long as an error that came through it.
def _laid_of(network: Network, digested: bool, k: int) -> tuple[int, Header, dict, list[np.ndarray]]:
    return _lay_out(k, network.layer(k), digested)


def _lay_out(k: int, layer: Layer, digested: bool = True) -> tuple[int, Header, dict, list[np.ndarray]]:
    """k, a layer's header, its row of the columns, and the parts of its bytes.

    Args:
        digested: the row has the layer's SHA-256.

    Raises:
        InputError: the layer is not sound.
    """
    layer.check(f"layer {k + 1}")
    ymax = layer.activation.ymax
    # Leave out what follows from the sizes or is one number: offsets, bias, values.
    several = np.ndim(layer.bias) != 0
    even = np.arange(layer.outputs + 1, dtype=np.int64) * (layer.edges // layer.outputs)
    uneven = not np.array_equal(layer.offsets, even)
    values = [] if layer.single_value else _few(layer.values) or [layer.values]
    parts = [layer.offsets] * uneven + [layer.bias] * several + values + [layer.indices]
    parts = [np.ascontiguousarray(part) for part in parts]
    # The digest covers the padding too, as the parts lie in the file.
    padded = (piece for part in parts for piece in (part, np.zeros(-part.nbytes % container.FILE_ALIGNMENT, np.uint8)))
    row = {
        "inputs": layer.inputs,
        "outputs": layer.outputs,
        "edges": layer.edges,
        "different": -1 if not values else values[0].size if len(values) == 2 else 0,
        "value": layer.values if layer.single_value else 0,
        "bias": np.nan if several else layer.bias,
        "uneven": uneven,
        "activation": layer.activation.name == "relu",
        "ymax": np.inf if ymax is None else ymax,
        "blake3": _bytes(container.blake3(*padded)),
    }
    row |= {"sha256": _bytes(layer.sha256())} if digested else {}
    return k, layer.header, row, parts


def _few(values: np.ndarray) -> list[np.ndarray] | None:
    """[the different values, ascending by their bits, and of each value its number] where they are few, or None."""
    bits, different = values.view(np.uint32), np.empty(0, np.uint32)
    missing = bits
    # A sample of the values that are missing finds most of them; sorting all edges would be slow.
    while missing.size and different.size < FEW_VALUES:
        different = np.union1d(different, missing[:SAMPLED])
        numbers, missing = _numbers(different, bits)
    few = not missing.size and different.size <= FEW_VALUES
    return [different.view(np.float32), numbers.astype(np.uint8)] if few else None


def _numbers(different: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(of each of the bits its place among the different ones, ascending; those that are not among them)."""
    if different.size > COMPARED_FIRST:
        numbers = np.minimum(np.searchsorted(different, bits), different.size - 1)
        return numbers, bits[different[numbers] != bits]
    # A few comparisons are faster than a search.
    numbers, known = np.zeros(bits.size, np.uint8), np.zeros(bits.size, bool)
    for number, value in enumerate(different):
        same = bits == value
        known |= same
        numbers += same * np.uint8(number)
    return numbers, bits[~known]


def _place_classes(network: Network | None, rows: dict[int, dict]) -> np.ndarray:
    """The classes of all layers as bytes, equal ones once, where neurons were merged; `rows` get their places."""
    places, end = {}, 0
    for k, row in rows.items():
        classes = network.neuron_classes(k) if network else None
        row["classes_start"], row["classes_size"] = -1, 0
        if classes is not None:
            content = classes.astype(index_dtype(network.header(k).outputs)).tobytes()
            row["classes_start"], row["classes_size"] = places.setdefault(content, end), len(classes)
            end = max(end, row["classes_start"] + len(content))
    return np.frombuffer(b"".join(places), np.uint8)


def _bytes(digest: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digest), np.uint8)


def _read(path) -> tuple[Network, dict | None]:
    record, tensors = container.read_record(path, FORMAT)
    kind, info = record.get("kind"), record.get("prepared")
    if kind == "layers":
        return StoreNetwork(path, record, tensors), info
    if kind != "radixnet":
        raise InputError(f"{path}: a network of kind {quote(kind)}; it must be 'radixnet' or, with tensors, 'layers'")
    try:
        neurons, layers, seed = whole = [record[name] for name in ("neurons", "layers", "seed")]
        if not all(type(number) is int for number in whole):
            raise ValueError("neurons, layers and seed must be whole numbers")
        return RadixNet(neurons, layers, record["bias"], record["ymax"], seed), info
    except KeyError as error:
        raise InputError(f"{path}: {error} is missing") from error
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
