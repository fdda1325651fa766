"""The HDF5 stores: what comes back is what went in, or one sentence says why not; writing leaves all or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn import network, reduce
from spdnn.errors import InputError, SpdnnError
from spdnn.features import Inputs
from spdnn.formats import inputs as inputs_store
from spdnn.formats import store
from spdnn.network import Activation, Layer, MemoryNetwork
from spdnn.sources.radixnet import RadixNet


@pytest.fixture
def net(random_network):
    return random_network([6, 9, 4], bias="vector", clip=3.0, last="none")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.h5"


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
    path = tmp_path_factory.mktemp("store") / "a.h5"
    store.write_network(path, made)
    with store.read_network(path) as read:
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
        again = path.with_name("b.h5")
        store.write_network(again, read)
        assert store.read_network(again).identity() == read.identity()


def test_explicit_layers_of_a_formula(path):
    formula = RadixNet(64, 5, bias=-0.1)
    store.write_network(path, formula)
    read = store.read_network(path)
    assert isinstance(read, store.StoreNetwork)
    assert read.sha256() == formula.sha256()
    assert read.layer(4).sha256() == formula.layer(4).sha256()
    with h5py.File(path) as file:
        group = file["layers/000001"]
        assert sorted(group) == ["indices"]
        assert group.attrs["per_output"] == 32
        assert group.attrs["value"] == np.float32(1 / 16)


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
    info = {"classes": list(range(30_000)), "merged": True}  # more than an HDF5 attribute can hold
    store.write_prepared(path, net, info)
    read, found = store.read_prepared(path)
    assert found == info
    assert read.sha256() == net.sha256()
    formula = RadixNet(32, 3, bias=0)
    store.write_prepared(path, formula, {})
    read, found = store.read_prepared(path)
    assert type(read) is RadixNet
    assert found == {}
    store.write_network(path, net)
    refuses(r"net\.h5: this network is not a prepared one", store.read_prepared, path)


def test_a_prepared_official_network_is_many_times_smaller(path, tmp_path):
    network = RadixNet(16384, 40)
    store.write_network(tmp_path / "whole.h5", network)
    store.write_prepared(path, reduce.merge_neurons(network)[0], {})
    assert (tmp_path / "whole.h5").stat().st_size / path.stat().st_size > 13


def test_merged_neurons_keep_their_classes(path):
    merged, _ = reduce.merge_neurons(RadixNet(256, 6, -0.3))
    store.write_prepared(path, merged, {})
    read, _ = store.read_prepared(path)
    for k in range(6):
        np.testing.assert_array_equal(read.neuron_classes(k), merged.neuron_classes(k))
        assert read.layer(k).sha256() == merged.layer(k).sha256()
    assert read.first(3).neuron_classes(2).size == 256
    with h5py.File(path) as file:
        assert len(file["classes"]) == 2  # a block's last layer has half as many; all others agree
    read.close()
    with h5py.File(path, "r+") as file:
        file["classes/000001"][0] = 1
    read, _ = store.read_prepared(path)
    refuses(r"net\.h5: .*classes of layer 1.*SHA-256", read.neuron_classes, 0)


def test_damaged_prepared(path, net):
    store.write_prepared(path, net, {"merged": True})
    with h5py.File(path, "r+") as file:
        file["prepared"][()] = json.dumps({"merged": False})
    refuses(r"net\.h5: .*does not have the SHA-256", store.read_prepared, path)


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


def change(name, value, group="layers/000002"):
    def changed(file):
        if name in file[group]:
            file[group][name][0] = value
        else:
            file[group].attrs[name] = value

    return changed


def gone(name, group="layers/000002"):
    def removed(file):
        if name in file[group]:
            del file[group][name]
        else:
            del file[group].attrs[name]

    return removed


FAULTS = [
    (change("values", 9.0), "layer 2 is damaged: its SHA-256 is [0-9a-f]{64}, the store says [0-9a-f]{64}"),
    (change("indices", 3), "layer 2( is damaged|: the inputs of output neuron)"),
    (change("indices", 9), r"layer 2: input neuron 9 \(counted from 0\) is out of range"),
    (change("offsets", 1), "layer 2: offsets must ascend from 0"),
    (change("bias", np.nan), "layer 2: a bias is NaN"),
    (change("bias", 0.5), "layer 2 is damaged: its SHA-256"),
    (change("ymax", 4.0, "layers/000001"), "layer 1 is damaged: its SHA-256"),
    (change("ymax", -4.0, "layers/000001"), "layer 1 is damaged.*a clip is a positive number"),
    (change("activation", "tanh"), "layer 2 is damaged.*'tanh' is not known"),
    (change("edges", 1), "layer 2 is damaged, cut short or not as it must be"),
    (change("inputs", 10), "layer 2 takes 10 inputs but layer 1 has 9 outputs"),
    (change("outputs", 0), "layer 2 is damaged.*'outputs' is 0"),
    (change("outputs", 2**27 + 1), "layer 2 is damaged.*a width of 134217729, though 134217728 is the most"),
    (change("value", 1e39), "layer 2"),
    (change("outputs", "many"), "layer 2 is damaged.*'outputs' is many"),
    (change("sha256", "0" * 64), "the network is damaged: its layers' SHA-256 are not those"),
    (change("sha256", 5), "layer 2 is damaged.*attribute 'sha256' is not text"),
    (gone("indices"), "layer 2 is damaged"),
    (gone("offsets"), "layer 2 is damaged"),
    (gone("sha256"), "layer 2 is damaged"),
    (gone("inputs"), "layer 2 is damaged"),
    (gone("000002", "layers"), "1 layers in it, though it says it has 2"),
    (gone("layers", "/"), "the file is damaged"),
    (gone("depth", "/"), "the file is damaged"),
    (change("depth", "two", "/"), "the file is damaged.*'depth' is not a whole number"),
    (change("description", "[]", "/"), "the file is damaged.*not a JSON object"),
    (change("description", "{", "/"), "the file is damaged"),
    (change("kind", "other", "/"), "a network of kind 'other'; it must be 'layers' or 'radixnet'"),
    (gone("kind", "/"), "the file is damaged"),
    (change("format", "spdnn-inputs", "/"), "its format is 'spdnn-inputs', not 'spdnn-network'"),
    (gone("format", "/"), "its format is None, not 'spdnn-network'"),
    (change("version", 2, "/"), "version 2 of spdnn-network; versions 1 to 1 are read here"),
    (change("version", "1", "/"), "version 1 of spdnn-network"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_damage_is_told(path, net, fault, said):
    store.write_network(path, net)
    with h5py.File(path, "r+") as file:
        fault(file)
    refuses(rf"net\.h5: .*{said}", lambda: list(store.read_network(path).layers()))


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (gone("bias", "/"), "'bias' is missing"),
        (gone("seed", "/"), "the file is damaged"),
        (change("neurons", 33, "/"), "33 neurons: a RadiX-Net has"),
        (change("layers", 2**40, "/"), "1099511627776 layers: at most 2147483647"),
        (change("bias", 1e39, "/"), r"bias 1e\+39: it must be a finite number"),
        (change("bias", "low", "/"), "attribute 'bias' is not a number"),
    ],
)
def test_damaged_formula(path, fault, said):
    store.write_network(path, RadixNet(32, 3, bias=0), formula_ok=True)
    with h5py.File(path, "r+") as file:
        fault(file)
    refuses(rf"net\.h5: .*{said}", store.read_network, path)


def test_cut_short_or_not_hdf5(path, net, tmp_path):
    store.write_network(path, net)
    content = path.read_bytes()
    for size in (100, 2000, len(content) - 1):
        path.write_bytes(content[:size])
        refuses(r"net\.h5: the file is damaged, cut short", store.read_network, path)
    for other in (b"", b"hello", content[1:]):
        path.write_bytes(other)
        refuses(r"net\.h5: this is not an HDF5 file", store.read_network, path)
    refuses("there is no such file", store.read_network, tmp_path / "none.h5")
    refuses("this is a folder", store.read_network, tmp_path)


def test_any_byte_changed_is_noticed_or_harmless(path, net):
    store.write_network(path, net)
    content, expected = path.read_bytes(), [layer.sha256() for layer in net.layers()]
    for place in range(0, len(content), 151):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            with store.read_network(path) as read:
                assert [layer.sha256() for layer in read.layers()] == expected
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017


def test_wrong_layers_are_not_stored(path, net):
    first, second = net.layers()
    for layers, said in (
        ([(0, first), (0, first)], "layer 1 is there twice"),
        ([(1, second)], "none may be missing"),
        ([], "none may be missing"),
        ([(1, first), (0, second)], "layer 2 takes 6 inputs but layer 1 has 4 outputs"),
        ([(0, replace(first, bias=np.float32(np.nan)))], "layer 1: a bias is NaN"),
    ):
        refuses(said, store.write_layers, path, layers, {"source": "test"})
        assert os.listdir(path.parent) == []
    store.write_layers(path, [(1, second), (0, first)], {"source": "test"})
    assert store.read_network(path).sha256() == net.sha256()


@contextlib.contextmanager
def small_disk(size):
    """While it lasts, no file of this process can grow beyond `size` bytes (pytest's own output neither)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [10, 1_000, 3_000, 20_000, 50_000])
def test_disk_that_fills_up(path, tmp_path, size):
    path.write_bytes(b"before")
    network, rows = RadixNet(64, 40, bias=-0.1), Inputs(np.ones((600, 64), np.float32))
    full = r"net\.h5: File too large, so nothing was written"
    with pytest.raises(SpdnnError, match=full), small_disk(size):
        store.write_network(path, network)
    with pytest.raises(SpdnnError, match=full), small_disk(size):
        inputs_store.write_inputs(path, rows)
    assert os.listdir(tmp_path) == ["net.h5"]
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
    "repeated": Inputs.from_array(np.random.default_rng(4).integers(0, 2, (4, 9))).counted(11),
    "repeated csr": Inputs.from_array(sp.random_array((4, 9), density=0.4, rng=np.random.default_rng(5))).counted(11),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs(path, monkeypatch, kind):
    monkeypatch.setattr(inputs_store, "BLOCK", 40)
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
    with h5py.File(path, "r+") as file:
        data = file["data"][:]
        data.reshape(-1)[0] += 1
        file["data"][...] = data
    refuses(r"net\.h5: the inputs are damaged: their SHA-256 is", inputs_store.read_inputs, path)


@pytest.mark.parametrize(
    ("kind", "fault", "said"),
    [
        ("bits", change("kind", "other", "/"), "inputs of kind 'other'"),
        ("bits", change("kind", "dense", "/"), "the file is damaged"),
        ("bits", change("neurons", 20, "/"), "the file is damaged"),
        ("csr", change("indices", 99, "/"), "the file is damaged"),
        ("csr", change("neurons", 2, "/"), "the file is damaged"),
        ("csr", change("neurons", 2**27 + 1, "/"), "a size of 134217729; at most 134217728 neurons"),
        ("csr", gone("indptr", "/"), "the file is damaged"),
        ("dense", gone("sha256", "/"), "the file is damaged"),
        ("dense", change("count", 0, "/"), "0 inputs; there must be at least 1"),
        ("dense", change("format", "spdnn-network", "/"), "its format is 'spdnn-network', not 'spdnn-inputs'"),
    ],
)
def test_wrong_inputs(path, kind, fault, said):
    inputs_store.write_inputs(path, KINDS[kind])
    with h5py.File(path, "r+") as file:
        fault(file)
    refuses(rf"net\.h5: .*{said}", inputs_store.read_inputs, path)


def test_a_clip_that_is_a_whole_number(path):
    made = network.from_matrices([np.eye(3)], clip=32)
    store.write_network(path, made)
    assert store.read_network(path).layer(0).activation == Activation("relu", 32.0)
