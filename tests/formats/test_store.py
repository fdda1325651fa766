"""Our stores: what comes back is what went in, or one sentence says why not; writing leaves all or nothing."""

import json
import os
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses, small_disk

from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import Activation, Layer, MemoryNetwork
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats import container, store, tensors
from spdnn.formats import inputs as inputs_store
from spdnn.formats.radixnet import RadixNet


@pytest.fixture
def net(random_network):
    return random_network([6, 9, 4], bias="vector", clip=3.0, last="none")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def layers_of(draw):
    widths = draw(st.lists(st.integers(1, 7), min_size=2, max_size=4))
    made = []
    for rows, columns in zip(widths, widths[1:], strict=False):
        mask = np.array(draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns)))
        values = np.ones(mask.size) if draw(st.booleans()) else np.arange(1, mask.size + 1) / 3
        bias = np.linspace(-1, 1, columns) if draw(st.booleans()) else -0.3
        activation = draw(st.sampled_from([Activation("relu", 32), Activation("relu"), Activation("none")]))
        made.append(Layer.from_matrix((values * mask).reshape(rows, columns), bias, activation))
    return made


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_round_trip(tmp_path_factory, data):
    made = MemoryNetwork(layers_of(data.draw), {"source": "test"})
    path = tmp_path_factory.mktemp("store") / "a.safetensors"
    store.write_network(path, made)
    read = store.read_network(path)
    assert read.depth == made.depth
    for k in range(made.depth):
        ours, layer = made.layer(k), read.layer(k)
        assert (layer.inputs, layer.outputs, layer.activation) == (ours.inputs, ours.outputs, ours.activation)
        for name in ("offsets", "indices", "values", "bias"):
            assert getattr(layer, name).dtype == getattr(ours, name).dtype
            assert np.array_equal(getattr(layer, name), getattr(ours, name))
        header = read.header(k)
        assert (header.edges, header.single_value) == (ours.edges, ours.single_value)
        assert np.array_equal(header.bias, ours.bias)
    assert read.sha256() == read.identity() == read.description["sha256"]
    assert read.description["source"] == "test"
    again = path.with_name("b.safetensors")
    store.write_network(again, read)
    assert store.read_network(again).identity() == read.identity()


def test_explicit_layers_of_a_formula(path):
    formula = RadixNet(64, 5, bias=-0.1)
    store.write_network(path, formula)
    read = store.read_network(path)
    assert isinstance(read, store.StoreNetwork)
    assert read.sha256() == formula.sha256()
    assert read.layer(4).sha256() == formula.layer(4).sha256()
    assert read.layer(0).indices.base is not None  # of the mapped file
    assert path.stat().st_size < 5 * (2 * 64 * 32 + 64) + 10_000  # nothing but indices is kept of a layer


@pytest.mark.parametrize("ymax", [None, 32.0])
def test_formula(path, ymax):
    formula = RadixNet(64, 5, bias=-0.1, ymax=ymax, seed=7)
    store.write_network(path, formula, formula_ok=True)
    read = store.read_network(path)
    assert type(read) is RadixNet
    assert read.description == formula.description
    assert read.identity() == formula.identity()
    assert read.sha256() == formula.sha256()
    assert path.stat().st_size < 20_000


def test_prepared(path, net):
    info = {"classes": list(range(30_000)), "merged": True}
    store.write_prepared(path, net, info)
    read, found = store.read_prepared(path)
    assert found == info
    assert read.sha256() == net.sha256()
    formula = RadixNet(32, 3, bias=0)
    store.write_prepared(path, formula, {})
    read, found = store.read_prepared(path)
    assert type(read) is RadixNet
    assert not found
    store.write_network(path, net)
    refuses(r"net\.safetensors: this network is not a prepared one", store.read_prepared, path)


def test_a_prepared_official_network_is_many_times_smaller(path, tmp_path):
    network = RadixNet(16384, 40)
    store.write_network(tmp_path / "whole.safetensors", network)
    store.write_prepared(path, merge_neurons(network)[0], {})
    assert (tmp_path / "whole.safetensors").stat().st_size / path.stat().st_size > 13


def test_merged_neurons_keep_their_classes(path):
    merged, _ = merge_neurons(RadixNet(256, 6, -0.3))
    store.write_prepared(path, merged, {})
    read, _ = store.read_prepared(path)
    for k in range(6):
        np.testing.assert_array_equal(read.neuron_classes(k), merged.neuron_classes(k))
        assert read.layer(k).sha256() == merged.layer(k).sha256()
    assert read.first(3).neuron_classes(2).size == 256
    # A block's last layer has half as many; all others agree.
    assert len(set(container.Tensors(path)["classes_start"].tolist())) == 2
    for name, value in (("classes", 255), ("classes_start", 1 << 40), ("classes_size", 1 << 40)):
        store.write_prepared(path, merged, {})
        forge(path, change(name, value))
        read, _ = store.read_prepared(path)
        refuses(r"net\.safetensors: the classes of layer 1 are (missing|no numbers of outputs)", read.neuron_classes, 0)


