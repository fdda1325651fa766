"""The official text form: folders, archives, every fault with its file and line, and export to the byte."""

import dataclasses
import gzip
import io
import itertools
import os
import pathlib
import re
import tarfile
import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ladders import rung
from refusals import refuses

from spdnn.core import files, network
from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.core.network import RELU
from spdnn.formats import lines, text
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch

SQUARE = b"1\t1\t0.5\n2\t1\t-0.5\n2\t2\t1e0\n"


def refused(path, match, **options):
    """Reading all of that network fails with a sentence that matches."""
    refuses(match, lambda: list(text.TextNetwork(path, **{"bias": 0, **options}).layers()))


def written(folder, contents, neurons=2):
    folder.mkdir(exist_ok=True)
    for k, content in contents.items():
        (folder / f"n{neurons}-l{k}.tsv").write_bytes(content)
    return folder


def archived(path, contents, neurons=2, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for k, content in contents.items():
            info = tarfile.TarInfo(f"neuron{neurons}/n{neurons}-l{k}.tsv")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def texts(radixnet):
    return {k + 1: text.layer_text(radixnet.layer(k)) for k in range(radixnet.depth)}


@pytest.mark.parametrize("layers", [rung(24, default=True), rung(120)])
def test_official_export(root, tmp_path, layers):
    table = (root / "tests" / "data" / "neuron1024-layers-1-120.sha256").read_text().split()
    expected = dict(zip(table[1::2], table[::2], strict=True))
    made = text.write_layers(RadixNet(1024, layers), tmp_path / "official")
    assert len(made) == layers
    assert {path.name: files.sha256(path) for path in made}.items() <= expected.items()
    assert made[0].stat().st_size == 682_816
    read = text.TextNetwork(tmp_path / "official", layers=7)
    assert read.sha256() == RadixNet(1024, 7).sha256()
    assert (read.depth, read.inputs, read.outputs, read.header(6).edges) == (7, 1024, 1024, 32768)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_round_trip(tmp_path_factory, data):
    n = data.draw(st.integers(1, 9))
    cells = list(itertools.product(range(n), range(n)))
    edges = data.draw(st.lists(st.sampled_from(cells), min_size=1, unique=True))
    number = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda value: value != 0)
    values = data.draw(st.lists(number, min_size=len(edges), max_size=len(edges)))
    rows, columns = zip(*edges, strict=True)
    matrix = sp.coo_array((np.array(values, np.float32), (rows, columns)), shape=(n, n))
    wanted = network.from_matrices([matrix], bias=-0.25, clip=2.0, last="none")
    folder = tmp_path_factory.mktemp("text")
    (path,) = text.write_layers(wanted, folder)
    read = text.TextNetwork(folder, -0.25, 2.0, last="none")
    assert read.sha256() == wanted.sha256()
    shuffled = data.draw(st.permutations(path.read_bytes().splitlines()))
    path.write_bytes(b"\r\n".join(shuffled))  # any order, other line ends, none at the end
    assert text.TextNetwork(folder, -0.25, 2.0, last="none").sha256() == wanted.sha256()


