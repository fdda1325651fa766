"""All records of a machine with GPUs, in one command that goes on where it stopped.

    make gpu-records [ARGS="--seconds 480"]                      .venv gets CuPy for the driver found
    make gpu-records VENV= PYTHON=python3 [ARGS="--mnist FILE"]  with a Python that has CuPy, msgspec, blake3, and the
                                                                 compiled kernels of spdnn
    PYTHONPATH=. python3 benchmarks/gpu_records.py --help        the same

Every number is of an output that was verified in the same run. A second call makes what is missing. Nothing is
downloaded: the MNIST images are those of --mnist, else of SPDNN_MIRROR, else those fetched before. Parts, in order:

    networks    the twelve official networks, all reductions and dead inputs alone, with times to solution: each a run
                of `spdnn challenge` from nothing                                             (networks.jsonl)
    memory      one network of each width within 4 GB of device memory, 65536-1920 within 16 GB: weights are streamed;
                the notes have the share of copies that computing hides, by events            (memory.jsonl)
    ranks       two MPI ranks that share a device, then 2, 4, 8 with a device each            (devices.jsonl)
    schedules   the task graph's schedules by number of batches                               (schedules.jsonl)
    products    SpMM, SDDMM and softmax of pruned layers beside cuSPARSE, cuBLAS and, where SPDNN_SPUTNIK names its
                library, Sputnik (gpu_products.py)                                            (products.jsonl)
    models      the Transformer and the MobileNet of Sputnik's paper (gpu_models.py)          (products.jsonl)
    ablation    from NVIDIA's library to all optimisations, step by step, at three widths     (networks.jsonl)
    kernels     single kernels beside the machine's ceilings (cuda_kernels.py), gaps between launches; where asked for
    profile     what Nsight Compute counts of single kernels; where asked for

They are in results/measured/DEVICE, or in the folder --results, whose page report.html is drawn last. What is no record
(kernels, profile, products of rounded operands) is in details/kernels.json.

Exit status: 0 all is there, 1 something failed or there is no GPU, 3 the time was too short for the rest.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
for folder in (ROOT, HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

if absent := [name for name in ("blake3", "msgspec", "numpy", "scipy") if importlib.util.find_spec(name) is None]:
    sys.exit(f"gpu-records: {sys.executable} lacks {', '.join(absent)}; install what is missing, or leave VENV= away")

import cuda_kernels  # noqa: E402
import gpu_libraries  # noqa: E402
import gpu_models  # noqa: E402
import gpu_products  # noqa: E402
import gpu_profile  # noqa: E402
from tally import NotHere, Tally, TooLittleTime, child, last_line, listed  # noqa: E402

from spdnn.core import challenge  # noqa: E402
from spdnn.core.endings import clean_on_terminate  # noqa: E402
from spdnn.core.errors import SpdnnError, Unavailable  # noqa: E402
from spdnn.core.files import write_text  # noqa: E402
from spdnn.core.provenance import environment  # noqa: E402
from spdnn.core.request import RunRequest  # noqa: E402
from spdnn.engines.cuda import ceilings  # noqa: E402
from spdnn.engines.registry import nondefault_settings  # noqa: E402
from spdnn.engines.taskgraph.settings import SCHEDULES  # noqa: E402
from spdnn.formats.catalog import read_sources  # noqa: E402
from spdnn.formats.fetch import find_mirror  # noqa: E402
from spdnn.formats.mnist import NAME, find_downloaded, locate_mnist  # noqa: E402
from spdnn.kernels import dispatch  # noqa: E402
from spdnn.kernels.cuda import cupy_device  # noqa: E402
from spdnn.kernels.cuda.device import Device  # noqa: E402
from spdnn.runs.records.files import as_text, parse_record, read_all, read_record  # noqa: E402
from spdnn.runs.records.operation_record import OperationRecord  # noqa: E402
from spdnn.runs.records.run_record import RunRecord  # noqa: E402

DETAILS = "details/kernels.json"  # where `spdnn report` does not look for records
PARTS = {  # and the file of each
    "networks": "networks.jsonl",
    "memory": "memory.jsonl",
    "ranks": "devices.jsonl",
    "schedules": "schedules.jsonl",
    "products": "products.jsonl",
    "models": "products.jsonl",
    "ablation": "networks.jsonl",
    "kernels": DETAILS,
    "profile": DETAILS,
}
DEFAULT = tuple(part for part in PARTS if part not in ("kernels", "profile"))
COMMAND = "make gpu-records"
INPUTS, COUNT = "mnist", None  # all of them
MPIEXEC = Path(sys.executable).parent / "mpiexec"  # of the MPI that mpi4py uses
GB = 10**9
# Sizes (neurons, layers) and what is done with them.
TWELVE = tuple((problem.neurons, problem.layers) for problem in sorted(challenge.PROBLEMS, key=lambda p: p.edges))
WITHIN = {(1024, 1920): 4 * GB, (4096, 480): 4 * GB, (16384, 480): 4 * GB, (65536, 120): 4 * GB, (65536, 1920): 16 * GB}
ON_RANKS = ((1024, 1920), (16384, 480), (65536, 120))
MOST_RANKS = 8
SWEPT, BATCHES = (4096, 120), (1, 2, 4, 8, 16)
ABLATED = ((1024, 120), (4096, 120), (65536, 120))
LADDER = (  # the rungs of config/ladder-cuda.yaml below the engine `cuda`
    ("cusparse", "none"),
    ("cuda-csr", "none"),
    ("cuda-ell", "none"),
    ("cuda-staged", "none"),
    ("cuda-staged", "dead"),
    ("cuda-staged", "dead,inputs"),
    ("cuda-staged", "all"),
    ("cuda-persistent", "all"),
)
REPEATS = {"all": 7, "dead,inputs": 5, "dead": 5, "none": 3}
LONG = 2.0  # seconds of an inference from which on it is not repeated
# What a case takes on one H100, from its records of 2026-11-27: so none begins that would not end in time.
HANGS = 60.0  # beside five times what it takes: a case that does not end by then has failed
MOST_PACE = 2.0
START = 4.0  # from the start of a command to its end, of the smallest network
LAYOUT = {"all": 4e-9, "none": 5.5e-8}  # seconds an edge, until all layers are on the device
RATES = {"cusparse": 9.4e11, "cuda-csr": 1.4e12, "cuda-ell": 1e12, "cuda-staged": 8.3e12}  # edges x inputs a second
EACH = {"products": 0.6, "models": 20.0, "kernels": 30.0, "profile": 120.0}


@dataclass(frozen=True)
class Case:
    """Something that is made at once, or not at all.

    Attributes:
        key: the same for the same case at every call.
        seconds: that it takes on one H100, about.
        make: makes and verifies it, and gives what is kept.
        programs: names of those without whose record it is not made yet.
    """

    name: str
    key: str
    seconds: float
    make: Callable[[], Any]
    programs: frozenset[str] = frozenset()


class Kept:
    """What a file holds, by the key of its case; it is written whole after each case.

    Raises:
        InputError: the file is there and holds something else.
    """

    def __init__(self, path: Path):
        self.path, self.cases, self.commits = path, {}, set()
        runs, operations = read_all([path]) if path.exists() else ([], [])
        for record in (*runs, *operations):
            self.cases.setdefault(key_of(record), []).append(record)
            self.commits.add(record.environment.commit)

    def has(self, case: Case) -> bool:
        found = self.cases.get(case.key)
        if found is None or any(isinstance(record, RunRecord) and not record.time_to_solution for record in found):
            return False  # also a run of a version that kept no time to solution
        return case.programs <= {record.program.name for record in found if case.programs}

    def add(self, case: Case, records: Sequence[RunRecord | OperationRecord]) -> None:
        """Keep the records of a case in place of those that it had. Raises InputError where one is not sound."""
        for record in records:
            parse_record(type(record), as_text(record, record.case), record.case)
        self.cases[case.key] = list(records)
        kept = (record for of_case in self.cases.values() for record in of_case)
        write_text(self.path, "".join(as_text(record, record.case) for record in kept))


class Details(Kept):
    """A file of what is no record: an object of each case, and the device."""

    def __init__(self, path: Path):
        self.path, self.commits = path, set()
        self.content = json.loads(path.read_text()) if path.exists() else {}
        if self.content:
            self.commits = {self.content["environment"]["commit"]}

    def has(self, case: Case) -> bool:
        return case.key in self.content

    def add(self, case: Case | None, content: dict) -> None:
        self.content |= {"environment": environment(COMMAND)} | content
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(self.content, indent=1) + "\n")


def key_of(record: RunRecord | OperationRecord) -> str:
    """The key of the case that a record is of: its request, or the problem that its program had."""
    if isinstance(record, RunRecord):
        return request_key(record.request) if record.request else record.case
    problem = record.problem
    if record.operation == "model":
        return record.case.rsplit(".", 2)[0].partition(".")[2]
    return problem_key(record.operation, problem.network, problem.layer, problem.batch_columns, problem.nonzeros)


def request_key(request: RunRequest) -> str:
    """A request without the name of the file of images, and of how often it is repeated."""
    values = {name: value for name, value in request.values.items() if name not in ("mnist", "repeats", "cache")}
    return json.dumps(values, sort_keys=True)


def problem_key(*of: Any) -> str:
    return " ".join(map(str, of))


@dataclass(frozen=True)
class Bench:
    """What cases are made with.

    Attributes:
        ordinal: the number of the device.
        images: the file of MNIST, as the folder `place` has it; None: there is none.
        place: where commands run, so that no record has a path of this machine.
        details: of all parts; left: seconds until the end.
    """

    device: Device
    ordinal: int
    tally: Tally
    images: str | None
    place: Path
    details: Details

    # Parts of runs: each case is a request.

    def networks(self) -> Iterator[Case]:
        for reductions in ("all", "dead"):
            for size in TWELVE:
                yield self.run(size, "cuda", reductions)

    def memory(self) -> Iterator[Case]:
        for size, limit in WITHIN.items():
            yield self.run(size, "taskgraph-cuda", "dead", schedule="stream", device_memory=limit)

    def ranks(self) -> Iterator[Case]:
        there = cupy_device.count()
        for size in ON_RANKS:
            yield self.run(size, "cuda", "dead", ranks=2, device=self.ordinal)
            yield from (self.run(size, "cuda", "dead", ranks=count) for count in (2, 4, MOST_RANKS) if count <= there)

    def schedules(self) -> Iterator[Case]:
        for schedule in SCHEDULES:
            for batches in BATCHES:
                yield self.run(SWEPT, "taskgraph-cuda", "dead", schedule=schedule, batches=batches)

    def ablation(self) -> Iterator[Case]:
        for size in ABLATED:
            yield from (self.run(size, *rung) for rung in LADDER)

    def run(
        self, size: tuple[int, int], engine: str, reductions: str, ranks: int = 1, device: int | None = None, **settings
    ) -> Case:
        """A run of `spdnn challenge` on the official inputs, in a process of its own."""
        (neurons, layers), edges = size, challenge.NONZEROS_PER_NEURON * size[0] * size[1]
        work = edges * challenge.INPUTS / RATES.get(engine, 1e13) if reductions == "none" else 0.0
        repeats = 1 if work > LONG else REPEATS[reductions]
        if ranks == 1 and self.ordinal:
            device = self.ordinal
        request = RunRequest(
            neurons=neurons, layers=layers, inputs=INPUTS, count=COUNT, mnist=self.images, engine=engine,
            reductions=reductions, ranks=ranks, device=device, repeats=repeats, cache=False,
            settings=nondefault_settings(engine, settings),
        )  # fmt: skip
        seconds = START + LAYOUT["all" if reductions == "all" else "none"] * edges + repeats * work
        told = "".join(f" {name}={value}" for name, value in settings.items())
        told += f", {ranks} ranks{' on one device' * (device is not None)}" if ranks > 1 else ""
        name = f"{neurons}-{layers} {engine} {reductions}{told}"
        return Case(name, request_key(request), seconds, partial(self._record, request, HANGS + 5 * seconds))

    def _record(self, request: RunRequest, most: float) -> list[RunRecord]:
        """Run a request, for so many seconds at most; its record.

        Raises:
            AssertionError: it failed, with its last line, or does not end; NotHere: no MNIST images, or no MPI.
        """
        if self.images is None and INPUTS == "mnist":
            raise NotHere("there are no MNIST images here (--mnist FILE names them)")
        words = request.command("record.json")
        words = [sys.executable, "-P", "-m", *words[words.index("spdnn") :]]
        if request.ranks > 1:
            if not MPIEXEC.exists() or importlib.util.find_spec("mpi4py") is None:
                raise NotHere(f"mpi4py and the mpiexec of its MPI are not installed next to {sys.executable}")
            words = [MPIEXEC, "-n", request.ranks, *words]
        with contextlib.suppress(SpdnnError):  # after a fault of this process, the other one runs all the same
            self.device.trim()  # the memory is the other process's
        path = self.place / "record.json"
        path.unlink(missing_ok=True)
        left = max(1.0, self.tally.left)
        try:
            done = child(words, min(most, left), self.place)
        except TooLittleTime as reason:
            if left <= most:
                raise
            raise AssertionError(f"no end: {reason}") from None
        assert done.returncode == 0, last_line(done)
        record = read_record(path)
        middle = statistics.median(record.seconds)
        self.tally.tell(
            f"      {middle:.5f} s of inference, {record.edges_per_second.median / 1e12:.3f} TeraEdges/s, "
            f"{record.time_to_solution.seconds:.1f} s to solution"
        )
        return [record]

    # Parts in this process.

    def products(self) -> Iterator[Case]:
        for operation, problem in gpu_products.chosen_problems():
            shape = problem.shape
            nonzeros = round((1 - problem.sparsity / 100) * shape.rows * shape.columns)
            columns = 1 if operation == "softmax" else problem.batch_columns
            key = problem_key(operation, shape.network, shape.layer, columns, nonzeros)
            make = partial(self._product, operation, problem)
            programs = frozenset({"sputnik"} if os.environ.get(gpu_libraries.SPUTNIK) else ())
            yield Case(f"{operation} {problem.name}", key, EACH["products"], make, programs)

    def _product(self, operation: str, problem: Any) -> list[OperationRecord]:
        found = gpu_products.compare(self.device, operation, problem, machine(self.device), COMMAND, self.tally)
        self.tally.tell(f"      {gpu_products.line(found)}")
        if found.rounded:
            rounded = {f"{one['operation']} {one['problem']} {one['program']}": one for one in found.rounded}
            self.details.add(None, {"rounded": self.details.content.get("rounded", {}) | rounded})
        return found.records

    def models(self) -> Iterator[Case]:
        for name in gpu_models.NAMES:
            yield Case(f"model {name}", name, EACH["models"], partial(self._model, name))

    def _model(self, name: str) -> list[OperationRecord]:
        records = gpu_models.compare(self.device, arrays(), name, machine(self.device), COMMAND)
        sparse, dense = (statistics.median(record.seconds) for record in records)
        self.tally.tell(f"      {1e3 * sparse:.2f} ms sparse, {dense / sparse:.2f} times as long dense")
        return records

    def kernels(self) -> Iterator[Case]:
        for neurons in challenge.WIDTHS:
            yield Case(f"kernels at {neurons}", f"kernels {neurons}", EACH["kernels"], partial(self._kernels, neurons))
        yield Case("gaps between launches", "launch_gap_seconds", 1.0, self._gaps)

    def _kernels(self, neurons: int) -> dict:
        best = machine(self.device)
        rows = cuda_kernels.measure(
            self.device, best, [neurons], SAMPLES, MEGABYTES << 20, self.ordinal, self.tally.tell
        )
        return {**cuda_kernels.described(self.device, best), f"kernels {neurons}": rows}

    def _gaps(self) -> dict:
        return {"launch_gap_seconds": cuda_kernels.gaps(self.device)}

    def profile(self) -> Iterator[Case]:
        make = lambda: {"profile": gpu_profile.profile(self.ordinal)}  # noqa: E731
        yield Case("profile", "profile", EACH["profile"], make)


SAMPLES, MEGABYTES = 20, 1024  # of single kernels


@cache
def machine(device: Device):
    """What the device does at best."""
    return ceilings.measure(device, seconds=1.0)


def arrays() -> Any:
    """CuPy."""
    import cupy

    return cupy


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="gpu-records", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--parts", default=",".join(DEFAULT), metavar="A,B", help=f"of {', '.join(PARTS)}")
    top.add_argument("--seconds", type=float, help="no case starts that would end after them (default: no limit)")
    top.add_argument("--mnist", metavar="FILE", help="the MNIST training images, idx or idx.gz")
    top.add_argument("--device", type=int, metavar="D", help="its number (default: 0)")
    top.add_argument("--results", metavar="FOLDER", help="default: results/measured/DEVICE")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing of the parts chosen; the exit status."""
    args = parser().parse_args(arguments)
    with clean_on_terminate():
        return run(args)


