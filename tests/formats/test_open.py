"""One function for all formats: what a path is taken for, the options, and text streamed into a store."""

import codecs
import gc
import gzip
import json
import os
import tarfile
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from children import until
from refusals import refuses

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.formats import container, inputs, store, tensors, text, torch_files
from spdnn.formats.archive import TarArchive
from spdnn.formats.labels import read_labels
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.readers import import_network, open_inputs, open_network
from spdnn.ops.models import weights
from spdnn.runs.records.files import read_result

FORMULA = RadixNet(32, 12, bias=-0.1)
DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def folder(tmp_path):
    text.write_layers(FORMULA, tmp_path / "layers")
    return tmp_path / "layers"


def packed(folder, path, reverse=False):
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name in sorted(os.listdir(folder), reverse=reverse):  # l1, l10, l11, l12, l2, ...
            archive.add(folder / name, f"neuron32/{name}")
    return path


@pytest.mark.parametrize("kind", [">f2", ">f4", ">f8", ">i4"])
def test_files_of_another_byte_order(tmp_path, kind):
    numbers = np.arange(12).reshape(3, 4)
    weight, rows = numbers.astype(kind), numbers.T.astype(kind)
    np.savez(tmp_path / "dense.npz", weight)
    np.savez(tmp_path / "state.npz", **{"fc.weight": rows, "fc.bias": np.zeros(4, kind)})
    sparse = sp.csc_array(numbers)
    sparse.data = sparse.data.astype(kind)
    sp.save_npz(tmp_path / "sparse.npz", sparse)
    for name in ("dense.npz", "state.npz", "sparse.npz"):
        assert np.array_equal(open_network(tmp_path / name, last="none").layer(0).matrix().toarray(), numbers)
    np.save(tmp_path / "x.npy", rows)
    for name in ("x.npy", "dense.npz", "sparse.npz"):
        wanted = numbers.T if name == "x.npy" else numbers
        assert np.array_equal(open_inputs(tmp_path / name).dense(np.arange(len(wanted))), wanted)


def test_hidden_files_are_no_layers(tmp_path, folder):
    """A Mac leaves a file ._NAME beside each NAME on disks of others, and in archives."""
    matrices = tmp_path / "matrices"
    matrices.mkdir()
    sp.save_npz(matrices / "l1.npz", sp.random_array((4, 3), density=0.5, rng=1))
    junk = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X"
    for name in ("._l1.npz", "._l1.mtx", "._n32-l1.tsv", ".DS_Store", "Thumbs.db"):
        (matrices / name).write_bytes(junk)
        (folder / name.replace("_l1.npz", "_n32-l2.tsv")).write_bytes(junk)
    assert open_network(matrices, last="none").depth == 1
    for path in (folder, packed(folder, tmp_path / "a.tar.gz")):
        assert open_network(path, bias=-0.1).depth == FORMULA.depth


def test_a_url_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("https://example.org/net.onnx", "s3://bucket/x.npy", "file:///tmp/net.npz"):
        for call in (open_network, open_inputs):
            for path in (url, Path(url)):
                assert refuses("this is a URL", call, path).startswith(url.split("//")[0] + "//")
    for call, what in ((open_network, "model file or folder"), (open_inputs, "file of inputs")):
        refuses(f"a ndarray is no path of a {what}", call, np.eye(3))


def test_a_byte_order_mark_is_no_text(tmp_path):
    lines = "1\t1\t1\n2\t3\t0.5\n"
    for mark in (b"", codecs.BOM_UTF8):
        (tmp_path / "sparse-images-4.tsv").write_bytes(mark + lines.encode())
        (tmp_path / "n16-l1.tsv").write_bytes(mark + lines.encode())
        header = b"%%MatrixMarket matrix coordinate real general\n3 4 1\n1 1 1\n"
        (tmp_path / "a.mtx").write_bytes(mark + header)
        (tmp_path / "list.txt").write_bytes(mark + b"a.mtx\n")
        (tmp_path / "layers").mkdir(exist_ok=True)
        (tmp_path / "n16-l1.tsv").rename(tmp_path / "layers" / "n16-l1.tsv")
        assert open_inputs(tmp_path / "sparse-images-4.tsv").nonzeros == 2
        assert open_network(tmp_path / "layers", bias=0).edges == 2
        assert open_network(tmp_path / "list.txt", last="none").edges == 1


