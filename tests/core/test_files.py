"""Files appear whole or not at all."""

import errno
import os
from pathlib import Path

import pytest
from refusals import refuses

from spdnn.core import files, safe_open
from spdnn.core.errors import InputError, SpdnnError


def put(path, text):
    """A file of that text, or where `path` is a folder, a file of that name and text in it."""
    (path / text if path.is_dir() else path).write_text(text)


def held(path):
    return os.listdir(path) if path.is_dir() else [path.read_text()]


EITHER = pytest.mark.parametrize(("replacing", "mode"), [(files.replacing, 0o666), (files.replacing_folder, 0o777)])


@EITHER
def test_replaces_when_whole(tmp_path, replacing, mode):
    target = tmp_path / "out"
    for text in ("one", "two"):
        with replacing(target) as temporary:
            put(temporary, text)
            assert os.listdir(tmp_path) != ["out"]
    assert held(target) == ["two"]
    assert os.listdir(tmp_path) == ["out"]
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == mode & ~mask


@EITHER
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_nothing_stays_after_an_error(tmp_path, replacing, mode, error):
    target = tmp_path / "out"
    with replacing(target) as temporary:
        put(temporary, "before")
    with pytest.raises(error), replacing(target) as temporary:
        put(temporary, "half")
        raise error
    assert held(target) == ["before"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_folder_that_cannot_take_its_place_leaves_the_one_before(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "before").touch()
    replace = os.replace

    def refuse(source, goal):
        if Path(source).name == "whole":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, goal)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(SpdnnError, match="the disk is full"), files.replacing_folder(target):
        pass
    assert os.listdir(target) == ["before"]
    assert os.listdir(tmp_path) == ["out"]


def test_folders_follow_links_and_replace_no_file(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with files.replacing_folder(tmp_path / "link") as whole:
        (whole / "x").touch()
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "real") == ["x"]
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file is not a folder"), files.replacing_folder(tmp_path / "file"):
        pass
    with pytest.raises(InputError, match="does not exist; make that folder"), files.replacing_folder(tmp_path / "a/b"):
        pass


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(SpdnnError, match="the disk is full, so nothing was written"), files.replacing(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not os.listdir(tmp_path)


def test_devices_are_left_alone_and_links_are_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refuses("pipe is not a plain file", files.write_text, tmp_path / "pipe", "")
    (tmp_path / "real.txt").write_text("before")
    (tmp_path / "link.txt").symlink_to("real.txt")
    files.write_text(tmp_path / "link.txt", "after")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "after"


@EITHER
@pytest.mark.parametrize("name", ["n" * 255, "\u00b5" * 127 + ".", "\U0001f600" * 63 + ".so"])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, replacing, mode, name):
    with replacing(tmp_path / name) as temporary:
        put(temporary, "x")
    assert held(tmp_path / name) == ["x"]
    assert os.listdir(tmp_path) == [name]


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path):
    deep = tmp_path
    while (room := 4090 - len(str(deep))) > 1:
        deep /= "d" * min(room - 1, 200)
    deep.mkdir(parents=True)
    for path in (tmp_path / ("n" * 256), tmp_path / ("\u00b5" * 128), deep / "n"):  # no room for a temporary name
        refuses("File name too long", files.check_outputs, [path])


def test_folders_that_are_not_there(tmp_path):
    refuses("does not exist; make that folder", files.write_text, tmp_path / "a" / "b", "")
    refuses("is a folder; name a file", files.write_text, tmp_path, "")
    refuses("there is no such network", safe_open.existing, tmp_path / "net.safetensors", "network")
    refuses("File name too long", safe_open.existing, "n" * 300, "network")


def test_outputs_of_one_block_appear_together(tmp_path):
    with files.together(), files.together():
        files.write_text(tmp_path / "a", "1")
        with files.replacing_folder(tmp_path / "folder") as whole:
            put(whole, "x")
        assert not [name for name in os.listdir(tmp_path) if not name.startswith(".")]
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]
    assert (held(tmp_path / "a"), held(tmp_path / "folder")) == (["1"], ["x"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_where_one_output_fails_none_appears(tmp_path, error):
    files.write_text(tmp_path / "a", "before")
    with pytest.raises((KeyboardInterrupt, SpdnnError)), files.together():
        files.write_text(tmp_path / "a", "after")
        with files.replacing_folder(tmp_path / "folder"):
            pass
        with files.replacing(tmp_path / "b"):
            raise error
    assert os.listdir(tmp_path) == ["a"]
    assert held(tmp_path / "a") == ["before"]


def test_room_is_kept_or_the_disk_is_full(tmp_path, monkeypatch):
    with files.replacing(tmp_path / "x") as temporary, open(temporary, "r+b") as stream:
        files.reserve(stream, 1000)
        assert os.fstat(stream.fileno()).st_size == 1000

    def fails(number):
        def fallocate(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "posix_fallocate", fallocate)
        files.reserve(stream, 1)

    with open(tmp_path / "x", "r+b") as stream:
        fails(errno.EOPNOTSUPP)
        with pytest.raises(OSError, match="No space left"):
            fails(errno.ENOSPC)
