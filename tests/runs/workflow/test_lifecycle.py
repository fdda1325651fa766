"""The lock of runs of the workflow, and what a killed run left, as the next one finds it."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from children import finished, started, until
from refusals import refuses

from spdnn.core import endings
from spdnn.core.endings import process
from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.runs.workflow import lifecycle

HOST = socket.gethostname()
RESULTS = Path("results")
LOCK, PART, DOWNLOAD = RESULTS / ".lock", RESULTS / "networks/.n.01234567.part", RESULTS / "data/.d.01234567.download"
LOCKED = "from pathlib import Path; from spdnn.runs.workflow import lifecycle; lifecycle.lock(Path('results')); "


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, where Snakemake's lock is left, a temporary file and a part of a download."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lifecycle.atexit, "register", lambda *_, **__: None)
    monkeypatch.setattr(lifecycle.os, "register_at_fork", lambda **_: None)
    for path in (Path(".snakemake/locks/0.output.lock"), PART, DOWNLOAD):
        path.parent.mkdir(parents=True)
        path.touch()
    return tmp_path


def snakemake_locks():
    return list(Path(".snakemake").glob("locks/*"))


def said(capsys):
    """What a Snakefile that is parsed says, with nothing raised."""
    lifecycle.unlock_after_kill(RESULTS)
    return capsys.readouterr().err


@pytest.fixture
def another():
    """Another run that holds the lock; it is named as this process's parent is."""
    with open(LOCK, "w") as stream:
        stream.write(f"process {os.getppid()} on {HOST}")
        stream.flush()
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream


def test_what_a_killed_run_left_is_removed_and_the_next_one_goes_on(capsys):
    LOCK.write_text(f"process 7 on {HOST}")
    assert said(capsys) == (
        f"spdnn: process 7 on {HOST} was killed while it ran the workflow here; its locks are removed\n"
    )
    assert not snakemake_locks()
    assert LOCK.read_text() == ""
    assert PART.exists()  # a dry run removes no file
    lifecycle.lock(RESULTS)
    assert not PART.exists()
    assert DOWNLOAD.exists()  # it goes on where it ended
    assert LOCK.read_text() == f"process {os.getpid()} on {HOST}"


def test_snakemakes_locks_stay_where_it_does_not_remove_them(capsys, monkeypatch):
    LOCK.write_text(f"process 7 on {HOST}")
    monkeypatch.setattr(lifecycle, "PYTHON", "/bin/false")
    assert said(capsys).endswith("; its locks could not be removed\n")
    assert snakemake_locks()
    assert said(capsys) == ""  # from here on, Snakemake's own sentence says what to do


def test_a_run_that_lives_keeps_its_locks_and_the_next_one_is_refused(capsys, another):
    sentence = f"process {os.getppid()} on {HOST} runs the workflow in this folder; wait for it, or stop it"
    assert said(capsys) == f"spdnn: {sentence}\n"
    with pytest.raises(Unavailable, match=f"^{sentence}$"):
        lifecycle.lock(RESULTS)
    another.truncate(0)  # it has not written its name yet, or removed it already
    with pytest.raises(Unavailable, match="^another process runs the workflow"):
        lifecycle.lock(RESULTS)
    assert said(capsys) == ""
    assert snakemake_locks()
    assert PART.exists()


def test_of_a_run_on_another_machine_nothing_is_changed(capsys):
    LOCK.write_text("process 7 on node7")
    assert said(capsys) == (
        "spdnn: process 7 on node7 began to run the workflow here and did not end; once it is gone, "
        "`snakemake --unlock` removes its locks\n"
    )
    assert LOCK.read_text() == "process 7 on node7"
    assert snakemake_locks()
    lifecycle.lock(RESULTS)  # Snakemake found no locks: they were removed
    assert PART.exists()


def test_locks_that_no_killed_run_left_stay(capsys):
    assert said(capsys) == ""  # no run was ever here
    LOCK.touch()
    assert said(capsys) == ""
    LOCK.write_bytes(b"\xff")  # damaged: of nobody who is known
    assert "did not end; once it is gone" in said(capsys)
    assert snakemake_locks()


def test_a_program_may_run_the_workflow_twice(capsys, monkeypatch):
    held = []  # until it ends
    monkeypatch.setattr(lifecycle.atexit, "register", lambda _, stream: held.append(stream))
    lifecycle.lock(RESULTS)
    lifecycle.lock(RESULTS)
    assert said(capsys) == ""
    assert LOCK.read_text()
    assert len(held) == 1


def test_a_file_system_without_locks(capsys, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lifecycle.lock(RESULTS)
    LOCK.write_text(f"process 7 on {HOST}")  # which may live
    assert said(capsys) == ""
    assert snakemake_locks()


def test_a_lock_that_cannot_be_written_is_a_sentence_and_only_for_who_runs(capsys):
    LOCK.mkdir()
    assert said(capsys) == ""
    with pytest.raises(SpdnnError, match=r"^results/\.lock: Is a directory$"):
        lifecycle.lock(RESULTS)


def test_the_name_is_cleared_when_the_run_ends(folder):
    read = [sys.executable, "-c", f"{LOCKED} print(open('{LOCK}').read())"]
    assert finished(read, cwd=folder)[1].startswith("process ")
    assert LOCK.read_text() == ""


def test_a_killed_run_leaves_its_name_and_no_child_holds_its_lock(folder, capsys):
    code = "import os, time; os.fork() or print('forked', flush=True); time.sleep(600)"
    with started([sys.executable, "-c", LOCKED + code], cwd=folder, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout.readline() == "forked\n"
        os.kill(one.pid, signal.SIGKILL)
        until(lambda: process(one.pid) is None, "the process ended")
        assert said(capsys).startswith(f"spdnn: process {one.pid} on {HOST} was killed")


def test_jobs_are_told_whom_they_work_for(monkeypatch):
    monkeypatch.setenv(endings.STARTER, "")
    lifecycle.keep_jobs()
    assert os.environ[endings.STARTER] == str(process())


def test_a_run_that_could_not_go_well_is_refused(monkeypatch):
    lifecycle.check_groups({"verify": "a"})
    said = "^--groups: rule infer_ranks is timed, and no job runs beside a timed one"
    refuses(said, lifecycle.check_groups, {"verify": "a", "infer_ranks": "a"})
    monkeypatch.setattr("shutil.which", lambda name: None)
    lifecycle.check_executor("local")
    with pytest.raises(Unavailable, match="^executor slurm: Slurm is not installed here, for there is no sbatch; "):
        lifecycle.check_executor("slurm")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_a_run_is_known_although_the_interrupt_gets_lost(number):
    lost = (
        "import contextlib, signal; from spdnn.runs.workflow import lifecycle; lifecycle.end_with_jobs(); "
        "before = lifecycle.interrupted.is_set()\n"
        f"with contextlib.suppress(KeyboardInterrupt): signal.raise_signal({number:d})\n"
        "print(before, lifecycle.interrupted.is_set())"
    )
    assert finished([sys.executable, "-c", lost])[:2] == (0, "False True\n")