def test_what_is_kept_of_a_layer_keeps_none_of_its_memory(path):
    """Else streaming a network with a bias for each output would hold all of it in the end."""
    made = [Layer.from_matrix(np.ones((500, 500)) + np.eye(500), np.arange(500.0)) for _ in range(20)]
    store.write_network(path, MemoryNetwork(made))
    read = store.read_network(path)
    tracemalloc.start()
    for k in range(read.depth):
        read.header(k)
        assert read.layer(k).edges == 250_000
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < made[0].nbytes / 4
    assert peak < 4 * made[0].nbytes


def test_from_many_threads(path):
    formula = RadixNet(64, 40, bias=-0.1)
    store.write_network(path, formula)
    read = store.read_network(path)
    with ThreadPoolExecutor(4) as pool:
        digests = list(pool.map(lambda k: read.layer(k % 40).sha256(), range(120)))
    assert digests == [formula.layer(k).sha256() for k in range(40)] * 3


def test_first_layers_and_bounds(path, net):
    store.write_network(path, net)
    read = store.read_network(path)
    assert read.first(1).identity() != read.identity()
    refuses("layer 3 asked for; there are 1 to 2", read.layer, 2)


def forge(path, fault):
    """Change record and tensors as `fault` does, and seal them again; only the digests of parts are as they were."""
    tensors = container.Tensors(path)
    record, arrays = json.loads(tensors.metadata["spdnn"]), {name: tensors[name].copy() for name in tensors}
    fault(record, arrays)
    with container.creating(path, record) as writer:
        for name, array in arrays.items():
            writer.write(name, array)


def change(name, value, place=0):
    """One element of a tensor."""

    def changed(record, tensors):
        tensors[name].reshape(-1)[place] = value

    return changed


def told(name, value):
    """One entry of the record."""

    def changed(record, tensors):
        record[name] = value

    return changed


def gone(name):
    def removed(record, tensors):
        (record if name in record else tensors).pop(name)

    return removed


def with_digests(fault):
    """As if the layers' bytes had their digests: only what a layer is made of can be wrong."""

    def changed(record, tensors):
        fault(record, tensors)
        for k, (start, size) in enumerate(zip(tensors["start"], tensors["size"], strict=True)):
            digest = container.blake3(tensors["data"][start : start + size])
            tensors["blake3"][k] = np.frombuffer(bytes.fromhex(digest), np.uint8)

    return changed


def in_layer_2(kind, place, value):
    """One number of layer 2: offsets, bias, values and indices, each from a multiple of 64 bytes on."""

    def changed(record, tensors):
        part = tensors["data"][tensors["start"][1] + place :][: np.dtype(kind).itemsize]
        part[:] = np.frombuffer(kind(value).tobytes(), np.uint8)

    return changed


