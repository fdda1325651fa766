"""What Slurm does with the jobs of a run that Snakemake's executors wait for in silence.

A job that Slurm will not start as things are is reported, once, with Slurm's reason. A preempted job that Slurm
cancelled is put in the queue again.
"""

import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from spdnn.core.endings import say

SECONDS = 10  # between two questions; a reason is reported when it stands twice in a row
# Reasons that end only when somebody changes the job, its limits or the nodes (squeue, JOB REASON CODES).
ENDLESS = re.compile(
    "Partition(Config|NodeLimit|TimeLimit|Down|Inactive)|BadConstraints|Invalid|NotAllowed|NeverSatisfied|[Hh]eld"
    "|Per(Job|Node)|ReqNodeNotAvail|Nodes required for job are DOWN"
)


def watch(folder: Path, executor: str) -> None:
    """Watch the jobs that were submitted from `folder`, in a thread, until this process ends.

    Args:
        executor: of Snakemake; where it is not `slurm`, its status command says what a preempted job is.
    """
    if executor in ("slurm", "cluster-generic") and shutil.which("squeue"):
        threading.Thread(target=_watch, args=(folder, executor == "slurm"), daemon=True, name="slurm").start()


def _watch(folder: Path, requeues: bool) -> None:
    reported, last = set(), set()
    listing = ("squeue", "--me", "--noheader", "--states=PENDING,PREEMPTED", "--format=%i|%T|%Z|%r")
    while True:
        lines = [line.split("|", 3) for line in _ask(*listing)[1].splitlines() if line.count("|") >= 3]
        jobs = [(job, state, reason) for job, state, where, reason in lines if where == str(folder)]
        stuck = {(job, reason) for job, state, reason in jobs if state == "PENDING" and ENDLESS.search(reason)}
        for job, reason in sorted((stuck & last) - reported):
            _tell(f"job {job} waits and will not start by itself: {reason}; `scontrol show job {job}` has more")
        for job in (job for job, state, _ in jobs if requeues and state == "PREEMPTED"):
            if not _ask("scontrol", "requeue", job)[0]:
                _tell(f"job {job} was preempted, and is in the queue again")
        reported, last = reported | (stuck & last), stuck
        time.sleep(SECONDS)


def _ask(*command: str) -> tuple[int, str]:
    """(exit status, standard output) of a command of Slurm."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 1, ""
    return answer.returncode, answer.stdout


def _tell(sentence: str) -> None:
    say(f"spdnn: warning: {sentence}", "stderr")