def test_every_kind_of_network(tmp_path, folder):
    archive = packed(folder, tmp_path / "a.tgz")
    explicit, formula = tmp_path / "explicit.safetensors", tmp_path / "formula.safetensors"
    store.write_network(explicit, FORMULA)
    store.write_network(formula, FORMULA, formula_ok=True)
    unnamed = tmp_path / "store.bin"
    unnamed.write_bytes(explicit.read_bytes())
    npz = tmp_path / "npz"
    npz.mkdir()
    for k, layer in enumerate(FORMULA.layers()):
        sp.save_npz(npz / f"layer{k}.npz", layer.matrix())
    for path, options in (
        (folder, {"bias": -0.1}),
        (archive, {"bias": -0.1}),
        (explicit, {}),
        (formula, {}),
        (unnamed, {}),
        (npz, {"bias": -0.1, "clip": 32.0, "last": "relu", "rows": "inputs"}),
        (str(explicit), {"neurons": 32, "layers": 12}),
    ):
        assert open_network(path, **options).sha256() == FORMULA.sha256()
        first = open_network(path, **{**options, "layers": 5})
        assert [first.depth, first.layer(4).sha256()] == [5, FORMULA.layer(4).sha256()]


def test_the_format_is_told_by_the_first_bytes(tmp_path):
    weights = {"fc.weight": np.eye(2, 3, dtype=np.float32)}
    tensors.write_tensors(tmp_path / "a.safetensors", weights)
    content = (tmp_path / "a.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].ljust(length // 256 * 256 + 0x17B)  # its length is `{` as a byte
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    (tmp_path / "b.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])
    store.write_network(tmp_path / "store", FORMULA)
    np.savez(tmp_path / "x.npz", np.eye(3))
    for name in ("a.safetensors", "b.safetensors", "pytorch_model.bin"):
        assert open_network(tmp_path / name, last="none").inputs == 3
    assert open_inputs(tmp_path / "x.npz").neurons == 3
    assert open_network(tmp_path / "store").depth == FORMULA.depth


def test_options_that_do_not_fit(tmp_path, folder):
    path = tmp_path / "a.safetensors"
    store.write_network(path, FORMULA.first(2))
    for options in ({"bias": 0}, {"clip": None}, {"last": "relu"}, {"rows": "inputs"}, {"epsilon": 0}):
        refuses(
            r"a\.safetensors: leave out --last, --bias, --clip, --rows and --epsilon: this model file",
            open_network,
            path,
            **options,
        )
    refuses(r"a\.safetensors: 3 layers asked for; the network has 1 to 2", open_network, path, layers=3)
    refuses(r"a\.safetensors: a network of 32 input neurons, not 64", open_network, path, neurons=64)
    refuses(r"n32-l1\.tsv: a layer of 32 neurons, not of 64", open_network, folder, neurons=64)
    assert open_network(folder, bias=0, clip=None).header(0).activation.ymax is None
    assert open_network(folder, bias=0, last="none").header(11).activation.name == "none"
    (folder / "a.npz").write_bytes(b"")
    refuses(r"layers: it holds \.tsv layers and other matrices", open_network, folder, bias=0)


def test_paths_that_cannot_be_looked_at(tmp_path, monkeypatch):
    for opening in (open_network, open_inputs):
        for name in ("x" * 300, "x" * 300 + ".safetensors"):
            refuses("x: File name too long$", opening, tmp_path / name)

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "iterdir", denied)
    refuses(r"it cannot be read \(Permission denied\)$", open_network, tmp_path)


def test_unknown_files(tmp_path):
    (tmp_path / "a.rows").write_text("1,2\n")
    refuses(r"a\.rows: this is no model file; use \.safetensors", open_network, tmp_path / "a.rows")
    refuses(r"a\.rows: inputs are \.safetensors, \.tsv", open_inputs, tmp_path / "a.rows")
    (tmp_path / "empty").mkdir()
    refuses(r"empty: no layers in it; they are \.mtx", open_network, tmp_path / "empty")
    refuses(r"empty: this is a folder; inputs are one file", open_inputs, tmp_path / "empty")
    for opening in (open_network, open_inputs):
        refuses(r"none\.safetensors: there is no such", opening, tmp_path / "none.safetensors")


@pytest.mark.parametrize("reverse", [False, True])
def test_import_of_an_archive_in_one_pass(tmp_path, monkeypatch, folder, reverse):
    archive = packed(folder, tmp_path / "neuron32.tar.gz", reverse)
    reads = []
    whole = text.read_layer
    monkeypatch.setattr(text, "read_layer", lambda *given: reads.append(given[1]) or whole(*given))
    made = import_network(archive, tmp_path / "a.safetensors", bias=-0.1, neurons=32)
    assert made.sha256() == FORMULA.sha256()
    wanted = {"source": "text", "path": "neuron32.tar.gz", "sha256": FORMULA.sha256()}
    assert made.description == wanted
    assert len(reads) == len(set(reads)) == 12
    some = import_network(archive, tmp_path / "b.safetensors", bias=-0.1, layers=3, last="none")
    assert [some.header(k).activation.name for k in range(3)] == ["relu", "relu", "none"]
    text_network = open_network(archive, bias=-0.1)
    assert text_network.description == wanted


def test_import_keeps_few_layers_in_memory(tmp_path):
    big = RadixNet(1024, 48)
    text.write_layers(big, tmp_path / "layers")
    archive = packed(tmp_path / "layers", tmp_path / "neuron1024.tar.gz")
    unpacked = sum(path.stat().st_size for path in (tmp_path / "layers").iterdir())
    text.TextNetwork(tmp_path / "layers").layer(0)  # what is imported for it does not count
    tracemalloc.start()
    try:
        made = import_network(archive, tmp_path / "a.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.sha256() == big.sha256()
    assert peak < unpacked / 3  # 33 MB of text


def test_import_that_fails_leaves_nothing(tmp_path, folder):
    (folder / "n32-l7.tsv").write_bytes(b"1\t1\t1\n1\t1\t1\n")
    archive = packed(folder, tmp_path / "a.tar.gz")
    before = sorted(os.listdir(tmp_path))
    out = tmp_path / "out.safetensors"
    refuses(r"n32-l7\.tsv:2: the edge from input neuron 1 .* is given twice", import_network, folder, out, bias=0)
    refuses(r"a\.tar\.gz/neuron32/n32-l7\.tsv:2: ", import_network, archive, out, bias=0)
    (folder / "n32-l7.tsv").unlink()
    refuses(r"n32-l7\.tsv is missing", import_network, packed(folder, archive), out, bias=0)
    archive.write_bytes(archive.read_bytes()[:-2000])
    refuses(r"a\.tar\.gz: the gzip data is cut short", import_network, archive, out, bias=0)
    assert sorted(os.listdir(tmp_path)) == before


def test_import_of_other_formats(tmp_path):
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 0.5\n")
    made = import_network(tmp_path / "a.mtx", tmp_path / "a.safetensors", bias=-0.1, last="relu")
    assert made.description["source"] == "matrices"
    assert (made.inputs, made.outputs, made.edges) == (2, 3, 1)
    store.write_network(tmp_path / "formula.safetensors", FORMULA, formula_ok=True)
    assert import_network(tmp_path / "formula.safetensors", tmp_path / "b.safetensors").sha256() == FORMULA.sha256()


def test_every_kind_of_inputs(tmp_path):
    rows = np.random.default_rng(8).integers(0, 2, (6, 10))
    rows[-1, -1] = 1
    lines = "".join(f"{i + 1}\t{j + 1}\t1\n" for i, j in zip(*np.nonzero(rows), strict=True)).encode()
    (tmp_path / "sparse-images-10.tsv").write_bytes(lines)
    (tmp_path / "sparse-images-10.tsv.gz").write_bytes(gzip.compress(lines))
    np.save(tmp_path / "a.npy", rows)
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(rows))
    inputs.write_inputs(tmp_path / "a.safetensors", Inputs.from_array(rows))
    for path in sorted(tmp_path.iterdir()):
        read = open_inputs(path, neurons=10)
        assert (read.kind, read.count) == ("bits", 6)
        assert np.array_equal(read.dense(np.arange(6)), rows)
    for name in ("a.npy", "a.npz", "a.safetensors"):
        assert open_inputs(tmp_path / name, count=8).count == 8
        refuses(rf"{name} is .6, 10.; the network takes .inputs, 11.$", open_inputs, tmp_path / name, neurons=11)
        refuses(r"takes \(inputs, 6\); transpose it\?$", open_inputs, tmp_path / name, neurons=6)


def refused_files(folder):
    """(a call that an InputError ends, after it has opened a file, its arguments): of each format, early and late."""
    path = folder / "pruned.pt"
    path.write_bytes((DATA / path.name).read_bytes())
    yield open_network, path  # its last activation is not stated
    path = folder / "cut.pt"
    path.write_bytes((DATA / "pruned.pt").read_bytes()[:-300])
    yield open_network, path
    yield torch_files.TorchFile, path
    for name, arrays in (
        ("two.npz", {"a": np.eye(2), "b": np.eye(2)}),
        ("odd.npz", {"fc.weight": np.eye(2), "odd": np.eye(2)}),  # of a state dict
        ("sparse.npz", {"format": np.array("csr"), "data": np.ones(9)}),
    ):
        np.savez(folder / name, **arrays)
        yield open_network, folder / name
        yield open_inputs, folder / name
        yield weights.read, folder / name, {"a": (3, 3)}
        yield read_result, folder / name
    yield read_labels, folder / "two.npz"
    path = folder / "damaged.npz"
    path.write_bytes(b"PK\3\4" + bytes(300))
    for read in (open_network, open_inputs, read_labels, read_result, tensors.NpzArchive):
        yield read, path
    path = folder / "formula.safetensors"
    store.write_network(path, FORMULA, formula_ok=True)
    yield open_inputs, path
    path = folder / "net.safetensors"
    store.write_network(path, FORMULA)
    yield open_network, path, 1.0
    yield store.read_prepared, path
    yield inputs.read_inputs, path
    damaged = folder / "damaged.safetensors"
    damaged.write_bytes(path.read_bytes().replace(b"radixnet", b"radiynet"))
    yield open_network, damaged
    content = bytearray(path.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # the first byte of the first layer
    damaged.write_bytes(content)
    yield import_network, damaged, folder / "out.safetensors"
    path = folder / "x.safetensors"
    inputs.write_inputs(path, Inputs.from_array(np.eye(3, dtype=np.float32)))
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    yield open_inputs, path
    tensors.write_tensors(folder / "state.safetensors", {"fc.weight": np.eye(2), "odd": np.eye(2)})
    yield open_network, folder / "state.safetensors"
    yield weights.read, folder / "state.safetensors", {"a": (3, 3)}
    path = folder / "cut.safetensors"
    path.write_bytes((folder / "state.safetensors").read_bytes()[:-1])
    yield open_network, path
    yield container.Tensors, path
    text.write_layers(FORMULA.first(2), folder / "layers")
    (folder / "layers/n32-l2.tsv").write_text("junk")
    for ending in ("tar", "tar.gz"):
        path = folder / f"a.{ending}"
        with tarfile.open(path, f"w:{ending[4:]}") as archive:
            archive.add(folder / "layers", "neuron32")
        yield import_network, path, folder / "out.safetensors"
        yield partial(import_network, bias=0), path, folder / "out.safetensors"
        path = folder / f"junk.{ending}"
        path.write_bytes((b"" if ending == "tar" else safe_open.GZIP) + bytes(range(256)) * 4)
        yield TarArchive, path


def open_files(folder):
    """Names of the files in a folder that this process has open or mapped."""
    descriptors = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    named = [str(path.readlink()) for path in descriptors if path.is_symlink()]
    named += Path("/proc/self/maps").read_text().splitlines()
    return {Path(name).name for name in named if str(folder) in name}


def saved_again(path):
    """The file as another program may save it: with metadata of its own ahead of ours, in the room of the header."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = {"format": "pt", **header["__metadata__"]}
    path.write_bytes(content[:8] + json.dumps(header).encode().ljust(size) + content[8 + size :])


def test_stores_are_told_by_their_metadata_wherever_these_stand(tmp_path):
    store.write_network(network := tmp_path / "net.safetensors", FORMULA)
    inputs.write_inputs(rows := tmp_path / "x.safetensors", Inputs(np.eye(32, dtype=np.float32)))
    saved_again(network)
    saved_again(rows)
    assert open_network(network).sha256() == FORMULA.sha256()
    assert open_inputs(rows).count == 32
    assert open_inputs(rows, count=32).description["count"] == 32


def refusal(read, *arguments):
    try:
        read(*arguments)
    except InputError as error:
        return error
    raise AssertionError(f"{read} takes {arguments[0].name}")


def test_no_file_is_open_while_the_error_that_refused_it_lives(tmp_path):
    for read, path, *more in refused_files(tmp_path):
        error = refusal(read, path, *more)
        # A thread that reads ahead closes the file a moment later: nobody waits for it.
        until(lambda: not open_files(tmp_path), f"no file is open after {read}: {error}")


@pytest.mark.filterwarnings("error")  # those of the garbage collector are pytest's, and fail the test
@pytest.mark.parametrize("kind", ["a.npz", "a.safetensors", "pruned.pt", "a.tar"])
def test_what_is_read_no_more_is_closed_without_a_warning(tmp_path, kind):
    path = tmp_path / kind
    if kind == "a.tar":
        tarfile.open(path, "w").close()
        read = TarArchive(path)
    elif kind == "pruned.pt":
        path.write_bytes((DATA / kind).read_bytes())
        read = torch_files.TorchFile(path)
    else:
        tensors.write_tensors(path, {"a": np.eye(2)})
        read = tensors.open_tensors(path)
    assert open_files(tmp_path) == {kind}
    cycle = [read]
    cycle.append(cycle)
    del read, cycle
    gc.collect()
    assert not open_files(tmp_path)