FAULTS = [
    (
        in_layer_2(np.float32, 64, 0.5),
        "layer 2: its bytes are damaged: their BLAKE3 is [0-9a-f]{16}..., the header says [0-9a-f]{16}",
    ),
    (with_digests(in_layer_2(np.int64, 8, 40)), "layer 2: offsets must ascend from 0"),
    (with_digests(in_layer_2(np.float32, 64, np.nan)), "layer 2: a bias is NaN"),
    (with_digests(change("data", 255, -64)), "layer 2: input neuron 255 .* is out of range|layer 2.*unsorted"),
    (change("ymax", -4.0), "layer 1 is damaged.*a clip is a positive number"),
    (change("activation", 1, 1), None),
    (change("edges", 1, 1), "layer 2: offsets must ascend from 0 to the number of edges, 1"),
    (change("edges", 500, 1), r"layer 2 is damaged \(it needs more than its \d+ bytes\)"),
    (change("uneven", 0, 1), "layer 2 is damaged"),
    (change("different", 300, 1), "layer 2 is damaged"),
    (change("different", -2), "different of a layer is -2; that is impossible"),
    (change("inputs", 10, 1), "layer 2 takes 10 inputs but layer 1 has 9 outputs"),
    (change("outputs", 0, 1), "outputs of a layer is 0; that is impossible"),
    (change("outputs", 2**27 + 1, 1), "outputs of a layer is 134217729; that is impossible"),
    (change("edges", 1 << 40, 1), "edges of a layer is 1099511627776; that is impossible"),
    (change("start", -64), "start of a layer is -64; that is impossible"),
    (change("size", 1 << 40), "size of a layer is 1099511627776; that is impossible"),
    (change("sha256", 7), "the network is damaged: its layers' SHA-256 are not those"),
    (told("sha256", "0" * 64), "the network is damaged: its layers' SHA-256 are not those"),
    (told("sha256", 5), "the file is damaged: no SHA-256 of its layers"),
    (gone("inputs"), "it has no tensor 'inputs'"),
    (gone("data"), "it has no tensor 'data'"),
    (lambda _, tensors: tensors.update(edges=tensors["edges"][:1]), r"edges is int64 \(1,\)"),
    (lambda _, tensors: tensors.update({n: a[:0] for n, a in tensors.items() if n in store.COLUMNS}), "0 layers in"),
    (told("description", []), "no description"),
    (told("kind", "other"), "a network of kind 'other'; it must be 'radixnet' or, with tensors, 'layers'"),
    (gone("kind"), "a network of kind None"),
    (told("format", "spdnn-inputs"), "its format is 'spdnn-inputs', not 'spdnn-network'"),
    (told("format", ["spdnn-inputs"]), r"its format is .*, not 'spdnn-network'"),
    (gone("format"), "its format is None, not 'spdnn-network'"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_what_cannot_be_is_refused_though_it_is_sealed(path, net, fault, said):
    store.write_network(path, net)
    forge(path, fault)
    if said:
        refuses(rf"net\.safetensors: .*({said})", lambda: list(store.read_network(path).layers()))
    else:  # an activation stands in no layer's bytes, but in the digest of the whole; forged, it is another network
        assert store.read_network(path).layer(1).activation.name == "relu"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (gone("bias"), "'bias' is missing"),
        (gone("seed"), "'seed' is missing"),
        (told("neurons", 33), "33 neurons: a RadiX-Net has"),
        (told("neurons", 32.0), "must be whole numbers"),
        (told("layers", 2**40), "1099511627776 layers: at most 2147483647"),
        (told("bias", 1e39), r"bias 1e\+39: it must be a finite number"),
        (told("bias", "low"), "bias low: it must be a finite number"),
    ],
)
def test_damaged_formula(path, fault, said):
    store.write_network(path, RadixNet(32, 3, bias=0), formula_ok=True)
    forge(path, fault)
    refuses(rf"net\.safetensors: .*{said}", store.read_network, path)


def test_cut_short_or_no_store(path, net, tmp_path):
    store.write_network(path, net)
    content = path.read_bytes()
    more = b"\xff" * 8 + content[8:]
    for other in (content[:30], content[:9000], content[:-1], content + b"\0", b"", b"hello", content[1:], more):
        path.write_bytes(other)
        refuses(r"net\.safetensors: this is no sound \.safetensors file", store.read_network, path)
    path.write_bytes(content.replace(b'"version\\\\": 3'.replace(b"\\\\", b"\\"), b'"version\\": 2'))
    refuses("version 2 of spdnn-network; version 3 is read here", store.read_network, path)
    refuses("there is no such file", store.read_network, tmp_path / "none.safetensors")
    refuses("this is a folder", store.read_network, tmp_path)