def run(args: argparse.Namespace) -> int:
    """As main."""
    began = time.monotonic()
    try:
        parts = listed("--parts", args.parts, tuple(PARTS))
        device = cupy_device.open_device(args.device)
        if reason := dispatch.missing():
            raise Unavailable(f"{reason}, or pip install --no-build-isolation --no-deps -e .")
        found = mnist(args.mnist)
    except SpdnnError as error:
        print(f"gpu-records: {error}", file=sys.stderr)
        return 1
    folder = Path(args.results or ROOT / "results/measured" / named(device.properties.name))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{device.properties.name}, {device.properties.software}: {folder}", flush=True)
    told, statuses = [], set()
    with tempfile.TemporaryDirectory() as place:
        if found:
            os.symlink(found.resolve(), Path(place) / found.name)
        details = Details(folder / DETAILS)
        files: dict[str, Kept] = {DETAILS: details}
        for part in parts:
            print(f"\n{part}", flush=True)
            try:
                kept = files.setdefault(PARTS[part], None) or Kept(folder / PARTS[part])
            except SpdnnError as error:
                print(f"gpu-records: {error}", file=sys.stderr)
                return 1
            files[PARTS[part]] = kept
            left = None if args.seconds is None else args.seconds - (time.monotonic() - began)
            tally = Tally(left, probe=device.synchronize)
            bench = Bench(device, args.device or 0, tally, found and found.name, Path(place), details)
            told.append(make(part, list(getattr(bench, part)()), kept, tally))
            statuses.add(1 if tally.failures else 3 if tally.left_out else 0)
        tally = Tally(probe=device.synchronize)
        page(folder, tally)
    print("", *told, *(f"page: {reason}" for reason in (*tally.not_here, *tally.failures)), sep="\n", flush=True)
    print(f"{time.monotonic() - began:.0f} s; {folder}", flush=True)
    return 1 if 1 in statuses or tally.failures else max(statuses)


