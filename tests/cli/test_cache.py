"""What `spdnn challenge` keeps: the same result, not made again and told as such; nothing damaged, nothing too much."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from spdnn.cli import main
from spdnn.core.features import Inputs
from spdnn.core.validation import builtins
from spdnn.formats import mnist
from spdnn.runs import cache, load
from spdnn.runs.records.files import read_record

SMALL = ["challenge", "--neurons", "1024", "--inputs", "digits", "--count", "30", "--threads", "1"]


@pytest.fixture
def run(tmp_path):
    """A function that runs the challenge and returns its record."""

    def ran(layers=12, *more):
        path = tmp_path / "run.json"
        assert main([*SMALL, "--layers", str(layers), "--record", str(path), *more]) == 0
        return builtins(read_record(path))

    return ran


def stores():
    return sorted((Path(os.environ["SPDNN_DATA"]) / "made").glob("*"))


def test_the_second_run_makes_nothing_and_gives_the_same(run):
    first, second = run(), run()
    assert first["time_to_solution"]["cached"] == []
    assert second["time_to_solution"]["cached"] == ["inputs"]
    assert second["result"]["digest"] == first["result"]["digest"]
    assert second["problem"] == first["problem"]
    assert run(18, "--engine", "tiled")["time_to_solution"]["cached"] == ["inputs"]
    fresh = run(12, "--no-cache")
    assert fresh["time_to_solution"]["cached"] == []
    assert fresh["environment"]["command"].count("--no-cache") == 1
    assert len(stores()) == 1


def test_other_code_and_damage_are_no_hits(run, monkeypatch):
    run()
    for path in stores():
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert run()["time_to_solution"]["cached"] == []  # and what was damaged was made again
    assert run()["time_to_solution"]["cached"] == ["inputs"]
    monkeypatch.setattr(cache, "package_digest", lambda: "another")
    assert run()["time_to_solution"]["cached"] == []


def test_a_folder_that_cannot_be_written(run, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path / "file"))
    run()
    assert "spdnn: warning: " in capsys.readouterr().err


ONE = 100 * 32 * 4 + cache.BESIDE_ARRAYS


def kept(name):
    """What a run took from the cache, whose inputs of that name take ONE bytes."""
    made = cache.InputCache()
    made.inputs(name, 32, None, lambda: Inputs.from_array(np.random.default_rng(0).random((100, 32))))
    made.keep()
    return made.taken


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS, errno.EACCES, errno.EIO])
def test_what_another_user_wrote_is_used_and_stays(monkeypatch, capsys, number):
    kept("whole"), kept("damaged")
    damaged, whole = stores()
    damaged.write_bytes(b"damaged")
    before = [path.stat() for path in (damaged, whole)]

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: before[0].st_uid + 1)
    monkeypatch.setattr(cache, "CACHE_BYTES", ONE)  # so that there is room for another only if one of these goes
    assert [kept(name) for name in ("whole", "damaged", "new", "whole")] == [["inputs"], [], [], ["inputs"]]
    for path, status in zip((damaged, whole), before, strict=True):
        assert (path.stat().st_ino, path.stat().st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert len(stores()) == 2
    assert not capsys.readouterr().err


def test_the_oldest_go(monkeypatch):
    monkeypatch.setattr(cache, "CACHE_BYTES", 2 * ONE)
    assert [kept(name) for name in ("a", "b", "a")] == [[], [], ["inputs"]]
    for path, second in zip(stores(), (2, 1), strict=True):  # b is the one not used for longest
        os.utime(path, (second, path.stat().st_mtime))
    kept("c")
    assert [path.name.split("-")[1] for path in stores()] == ["a", "b", "c"]  # files are smaller than SLACK says
    monkeypatch.setattr(cache, "CACHE_BYTES", ONE + stores()[0].stat().st_size)
    kept("d")
    assert [path.name.split("-")[1] for path in stores()] == ["c", "d"]
    monkeypatch.setattr(cache, "CACHE_BYTES", ONE - 1)
    kept("e")
    assert [path.name.split("-")[1] for path in stores()] == ["c", "d"]


@pytest.mark.needs("mnist")
def test_a_download_is_read_again_only_where_something_is_made_of_it(mnist_file, monkeypatch):
    taken, fetched = [], []
    monkeypatch.setenv("SPDNN_MIRROR", str(mnist_file.parents[1]))
    monkeypatch.setattr(mnist, "mnist_inputs", lambda _, path: taken.append(path) or Inputs.from_array(np.eye(32)))
    locate = mnist.locate_mnist
    monkeypatch.setattr(mnist, "locate_mnist", lambda: fetched.append(None) or locate())

    def made():
        kept = cache.InputCache()
        load.generate_inputs("mnist", 32, None, kept)
        kept.keep()
        return kept.taken

    assert made() == []
    before = len(fetched)
    assert made() == ["inputs"]
    assert len(fetched) == before
    download = mnist.find_downloaded()
    download.write_bytes(b"damaged")
    assert made() == []
    assert taken[-1] == download
    assert download.read_bytes() == mnist_file.read_bytes()
