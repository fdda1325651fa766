"""Runs pytest on every processor, and gives back all that it took, however it ends.

`python tests/run.py ARGUMENTS` passes its arguments on. `-m full --slice` runs a quarter of the full set: the one that
was run longest ago, and what has changed since the cache of tests saw it pass (slices.py). The slowest tests are
printed with their seconds, and build/junit/ has those of all: default.xml, full.xml.

Temporary files go into a folder that is removed at the end. What the tests started and did not end is killed, and so is
everything when this is interrupted or terminated; a test that leaves a process or a file behind fails the run. Source
of the idea: prctl(2), PR_SET_CHILD_SUBREAPER.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compile_cache
import psutil
import slices

ROOT = Path(__file__).resolve().parents[1]
SLOWEST = 25  # tests that are printed
SUBREAPER, PARENT_DEATH = 36, 1  # of prctl: orphans become our children; a signal when the parent ends
SECONDS = 15  # that the tests have to put back what they changed, when they are stopped
KEPT = "pytest-of-"  # pytest's own folders


def main(arguments: list[str]) -> int:
    """The exit status of pytest; 1 where it left something behind, 128 + N where signal N ended it."""
    libc = ctypes.CDLL(None)
    libc.prctl(SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)  # nohup and `&` ignore some of them, and would make the tests' children do so
    folder = Path(tempfile.mkdtemp(prefix="spdnn-tests-"))
    folder.chmod(0o711)  # munged's clients are of other users, and must get through to its socket
    slice_of_full = slices.choose(ROOT) if "--slice" in arguments else None
    if slice_of_full:
        print(slice_of_full.sentence, flush=True)
        arguments = [word for word in arguments if word != "--slice"] + slice_of_full.arguments
    # A worker that crashes fails the run; pytest-xdist 3.8 waits for ever for one that it started in its place.
    command = [sys.executable, "-m", "pytest", "-n", str(len(os.sched_getaffinity(0))), "--dist", "loadgroup"]
    command += ["--max-worker-restart=0", f"--durations={SLOWEST}", "--durations-min=0.5"]
    name = next((Path(word).stem for word in arguments if not word.startswith("-")), "default")
    command += [f"--junitxml={ROOT}/build/junit/{name}.xml", *arguments]
    # A session of its own: a signal to the terminal's group reaches the tests through this process alone.
    tests = subprocess.Popen(
        command,
        env={"OMP_WAIT_POLICY": "passive", **os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(PARENT_DEATH, signal.SIGKILL),
    )
    try:
        status = tests.wait()
        left = [*map(described, descendants())]
        left += [str(path) for path in folder.iterdir() if not path.name.startswith(KEPT)]
        for what in left:
            print(f"tests/run.py: left behind by the tests: {what}", file=sys.stderr)
        if slice_of_full and not status and not left:
            slice_of_full.passed()
        compile_cache.remove_unused()
        return status or bool(left)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if tests.poll() is None:
            interrupt(tests)
        end_all()
        shutil.rmtree(folder, ignore_errors=True)


def stopped(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def descendants() -> list[psutil.Process]:
    """Every process below this one that is no zombie."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def described(process: psutil.Process) -> str:
    try:
        return f"process {process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return f"process {process.pid}"


def interrupt(tests: subprocess.Popen) -> None:
    """Let fixtures end: pytest and its workers get SIGINT, and some time."""
    for process in (*psutil.Process(tests.pid).children(), psutil.Process(tests.pid)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        tests.wait(SECONDS)


def end_all() -> None:
    """Kill what is left, until nothing is: a process that is killed may leave children of its own to us."""
    deadline = time.monotonic() + SECONDS
    while (found := descendants()) and time.monotonic() < deadline:
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
