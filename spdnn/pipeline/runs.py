"""How runs of the workflow end, and how the next one takes up what a killed one left, without a flag.

Every Snakemake that reads the workflow enters itself in `.snakemake/spdnn`, a file of its own with one line
(processes.Process), and takes that away when it ends. Where no entry is of a process that may live, nobody holds the
locks that are there. An entry of another machine, or from before a restart, may be of one that lives: it is named, and
the locks stay.
"""

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

from spdnn.common import endings
from spdnn.common.errors import Unavailable
from spdnn.common.files import write_text
from spdnn.common.processes import Process, parsed, process

SNAKEMAKE = Path(".snakemake")
TOLD = 5  # names of files that a sentence has
PAUSE = 0.2  # seconds between two looks at what jobs are left


def keep_jobs(checkout: Path) -> None:
    """Let every job that this process starts from now on end when it does, however it ends.

    Args:
        checkout: what envs/spdnn.post-deploy.sh installs in an environment of conda.
    """
    os.environ |= {endings.STARTER: str(process()), "SPDNN_SOURCE": str(checkout)}


def end_with_jobs() -> None:
    """From now on, SIGTERM and SIGINT end the jobs of this process, and then Snakemake, which would wait for them."""

    def ended(number, frame):
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        threading.Thread(target=_end_jobs, args=(number,), daemon=True).start()
        raise KeyboardInterrupt

    with contextlib.suppress(ValueError):  # Snakemake is a library of another program, in a thread
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, ended)


def _end_jobs(number: int) -> None:
    """Send a signal to each process below this one that has none below it, also to those that come; then kill all.

    A shell and a launcher of ranks end with what they started; a launcher that gets two signals leaves ranks no time.
    """
    import psutil  # which Snakemake brings

    sent, last = set(), time.monotonic() + 2 * endings.GRACE
    while jobs := psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parents = {job.ppid() for job in jobs}
            for job in jobs:
                if time.monotonic() > last:
                    job.kill()
                elif job.pid not in parents and job not in sent:
                    sent.add(job)
                    job.send_signal(number)
        time.sleep(PAUSE)


def enter(results: Path) -> None:
    """Enter this process as one that runs the workflow in the current folder, and take up what killed ones left there.

    What it does and finds is told on standard error, a sentence each.

    Args:
        results: the folder of outputs; temporary files in it are removed. Downloads are none: they are continued.
    """
    folder = SNAKEMAKE / "spdnn"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            own = folder / f"{process().host}-{os.getpid()}"
            others = {path: _entered(path) for path in sorted(folder.iterdir()) if path not in (own, folder / "lock")}
            own.write_text(f"{process()}\n", "utf-8")
            atexit.register(_leave, own, os.getpid())
            _take_up(others, results)
    except OSError as error:  # Snakemake cannot write there either, and says so where it has to
        print(f"spdnn: warning: {folder}: {error.strerror or error}", file=sys.stderr)


def configuration_file(config: Mapping, write: bool, keep: bool) -> str:
    """The path of a file that is written only when `config` changes: what depends on it follows the configuration, also
    where times of files are all that counts (`--rerun-triggers mtime`).

    Args:
        write: False in a job, which reads what the main process wrote.
        keep: in a dry run; a changed configuration is in a temporary file.

    Raises:
        SpdnnError: it cannot be written.
    """
    text, path = json.dumps(config, indent=1, sort_keys=True) + "\n", SNAKEMAKE / "spdnn-configuration.json"
    if not write or (path.is_file() and path.read_text("utf-8") == text):
        return str(path)
    if keep:
        path = Path(tempfile.gettempdir(), f"spdnn-configuration-{os.getpid()}.json")
        atexit.register(path.unlink, missing_ok=True)
    write_text(path, text)
    return str(path)


def check_executor(name: str) -> None:
    """Raise Unavailable where the executor of that name has no scheduler here to send jobs to."""
    if name == "slurm" and not shutil.which("sbatch"):
        raise Unavailable(
            "executor slurm: Slurm is not installed here, for there is no sbatch; start this where jobs are sent from, "
            "or run it here, without --executor and --workflow-profile: snakemake --cores N"
        )


def _take_up(others: dict[Path, Process | None], results: Path) -> None:
    gone = [path for path, entry in others.items() if entry is None or entry.gone]
    locks = sorted((SNAKEMAKE / "locks").glob("*.lock"))
    living = [(path, entry) for path, entry in others.items() if path not in gone]
    if locks and living:
        path, entry = living[0]
        where = f"process {entry.number} on {entry.host}"
        if entry.here:
            sentence = f"{where} runs the workflow in this folder; wait for it, or stop it"
        else:
            sentence = f"{where} entered itself as running the workflow in this folder; if it is gone, remove {path}"
        print(f"spdnn: {sentence}", file=sys.stderr)
    if living:
        return
    unfinished = _unfinished()
    parts = list(results.rglob(".*.part"))
    for path in parts:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    for path in (*(locks if gone else []), *gone):
        path.unlink(missing_ok=True)
    if parts or (gone and (locks or unfinished)):
        names = [*unfinished[:TOLD], *(["..."] if len(unfinished) > TOLD else [])]
        left = [f"outputs to make again: {len(unfinished)} ({', '.join(names)})"] if unfinished else []
        left += [f"temporary files removed: {len(parts)}"] if parts else []
        told = "; ".join(left) or "its locks are removed"
        print(f"spdnn: a run of the workflow was killed here, and this one takes it up: {told}", file=sys.stderr)


def _unfinished() -> list[str]:
    """Outputs that Snakemake has marks of as not complete, and that are there."""
    found, marks = [], SNAKEMAKE / "incomplete"
    for path in marks.rglob("*"):
        with contextlib.suppress(ValueError):
            name = "".join(part.removeprefix("@") for part in path.relative_to(marks).parts)
            name = urlsafe_b64decode(name).decode()
            if path.is_file() and Path(name).exists():
                found.append(name)
    return sorted(found)


def _entered(path: Path) -> Process | None:
    """The process of an entry; None: it tells of none, so it was never whole and its process took no lock."""
    try:
        return parsed(path.read_text("utf-8", "replace"))
    except OSError:
        return None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process of a machine that shares the locks of this file system is in this block."""
    with open(folder / "lock", "a") as stream:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _leave(entry: Path, number: int) -> None:
    if os.getpid() == number:  # and not a child that inherited this
        entry.unlink(missing_ok=True)