def make(part: str, cases: list[Case], kept: Kept, tally: Tally) -> str:
    """Make the cases of a part that are missing; a line that says what was made, what was left out and why."""
    missing = [case for case in cases if not kept.has(case)]
    pace = 1.0  # how many times as long as on an H100 cases take here
    old = kept.commits - {environment("")["commit"]}
    for case in missing:
        begin = time.monotonic()

        def work(case=case) -> bool:
            tally.tell(case.name)
            kept.add(case, case.make())
            return True

        if tally.case(case.name, work, pace * case.seconds):
            # Estimates follow a machine that is slower; not what happens once, as compiling.
            spent = time.monotonic() - begin
            pace = min(MOST_PACE, max(pace, spent / case.seconds)) if case.seconds >= START else pace
    there = len(cases) - len(missing)
    words = [f"{part:<10} {there + tally.passed} of {len(cases)} in {PARTS[part]}"]
    words += [
        f"{there} of them made before" + (f", some of another commit ({', '.join(sorted(map(str, old)))})" * bool(old))
    ] * bool(there)
    words += [f"failed: {' | '.join(tally.failures)}"] * bool(tally.failures)
    words += [f"left out for want of time: {'; '.join(tally.left_out)}"] * bool(tally.left_out)
    words += [f"not here: {'; '.join(reasons(tally.not_here))}"] * bool(tally.not_here)
    return "; ".join(words)


