"""The check of a machine with an NVIDIA GPU: every kernel against the oracle, single kernels and the official networks.

    make gpu-check ARGS="--parts first"                         a minute; .venv gets CuPy for the driver found
    make gpu-check [ARGS="--quick"]                             all, in eight minutes
    make gpu-check ARGS="--parts first --profile"               and what Nsight Compute (ncu) counts, two minutes more
    make gpu-check VENV= PYTHON=python3 [ARGS="--mnist FILE"]   with a Python that has numpy, scipy, msgspec and CuPy
    PYTHONPATH=. python3 tests/gpu/check.py --help              the same

Nothing is installed, compiled kernels for the CPU are not needed, nor a network: the MNIST images are those of --mnist,
else of SPDNN_MIRROR. Parts:

    first        one layer against the oracle, one official network with exact truth: a minute. What fails here ends it
    correctness  engines against the float64 oracle on awkward shapes, fresh random inputs at each call (--seed repeats
                 them), memory poisoned; equal digests over kernels, reductions, batches and repeats; errors
    kernels      single kernels on dense features beside cuSPARSE and the ceilings (benchmarks/cuda_kernels.py)
    sanitizer    correctness, taskgraph and ops under the tools of compute-sanitizer, where that works, as
                 far as a quarter of the time allows; all of it: --parts sanitizer --seconds 3000
    ranks        MPI ranks that share one device, or have one each, and a rank that fails: right, not fast
                 (device_ranks.py); where mpi4py is installed
    networks     the twelve official networks with exact truth, and the ladder; a run record of each
    taskgraph    every schedule of the task graph against the engine cuda; captured graphs beside streams and launches
                 from Python, 65536-1920 within a promise of 8 GiB, and gaps between launches (device_schedules.py);
                 alone, with all the time it needs: --parts taskgraph --seconds 1500
    ops          the sparse operations against the float64 oracle, then products of pruned layers beside cuSPARSE and
                 cuBLAS (device_ops.py); alone, with all the time it needs: --parts ops --seconds 900

What was measured is in the folder --results, under the date, and `spdnn report FOLDER` reads it: DATE.jsonl holds the
run records, one on each line, DATE-schedules.jsonl those of part taskgraph, DATE-ops.jsonl operation records. Until a
part ends, its records are in a file that ends in .part. What no report reads is in DATE/: kernels.json, ops.json and
taskgraph.json have samples and other figures of these parts; profile.json what was counted with --profile.

DATE.zip has all of these, what the device is, what failed and what was left out: the one file to send back.

After a fault of the device that stays, the rest is left out; SPDNN_CUDA_SYNCHRONIZE=1 names the launch that made it.

Exit status: 0 all passed, 1 something failed (or there is no GPU), 3 all that ran passed and the time was too short for
the rest, which is listed and did not pass.
"""

