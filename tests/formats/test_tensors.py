"""Named arrays in .safetensors and .npz files."""

import json
import pickle
import zipfile

import numpy as np
import pytest
from refusals import refuses
from safetensors import SafetensorError, deserialize
from safetensors.numpy import load_file

from spdnn.core import safe_open
from spdnn.formats import container, store
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.readers import open_network
from spdnn.formats.tensors import NpzArchive, open_tensors, read_array, write_tensors

ARRAYS = {"b": np.arange(4, dtype=np.float32), "a": np.ones((2, 0), np.float32), "c": np.float32(3).reshape(())}


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_there_and_back(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    write_tensors(path, ARRAYS)
    found = open_tensors(path)
    assert set(found) == set(ARRAYS)
    assert len(found) == 3
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].shape == array.shape
    with pytest.raises(KeyError):
        found["d"]


def test_endings_and_absence(tmp_path):
    for call in (lambda path: open_tensors(path), lambda path: write_tensors(path, ARRAYS)):
        refuses(r"x.bin: the name must end with .safetensors or .npz", call, tmp_path / "x.bin")
    refuses("there is no such file", open_tensors, tmp_path / "x.npz")
    refuses("does not exist", write_tensors, tmp_path / "no" / "x.npz", ARRAYS)
    assert not list(tmp_path.iterdir())


def test_damaged_archives(tmp_path):
    path = tmp_path / "x.npz"
    write_tensors(path, ARRAYS)
    content = path.read_bytes()
    np.save(tmp_path / "y.npy", np.ones(2))
    pickled = pickle.dumps({"a": 1})
    for other in (b"", b"hello", pickled, content[:40], content[:-30], (tmp_path / "y.npy").read_bytes()):
        path.write_bytes(other)
        refuses("this is no sound .npz file", open_tensors, path)
    at = content.index(ARRAYS["b"].tobytes())
    path.write_bytes(content[: at + 4] + b"\xff" + content[at + 5 :])
    refuses("b cannot be read", open_tensors(path).__getitem__, "b")


def test_objects_and_words_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, word=np.array(["x"]), thing=np.array([{}], dtype=object))
    refuses("word is of <U1; it must be of real numbers", open_tensors(path).__getitem__, "word")
    refuses("thing cannot be read", open_tensors(path).__getitem__, "thing")


def test_headers(tmp_path):
    """What the format's own package refuses is refused, each with its reason; what it writes is read."""
    path = tmp_path / "x.safetensors"
    good = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    twice = (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
    )
    for header, said in (
        (good, None),
        ({"__metadata__": {"x": "y"}, **good}, None),
        ({"a": {**good["a"], "shape": [3]}}, "another size than its shape and type"),
        ({"a": {**good["a"], "shape": [-2]}}, "no whole numbers"),
        ({"a": {**good["a"], "shape": [2.0]}}, "no whole numbers"),
        ({"a": {**good["a"], "shape": 2}}, "no whole numbers"),
        ({"a": {**good["a"], "data_offsets": [0]}}, "no whole numbers"),
        ({"a": {**good["a"], "dtype": "F31"}}, "of a type that is not known, 'F31'"),
        ({"a": {**good["a"], "dtype": ["F32"]}}, "a type that is not known"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "has no dtype, shape and data_offsets"),
        ({"a": 3}, "has no dtype, shape and data_offsets"),
        ({"a": {**good["a"], "shape": [1], "data_offsets": [4, 8]}}, "overlap or leave holes"),
        ({**good, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "overlap or leave holes"),
        (
            {"a": {**good["a"], "shape": [1], "data_offsets": [0, 4]}},
            "tensors of 4 bytes in a file that has 8 for them",
        ),
        ({"__metadata__": {"x": 3}, **good}, "metadata is not text by name"),
        ({"__metadata__": [], **good}, "metadata is not text by name"),
        ([good], "no JSON object"),
        (twice, "a name in its header is there twice"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "no text: byte 0xff at 0"),
    ):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
        if said:
            refuses(f"x.safetensors: this is no sound .safetensors file .*{said}", open_tensors, path)
            with pytest.raises(SafetensorError):
                load_file(path)
        else:
            assert open_tensors(path)["a"].tolist() == load_file(path)["a"].tolist() == [0, 0]
    write_tensors(path, ARRAYS)
    assert {name: array.tolist() for name, array in load_file(path).items()} == {
        n: a.tolist() for n, a in ARRAYS.items()
    }
    refuses("this is not a plain file", container.Tensors, "/dev/null")


@pytest.mark.parametrize("kind", ["F4", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E8M0"])
def test_types_that_the_format_has_and_numpy_has_not(tmp_path, kind):
    size = 8 * int(kind[1]) // 8
    header = json.dumps({"fc.weight": {"dtype": kind, "shape": [2, 4], "data_offsets": [0, size]}}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(size)
    assert deserialize(content)[0][1]["dtype"] == kind
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    refuses(f"x.safetensors: fc.weight is of type {kind}; it must be", open_tensors(path).__getitem__, "fc.weight")
    refuses(f"x.safetensors: '?fc.weight'? is of type {kind}", open_network, path, last="none")
    path.write_bytes(content[:-1])
    refuses("another size|has 7 for them|no sound", open_tensors, path)


def test_our_stores_in_the_package(tmp_path):
    path = tmp_path / "net.safetensors"
    store.write_network(path, RadixNet(64, 3, -0.1))
    read = load_file(path)
    assert read["inputs"].tolist() == [64] * 3
    first = read["data"][: read["size"][0]].view(np.uint16)
    assert np.array_equal(first, RadixNet(64, 3, -0.1).layer(0).indices)


def npy(shape, kind="<f4", content=b""):
    """The bytes of a .npy file whose header says what it is told."""
    header = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy((1 << 33,)), r"an array of shape \(8589934592,\) in \d+ bytes"),
        (npy((-1, 4), content=bytes(16)), r"an array of shape \(-1, 4\)"),
        (npy((1 << 60,), "|V0"), "an array of type"),
        (npy((1,), "|O", b"\x80"), "an array of type object"),
        (npy((2, 2), "<f4", bytes(15)), "array"),
        (b"", ""),
        (b"\x93NUMPY", ""),
        (pickle.dumps(np.ones((2, 2))), ""),
        (b"\x93NUMPY\1\0\xff\xff" + b"(" * 9000, ""),
    ],
    ids=["huge", "negative", "of nothing", "objects", "cut short", "empty", "without a version", "pickle", "nested"],
)
def test_headers_of_numpy_that_lie(content, says, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    refuses(f"a.npy: this is no sound .npy file of plain numbers .*{says}", read_array, tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", content)
    refuses(f"a.npz: w cannot be read .*{says}", lambda path: NpzArchive(path)["w"], tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("packing", "size", "says"),
    [
        (zipfile.ZIP_LZMA, 9, "'w.npy' is packed in a way that NumPy does not use"),
        (zipfile.ZIP_DEFLATED, safe_open.SMALL_UNPACKED + 1, "33,554,433 bytes when unpacked, more than 33,554,432"),
    ],
)
def test_archives_that_take_too_much_to_unpack(packing, size, says, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", packing) as archive:
        archive.writestr("w.npy", bytes(size))
    refuses(f"a.npz: this is no sound .npz file .{says}", NpzArchive, tmp_path / "a.npz")
