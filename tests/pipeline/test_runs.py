"""What a killed run of the workflow left, as the next one finds it."""

import os
import re
import subprocess
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from children import ended, started

from spdnn.common import endings
from spdnn.common.processes import process
from spdnn.pipeline import runs

GONE = process()._replace(start=1)
ENTRIES = Path(".snakemake/spdnn")


@pytest.fixture
def enter(tmp_path, monkeypatch, capsys):
    """A function: enter a run in a folder where a lock lies, a file that is not done, and entries; what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs.atexit, "register", lambda *_: None)
    for name in ("results/networks", "results/data", ".snakemake/locks", ".snakemake/incomplete", ENTRIES):
        Path(name).mkdir(parents=True)
    for name in ("results/networks/.n.01234567.part", "results/data/.d.01234567.download", "results/networks/n"):
        Path(name).touch()
    (Path(".snakemake/locks") / "0.output.lock").touch()
    for name in ("results/networks/n", "results/networks/absent"):
        (Path(".snakemake/incomplete") / urlsafe_b64encode(name.encode()).decode()).touch()

    def entered(*entries):
        for number, entry in enumerate(entries):
            (ENTRIES / f"entry{number}").write_text(f"{entry}\n")
        runs.enter(Path("results"))
        return capsys.readouterr().err

    return entered


def locked():
    return bool(os.listdir(".snakemake/locks"))


def test_what_a_killed_run_left_is_taken_up(enter):
    assert enter(GONE) == (
        "spdnn: a run of the workflow was killed here, and this one takes it up: outputs to make again: 1 "
        "(results/networks/n); temporary files removed: 1\n"
    )
    assert not locked()
    assert os.listdir("results/networks") == ["n"]
    assert os.listdir("results/data") == [".d.01234567.download"]  # a download goes on where it ended
    assert not list(ENTRIES.glob("entry*"))
    assert enter() == ""  # and the second time there is nothing


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (process(os.getppid()), f"process {os.getppid()} on {GONE.host} runs the workflow in this folder; wait for it"),
        (GONE._replace(host="node7"), r"process \d+ on node7 entered .*; if it is gone, remove \S+/entry1"),
        (GONE._replace(boot="before"), rf"process \d+ on {GONE.host} entered .*; if it is gone, remove "),
    ],
)
def test_the_locks_of_what_may_live_stay(enter, other, sentence):
    told = enter(GONE, other)
    assert re.match(rf"spdnn: {sentence}.*\n$", told)
    assert locked()
    assert len(os.listdir("results/networks")) == 2
    (ENTRIES / "entry1").unlink()
    assert "takes it up" in enter()
    assert not locked()


def test_locks_of_nobody_who_entered_stay(enter):
    assert "temporary files removed: 1\n" in enter()
    assert locked()


def test_an_entry_that_was_never_whole_is_of_no_run(enter):
    assert "takes it up" in enter("")


def test_a_run_that_ends_takes_its_entry_away(tmp_path):
    code = "from pathlib import Path; from spdnn.pipeline import runs; runs.enter(Path('results'))"
    run = [sys.executable, "-c", f"{code}; print(*Path('{ENTRIES}').glob('*-*'))"]
    with started(run, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as one:
        status, out, _ = ended(one)
    assert (status, out) == (0, f"{ENTRIES}/{GONE.host}-{one.pid}\n")
    assert os.listdir(tmp_path / ENTRIES) == ["lock"]


def test_where_nothing_can_be_written_it_is_told_and_no_more(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(".snakemake").touch()
    runs.enter(Path("results"))
    assert capsys.readouterr().err == "spdnn: warning: .snakemake/spdnn: Not a directory\n"


def test_jobs_are_told_whom_they_work_for(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    runs.keep_jobs(Path("/checkout"))
    assert (os.environ[endings.STARTER], os.environ["SPDNN_SOURCE"]) == (str(process()), "/checkout")


def test_the_file_of_the_configuration_is_written_when_that_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(".snakemake").mkdir()
    path = Path(runs.configuration_file({"b": 1, "a": [2]}, write=True, keep=False))
    os.utime(path, (5, 5))
    assert runs.configuration_file({"a": [2], "b": 1}, write=True, keep=False) == str(path)
    assert runs.configuration_file({"a": []}, write=False, keep=False) == str(path)
    changed = Path(runs.configuration_file({"a": []}, write=True, keep=True))
    assert changed != path
    assert changed.stat().st_mtime > path.stat().st_mtime == 5
    changed.unlink()
    assert runs.configuration_file({"a": []}, write=True, keep=False) == str(path)
    assert path.stat().st_mtime > 5