def flips(path, read, step):
    """Read a file with one bit in `step` flipped in turn: the part that is refused; the others change nothing."""
    content, expected, places, refused = path.read_bytes(), read(), range(0, 8 * path.stat().st_size, step), 0
    for place in places:
        other = bytearray(content)
        other[place // 8] ^= 1 << place % 8
        path.write_bytes(other)
        try:
            assert read() == expected, place
        except InputError as error:
            said, refused = str(error), refused + 1
            assert "\n" not in said
            assert len(said.replace(str(path), "")) < 300
    path.write_bytes(content)
    return refused / len(places)


@pytest.fixture
def small(monkeypatch):
    """Headers without reserve, so that few bytes are blanks."""
    creating = container.creating
    monkeypatch.setattr(container, "creating", lambda *given, **more: creating(*given, **more, reserve=2_500))


@pytest.mark.parametrize("step", [97, pytest.param(7, marks=pytest.mark.full("flips"))])
def test_any_bit_changed_is_refused_or_harmless(path, net, small, tmp_path, step):
    """Explicit layers with classes, a formula, inputs of each kind."""
    merged, _ = merge_neurons(RadixNet(32, 2, -0.3))
    store.write_prepared(path, merged, {"found": 1})

    def layers():
        network, info = store.read_prepared(path)
        classes = [network.neuron_classes(k).tobytes() for k in range(network.depth)]
        return [[layer.sha256() for layer in network.layers()], classes, network.description, info]

    assert flips(path, layers, step) > 0.5  # others are blanks and what fills up to 64 bytes
    formula = tmp_path / "f.safetensors"
    store.write_network(formula, RadixNet(32, 2, -0.3), formula_ok=True)
    assert flips(formula, lambda: store.read_network(formula).description, step)
    for kind in ("bits", "dense", "csr", "repeated"):
        stored = tmp_path / kind
        inputs_store.write_inputs(stored, KINDS[kind])

        def rows(path=stored):
            read = inputs_store.read_inputs(path)
            return [read.dense(np.arange(read.count)).tobytes(), read.description, read.count]

        assert flips(stored, rows, step)


def overwrite(path, content):
    """As cp and rsync --inplace do: into the file that is there."""
    time.sleep(0.02)  # the clock of files ticks every 4 ms
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate(len(content))


# What is done to a file that is open, of its own content and that of another network.
CHANGES = {
    "another network": lambda path, own, other: overwrite(path, other),
    "the end is zeros": lambda path, own, other: overwrite(path, own[:-64] + bytes(64)),
    "cut short": lambda path, own, other: overwrite(path, own[: len(own) // 2]),
    "longer": lambda path, own, other: overwrite(path, own + b"x"),
    "emptied": lambda path, own, other: overwrite(path, b""),
    "written anew": lambda path, own, other: overwrite(path, own),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_is_changed_while_it_is_in_use(path, net, random_network, change):
    """What was read stays; what is read later is a sentence, and never other numbers or a signal."""
    store.write_network(other := path.with_name("other.safetensors"), random_network([6, 8, 4], bias="vector"))
    store.write_network(path, net)
    inputs_store.write_inputs(rows := path.with_name("x.safetensors"), KINDS["dense"])
    names = {"a.weight": np.eye(9), "b.weight": np.eye(9)}
    tensors.write_tensors(weights := path.with_name("w.safetensors"), names)
    read, inputs, weight = store.read_network(path), inputs_store.read_inputs(rows), tensors.Safetensors(weights)
    layer, first = read.layer(0), weight["a.weight"]
    for each in (path, rows, weights):
        CHANGES[change](each, each.read_bytes(), other.read_bytes())
    assert layer.sha256() == net.layer(0).sha256()
    assert (inputs.dense([0, 1]) == KINDS["dense"].dense([0, 1])).all()
    assert (first == np.eye(9)).all()
    for file, ask in (
        (path, lambda: read.layer(0)),
        (path, lambda: read.layer(1)),
        (weights, lambda: weight["b.weight"]),
    ):
        with pytest.raises(SpdnnError, match=f"{file.name}: this file was changed since it was opened; open it again"):
            ask()


def test_a_time_that_is_set_back(path, net):
    """The digest of a layer that was read is then asked anew."""
    store.write_network(path, net)
    read, was, content = store.read_network(path), os.stat(path), bytearray(path.read_bytes())
    assert [layer.sha256() for layer in read.layers()] == [layer.sha256() for layer in net.layers()]
    start = container.Tensors(path)._start + int(read._columns["start"][1])
    content[start : start + 8] = bytes(range(8))
    overwrite(path, content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.rename(path, path.with_name("other"))
    assert read.layer(0).sha256() == net.layer(0).sha256()
    refuses("layer 2: its bytes are damaged", read.layer, 1)


def test_a_file_that_is_replaced_goes_on(path, net, random_network):
    """By a rename, as we write files: who has the old one open reads it to its end."""
    store.write_network(path, net)
    read = store.read_network(path)
    store.write_network(path, random_network([6, 8, 4], bias="vector"))
    assert [layer.sha256() for layer in read.layers()] == [layer.sha256() for layer in net.layers()]
    path.unlink()
    assert read.layer(1).sha256() == net.layer(1).sha256()


def test_wrong_layers_are_not_stored(path, net):
    first, second = net.layers()
    for layers, said in (
        ([(0, first), (0, first)], "layer 1 is there twice"),
        ([(1, second)], "none may be missing"),
        ([], "none may be missing"),
        ([(1, first), (0, second)], "layer 2 takes 6 inputs but layer 1 has 4 outputs"),
        ([(0, replace(first, bias=np.float32(np.nan)))], "layer 1: a bias is NaN"),
    ):
        refuses(said, store.write_layers, path, layers, {"source": "test"}, None, "write")
        assert os.listdir(path.parent) == []
    store.write_layers(path, [(1, second), (0, first)], {"source": "test"}, None, "write")
    assert store.read_network(path).sha256() == net.sha256()


@pytest.mark.parametrize("size", [10, 1_000, 3_000, 20_000, 50_000])
def test_disk_that_fills_up(path, tmp_path, size):
    path.write_bytes(b"before")
    network, rows = RadixNet(64, 40, bias=-0.1), Inputs(np.ones((600, 64), np.float32))
    full = r"net\.safetensors: File too large, so nothing was written"
    with pytest.raises(SpdnnError, match=full), small_disk(size):
        store.write_network(path, network)
    with pytest.raises(SpdnnError, match=full), small_disk(size):
        inputs_store.write_inputs(path, rows)
    assert os.listdir(tmp_path) == ["net.safetensors"]
    assert path.read_bytes() == b"before"


def test_interrupt(path, net, tmp_path):
    class Interrupted(MemoryNetwork):
        def layer(self, k):
            if k == 1:
                raise KeyboardInterrupt
            return super().layer(k)

    with pytest.raises(KeyboardInterrupt):
        store.write_network(path, Interrupted(list(net.layers()), {"source": "test"}))
    assert os.listdir(tmp_path) == []


KINDS = {
    "bits": Inputs.from_array(np.random.default_rng(1).integers(0, 2, (11, 13))),
    "dense": Inputs.from_array(np.random.default_rng(2).normal(size=(11, 13))),
    "csr": Inputs.from_array(sp.random_array((11, 13), density=0.3, rng=np.random.default_rng(3))),
    "repeated": Inputs.from_array(np.random.default_rng(4).integers(0, 2, (4, 9))).first(11),
    "repeated csr": Inputs.from_array(sp.random_array((4, 9), density=0.4, rng=np.random.default_rng(5))).first(11),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs(path, monkeypatch, kind):
    monkeypatch.setattr(container, "DIGESTED_BYTES", 40)
    given = KINDS[kind]
    inputs_store.write_inputs(path, given)
    read = inputs_store.read_inputs(path)
    everything = given.dense(np.arange(11))
    assert (read.kind, read.neurons, read.count, read.base) == (given.kind, given.neurons, 11, given.base)
    assert (read.sha256, read.description) == (given.sha256, given.description)
    assert np.array_equal(read.dense(np.arange(11)), everything)


@pytest.mark.parametrize("kind", ["bits", "dense", "csr"])
def test_damaged_inputs(path, kind):
    inputs_store.write_inputs(path, KINDS[kind])
    forge(path, lambda _, tensors: tensors["data"].reshape(-1).view(np.uint8).__setitem__(0, 9))
    refuses(r"net\.safetensors: the inputs are damaged: their SHA-256 is", inputs_store.read_inputs, path)


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("bits", told("kind", "other"), "inputs of kind 'other'"),
        ("bits", told("kind", "dense"), "the file is damaged"),
        ("bits", told("neurons", 20), "the file is damaged"),
        ("csr", change("indices", 99), "the file is damaged"),
        ("csr", told("neurons", 2), "the file is damaged"),
        ("csr", told("neurons", 2**27 + 1), "a size of 134217729; at most 134217728 neurons"),
        ("csr", gone("indptr"), "it has no tensor 'indptr'"),
        ("dense", gone("sha256"), "the inputs are damaged"),
        ("dense", told("neurons", "many"), "the file is damaged"),
        ("dense", told("description", 3), "no description"),
        ("dense", told("count", 0), "0 inputs; there must be at least 1"),
        ("dense", told("format", "spdnn-network"), "its format is 'spdnn-network', not 'spdnn-inputs'"),
    ],
)
def test_wrong_inputs(path, kind, fault, said):
    inputs_store.write_inputs(path, KINDS[kind])
    forge(path, fault)
    refuses(rf"net\.safetensors: .*{said}", inputs_store.read_inputs, path)


def test_room_is_kept_before_anything_large_is_written(tmp_path, monkeypatch):
    kept = []

    def fallocate(file, start, size):
        kept.append((os.fstat(file).st_size < 100_000 <= size, size))

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    store.write_network(tmp_path / "net.safetensors", RadixNet(1024, 10))
    assert kept[0][0]
    assert 10 * 32 * 1024 * 2 <= kept[0][1] <= os.path.getsize(tmp_path / "net.safetensors")
    kept.clear()
    inputs_store.write_inputs(tmp_path / "in.safetensors", Inputs.from_array(np.full((100, 1000), 0.5, np.float32)))
    assert kept == [(True, os.path.getsize(tmp_path / "in.safetensors"))]
