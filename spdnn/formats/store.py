"""Networks in HDF5: explicit layers, each with its checksum, or the formula that defines them.

format = "spdnn-network", version = 1, kind, description (JSON)
kind "radixnet": neurons, layers, bias, ymax (absent: no clip), seed
kind "layers":   depth, sha256 (of all layers' digests), and a group layers/000001... for each layer:
    inputs, outputs, edges, activation, ymax (absent: no clip), sha256 (Layer.sha256)
    indices                    dataset
    values | value             dataset | attribute, when one value serves all edges
    bias                       dataset | attribute, when one bias serves all outputs
    offsets | per_output       dataset | attribute, when all outputs have as many inputs
    classes                    attribute, where identical neurons were merged: name of a dataset in group classes, of
                               Network.neuron_classes(k), with its sha256
prepared (any kind, optional): a text dataset, JSON of what an engine's preparation found
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import h5py
import numpy as np

from spdnn import challenge, progress
from spdnn.errors import InputError
from spdnn.formats import hdf5
from spdnn.network import Activation, Header, Layer, Network, check_chain, digest_of_layers
from spdnn.sources.radixnet import RadixNet

FORMAT = "spdnn-network"
COMPRESSED = {"compression": "lzf", "shuffle": True}  # fast, and part of every h5py
SAMPLE, FEW = 1024, 64  # weights of few different values, as merged neurons have, shrink to a twentieth


class StoreNetwork(Network):
    """A network of explicit layers in a store; every layer read is checked against its digest.

    Layers may be read from any thread. Closing it is optional.

    Raises:
        InputError: the store is damaged, cut short or incomplete.
    """

    def __init__(self, path, file: h5py.File):
        self.path, self._file, self._lock = path, file, threading.Lock()
        with hdf5.telling(path):
            self._depth, self._sha256 = hdf5.whole(file, "depth"), hdf5.text(file, "sha256")
            self.description = {**hdf5.dictionary(file, "description"), "sha256": self._sha256}
            found = len(file["layers"])
        if not 1 <= self._depth == found:
            raise InputError(f"{path}: {found} layers in it, though it says it has {self._depth}")
        self._headers, self._digests = [], []
        for k in range(self._depth):
            with hdf5.telling(path, f"layer {k + 1}"):
                group = file[_name(k)]
                self._headers.append(_header(group))
                self._digests.append(hdf5.text(group, "sha256"))
        check_chain(self._headers, str(path))
        if digest_of_layers(self._digests) != self._sha256:
            raise InputError(
                f"{path}: the network is damaged: its layers' SHA-256 are not those that it was stored with"
            )

    @property
    def depth(self) -> int:
        return self._depth

    def header(self, k: int) -> Header:
        return self._headers[k]

    def layer(self, k: int) -> Layer:
        """Layer k (0-based).

        Raises:
            InputError: its data is damaged, cut short or missing.
        """
        if not 0 <= k < self._depth:
            raise InputError(f"{self.path}: layer {k + 1} asked for; there are 1 to {self._depth}")
        where = f"{self.path}: layer {k + 1}"
        with self._lock, hdf5.telling(self.path, f"layer {k + 1}"):
            layer = _layer(self._file[_name(k)], self._headers[k])
        layer.check(where)
        digest = layer.sha256()
        if digest != self._digests[k]:
            raise InputError(f"{where} is damaged: its SHA-256 is {digest}, the store says {self._digests[k]}")
        return layer

    def layer_sha256(self, k: int) -> str:
        return self._digests[k]

    def identity(self) -> str:
        return self._sha256

    def sha256(self) -> str:
        """The digest of all layers, as stored; each layer is checked against its own when it is read."""
        return self._sha256

    def neuron_classes(self, k: int) -> np.ndarray | None:
        """As Network.neuron_classes says.

        Raises:
            InputError: the data is damaged, cut short or missing.
        """
        with self._lock, hdf5.telling(self.path, f"the classes of layer {k + 1}"):
            group = self._file[_name(k)]
            if "classes" not in group.attrs:
                return None
            dataset = self._file["classes"][hdf5.text(group, "classes")]
            found = dataset[:]
            if _sha256(found) != hdf5.text(dataset, "sha256"):
                raise ValueError("they do not have the SHA-256 that they were stored with")
            if found.ndim != 1 or found.dtype.kind != "u" or int(found.max(initial=0)) >= self._headers[k].outputs:
                raise ValueError("they are no numbers of outputs")
            return found

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> StoreNetwork:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def read_network(path) -> Network:
    """The network in a store: a StoreNetwork, or the RadixNet whose formula is stored.

    Raises:
        InputError: no such file, not HDF5, another format, a newer version, damaged or cut short.
    """
    return _read(path)[0]


def read_prepared(path) -> tuple[Network, dict]:
    """A prepared network and what `write_prepared` was told of it.

    Raises:
        InputError: as read_network; or the network was not prepared.
    """
    network, info = _read(path)
    if info is None:
        raise InputError(f"{path}: this network is not a prepared one")
    return network, info


def write_network(path, network: Network, formula_ok: bool = False, what: str = "write network") -> None:
    """Store a network, a layer at a time, whole or not at all.

    Args:
        formula_ok: store a RadixNet as its formula (kilobytes) and not as its layers.
        what: what progress calls it.

    Raises:
        InputError: a layer that is not sound.
        SpdnnError: the file cannot be written.
    """
    _write(path, network, None, formula_ok, what)


def write_prepared(path, network: Network, info: dict, what: str = "write prepared network") -> None:
    """Store a prepared network (a RadixNet as its formula) with `info`, fit for JSON. Raises as write_network."""
    _write(path, network, info, True, what)


def write_layers(
    path, layers: Iterable[tuple[int, Layer]], description: dict, depth: int | None = None, what: str = "write network"
) -> None:
    """Store layers as they come, in any order; `description` gets the network's `sha256`.

    Args:
        layers: (k, layer), k from 0, each once; none may be missing at the end.
        depth: how many there will be, when that is known; what: what progress calls it.

    Raises:
        InputError: a layer that is not sound, is missing or is there twice, or widths that do not chain.
        SpdnnError: the file cannot be written.
    """
    with hdf5.creating(path, FORMAT) as (file, check):
        _add_layers(file, check, layers, description, depth, what)


def _write(path, network: Network, info: dict | None, formula_ok: bool, what: str) -> None:
    with hdf5.creating(path, FORMAT) as (file, check):
        if formula_ok and type(network) is RadixNet:
            file.attrs["kind"] = "radixnet"
            file.attrs["description"] = json.dumps(network.description)
            file.attrs.update(
                neurons=network.neurons, layers=network.depth, seed=network.seed, bias=float(network.bias)
            )
            if network.activation.ymax is not None:
                file.attrs["ymax"] = float(network.activation.ymax)
        else:
            _add_layers(file, check, enumerate(network.layers()), network.description, network.depth, what)
            _add_classes(file, network)
        if info is not None:
            text = json.dumps(info)
            file["prepared"] = text
            file["prepared"].attrs["sha256"] = hashlib.sha256(text.encode()).hexdigest()


def _add_layers(
    file: h5py.File, check: Callable, layers: Iterable, description: dict, depth: int | None, what: str
) -> None:
    file.attrs["kind"] = "layers"
    headers, digests = {}, {}
    for k, layer in progress.bar(layers, what, depth):
        if k in headers:
            raise InputError(f"layer {k + 1} is there twice")
        headers[k], digests[k] = _add_layer(file.create_group(_name(k)), layer, k)
        check()
    if not headers or sorted(headers) != list(range(len(headers))):
        raise InputError(f"{len(headers)} layers were given and not every number of theirs; none may be missing")
    order = range(len(headers))
    check_chain([headers[k] for k in order])
    file.attrs["depth"] = len(headers)
    file.attrs["sha256"] = digest_of_layers(digests[k] for k in order)
    file.attrs["description"] = json.dumps({**description, "sha256": file.attrs["sha256"]})


def _add_layer(group: h5py.Group, layer: Layer, k: int) -> tuple[Header, str]:
    ymax = layer.activation.ymax
    if ymax is not None:
        layer = replace(layer, activation=Activation(layer.activation.name, float(ymax)))
        group.attrs["ymax"] = float(ymax)
    layer.check(f"layer {k + 1}")
    digest = layer.sha256()
    group.attrs.update(
        inputs=layer.inputs,
        outputs=layer.outputs,
        edges=layer.edges,
        activation=layer.activation.name,
        sha256=digest,
    )
    group["indices"] = layer.indices
    if layer.single_value:
        group.attrs["value"] = layer.values
    else:
        few = np.unique(layer.values[:SAMPLE]).size <= FEW
        group.create_dataset("values", data=layer.values, **(COMPRESSED if few else {}))
    if np.ndim(layer.bias) == 0:
        group.attrs["bias"] = layer.bias
    else:
        group["bias"] = layer.bias
    per_output = layer.edges // layer.outputs
    if np.array_equal(layer.offsets, np.arange(layer.outputs + 1, dtype=np.int64) * per_output):
        group.attrs["per_output"] = per_output
    else:
        group.create_dataset("offsets", data=layer.offsets, **COMPRESSED)
    return layer.header, digest


def _add_classes(file: h5py.File, network: Network) -> None:
    """Store where identical neurons were merged; layers that agree share one dataset."""
    names = {}
    for k in range(network.depth):
        classes = network.neuron_classes(k)
        if classes is None:
            continue
        digest = _sha256(classes)
        if digest not in names:
            names[digest] = f"{len(names) + 1:06d}"
            dataset = file.create_dataset(f"classes/{names[digest]}", data=classes)
            dataset.attrs["sha256"] = digest
        file[_name(k)].attrs["classes"] = names[digest]


def _sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _name(k: int) -> str:
    return f"layers/{k + 1:06d}"


def _header(group: h5py.Group) -> Header:
    attrs = dict(group.attrs)
    for name in ("inputs", "outputs", "edges"):
        if not isinstance(attrs[name], np.integer) or attrs[name] < (name != "edges"):
            raise ValueError(f"attribute {name!r} is {attrs[name]}")
    bias = np.float32(attrs["bias"]) if "bias" in attrs else group["bias"][:]
    try:
        activation = Activation(attrs["activation"], float(attrs["ymax"]) if "ymax" in attrs else None)
    except InputError as error:
        raise ValueError(str(error)) from error
    inputs, outputs, edges = (int(attrs[name]) for name in ("inputs", "outputs", "edges"))
    if max(inputs, outputs) > challenge.MAX_WIDTH:
        raise ValueError(f"a width of {max(inputs, outputs)}, though {challenge.MAX_WIDTH} is the most")
    return Header(inputs, outputs, edges, bias, activation, "value" in attrs)


def _layer(group: h5py.Group, header: Header) -> Layer:
    values = np.float32(group.attrs["value"]) if header.single_value else group["values"][:]
    if "per_output" in group.attrs:
        offsets = np.arange(header.outputs + 1, dtype=np.int64) * int(group.attrs["per_output"])
    else:
        offsets = group["offsets"][:]
    indices = group["indices"][:]
    if indices.shape != (header.edges,):
        raise ValueError(f"{indices.size} indices for {header.edges} edges")
    return Layer(header.inputs, header.outputs, offsets, indices, values, header.bias, header.activation)


def _read(path) -> tuple[Network, dict | None]:
    file = hdf5.opening(path, FORMAT)
    try:
        with hdf5.telling(path):
            kind, info = hdf5.text(file, "kind"), _info(file)
        if kind == "layers":
            return StoreNetwork(path, file), info
        if kind != "radixnet":
            raise InputError(f"{path}: a network of kind {kind!r}; it must be 'layers' or 'radixnet'")
        network = _formula(path, file)
        file.close()
        return network, info
    except BaseException:
        file.close()
        raise


def _formula(path, file: h5py.File) -> RadixNet:
    with hdf5.telling(path):
        neurons, layers, seed = (hdf5.whole(file, name) for name in ("neurons", "layers", "seed"))
        bias, ymax = hdf5.number(file, "bias"), hdf5.number(file, "ymax")
        if bias is None:
            raise KeyError("attribute 'bias' is missing")
        try:
            return RadixNet(neurons, layers, bias, ymax, seed)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error


def _info(file: h5py.File) -> dict | None:
    if "prepared" not in file:
        return None
    text = file["prepared"][()]
    if hashlib.sha256(text).hexdigest() != hdf5.text(file["prepared"], "sha256"):
        raise ValueError("what its preparation found does not have the SHA-256 that it was stored with")
    return json.loads(text)
