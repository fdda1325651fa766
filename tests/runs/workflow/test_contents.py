"""Files are known by what they hold, not by their times."""

import os
import shutil

import pytest

from spdnn.runs.workflow import targets
from spdnn.runs.workflow.targets import content


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".snakemake").mkdir()
    return tmp_path


def replace(path, text, second=1):
    """Put another file in its place, with a time long past."""
    other = path.with_name("other")
    other.write_text(text)
    os.utime(other, (second, second))
    shutil.copy2(other, path)
    other.unlink()


def test_older_files_of_another_content_are_others(folder):
    path = folder / "x"
    replace(path, "one")
    before = content([path])
    replace(path, "two")  # of the same size and time
    assert content([path]) != before
    replace(path, "one", 2)
    assert content([path]) == before
    shutil.move(path, folder / "y")
    assert content([folder / "y"]) != before
    assert content([path, None]) == content([])


def test_a_file_is_read_again_only_where_its_status_changed(folder, monkeypatch):
    (folder / "x").write_text("one")
    read, digest = [], targets.sha256
    monkeypatch.setattr(targets, "sha256", lambda path: read.append(path) or digest(path))
    found = [content(["x"]) for _ in range(3)]
    assert (len({*found}), read) == (1, ["x"])
    os.utime("x")
    assert content(["x"]) == found[0]
    assert read == ["x", "x"]
    for text in ("", "{"):  # damaged
        targets.KNOWN.write_text(text)
        assert content(["x"]) == found[0]
    shutil.rmtree(".snakemake")
    assert content(["x"]) == found[0]
