"""The workflow run through a profile, in a folder of its own; every wait ends, with what was printed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import one_host
import pytest

BIN = Path(sys.executable).parent
# The plugin asks Slurm less and less often, which is kind to a cluster; a test would wait most of its time.
OFTEN = """
import asyncio
sleep = asyncio.sleep
asyncio.sleep = lambda seconds, *given: sleep(min(seconds, 1), *given)
"""
SECONDS = 1200  # that any wait may take: each job is two Snakemakes, and the machine may be busy with other things


@dataclass
class Run:
    """The workflow in a folder of its own, its jobs through a profile. Every wait ends, with what was printed."""

    root: Path
    folder: Path
    profile: str = "slurm"
    probe: str = ""  # Python that each of its processes runs first
    process: subprocess.Popen | None = None

    @property
    def near(self) -> Path:
        """Where jobs copy stores to before they read them."""
        return self.folder / "near"

    @property
    def log(self) -> Path:
        return self.folder / "snakemake.txt"

    def edit(self, changes: dict[str, str]) -> "Run":
        """Take a copy of the profile in which the part of the site is edited."""
        if self.profile != str(folder := self.folder / "profile"):
            shutil.copytree(self.root / "workflow/profiles" / self.profile, folder)
        text = (folder / "config.yaml").read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (folder / "config.yaml").write_text(text)
        self.profile = str(folder)
        return self

    def environment(self) -> dict[str, str]:
        """Variables of a run in the folder, which has what they name."""
        for folder in (self.near, self.folder / "tmp", self.folder / "site"):
            folder.mkdir(exist_ok=True)
        (self.folder / "site/sitecustomize.py").write_text(OFTEN + self.probe)
        return {
            "PATH": f"{BIN}:{self.folder}/bin:{os.environ['PATH']}",
            "SPDNN_STAGE": f"{self.folder}/$NEAR",
            "NEAR": self.near.name,
            "PYTHONPATH": f"{self.folder}/site",
            "TMPDIR": f"{self.folder}/tmp",  # a job that Slurm kills leaves a folder there
        }

    def start(self, *arguments: str, **environment: str) -> "Run":
        command = [
            *(BIN / "snakemake", "--snakefile", self.root / "workflow/Snakefile", "--directory", self.folder),
            *("--workflow-profile", self.root / "workflow/profiles" / self.profile),
            *("--configfile", self.root / "config/smoke.yaml", *arguments),
        ]
        environment = os.environ | environment | self.environment()
        with open(self.log, "w") as stream:
            self.process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment,
                cwd=self.root, start_new_session=True,
            )  # fmt: skip
        return self

    @property
    def text(self) -> str:
        return self.log.read_text()

    def end(self, seconds: float = SECONDS) -> int:
        """The exit status, once it is there."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"the workflow did not end in {seconds} s:\n{self.text}\n{queue()}", pytrace=False)

    def wait_for(self, happened: Callable[[], object], what: str):
        """What `happened` returns, as soon as that is true."""
        deadline = time.monotonic() + SECONDS
        while not (found := happened()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"waited in vain for {what}:\n{self.text}\n{queue()}", pytrace=False)
            time.sleep(0.1)
        return found

    def wait_for_no_job(self) -> None:
        """Until Slurm has ended every job, those cancelled included."""
        deadline = time.monotonic() + SECONDS
        while one_host.output("squeue", "--noheader"):
            if time.monotonic() > deadline:
                pytest.fail(f"jobs did not end:\n{self.text}\n{queue()}", pytrace=False)
            time.sleep(0.1)

    def signal(self, number: int) -> None:
        """Send Snakemake itself a signal; its jobs belong to Slurm."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill Snakemake and what it started here."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def running(self, rule: str) -> list[str]:
        """Numbers of this folder's jobs of a rule that run now."""
        listed = one_host.output("squeue", "--noheader", "--states=RUNNING", "--format=%i|%Z|%k|%j").splitlines()
        jobs = [line.split("|") for line in listed]
        wanted = (f"rule_{rule}", f"rule_{rule}_wildcards")
        return [
            number
            for number, folder, comment, name in jobs
            if folder == str(self.folder) and (name == rule or comment.startswith(wanted[1]) or comment == wanted[0])
        ]

    def found(self, pattern: str) -> list[Path]:
        return sorted(self.folder.glob(pattern))


def queue() -> str:
    return one_host.output("squeue", "--states=all", "--format=%i %j %k %T %r %N")