def test_values_are_short_where_that_is_exact():
    matrix = np.float32([[0.0625], [-1 / 3], [3.4028235e38], [1e-45]])
    expected = b"1\t1\t6.250000e-02\n2\t1\t-3.33333343e-01\n3\t1\t3.40282347e+38\n4\t1\t1.401298e-45\n"
    assert text.layer_text(network.Layer.from_matrix(matrix)) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"x\t1\t1", "input neuron 'x' is not one of 1 to 2"),
        (b"1\tx\t1", "output neuron 'x' is not one of 1 to 2"),
        (b"1\t1\tx", "value 'x' is not a finite number"),
        (b"1\t1", "has 2 of 3 fields; a line is input neuron, output neuron, value, parted by tabs"),
        (b"1 1 1", "has 1 of 3 fields"),
        (b"1\t1\t1\t1", "has 4 of 3 fields"),
        (b"0\t1\t1", "input neuron '0' is not one of 1 to 2"),
        (b"-1\t1\t1", "input neuron '-1' is not one of 1 to 2"),
        (b"3\t1\t1", "input neuron '3' is not one of 1 to 2"),
        (b"1\t3\t1", "output neuron '3' is not one of 1 to 2"),
        (b"1.0\t1\t1", "input neuron '1.0' is not one of 1 to 2"),
        (b"9" * 30 + b"\t1\t1", "input neuron '9{30}' is not one of 1 to 2"),
        (b"18446744073709551617\t1\t1", "input neuron '18446744073709551617' is not one of 1 to 2"),  # 2^64 + 1
        (b"1\t18446744073709551617\t1", "output neuron '18446744073709551617' is not one of 1 to 2"),
        (b"1\t2\t", "value '' is not a finite number"),
        (b"1\t2\tnan", "value 'nan' is not a finite number"),
        (b"1\t2\t-inf", "value '-inf' is not a finite number"),
        (b"1\t2\t1e39", "value '1e39' is not a finite number that float32 can hold"),
        (b"1\t2\t1e999", "value '1e999' is not a finite number that float32 can hold"),
        (b"1\t2\tTrue", "value 'True' is not a finite number"),
        (b"1\t2\t1_0", "value '1_0' is not a finite number"),
        (b"1\t2\t\xff", "is not a finite number"),
        (b"1\t2\t1\x002", "is not a finite number"),
        (b"2\t1\t3", "the edge from input neuron 2 to output neuron 1 is given twice"),
    ],
)
def test_wrong_line_is_named(tmp_path, line, said):
    folder = written(tmp_path / "f", {1: SQUARE, 2: SQUARE + b"\n" + line + b"\n1\t2\t4\n"})
    refused(folder, rf"^{re.escape(str(folder))}/n2-l2\.tsv:5: .*{said}")
    path = archived(tmp_path / "neuron2.tar.gz", {1: SQUARE, 2: line + b"\n" + SQUARE})
    wrong = 3 if "twice" in said else 1
    refused(path, rf"neuron2\.tar\.gz/neuron2/n2-l2\.tsv:{wrong}: .*{said}")


def test_zero_values_are_no_edges_and_no_line_is_no_layer(tmp_path):
    for content in (b"", b"\n \n"):
        refused(written(tmp_path / "f", {1: content}), r"n2-l1\.tsv: the file is empty")
    folder = written(tmp_path / "f", {1: b"1\t1\t0.0\n2\t1\t0.5\n1\t2\t1e-60\n"})
    layer = text.TextNetwork(folder, bias=0).layer(0)
    assert layer.edges == 1
    assert layer.indices.tolist() == [1]


def test_faults_of_the_numbers(tmp_path):
    refused(written(tmp_path / "a", {1: SQUARE, 3: SQUARE}), r"/a: layer file n2-l2\.tsv is missing")
    refused(written(tmp_path / "b", {0: SQUARE}), "layer number 0; layers are numbered from 1")
    refused(written(tmp_path / "c", {1: SQUARE}), "/c: 2 layers asked for; it has 1", layers=2)
    refused(tmp_path / "c", "0 layers asked for", layers=0)
    written(tmp_path / "c", {2: SQUARE}, neurons=4)
    refused(tmp_path / "c", r"n4-l2\.tsv: a layer of n4 among layers of n2")
    refused(tmp_path / "b", r"n2-l0\.tsv: a layer of 2 neurons, not of 4", neurons=4)
    (tmp_path / "d").mkdir()
    refused(tmp_path / "d", r"/d: no layers in it; their files are named n\{N\}-l\{k\}\.tsv")
    both = written(tmp_path / "e", {1: SQUARE})
    (both / "n2-l1.tsv.gz").write_bytes(gzip.compress(SQUARE))
    refused(both, r"layer 1 is there twice; the other is .*n2-l1\.tsv")
    refused(tmp_path / "nowhere", "nowhere: there is no such network")
    folder = written(tmp_path / "g", {1: SQUARE}, neurons=999999999)
    refused(folder, r"n999999999-l1\.tsv: a size of 999999999; at most 134217728 neurons are possible")


@pytest.mark.filterwarnings("error")  # of a bias that float32 cannot hold
def test_options(tmp_path):
    folder = written(tmp_path / "f", dict.fromkeys(range(1, 12), SQUARE))
    read = text.TextNetwork(folder, bias=-0.5, layers=3, last="none")
    assert [read.header(k).activation.name for k in range(3)] == ["relu", "relu", "none"]
    assert read.header(0).activation.ymax == 32
    assert read.header(0).bias == np.float32(-0.5)
    assert text.TextNetwork(folder, bias=0, clip=None).header(10).activation.ymax is None
    assert read.description == {"source": "text", "path": "f", "sha256": read.sha256()}
    refuses("2 neurons have no official bias; give one", text.TextNetwork(folder).layer, 0)
    for bias, said in ((float("nan"), "bias nan"), (1e39, r"bias 1e\+39")):
        refuses(f"{said}: it must be a finite number", text.TextNetwork, folder, bias=bias)
    refuses("layer 12 asked for; there are 1 to 11", text.TextNetwork(folder, bias=0).layer, 11)
    refuses("must be 'relu' or 'none'", text.TextNetwork, folder, bias=0, last="tanh")


