"""Named arrays in .safetensors and .npz files."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refuses

from spdnn.errors import InputError, Unavailable
from spdnn.formats.tensors import open_tensors, write_tensors

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


def test_damaged_archives(tmp_path):
    path = tmp_path / "x.npz"
    write_tensors(path, ARRAYS)
    content = path.read_bytes()
    np.save(tmp_path / "y.npy", np.ones(2))
    for other in (b"", b"hello", content[:40], (tmp_path / "y.npy").read_bytes()):
        path.write_bytes(other)
        refuses("this is no sound .npz file", open_tensors, path)
    at = content.index(ARRAYS["b"].tobytes())
    path.write_bytes(content[: at + 4] + b"\xff" + content[at + 5 :])
    with pytest.raises(InputError, match="b cannot be read"):
        open_tensors(path)["b"]


def test_objects_and_words_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, word=np.array(["x"]), thing=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="word is of <U1; it must be of real numbers"):
        open_tensors(path)["word"]
    with pytest.raises(InputError, match="thing cannot be read"):
        open_tensors(path)["thing"]


def test_without_the_package(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_tensors(path, ARRAYS)
    monkeypatch.setitem(__import__("sys").modules, "safetensors", None)
    for call in (lambda: open_tensors(path), lambda: write_tensors(path, ARRAYS)):
        with pytest.raises(Unavailable, match="needs the safetensors package"):
            call()
    assert path.stat().st_size > 0


def test_nothing_half_written(tmp_path):
    refuses("does not exist", write_tensors, tmp_path / "no" / "x.npz", ARRAYS)
    assert not list(tmp_path.iterdir())
