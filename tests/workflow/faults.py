"""Kills, full disks, read-only folders and two runs at once: the next plain run of the workflow ends as if nothing was.

`python tests/workflow/faults.py --kills 40 --seed 1` begins with a whole run of few layers and inputs, with every kind
of rule. Each kill then removes what a rule made, starts the workflow, waits for that rule and a random time, and kills:
Snakemake, a job or a rank, with SIGKILL, SIGTERM or SIGINT. Whatever lies under a final name must be whole. Then the
workflow runs again, without a flag, and the categories and digests must be those of the first run. What is drawn
depends on the seed alone. Full disks and read-only folders are mounts that the workflow alone sees; they need root.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import scipy.sparse as sp
import yaml

from spdnn.formats.catalog import read_sources
from spdnn.formats.inputs import read_inputs
from spdnn.formats.readers import open_network
from spdnn.runs.records.cases import read_cases
from spdnn.runs.records.files import read_all, read_record, read_result, read_samples, read_verdict

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
ENDS = 2.0  # seconds in which a signal ends everything that was started
SECONDS = 600  # that a run may take
BEGINS = "^(?:local)?rule {}:$"  # what Snakemake prints
CONNECT = {"SPDNN_CONNECT_SECONDS": "20"}  # after which the others end, when a rank never comes
SETTINGS = """
neurons: [1024]
layers: [3]
source: unstructured
inputs: [mnist]
count: null
inputs_per_rank: 100
engine: [cpu]
threads: [1]
ranks: [1, 2]
partition: [rebalanced]
repeats: 2
oracle_edges: 1000000
cases: [{network: layers, layers: 2, inputs: x.npy, last: relu, bias: 0, clip: 32, rows: inputs}]
peers: {widths: [1024], count: 64, seconds: 1, libraries: [scipy], threads: 1, network: null}
ops: {sets: {a: [90]}, networks: [transformer], phases: [inference], operations: [spmm], models: [],
      libraries: [scipy], seconds: 0.01, threads: 1, seed: 0, dlmc: null}
"""
# Of each rule: the folder that is full or cannot be written to, of all results where it has no name; and what is
# removed so that it runs: one of its outputs, and what is made of that.
RULES = {
    "fetch_file": ("data/mnist", "data/mnist/*", "inputs/mnist*", "runs/unstructured*", "records/unstructured*"),
    "make_network": ("networks", "*/unstructured*"),
    "import_network": ("networks", "*/layers-*"),
    "make_inputs": ("inputs", "inputs/mnist*", "runs/unstructured*", "records/unstructured*"),
    "import_inputs": ("inputs", "inputs/x-*", "runs/layers-*", "records/layers-*"),
    "prepare": ("prepared", "prepared/layers-*", "runs/layers-*", "records/layers-*"),
    "infer": ("runs", "runs/layers-*.t1*/*", "records/layers-*.t1*.json"),
    "infer_ranks": ("runs", "runs/layers-*.r2-*/*", "records/layers-*.r2-*"),
    "verify": ("runs", "runs/layers-*.t1*/verdict.json", "records/layers-*.t1*.json"),
    "benchmark": ("records", "records/layers-*"),
    "peers": ("", "peers"),
    "ops": ("ops", "ops/*"),
    "report": ("", "report.html"),
}
# What is not run where none of its rules is to fail.
ONLY_FOR = {"neurons": {"fetch_file", "make_network", "make_inputs"}, "peers": {"peers"}, "ops": {"ops"}}
OURS = r'(?m)^  File ".*/spdnn/'  # of a traceback; Snakemake has some of its own, where it cannot remove a file
TARGETS = ("snakemake", "job", "everything")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Fault(Exception):
    """Something that must not be after a fault."""


class Kill(NamedTuple):
    """What is to happen: the rule, who is killed with what, and how far into the rule's time, from 0 to 1."""

    rule: str
    target: str
    number: int
    moment: float

    def __str__(self) -> str:
        return f"{self.rule}: {signal.Signals(self.number).name} to {self.target} at {self.moment:.2f}"