import argparse
import importlib.util
import json
import re
import secrets
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in (ROOT, ROOT / "benchmarks", HERE.parent / "engines", HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

if absent := [name for name in ("msgspec", "numpy", "scipy") if importlib.util.find_spec(name) is None]:
    sys.exit(f"gpu-check: {sys.executable} lacks {', '.join(absent)}; install what is missing, or leave VENV= away")

import correctness  # noqa: E402
import cuda_kernels  # noqa: E402
import device_ops  # noqa: E402
import device_ranks  # noqa: E402
import device_schedules  # noqa: E402
import networks  # noqa: E402
import numpy_rows  # noqa: E402
import profiling  # noqa: E402
from tally import NotHere, Tally, TooLittleTime, child, write_details  # noqa: E402

from spdnn.common.errors import InputError, SpdnnError  # noqa: E402
from spdnn.common.files import replacing  # noqa: E402
from spdnn.engines.cuda import ceilings  # noqa: E402
from spdnn.kernels import dispatch  # noqa: E402
from spdnn.kernels.cuda import cupy_device  # noqa: E402
from spdnn.problem import challenge  # noqa: E402
from spdnn.records import files  # noqa: E402
from spdnn.records.limits import EDGE_BYTES, Machine  # noqa: E402
from spdnn.records.operation_record import OperationRecord  # noqa: E402
from spdnn.records.run_record import RunRecord  # noqa: E402
from spdnn.sources.digits import digits_inputs  # noqa: E402
from spdnn.sources.radixnet import RadixNet  # noqa: E402

if dispatch.missing():  # a machine without g++: networks are made in NumPy, some ten times slower
    dispatch.compiled_module = lambda: numpy_rows

DIGITS = 3000  # inputs of the official network where there are no MNIST images
PARTS = ("first", "correctness", "kernels", "sanitizer", "ranks", "networks", "taskgraph", "ops")
NOT_COVERED = (
    "two GPUs at once where there is one: two devices are then the same GPU",
    "shared memory that is read before it is written: poison and initcheck are about global memory",
    "orders of threads and blocks other than this device's own",
    "whether the kernels that were chosen are the fastest inside a run: each is timed alone",
    "clock rates while times are taken",
    "another driver, toolkit or CuPy than those here, parts of a GPU (MIG), errors of memory (ECC)",
    "official networks without reductions that take more than 20 seconds",
)
SECONDS = 450  # by default, so that all ends within eight minutes
QUICK_SHAPES = ("rectangular", "vector bias", "nearly empty")
QUICK_DEEP = (256, 12, 300)
QUICK_CHOSEN = ("1024 neurons",)
SANITIZED_FAILURE = 77
# An allocation is made to fail, and CuPy asks drivers for functions that they may not have: neither is an error here.
# The option is memcheck's; what kernels read and write is reported all the same.
SANITIZERS = {"memcheck": ("--report-api-errors", "no")}
# Tools, and what runs under them, the most telling first. Last, initcheck: it also names what is read and not used.
SANITIZED = (
    ("memcheck", "correctness"), ("racecheck", "correctness"), ("memcheck", "taskgraph"), ("memcheck", "ops"),
    ("synccheck", "correctness"), ("racecheck", "ops"), ("racecheck", "taskgraph"), ("initcheck", "correctness"),
    ("initcheck", "ops"),
)  # fmt: skip
SANITIZED_SHARE = 1 / 4  # of the seconds, where other parts run too
SANITIZER_SECONDS = 25  # of cases in each tool at least; what begins late may go on for as long again


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--parts", default=",".join(PARTS), metavar="A,B", help=f"of {', '.join(PARTS)} (default: all)")
    top.add_argument("--quick", action="store_true", help="a few shapes, two widths, 120 layers: about a minute")
    top.add_argument("--profile", action="store_true", help="then what Nsight Compute counts, where it is installed")
    top.add_argument("--seconds", type=float, default=SECONDS, help=f"no case starts after them (default: {SECONDS})")
    top.add_argument("--mnist", metavar="FILE", help="the MNIST training images, idx or idx.gz")
    top.add_argument("--device", type=int, metavar="D", help="its number (default: 0)")
    top.add_argument("--seed", type=int, help="of the random networks and inputs (default: a new one)")
    top.add_argument("--engines", default=",".join(correctness.ENGINES), metavar="A,B", help="of part correctness")
    top.add_argument("--results", metavar="FOLDER", help="default: results/measured/DEVICE")
    top.add_argument(
        "--sanitized", action="store_true", help="for compute-sanitizer: no pool of memory, no poison, nothing timed"
    )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts chosen; the exit status."""
    args = parser().parse_args(arguments)
    try:
        parts = listed("--parts", args.parts, PARTS)
        engines = listed("--engines", args.engines, correctness.ENGINES)
        device = cupy_device.open_device(args.device)
    except SpdnnError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 1
    if args.sanitized:
        import cupy

        cupy.cuda.set_allocator(None)
        correctness.POISON = False  # else initcheck finds nothing
    tally, tables = Tally(args.seconds, probe=device.synchronize), []
    folder = Path(args.results or ROOT / "results/measured" / named(device.properties.name))
    today = folder / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
    tell_device(device.properties)
    runs = networks.Networks(tally, print, args.mnist, args.device)  # of two parts: what one learns helps the other
    for part in parts:
        print(f"\n{part}", flush=True)
        if part == "first":
            folder.mkdir(parents=True, exist_ok=True)
            tables.append(check_first(runs, str(today)))
            if tally.failures:
                tally.left_out += [f"the parts {', '.join(parts[1:])}"] if parts[1:] else []
                break
        elif part == "correctness":
            check_correctness(tally, engines, args)
        elif part == "sanitizer":
            check_sanitized(tally, args)
        elif part == "ranks":
            device_ranks.run(tally, args.mnist, args.device)
        elif args.sanitized and part in ("taskgraph", "ops"):
            seed = seed_of(args)
            if part == "ops":
                device_ops.check(tally, device, seed)
            else:
                device_schedules.check(tally, seed, device_schedules.SOME_SHAPES, QUICK_DEEP)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            if part == "kernels":
                tables.append(check_kernels(tally, device, str(today), args))
            elif part == "networks":
                tables.append(check_networks(runs, str(today), args))
            elif part == "ops":
                tables.append(check_ops(tally, device, str(today), args))
            else:
                tables.append(check_taskgraph(runs, device, str(today), args))
    if args.profile:
        print("\nprofile", flush=True)
        tables.append(check_profile(tally, str(today), args.device))
    status = finish(tally, tables)
    print(f"to send back: {packed(today, device.properties, tally)}", flush=True)
    return status


def listed(option: str, text: str, allowed: Sequence[str]) -> list[str]:
    """Names in the order of `allowed`.

    Raises:
        InputError: one that is not among them, or none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or set(names) - set(allowed):
        raise InputError(f"{option} {text}: it must name some of {', '.join(allowed)}")
    return [name for name in allowed if name in names]


def named(device: str) -> str:
    """The folder of a device's records."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") or "device"


def tell_device(properties) -> None:
    print(f"{properties.name}: compute capability {properties.capability / 10}, {properties.software}")
    print(
        f"{properties.multiprocessors} multiprocessors of {properties.threads} threads and "
        f"{properties.shared:,} bytes of shared memory ({properties.shared_per_block:,} for a block), "
        f"{properties.l2_bytes:,} bytes of L2, {properties.memory_bytes:,} of memory",
        flush=True,
    )


def seed_of(args) -> int:
    """That of the arguments, or a new one; printed."""
    seed = secrets.randbelow(2**31) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    return seed


def check_first(runs: networks.Networks, name: str) -> list[str]:
    """One layer, and one official network, whose record is in `name`-first.jsonl; the lines of its table.

    Without the MNIST images, the network runs on digits, and is compared with the float64 reference.
    """
    layer = correctness.random_network((1024, 1024), density=32 / 1024, seed=1)
    rows = correctness.rows(1000, 1024, 1, "bits")
    runs.tally.case("one layer", lambda: correctness.assert_same("cuda", layer, rows))
    found = RunRecords(Path(f"{name}-first.jsonl"))
    runs.store, runs.rows = found.add, []
    problem, before = networks.LADDER_PROBLEM, len(runs.tally.not_here)
    runs.run([networks.Case(problem, "cuda", "all")])
    if len(runs.tally.not_here) > before:
        network, inputs = RadixNet(problem.neurons, problem.layers), digits_inputs(problem.neurons).first(DIGITS)
        runs.tally.case(f"{problem.name} on digits", lambda: correctness.assert_same("cuda", network, inputs))
    return [networks.HEAD, *runs.rows, *found.finish()] if runs.rows else []


def check_correctness(tally: Tally, engines: list[str], args) -> None:
    seed = seed_of(args)
    if args.quick:
        correctness.run(tally, seed, engines, QUICK_SHAPES, QUICK_DEEP, exact=4, chosen=QUICK_CHOSEN, large={})
    else:
        correctness.run(tally, seed, engines)


def check_sanitized(tally: Tally, args, least: float = SANITIZER_SECONDS) -> None:
    """Quick parts, each in a process of its own under a tool of compute-sanitizer, for `least` seconds or more."""
    if not shutil.which("compute-sanitizer"):
        tally.not_here.append("compute-sanitizer is not installed")
        return
    budget = args.seconds * (1 if args.parts == "sanitizer" else SANITIZED_SHARE)
    each, end = max(least, budget / len(SANITIZED)), time.monotonic() + budget
    for tool, what in SANITIZED:
        needs = each if time.monotonic() + each <= end else float("inf")
        name = f"compute-sanitizer {tool}, {what}"
        tally.case(name, lambda tool=tool, what=what: sanitized(tool, what, each, args.device), needs)


def sanitized(tool: str, what: str, seconds: float, device: int | None) -> None:
    """Run one tool of compute-sanitizer.

    Raises:
        AssertionError: it found something, or the check failed under it.
        NotHere: it refused; TooLittleTime: it was stopped, or not all cases had their turn.
    """
    whole = ["compute-sanitizer", "--tool", tool, *SANITIZERS.get(tool, ())]
    whole += ["--error-exitcode", str(SANITIZED_FAILURE), sys.executable]
    with tempfile.TemporaryDirectory() as folder:
        whole += [HERE / "check.py", "--parts", what, "--quick", "--sanitized", "--results", folder]
        whole += ["--engines", ",".join(correctness.OURS), "--seconds", seconds]
        whole += [] if device is None else ["--device", device]
        done = child(whole, 2 * seconds)
    said = done.stdout + done.stderr
    if refused := re.search(r".*(Device not supported|Unable to find injection library).*", said):
        raise NotHere(f"compute-sanitizer does not work on this system ({refused[0].strip('= ')})")
    lines = [line for line in said.splitlines() if line.startswith(("=========", "FAIL", "gpu-check"))]
    if done.returncode == 3:
        raise TooLittleTime(lines[-1] if lines else "its time was up")
    assert done.returncode == 0, " / ".join(lines[:12]) or said[-300:]
    print(f"compute-sanitizer {tool}, {what}: {' / '.join(lines[-2:])}", flush=True)


def check_kernels(tally: Tally, device, name: str, args) -> list[str]:
    """Single kernels, stored in `name`/kernels.json; the lines of their table."""
    widths = challenge.WIDTHS[::2] if args.quick else challenge.WIDTHS
    machine = tally.case("ceilings", lambda: ceilings.measure(device, seconds=1.0))
    if not machine:
        tally.left_out += [f"kernels at {width}" for width in widths]
        return []
    lines = tell_ceilings(machine)
    samples, size = (5, 1 << 28) if args.quick else (20, 1 << 30)
    found = []
    for width in widths:

        def one(width=width) -> list[dict]:
            return cuda_kernels.measure(device, machine, [width], samples, size, args.device, tally.tell)

        found += tally.case(f"kernels at {width}", one) or []
    if not any(row["kernel"] == cuda_kernels.CUSPARSE for row in found):
        tally.left_out.append("cusparse, which the kernels are to be compared with")
    content = {**cuda_kernels.described(device, machine), "kernels": found}
    write_details(name, "kernels", json.dumps(content, indent=1) + "\n")
    return [*lines, cuda_kernels.HEAD, *map(cuda_kernels.line, found)] if found else lines


def tell_ceilings(machine: Machine) -> list[str]:
    loads, copies = machine.load_bytes_per_second, machine.copy_bytes_per_second
    told = (
        f"ceilings: {loads / 1e12:.2f} TB/s from shared memory ({loads / EDGE_BYTES / 1e12:.3f} x 10^12 gathers/s), "
        f"{machine.l2_load_bytes_per_second / 1e12:.2f} TB/s from L2, {copies / 1e12:.2f} TB/s copied, "
        f"{machine.fma_per_second / 1e12:.2f} x 10^12 multiply-adds/s"
    )
    print(told, flush=True)
    return [told]


def check_profile(tally: Tally, name: str, ordinal: int | None) -> list[str]:
    """Counters of Nsight Compute in `name`/profile.json; the lines of their table."""
    found = tally.case("profile", lambda: profiling.profile(ordinal))
    if not found:
        return []
    write_details(name, "profile", profiling.text(found))
    return [profiling.HEAD, *map(profiling.line, found)]


def check_networks(runs: networks.Networks, name: str, args) -> list[str]:
    """The official networks, their records in `name`.jsonl; the lines of their table."""
    found = RunRecords(Path(f"{name}.jsonl"))
    runs.store, runs.rows = found.add, []
    runs.run(networks.cases(challenge.WIDTHS[:2] if args.quick else challenge.WIDTHS, args.quick))
    return [networks.HEAD, *runs.rows, *found.finish()] if runs.rows else []


def check_taskgraph(runs: networks.Networks, device, name: str, args) -> list[str]:
    """The task graph, its records in `name`-schedules.jsonl; the lines of its table."""
    found = RunRecords(Path(f"{name}-schedules.jsonl"))
    runs.rows = []
    lines = device_schedules.run(runs.tally, device, seed_of(args), runs, found.add, name, args.quick)
    return [networks.HEAD, *lines, *found.finish()] if runs.rows else lines


def check_ops(tally: Tally, device, name: str, args) -> list[str]:
    """The sparse operations, their records in `name`-ops.jsonl; the lines of their table."""
    found = OperationRecords(Path(f"{name}-ops.jsonl"))
    lines = device_ops.run(tally, device, seed_of(args), found.add, name, args.quick)
    return [*lines, *found.finish()]


class RunRecords:
    """Run records as lines of one file, which has its name when all of them are there."""

    kind = "run"

    def __init__(self, path: Path):
        self.path, self.part = path, path.with_name(f"{path.name}.part")

    def add(self, record: RunRecord | OperationRecord) -> None:
        """Check a record and write it.

        Raises:
            InputError: it is not sound.
        """
        text = files.check_content(type(record), record, record.case)[1]
        with open(self.part, "a", encoding="utf-8") as stream:
            stream.write(text)

    def finish(self) -> list[str]:
        """Give the file its name; what there is to say of it, nothing where no record was added."""
        if not self.part.exists():
            return []
        self.part.rename(self.path)
        return [f"{self.kind} records: {self.path}"]


class OperationRecords(RunRecords):
    """Operation records alike."""

    kind = "operation"


def finish(tally: Tally, tables: list[list[str]]) -> int:
    """Print the tables again, what failed, what was left out, and the summary last."""
    for table in filter(None, tables):
        print("", *table, sep="\n")
    print("\nnot covered by any part:", *NOT_COVERED, sep="\n  ")
    for failure in tally.failures:
        print(f"failed: {failure}")
    for reason in tally.not_here:
        print(f"not run here: {reason}")
    if tally.left_out:
        print(f"left out, and so not passed: {'; '.join(tally.left_out)}")
    print(tally.summary(), flush=True)
    return tally.status


def packed(name: Path, properties, tally: Tally) -> Path:
    """One file of all that this run wrote, and of what it found."""
    told = {
        "device": asdict(properties),
        "summary": tally.summary(),
        "failed": tally.failures,
        "not_run_here": tally.not_here,
        "left_out": tally.left_out,
        "not_covered": NOT_COVERED,
    }
    target = name.with_name(f"{name.name}.zip")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("found.json", json.dumps(told, indent=1) + "\n")
        for path in sorted(name.parent.glob(f"{name.name}*.jsonl")) + sorted(name.glob("*.json")):
            archive.write(path, path.relative_to(name.parent))
    return target


if __name__ == "__main__":
    sys.exit(main())