def reasons(told: Sequence[str]) -> list[str]:
    """Reasons, each with how many cases it is of."""
    counts: dict[str, int] = {}
    for one in told:
        name, _, reason = one.partition(": ")
        counts[reason or name] = counts.get(reason or name, 0) + 1
    return [f"{reason} ({count} of them)" if count > 1 else reason for reason, count in counts.items()]


def page(folder: Path, tally: Tally) -> None:
    """The page of all records, by the command."""
    print("\npage", flush=True)

    def work() -> None:
        absent = [name for name in ("matplotlib", "seaborn") if importlib.util.find_spec(name) is None]
        if absent:
            raise NotHere(f"{', '.join(absent)} not installed; elsewhere: spdnn report {folder}")
        words = ["report", folder.resolve(), "-o", folder.resolve() / "report.html"]
        done = child([sys.executable, "-P", "-m", "spdnn", *words], 10 * HANGS)
        assert done.returncode == 0, last_line(done)

    tally.case("report.html", work)


def mnist(path: str | None) -> Path | None:
    """The file of MNIST images that was named, or is here; None: there is none.

    Raises:
        InputError: the file that was named is none.
    """
    if path:
        return locate_mnist(path)
    mirrored = Path(find_mirror() or "", read_sources()[NAME].path)
    found = mirrored if mirrored.is_file() else find_downloaded()
    return found and locate_mnist(found)


def named(device: str) -> str:
    """The folder of a device's records."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"


if __name__ == "__main__":
    sys.exit(main())
