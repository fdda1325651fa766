"""Where variables of ours that name paths point: what no shell has expanded, and the folder of caches."""

import pwd
from pathlib import Path

import pytest
from refusals import refused, refuses, spdnn

from spdnn.core.files import cache_folder
from spdnn.formats.fetch import find_mirror
from spdnn.ops import tuning
from spdnn.runs import staging
from spdnn.runs.world import World

NOBODY = "~no-such-user/x"
CHALLENGE = ("challenge", "--neurons", "1024", "--layers", "1", "--inputs", "digits", "--count", "10")


def stage_folder() -> Path:
    with staging.stage_files(World(), None, __file__) as (copy,):
        return Path(copy).parents[2]


READERS = {
    "SPDNN_DATA": cache_folder, "SPDNN_MIRROR": find_mirror, "SPDNN_TUNED": tuning.path, "SPDNN_STAGE": stage_folder,
}  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in (*READERS, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home" / "a ~").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("name", READERS)
def test_a_home_folder_is_meant_by_a_tilde(home, monkeypatch, name):
    user = next(user for user in pwd.getpwall() if Path(user.pw_dir).is_dir())
    for value, found in (("~/a ~", home / "a ~"), ("~", home), (f"~{user.pw_name}", Path(user.pw_dir))):
        if name == "SPDNN_STAGE" and value.startswith(f"~{user.pw_name}"):
            continue  # it is written to
        monkeypatch.setenv(name, value)
        assert READERS[name]() == found
    monkeypatch.setenv(name, NOBODY)
    assert refuses("no home folder is known that this ~ stands for", READERS[name]).count(NOBODY) == 1


def test_the_folder_of_caches(home, monkeypatch, capsys):
    assert (cache_folder(), tuning.path()) == (home / ".cache/spdnn", home / ".cache/spdnn/tuned.json")
    for relative in ("", "caches", "~/caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert cache_folder() == home / ".cache/spdnn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "caches"))
    assert (cache_folder(), tuning.path()) == (home / "caches/spdnn", home / "caches/spdnn/tuned.json")
    assert spdnn(*CHALLENGE) == 0
    assert sorted(path.name for path in home.iterdir()) == ["a ~", "caches"]
    monkeypatch.setenv("SPDNN_DATA", str(home / "data"))
    assert (cache_folder(), tuning.path()) == (home / "data", home / "data/tuned.json")


def test_no_folder_is_named_tilde(home, monkeypatch, capsys):
    monkeypatch.setenv("SPDNN_DATA", "~/cache")
    assert spdnn(*CHALLENGE) == 0
    assert (home / "cache" / "made").is_dir()
    monkeypatch.setenv("SPDNN_DATA", NOBODY)
    assert refused(capsys, *CHALLENGE).startswith(f"SPDNN_DATA: {NOBODY}: no home folder is known")
    monkeypatch.setenv("HOME", "~")  # as where the variable itself was not expanded
    monkeypatch.delenv("SPDNN_DATA")
    assert spdnn(*CHALLENGE) == 0  # nothing is kept
