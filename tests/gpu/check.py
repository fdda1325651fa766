"""The check of a machine with an NVIDIA GPU: every kernel against the oracle. It times nothing (`make gpu-records`).

    make gpu-check ARGS="--parts first"                         a minute; .venv gets CuPy for the driver found
    make gpu-check [ARGS="--quick"]                             all, in six minutes
    make gpu-check VENV= PYTHON=python3 [ARGS="--mnist FILE"]   with a Python that has numpy, scipy, msgspec and CuPy
    PYTHONPATH=. python3 tests/gpu/check.py --help              the same

Nothing is installed or written, compiled kernels for the CPU are not needed, nor a network: the MNIST images are those
of --mnist, else of SPDNN_MIRROR. Parts:

    first        one layer against the oracle, one official network with exact truth: a minute. What fails here ends it
    correctness  engines against the float64 oracle on awkward shapes, fresh random inputs at each call (--seed repeats
                 them), memory poisoned; equal digests over kernels, reductions, batches and repeats; errors
    sanitizer    correctness, taskgraph and ops under the tools of compute-sanitizer, where that works, as
                 far as a quarter of the time allows; all of it: --parts sanitizer --seconds 3000
    ranks        MPI ranks that share one device, or have one each, and a rank that fails (device_ranks.py); where
                 mpi4py is installed
    taskgraph    every schedule of the task graph against the engine cuda (device_schedules.py)
    ops          the sparse operations against the float64 oracle (operation_checks.py)

After a fault of the device that stays, the rest is left out; SPDNN_CUDA_SYNCHRONIZE=1 names the launch that made it.

Exit status: 0 all passed, 1 something failed (or there is no GPU), 3 all that ran passed and the time was too short for
the rest, which is listed and did not pass.
"""

import argparse
import importlib.util
import re
import secrets
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in (ROOT, ROOT / "benchmarks", HERE.parent / "engines", HERE):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

if absent := [name for name in ("msgspec", "numpy", "scipy") if importlib.util.find_spec(name) is None]:
    sys.exit(f"gpu-check: {sys.executable} lacks {', '.join(absent)}; install what is missing, or leave VENV= away")

import correctness  # noqa: E402
import device_ranks  # noqa: E402
import device_schedules  # noqa: E402
import numpy_rows  # noqa: E402
import operation_checks  # noqa: E402
from tally import NotHere, Tally, TooLittleTime, child, listed  # noqa: E402

from spdnn.api import infer  # noqa: E402
from spdnn.core import challenge  # noqa: E402
from spdnn.core.errors import SpdnnError  # noqa: E402
from spdnn.formats.digits import digits_inputs  # noqa: E402
from spdnn.formats.mnist import locate_mnist, mnist_inputs  # noqa: E402
from spdnn.formats.radixnet import RadixNet  # noqa: E402
from spdnn.kernels import dispatch  # noqa: E402
from spdnn.kernels.cuda import cupy_device  # noqa: E402
from spdnn.runs.verify.judging import judge  # noqa: E402

if dispatch.missing():  # a machine without g++: networks are made and laid out in NumPy, which is slower
    dispatch.compiled_module, dispatch.missing = lambda: numpy_rows, lambda: None

DIGITS = 3000  # inputs of the official network where there are no MNIST images
FIRST = challenge.problem(1024, 120)  # the official network
PARTS = ("first", "correctness", "sanitizer", "ranks", "taskgraph", "ops")
NOT_COVERED = (
    "two GPUs at once where there is one: two devices are then the same GPU",
    "shared memory that is read before it is written: poison and initcheck are about global memory",
    "orders of threads and blocks other than this device's own",
    "whether the kernels that were chosen are the fastest inside a run: each is timed alone",
    "another driver, toolkit or CuPy than those here, parts of a GPU (MIG), errors of memory (ECC)",
    "official networks but the smallest (make gpu-records verifies all twelve)",
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
    top.add_argument("--quick", action="store_true", help="a few shapes, some 12 layers: about a minute")
    top.add_argument("--seconds", type=float, default=SECONDS, help=f"no case starts after them (default: {SECONDS})")
    top.add_argument("--mnist", metavar="FILE", help="the MNIST training images, idx or idx.gz")
    top.add_argument("--device", type=int, metavar="D", help="its number (default: 0)")
    top.add_argument("--seed", type=int, help="of the random networks and inputs (default: a new one)")
    top.add_argument("--engines", default=",".join(correctness.ENGINES), metavar="A,B", help="of part correctness")
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
    tally = Tally(args.seconds, probe=device.synchronize)
    tell_device(device.properties)
    for part in parts:
        print(f"\n{part}", flush=True)
        if part == "first":
            check_first(tally, args.mnist)
            if tally.failures:
                tally.left_out += [f"the parts {', '.join(parts[1:])}"] if parts[1:] else []
                break
        elif part == "correctness":
            check_correctness(tally, engines, args)
        elif part == "sanitizer":
            check_sanitized(tally, args)
        elif part == "ranks":
            device_ranks.run(tally, args.mnist, args.device)
        elif part == "ops":
            operation_checks.check(tally, device, seed_of(args))
        else:
            shapes = device_schedules.SOME_SHAPES[: 1 if args.quick and not args.sanitized else None]
            deep = QUICK_DEEP if args.sanitized else device_schedules.DEEP
            device_schedules.check(tally, seed_of(args), shapes, deep)
    return finish(tally)


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


def check_first(tally: Tally, mnist: str | None) -> None:
    """One layer, and one official network, on digits where there are no MNIST images."""
    layer = correctness.random_network((1024, 1024), density=32 / 1024, seed=1)
    rows = correctness.rows(1000, 1024, 1, "bits")
    tally.case("one layer", lambda: correctness.assert_same("cuda", layer, rows))
    tally.case(FIRST.name, lambda: official(mnist))


def official(mnist: str | None) -> None:
    """The first of the twelve networks on the official inputs, with the official categories.

    Raises:
        NotHere: no MNIST images; AssertionError: other categories.
    """
    network = RadixNet(FIRST.neurons, FIRST.layers)
    try:
        inputs = mnist_inputs(FIRST.neurons, locate_mnist(mnist))
    except SpdnnError as error:
        if mnist:
            raise
        correctness.assert_same("cuda", network, digits_inputs(FIRST.neurons).first(DIGITS))
        raise NotHere(f"right on digits; the MNIST images cannot be had (--mnist FILE names them): {error}") from error
    found = judge(network, inputs, infer(network, inputs, "cuda"))
    assert found.passed, "; ".join(found.reasons)


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
    whole += [HERE / "check.py", "--parts", what, "--quick", "--sanitized"]
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


def finish(tally: Tally) -> int:
    """Print what failed, what was left out, and the summary last; the exit status."""
    print("\nnot covered by any part:", *NOT_COVERED, sep="\n  ")
    for failure in tally.failures:
        print(f"failed: {failure}")
    for reason in tally.not_here:
        print(f"not run here: {reason}")
    if tally.left_out:
        print(f"left out, and so not passed: {'; '.join(tally.left_out)}")
    print(tally.summary(), flush=True)
    return tally.status


if __name__ == "__main__":
    sys.exit(main())