def test_a_folder_that_cannot_be_read(tmp_path, monkeypatch):
    folder = written(tmp_path / "f", {1: SQUARE})
    refused(tmp_path / ("x" * 300), "x: File name too long$")
    monkeypatch.setattr(type(folder), "iterdir", denied)
    refused(folder, r"/f: it cannot be read \(Permission denied\)$")
    refuses(r"/f: it cannot be read \(Permission denied\)$", text.write_layers, RadixNet(32, 1, bias=0), folder)


def denied(*_):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (3, 5, 1, 4, 2)])
def test_archive_in_any_order(tmp_path, monkeypatch, mode, order):
    monkeypatch.chdir(tmp_path)
    formula = RadixNet(32, 5, bias=-0.1)
    contents = texts(formula)
    path = archived(tmp_path / "neuron32.tar", {k: contents[k] for k in order}, 32, mode)
    streamed = text.TextNetwork(path, -0.1)
    assert [k + 1 for k, _ in streamed.stream()] == list(order)
    assert streamed.sha256() == formula.sha256()
    assert text.TextNetwork(path, -0.1).sha256() == formula.sha256()
    last = dict(text.TextNetwork(path, -0.1, last="none").stream())
    assert [last[k].activation.name for k in range(5)] == ["relu"] * 4 + ["none"]
    assert sorted(k for k, _ in text.TextNetwork(path, -0.1, layers=2).stream()) == [0, 1]
    assert os.listdir(tmp_path) == ["neuron32.tar"]


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_files_that_are_changed_between_two_readings(tmp_path, kind):
    """Text is read anew for each use, which must be of the same network."""
    text.write_layers(RadixNet(64, 3, -0.1), folder := tmp_path / "text")
    with tarfile.open(tmp_path / "text.tar", "w") as archive:
        archive.add(folder, "text")
    path = folder if kind == "folder" else tmp_path / "text.tar"
    network = text.TextNetwork(path, -0.1)
    found = text.TextNetwork(path, -0.1)
    assert found.depth == 3
    first = [layer.sha256() for layer in network.layers()]
    assert [layer.sha256() for layer in network.layers()] == first
    changed = folder / "n64-l2.tsv" if kind == "folder" else path
    time.sleep(0.02)
    changed.write_bytes(changed.read_bytes().replace(b"6.25", b"7.25"))
    for ask in (lambda: network.layer(1), lambda: list(network.stream()), lambda: found.layer(1)):
        with pytest.raises(SpdnnError, match=f"{changed.name}: this file was changed since it was opened"):
            ask()


