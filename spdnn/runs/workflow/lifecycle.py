"""How runs of the workflow end, and how the next one goes on after one that was killed, without a flag.

A run holds a lock on `results/.lock`, and the text of this file names its process until it ends. The system releases
the lock however a process ends: a lock that is free and has a text is of a run that was killed on the machine that the
text names. Then Snakemake is asked to remove the locks of its own.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from spdnn.core import endings
from spdnn.core.addresses import hide_secrets
from spdnn.core.endings import process, say
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.resources import use_all_cores

LOCK, EXCLUSIVE = ".lock", fcntl.LOCK_EX | fcntl.LOCK_NB
RUNS = "runs the workflow in this folder; wait for it, or stop it"
# Of Snakemake's options those with which no job runs.
ONLY_TELL = (
    "dryrun", "touch", "lint", "report", "reporter", "list_target_rules", "list_rules", "print_compilation",
    "containerize", "generate_unit_tests", "dag", "rulegraph", "filegraph", "d3dag", "unlock", "cleanup_metadata",
    "conda_cleanup_envs", "conda_create_envs_only", "list_conda_envs", "cleanup_shadow", "container_cleanup_images",
    "list_changes", "list_input_changes", "list_params_changes", "list_untracked", "summary", "detailed_summary",
    "archive", "delete_all_output", "delete_temp_output",
)  # fmt: skip
MODULE = "spdnn_module"  # of Snakemake's workflow: the name that this one has there; None: it is the whole workflow
PYTHON = sys.executable  # rules/common.smk changes that one for Snakemake, which puts it into shell commands
PAUSE = 0.2  # seconds between two looks at what jobs are left
interrupted = threading.Event()  # a signal ended this run: a KeyboardInterrupt alone may get lost in a callback


def keep_jobs() -> None:
    """Let every job that this process starts from now on end when it does, however it ends, and have all its cores."""
    use_all_cores()
    os.environ[endings.STARTER] = str(process())


def end_with_jobs() -> None:
    """From now on, SIGTERM and SIGINT end the jobs of this process, and then Snakemake, which would wait for them."""

    def ended(number, frame):
        interrupted.set()
        for interrupt in (signal.SIGINT, signal.SIGTERM):
            signal.signal(interrupt, signal.SIG_IGN)
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

    sent, last = set(), time.monotonic() + 2 * endings.SIGNAL_GRACE
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


def unlock_after_kill(results: Path) -> bool:
    """Remove Snakemake's locks where the last run in the current folder was killed; say on standard error what is so.
    True: no other run is under way.

    The lock is only tried, and whatever it is, this process goes on: it may be a dry run, or run nothing.
    """
    with contextlib.suppress(OSError), open(results / LOCK, "r+", errors="replace") as stream:  # else no run
        if not os.fstat(stream.fileno()).st_size:
            return True
        try:
            fcntl.flock(stream, EXCLUSIVE)
        except BlockingIOError:
            if (holder := stream.read()) != _this_process():
                say(f"spdnn: {holder} {RUNS}", "stderr")
                return False
            return True
        last = stream.read()  # empty: it has just ended
        if last.endswith(f" on {process().host}"):
            _write(stream, _this_process())
            command = [PYTHON, "-P", "-m", "snakemake", "--unlock", "--snakefile", os.devnull]
            command += ["--profile", "none", "--workflow-profile", "none"]  # locks are of the folder: no rule is read
            failed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode
            _write(stream, "")
            outcome = "could not be removed" if failed else "are removed"
            say(f"spdnn: {last} was killed while it ran the workflow here; its locks {outcome}", "stderr")
        elif last:
            advice = "once it is gone, `snakemake --unlock` removes its locks"
            say(f"spdnn: {last} began to run the workflow here and did not end; {advice}", "stderr")
    return True


def lock(results: Path) -> None:
    """Lock the folder of outputs until this process ends, and remove the temporary files that killed runs left there.

    Downloads are not temporary files: they are continued.

    Raises:
        Unavailable: another process holds the lock.
        SpdnnError: the lock cannot be written.
    """
    try:
        results.mkdir(parents=True, exist_ok=True)
        (results / LOCK).touch()
        stream = open(results / LOCK, "r+", errors="replace")  # noqa: SIM115, open until this process ends
        try:
            fcntl.flock(stream, EXCLUSIVE)
        except BlockingIOError:
            if (holder := stream.read()) != _this_process():  # else a program runs the workflow again
                raise Unavailable(f"{holder or 'another process'} {RUNS}") from None
            return
        except OSError:  # a file system without locks: those of Snakemake remain
            pass
        last = stream.read()
        _write(stream, _this_process())
    except OSError as error:
        raise SpdnnError(f"{results / LOCK}: {error.strerror or error}") from error
    os.register_at_fork(after_in_child=stream.close)  # a child that outlives this process must not hold the lock
    atexit.register(_clear, stream)
    with contextlib.suppress(OSError):  # a job of the killed run that goes on removes its own
        for path in list(results.rglob(".*.part")) if not last else ():  # else a run on another machine may write them
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def held_by_another(results: Path) -> bool:
    """Whether another process holds the lock of the folder of outputs."""
    with contextlib.suppress(OSError), open(results / LOCK, errors="replace") as stream:  # else no run
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return stream.read() != _this_process()
    return False


def hide_mirror(config: Mapping, workflow) -> dict:
    """The configuration, its mirror without user, password and query; scripts take the mirror from SPDNN_MIRROR.

    For Snakemake writes its own command into its log, and hands the configuration to scripts in a file and to jobs of a
    cluster in their commands.
    """
    if config["mirror"] and workflow.is_main_process:
        os.environ["SPDNN_MIRROR"] = config["mirror"]
    given = workflow.config_settings
    given.config_args = given.config_args and [hide_secrets(word) for word in given.config_args]
    sys.argv[1:] = map(hide_secrets, sys.argv[1:])
    return {**config, "mirror": config["mirror"] and hide_secrets(config["mirror"])}


def executes(dry_run: bool) -> bool:
    """Whether this process is to run jobs, as far as the words tell that started it: not where Snakemake only tells."""
    from snakemake.cli import get_argument_parser

    if dry_run or "snakemake" not in Path(sys.argv[0]).parts[-2:]:  # as a program, or `python -m snakemake`
        return not dry_run
    try:
        words, _ = get_argument_parser().parse_known_args(sys.argv[1:])
    except SystemExit:
        return False
    return not any(getattr(words, name, None) for name in ONLY_TELL)


def without_deployment(workflow) -> str | None:
    """Take environments that Snakemake is to make off a workflow that names none; a sentence on what was taken off.

    A profile of the user's may ask for them, for other workflows. A workflow around this one keeps what it asks for.
    """
    methods = workflow.deployment_settings.deployment_method
    if not methods or getattr(workflow, MODULE) is not None:
        return None
    workflow.deployment_settings.deployment_method = frozenset()
    names = " ".join(sorted(str(method) for method in methods))
    return f"software-deployment-method {names}: no rule names an environment or a container, and none is made"


def check_module(workflow) -> None:
    """Raise InputError for a module whose rules and files have other names than the profiles, `results/.lock` and the
    pages know.
    """
    modifier = workflow.modifier
    others = vars(workflow).setdefault(MODULE, modifier.namespace) != modifier.namespace
    if modifier.resolved_rulename_modifier or modifier.path_modifier.prefix or others:
        raise InputError(
            "module: rules keep their names and files their places, and a workflow has one module of spdnn: "
            "`use rule * from spdnn`, without prefix, in a folder of its own for each configuration"
        )


def check_handlers(workflow) -> None:
    """Warn of a module whose workflow has no `onstart` or `onerror`: Snakemake takes none from modules."""
    absent = "<lambda>" in (workflow._onstart.__name__, workflow._onerror.__name__)
    if getattr(workflow, MODULE) is not None and absent:
        lines = "onstart, onerror and onsuccess as docs/how-to/run-the-challenge.md has them"
        lost = "nothing locks the folder and a failed run has no page"
        say(f"spdnn: warning: module: without {lines}, {lost}", "stderr")


def check_executor(name: str) -> None:
    """Raise Unavailable where the executor of that name has no scheduler here to send jobs to."""
    if name == "slurm" and not shutil.which("sbatch"):
        raise Unavailable(
            "executor slurm: Slurm is not installed here, for there is no sbatch; start this where jobs are sent from, "
            "or run it here, without --executor and --workflow-profile: snakemake --cores N"
        )


def check_groups(groups: Mapping[str, str]) -> None:
    """Raise InputError where --groups names a rule that is timed: jobs of a group run side by side."""
    if timed := {"infer", "infer_ranks", "peers", "ops"} & {*groups}:
        raise InputError(f"--groups: rule {min(timed)} is timed, and no job runs beside a timed one; leave it out")


def _this_process() -> str:
    own = process()
    return f"process {own.number} on {own.host}"


def _write(stream: TextIO, text: str) -> None:
    stream.seek(0)
    stream.truncate()
    stream.write(text)
    stream.flush()


def _clear(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # it is closed in a child
        _write(stream, "")
