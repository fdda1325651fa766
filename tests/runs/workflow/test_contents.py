"""Files are known by what they hold, not by their times."""

import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from spdnn.core.request import RunRequest
from spdnn.runs.workflow import targets
from spdnn.runs.workflow.targets import Targets, content


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


def test_every_file_of_a_case_counts(folder):
    (folder / "layers").mkdir()
    for k in (1, 2):
        sp.save_npz(folder / f"layers/{k}.npz", sp.eye_array(k))
    (folder / "list.txt").write_text("layers/1.npz\nlayers/2.npz\n")
    np.save(folder / "x.npy", np.eye(2))
    for name in ("truth", "images"):
        (folder / name).write_text("1")
    cases = [
        RunRequest(network=name, inputs="x.npy", truth="truth", last="relu", rows="inputs")
        for name in ("layers", "list.txt")
    ]
    targets = Targets([*cases, RunRequest(neurons=1024, layers=120, mnist="images")])

    def known():
        networks = [targets.network_content(SimpleNamespace(network=case.network_name)) for case in cases]
        inputs = [
            SimpleNamespace(inputs=cases[0].inputs_name),
            *(SimpleNamespace(kind=kind) for kind in ("mnist", "digits")),
        ]
        return [
            *networks,
            *map(targets.inputs_content, inputs),
            targets.truth_content(SimpleNamespace(case=cases[0].name)),
        ]

    before = known()
    for path, changed in {
        "layers/2.npz": {0, 1}, "list.txt": {1}, "x.npy": {2}, "images": {3}, "truth": {5}, "layers/.2.npz": set(),
    }.items():  # fmt: skip
        replace(folder / path, "layers/1.npz\n")
        after = known()
        assert {k for k in range(6) if after[k] != before[k]} == changed, path
        before = after
    official = SimpleNamespace(network="official-1024", inputs="official-1024")  # known by the table of downloads
    assert targets.network_content(official) == targets.inputs_content(official) == content([])
