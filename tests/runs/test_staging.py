"""Files that appear in a folder together."""

import os

import pytest
from refusals import refuses

from spdnn.formats import text
from spdnn.runs import staging
from spdnn.runs.world import World


@pytest.mark.parametrize(
    "staged",
    [
        lambda folder: text.stage_folder(folder / "new", ["x"]),
        lambda folder: staging.stage_files(World(), str(folder), str(folder / "file")),
    ],
)
def test_a_signal_that_comes_as_soon_as_the_folder_is_there_leaves_nothing(tmp_path, monkeypatch, staged):
    (tmp_path / "file").touch()
    make = os.mkdir

    def interrupted(path, *more):
        make(path, *more)
        if os.path.basename(path).startswith((".export", "spdnn-")):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), staged(tmp_path):
        pass
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["folder", "list.txt"])
def test_a_folder_or_a_file_that_names_others_is_not_copied(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/w.npz").touch()
    (tmp_path / "list.txt").write_text("folder/w.npz\n")
    said = f"{name}: a folder, or a file that names others; --stage copies single files"
    refuses(said, staging.stage_files(World(), str(tmp_path), str(tmp_path / name)).__enter__)
    assert sorted(os.listdir(tmp_path)) == ["folder", "list.txt"]