def test_archive_of_packed_layers_and_other_files(tmp_path):
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("README", b"hello"), ("x/n2-l1.tsv.gz", gzip.compress(SQUARE))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        folder = tarfile.TarInfo("x/n2-l2.tsv")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    assert text.TextNetwork(path, 0).depth == 1
    assert text.TextNetwork(path, 0).layer(0).edges == 3
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("n2-l1.tsv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    refused(path, r"a\.tgz/n2-l1\.tsv: this member is a link or a device")


def test_archive_cut_short_or_damaged(tmp_path):
    contents = texts(RadixNet(32, 3, bias=0))
    packed = archived(tmp_path / "a.tar.gz", contents, 32).read_bytes()
    plain = gzip.decompress(packed)
    cut = tmp_path / "cut.tar.gz"
    for size in (5, 200, len(packed) // 2, len(packed) - 4):
        cut.write_bytes(packed[:size])
        refused(cut, r"cut\.tar\.gz: the gzip data is cut short")
    cut.write_bytes(packed[:-8] + b"\0\0\0\0" + packed[-4:])
    refused(cut, r"cut\.tar\.gz: the gzip data is damaged")
    cut.write_bytes(packed + packed[:40])
    refused(cut, r"cut\.tar\.gz: the gzip data is cut short")
    cut.write_bytes(packed + b"\0" * 20)
    assert text.TextNetwork(cut, 0).depth == 3
    end = tmp_path / "cut.tar"
    last = plain.rindex(b"n32-l3.tsv") - len("neuron32/")
    for size in (last, last + 100, last + 512 + 10, len(plain.rstrip(b"\0"))):
        end.write_bytes(plain[:size])
        refused(end, r"cut\.tar: (the archive is damaged or cut short|this is no sound tar archive)")
    end.write_bytes(plain[: last + 20] + b"\xff" * 40 + plain[last + 60 :])
    refused(end, r"cut\.tar: the archive is damaged or cut short after 2 members")
    for content in (b"", b"no archive", b"no archive" * 100):
        end.write_bytes(content)
        refused(end, r"cut\.tar: this is no sound tar archive")


def test_packed_layer_cut_short(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    packed = gzip.compress(SQUARE)
    path = folder / "n2-l1.tsv.gz"
    for content, said in ((packed[:-10], "cut short"), (packed[:-8] + bytes(8), "damaged"), (SQUARE, "not gzip data")):
        path.write_bytes(content)
        refused(folder, rf"n2-l1\.tsv\.gz: .*{said}")
    path.write_bytes(packed)
    assert text.TextNetwork(folder, 0).layer(0).edges == 3


def test_export_refuses(tmp_path):
    wide = network.from_matrices([np.ones((2, 3))], last="relu")
    refuses("layer 1 is 2 x 3; the text form names one width", text.write_layers, wide, tmp_path / "x")
    empty = network.from_matrices([np.ones((2, 2)), np.zeros((2, 2))], last="relu")
    refuses("layer 2 has no edges", text.write_layers, empty, tmp_path / "x")
    assert not (tmp_path / "x").exists()
    good = network.from_matrices([np.ones((2, 2))], last="relu")
    written(tmp_path / "old", {2: SQUARE})
    refuses(r"/old: it holds other layers \(n2-l2\.tsv\)", text.write_layers, good, tmp_path / "old")
    refuses("cannot be made", text.write_layers, good, tmp_path / "old" / "n2-l2.tsv")
    refuses("cannot be made", text.write_layers, good, tmp_path / "a" / "b")


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_export_leaves_no_part_of_a_file(tmp_path, monkeypatch, fault):
    def failing(handle):
        raise fault

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(SpdnnError if isinstance(fault, OSError) else KeyboardInterrupt):
        text.write_layers(network.from_matrices([np.ones((2, 2))], last="relu"), tmp_path / "x")
    assert os.listdir(tmp_path) == []


class Failing(network.MemoryNetwork):
    """Its third layer cannot be read."""

    def layer(self, k):
        if k == 2:
            raise KeyboardInterrupt
        return super().layer(k)


def test_export_that_is_interrupted_leaves_no_shorter_network(tmp_path):
    layers = list(RadixNet(64, 4, bias=0).layers())
    with pytest.raises(KeyboardInterrupt):
        text.write_layers(Failing(layers), tmp_path / "new")
    assert os.listdir(tmp_path) == []
    old = tmp_path / "old"
    text.write_layers(RadixNet(64, 4, bias=0, seed=1), old)
    (old / "README").write_text("ours")
    before = text.TextNetwork(old, 0).sha256()
    with pytest.raises(KeyboardInterrupt):
        text.write_layers(Failing(layers), old)
    assert text.TextNetwork(old, 0).sha256() == before
    text.write_layers(network.MemoryNetwork(layers), old)
    assert text.TextNetwork(old, 0).sha256() == RadixNet(64, 4, bias=0).sha256() != before
    assert len(os.listdir(old)) == 5


@pytest.mark.parametrize("moved", range(4))
@pytest.mark.parametrize("there", [0, 2, 4])
@pytest.mark.parametrize("fault", [PermissionError(13, "Permission denied"), KeyboardInterrupt()])
def test_export_interrupted_while_files_move_is_refused(tmp_path, monkeypatch, moved, there, fault):
    if there:
        text.write_layers(RadixNet(32, there, bias=0, seed=1), tmp_path / "x")
    replace, left = os.replace, [moved]

    def failing(*paths):
        left[0] -= 1
        if left[0] < 0:
            raise fault
        replace(*paths)

    monkeypatch.setattr(os, "replace", failing)
    said = SpdnnError if isinstance(fault, OSError) else KeyboardInterrupt
    with pytest.raises(said):
        text.write_layers(RadixNet(32, 4, bias=0), tmp_path / "x")
    assert (tmp_path / "x").exists() == bool(there or moved)
    if there or moved:
        refused(tmp_path / "x", r"n32-l1\.tsv is missing")
        assert not list((tmp_path / "x").glob(".*"))


FORM = lines.LineFormat("row", "column", 300, 300)
BLANKS = lines.LineFormat("row", "column", 300, 300, tabs=False)
FIELD = st.one_of(
    st.integers(1, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.text(alphabet="0123456789.eE+- \tx", max_size=6),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(FIELD, min_size=2, max_size=4), max_size=4), st.sampled_from(["\n", "\r\n", "\r"]))
def test_fast_parser_agrees_with_the_slow_one(rows, end):
    for form, part in ((FORM, "\t"), (BLANKS, " "), (dataclasses.replace(BLANKS, value=None), "\t ")):
        block = end.join(part.join(row) for row in rows).encode()
        fast = lines._fast(block, form)
        if fast is not None:
            slow = lines._slow(block, "f", form, 1)
            assert all(np.array_equal(a, b) for a, b in zip(fast, slow, strict=True))


@pytest.mark.parametrize(("end", "more"), [("\n", ""), ("\r\n", "\n\n"), ("\n", "3\t300\t-.5e-3")])
def test_usual_lines_need_no_slow_parser(end, more):
    random = np.random.default_rng(5)
    numbers = np.concatenate([random.random(200), 10 ** random.uniform(-45, 38, 300), [0.0625] * 100])
    block = "".join(f"{k % 300 + 1}\t{k % 7 + 1}\t{number!r}{end}" for k, number in enumerate(numbers.tolist())) + more
    fast = lines._fast(block.encode(), FORM)
    slow = lines._slow(block.encode(), "f", FORM, 1)
    assert all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(fast, slow, strict=True))


def layer_of(content, neurons=300):
    """The layer, or what is wrong with it."""
    try:
        return text.read_layer(content, "f", neurons, -0.5, RELU)
    except SpdnnError as error:
        return str(error)


def same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("offsets", "indices", "values")]
    return one.header == other.header and all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b) for a, b in pairs
    )