def drawn(count: int, seed: int, rules=tuple(RULES)) -> list[Kill]:
    """`count` kills, in every rule as often as in any other, or once more."""
    dice = random.Random(seed)
    order = [rule for _ in range(-(-count // len(rules))) for rule in dice.sample(rules, len(rules))]
    kills = []
    for rule in order[:count]:
        targets = (*TARGETS, "rank") if rule == "infer_ranks" else TARGETS
        kills.append(Kill(rule, dice.choice(targets), dice.choice(SIGNALS), dice.random()))
    return kills


def _check_download(path: Path) -> None:
    if fault := next(source.fault(path) for source in read_sources().values() if str(path).endswith(source.path)):
        raise ValueError(fault)


def _read_layers(path: Path) -> None:
    network = open_network(path)
    for k in range(network.depth):
        network.layer(k)


class Workflow:
    """A folder in which the workflow runs, as far as these rules are to fail."""

    def __init__(self, folder: Path, rules: set[str]):
        self.folder, self.results, self.rules = folder, folder / "results", rules
        self.seconds: dict[str, float] = {}  # that each rule took in the first run, its start included
        self.first: dict = {}
        folder.mkdir(exist_ok=True)
        left_out = [key for key, its in ONLY_FOR.items() if not its & rules]
        settings = yaml.safe_load(SETTINGS) | {key: [] if key == "neurons" else None for key in left_out}
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
        random_numbers = np.random.default_rng(2)
        (folder / "layers").mkdir()
        for k in (1, 2):
            layer = sp.random_array((300, 300), density=0.1, rng=random_numbers, format="csc")
            sp.save_npz(folder / f"layers/{k}.npz", layer)
        np.save(folder / "x.npy", random_numbers.random((50, 300)).astype(np.float32))

    @contextlib.contextmanager
    def started(self, wrapper=()):
        """(Snakemake's process, the file of what it prints); nothing of it is left at the end."""
        path = self.folder / "told.txt"
        command = [*wrapper, BIN / "snakemake", "--snakefile", ROOT / "workflow/Snakefile", "--cores", "2"]
        command += ["--notemp"]  # to look at every output
        command += ["--configfile", ROOT / "config/smoke.yaml", self.folder / "settings.yaml"]
        with open(path, "w") as told:
            process = psutil.Popen(
                [*map(str, command)],
                cwd=self.folder,
                env=os.environ | CONNECT,
                stdout=told,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process, path
        finally:
            for one in self.living():
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()

    def living(self) -> list[psutil.Process]:
        """Every process that works in the folder, but this one."""
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if one.pid != os.getpid() and one.status() != psutil.STATUS_ZOMBIE and one.cwd() == str(self.folder):
                    found.append(one)
        return found

    def run(self, wrapper=()) -> tuple[int, str]:
        """(exit status, what was printed) of a plain run."""
        with self.started(wrapper) as (process, told):
            status = process.wait(SECONDS)
            return status, told.read_text()

    def time_rules(self) -> None:
        """The first run; it is watched for how long a job of each rule takes, and what the others must agree with."""
        begun: dict[str, float] = {}
        with self.started() as (process, told):
            while process.poll() is None:
                text, now = told.read_text(), time.monotonic()
                for rule in self.rules:
                    if re.search(BEGINS.format(rule), text, re.MULTILINE):
                        begun.setdefault(rule, now)
                    if re.search(rf"Finished jobid: \d+ \(Rule: {rule}\)", text):
                        self.seconds.setdefault(rule, now - begun[rule])
                time.sleep(0.05)
        if absent := self.rules - set(self.seconds):
            raise Fault(f"rules that did not run: {absent}\n{told.read_text()[-3000:]}")
        self.check()
        self.first = self.outcome()

    def whole(self) -> str:
        """Run, and compare with the first run; what was printed."""
        status, told = self.run()
        if status:
            raise Fault(f"the next run ended with {status}:\n{told[-3000:]}")
        self.check()
        if left := [str(path) for path in self.results.rglob(".*.part")]:
            raise Fault(f"left behind: {left}")
        if (found := self.outcome()) != self.first:
            raise Fault(f"another outcome: {found.items() ^ self.first.items()}")
        return told

    def outcome(self) -> dict:
        """What every run must agree on: categories and digests of cases, networks and inputs, and names of files."""
        records = [read_record(path) for path in sorted((self.results / "records").iterdir())]
        found = {record.case: (record.result.categories_sha256, record.result.digest) for record in records}
        for path in sorted((self.results / "networks").iterdir()):
            found[path.name] = open_network(path).sha256()
        for path in sorted((self.results / "inputs").iterdir()):
            found[path.name] = read_inputs(path).sha256
        names = (path.relative_to(self.results) for path in self.results.rglob("*"))
        return found | {str(name): "is there" for name in names if name.parts[0] not in ("logs", "times")}

    def check(self) -> None:
        """Raise Fault where a file under a final name is not whole, or one of several outputs is there alone."""
        readers = {
            "data/*/*": _check_download,
            "networks/*": _read_layers,
            "prepared/*": _read_layers,
            "inputs/*": read_inputs,
            "runs/*/result.npz": read_result,
            "runs/*/samples.json": read_samples,
            "runs/*/verdict.json": read_verdict,
            "records/*": read_record,
            "peers/*.json": read_record,
            "ops/*": lambda path: read_all([path]),
            "cases.json": read_cases,
        }
        for pattern, read in readers.items():
            for path in self.results.glob(pattern):
                try:
                    path.name.startswith(".") or read(path)
                except Exception as error:
                    raise Fault(f"{path} is not whole: {error}") from error
        page = self.results / "report.html"
        if page.exists() and not page.read_text().rstrip().endswith("</html>"):
            raise Fault(f"{page} is not whole")
        for case in self.results.glob("runs/*"):
            names = {path.name for path in case.iterdir()} & {"categories.txt", "result.npz", "samples.json"}
            if len(names) not in (0, 3):
                raise Fault(f"{case}: of what appears together there is {sorted(names)} alone")

    def remove(self, rule: str) -> None:
        """Remove what a rule made, so that it runs."""
        for pattern in {*RULES[rule][1:], "report.html"}:
            if not (found := list(self.results.glob(pattern))):
                raise Fault(f"{rule} made nothing of {pattern}")
            for path in found:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def kill(self, kill: Kill, ends: float) -> tuple[float, bool]:
        """Run into a kill, and check what it left: (seconds until what it was to end had ended, whether it hit)."""
        self.remove(kill.rule)
        with self.started() as (process, told):
            deadline = time.monotonic() + SECONDS
            while not re.search(BEGINS.format(kill.rule), told.read_text(), re.MULTILINE):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Fault(f"{kill.rule} did not begin:\n{told.read_text()[-3000:]}")
                time.sleep(0.02)
            time.sleep(kill.moment * self.seconds[kill.rule])
            victims = self._victims(kill, process)
            for victim in victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.send_signal(kill.number)
            begun = time.monotonic()
            while left := [one for one in (self.living() if kill.target in TARGETS[::2] else victims) if _lives(one)]:
                if time.monotonic() - begun > ends:
                    raise Fault(f"after {ends} s there is still {[' '.join(one.cmdline())[:300] for one in left]}")
                time.sleep(0.02)
            took = time.monotonic() - begun
            process.wait(SECONDS)
            # Python itself is interrupted in this way while it starts.
            if kill.number != signal.SIGINT and re.search(OURS, told.read_text()):
                raise Fault(told.read_text()[-3000:])
        self.check()
        return took, bool(victims)

    def _victims(self, kill: Kill, snakemake: psutil.Process) -> list[psutil.Process]:
        """The processes to kill; none where what is to be killed has ended before."""
        if not _lives(snakemake):
            return []
        if kill.target == "snakemake":
            return [snakemake]
        below = [one for one in snakemake.children(recursive=True) if _lives(one)]
        if kill.target == "everything":
            return [*below, snakemake]
        jobs = []
        for one in below:
            with contextlib.suppress(psutil.Error):
                words = one.cmdline()
                if words and "python" in words[0] and any(word == "spdnn" or "scripts" in word for word in words):
                    jobs.append(one)
        args = int(kill.moment * 1000) % max(1, len(jobs))
        return jobs[args : args + 1]

    def mounted(self, rule: str) -> None:
        """Run with the outputs of a rule on a disk that is full, then on one that cannot be written to."""
        self.remove(rule)
        for full in (True, False):
            self._run_mounted(rule, full)

    def _run_mounted(self, rule: str, full: bool) -> None:
        """Run in this way, and check what it says."""
        place = self.results / RULES[rule][0]
        how = "size=4k" if full else "ro"
        mount = f"mount -t tmpfs -o {how} none {place}" + (f" && echo > {place}/.filler" if full else "")
        if place == self.results:  # it has everything else too
            aside = self.folder / "aside"
            size = sum(path.stat().st_size + 8192 for path in self.results.rglob("*"))
            mount = (
                f"cp -a {place} {aside} && mount -t tmpfs -o size={size} none {place} && cp -a {aside}/. {place} && "
                f"rm -r {aside} && "
            )
            mount += f"dd if=/dev/zero of={place}/.filler 2>/dev/null || :" if full else f"mount -o remount,ro {place}"
        after = f"find {place} -newer {self.folder}/told.txt -name '.*.part' | sed 's/^/left: /'"
        script = f'{{ {mount}; }} || exit 99; "$@"; status=$?; {after}; exit $status'
        status, told = self.run(["unshare", "-m", "sh", "-c", script, "sh"])
        if status in (0, 99):
            raise Fault(f"{rule}, {how}: it ended with {status}\n{told[-3000:]}")
        if re.search(OURS, told) or "left: " in told:
            raise Fault(f"{rule}, {how}:\n{told[-3000:]}")
        sentence = "No space left|disk is full" if full else "Read-only|Write-protected|nothing can be written"
        if not re.search(sentence, told):
            raise Fault(f"{rule}, {how}: no sentence says so\n{told[-3000:]}")

    def twice(self) -> None:
        """Two runs at once, from nothing."""
        shutil.rmtree(self.results)
        shutil.rmtree(self.folder / ".snakemake")
        with self.started() as (one, _), self.started() as (other, _):
            statuses = sorted([one.wait(SECONDS), other.wait(SECONDS)])
        self.check()
        if statuses[0]:
            raise Fault(f"two runs at once ended with {statuses}")


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def can_mount() -> bool:
    """Whether this process may mount a file system for the workflow alone."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True).returncode


def main(arguments: list[str]) -> int:
    """The exit status: 0 where every fault was survived."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=40, help="default: 40")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), help="default: all")
    parser.add_argument("--folder", type=Path, required=True, help="a new folder; what it holds at the end stays")
    parser.add_argument("--ends", type=float, default=ENDS, help=f"seconds that a signal may take (default: {ENDS})")
    parser.add_argument("--mounts", nargs="*", choices=RULES, default=list(RULES),
                        help="rules to run with a full disk and a read-only folder (default: all)")  # fmt: skip
    parser.add_argument("--alone", action="store_true", help="not two runs at once")
    args = parser.parse_args(arguments)
    if not can_mount():
        print("neither full disks nor read-only folders: they need root")
        args.mounts = []
    workflow = Workflow(args.folder.resolve(), {*args.rules, *args.mounts})
    failed, hit, longest = 0, Counter(), 0.0

    def survived(what, attempt):
        nonlocal failed
        begun = time.monotonic()
        try:
            told = attempt()
            unlocked = re.search("; (its locks .*)", workflow.whole())
            print(f"{what}: {told or 'survived'}, {unlocked[1] if unlocked else 'no locks left'}, "
                  f"{time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip
        except Fault as fault:
            failed += 1
            print(f"{what}: FAILED: {str(fault)[:4000]}", flush=True)
            shutil.rmtree(workflow.results, ignore_errors=True)
            shutil.rmtree(workflow.folder / ".snakemake", ignore_errors=True)
            workflow.whole()

    workflow.time_rules()
    for kill in drawn(args.kills, args.seed, tuple(args.rules)):

        def attempt(kill=kill):
            nonlocal longest
            took, hits = workflow.kill(kill, args.ends)
            hit[kill.target if hits else "missed"] += 1
            longest = max(longest, took)
            return f"over in {took:.2f} s" if hits else "it had ended before"

        survived(kill, attempt)
    for rule in args.mounts:
        survived(f"{rule}: a full disk and a read-only folder", lambda rule=rule: workflow.mounted(rule))
    if not args.alone:
        survived("two runs at once", workflow.twice)
    counts = ", ".join(f"{count} {what}" for what, count in sorted(hit.items()))
    print(f"{failed} failed; kills: {counts}; the longest end took {longest:.2f} s")
    return bool(failed)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started ends too
    sys.exit(main(sys.argv[1:]))