ENTRY = st.tuples(st.integers(0, 301), st.integers(0, 301), st.sampled_from(["1", "1", "1", "1.0", "0", "2", "x"]))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(ENTRY, max_size=6),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.sampled_from(["", "\ufeff", "\n", " "]),
)
def test_a_layer_in_one_pass_agrees_with_one_of_entries(entries, ascending, end, head):
    """Also where lines do not ascend, are there twice or are wrong, and where values differ."""
    if ascending:
        entries = sorted(entries, key=lambda entry: (entry[1], entry[0]))
    content = (head + "".join(f"{i}\t{j}\t{value}{end}" for i, j, value in entries)).encode()
    for neurons in (300, 70_000):
        once = layer_of(content, neurons)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text, "_usual_layer", lambda *arguments: None)
            assert same(once, layer_of(content, neurons))


def test_official_layers_are_read_in_one_pass(monkeypatch):
    monkeypatch.delattr(lines, "parse")
    content = "".join(f"{i}\t{j}\t5e-1\n" for j in range(1, 300, 7) for i in range(j % 5 + 1, 300, 9))
    layer = text.read_layer(content.encode(), "f", 300, -0.5, RELU)
    assert layer.edges == content.count("\n")
    assert (layer.values, layer.indices[:2].tolist()) == (0.5, [1, 10])


def test_parsing_is_the_same_where_nothing_is_compiled(set_all):
    quick = lines.parse(SQUARE, "f", FORM)
    set_all(dispatch, find_module=lambda: None, missing=lambda: "build them with: make setup")
    assert lines._fast(SQUARE, FORM) is None
    assert all(np.array_equal(a, b) for a, b in zip(quick, lines.parse(SQUARE, "f", FORM), strict=True))
    with pytest.raises(Unavailable, match="make setup"):
        text.write_layers(RadixNet(32, 1, bias=0), pathlib.Path("nowhere"))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 20))
def test_blocks_are_whole_lines(content, size):
    parts = list(lines.blocks(io.BytesIO(content), size))
    assert b"".join(part for part, _ in parts) == content
    assert all(part.endswith(b"\n") for part, _ in parts[:-1])
    place = 0
    for part, first_line in parts:
        assert first_line == content[:place].count(b"\n") + 1
        place += len(part)
