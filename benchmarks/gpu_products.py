"""SpMM, SDDMM and softmax of pruned layers on a GPU, beside cuSPARSE, cuBLAS and Sputnik.

What is timed is one launch between two events, with operands in place and caches warm (`Device.seconds_ahead`: an
untimed launch goes before, and the host is ahead of the device), settings and algorithms that are tried as well as what
is told of them. Programs take turns. What a float32 program wrote is verified before it is timed,
and must be the same to the bit after every sample: these are operation records.
TF32 and half round their operands and have tolerances of their own: their samples are `rounded`, beside ours.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gpu_libraries
import numpy as np
from gpu_libraries import HALF, Timed
from tally import NotHere, Tally

from spdnn.bench.contest import ComparisonSettings, Entrant, check_same, digest
from spdnn.bench.libraries.base import DENSE, OURS, SPARSE, Product
from spdnn.bench.products import ProductTruth, product_of, task_of
from spdnn.bench.records import operation_records
from spdnn.core import provenance
from spdnn.core.limits import Machine
from spdnn.kernels.cuda.device import Device
from spdnn.ops import oracle, problems
from spdnn.ops.cuda import CudaBackend
from spdnn.runs.measure import time_call
from spdnn.runs.records.operation_record import OperationRecord, Verification

OPERATIONS = {"spmm": (50, 70, 80, 90, 95, 98), "sddmm": (70, 90), "softmax": (90,)}  # percent, of set a
SAMPLES, TRIES = 10, 3
SEEN = 16  # columns, or thousands of nonzeros, that programs with rounded operands are compared on
UNWRITTEN = {OURS: 0xFF, DENSE: 0xFF, SPARSE: 0x7F}  # bytes: NaNs; 3e38, for cuSPARSE may add 0 times what was there


@dataclass
class Compared:
    """One problem: the records of its float32 programs, ours first, and seconds of those that round operands."""

    records: list[OperationRecord] = field(default_factory=list)
    rounded: list[dict] = field(default_factory=list)


class SoftmaxTruth:
    """ProductTruth of a softmax over the nonzeros of each row."""

    def __init__(self, product: Product):
        topology = product.topology
        self.right = oracle.softmax(topology, product.values)
        self.tolerance = oracle.tolerance(self.right, topology.lengths[topology.row_numbers] + 64)

    def judge(self, name: str, out: np.ndarray) -> Verification:
        worst = float(np.max(abs(out - self.right) / self.tolerance, initial=0.0))
        assert worst <= 1, f"{name} gave a wrong softmax: an error of {worst:.3g} times its tolerance"
        rule = "|error| <= (n + 64) u p + rounding, n nonzeros of the row, p the entry"
        return Verification(out.size, out.size, None, rule, worst, digest(out))


def ours(device: Device, product: Product, dtype: Any = np.float32) -> Timed:
    """Our kernel, at all of its settings."""
    backend, topology = CudaBackend(device), product.topology
    out = backend.empty((1, *product.shape), dtype)
    place = lambda array: device.upload(array.astype(dtype)[None])  # noqa: E731
    if product.operation == "spmm":
        given = topology, place(product.values), place(product.first), None, -math.inf, math.inf, out
    elif product.operation == "sddmm":
        given = topology, place(product.first), place(product.second), 1.0, out
    else:
        given = topology, place(product.values), 1.0, out
    launches = {
        str(setting): backend.bind(product.operation, *given, setting=setting)
        for setting in backend.candidates(product.operation, *given)
    }
    half = dtype == np.float16
    held = topology.nbytes + topology.order.nbytes + topology.nnz * np.dtype(dtype).itemsize
    told = provenance.environment("")
    version = f"spdnn {told['versions'].get('spdnn') or told['commit'] or 'of no known version'}"
    return Timed(
        "ours-half" if half else "ours", OURS, version, launches, out,
        lambda array: device.read(array)[0], held, HALF if half else 0.0, dtype,
    )  # fmt: skip


def chosen(device: Device, timed: Timed, lead: Any) -> Callable[[], Any]:
    """The fastest of its launches, of those that give the same bits each time; noted in it. For `lead` see Device.

    Raises:
        AssertionError: none of ours does; NotHere: none of a library's.
    """
    best: dict[str, float] = {}
    for name, launch in timed.launches.items():
        seconds, digests = [], set()
        for _ in range(1 + TRIES):
            seconds.append(device.seconds_ahead(launch, lead))
            digests.add(digest(timed.read(timed.out)))
        if len(digests) == 1:
            best[name] = min(seconds[1:])
    if not best and timed.kind != OURS:
        raise NotHere(f"{timed.name} gives other bits each time")
    assert best, f"{timed.name} gives other bits each time"
    timed.notes |= {"chosen": min(best, key=best.get), "seconds_of_choices": best}
    return timed.launches[timed.notes["chosen"]]


def verify_rounded(product: Product, timed: Timed, out: np.ndarray) -> None:
    """Compare a program whose operands are rounded, on some columns or nonzeros.

    Raises:
        AssertionError: an entry is further off than its rounding explains.
    """
    topology = product.topology
    if product.operation == "spmm":
        kept = np.unique(np.linspace(0, product.width - 1, SEEN).astype(int))
        expected = oracle.spmm(topology, product.values, product.first[:, kept])
        magnitude = oracle.spmm(topology, size(product.values), size(product.first[:, kept]))
        return near(out[:, kept], expected, magnitude, topology.shape[1], timed.unit)
    kept = np.unique(np.linspace(0, topology.nnz - 1, 1000 * SEEN).astype(int))
    if product.operation == "softmax":  # an exponent that is rounded by so much; the values are normal, up to some 6
        expected = oracle.softmax(topology, product.values)[kept]
        return near(out[kept], expected, expected, topology.shape[1], 8 * timed.unit)
    rows, columns = topology.row_numbers[kept], topology.columns[kept]
    expected = np.einsum("ed,ed->e", product.first[rows].astype(np.float64), product.second[columns])
    magnitude = np.einsum("ed,ed->e", size(product.first[rows]), size(product.second[columns]))
    return near(out[kept], expected, magnitude, product.width, timed.unit)


def near(found: np.ndarray, expected: np.ndarray, magnitude: np.ndarray, terms: float, unit: float = 0.0) -> None:
    """
    Raises:
        AssertionError: an entry is further off than a sum of so many terms may be that is rounded to the dtype of
            `found`, and whose operands were rounded by `unit`.
    """
    bound = oracle.tolerance(magnitude, terms, found.dtype) + 2 * unit * np.asarray(magnitude)
    wrong = ~(np.abs(found - expected) <= bound)
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.size} entries are wrong, at first {np.argwhere(wrong)[0]}"


def size(array: np.ndarray) -> np.ndarray:
    return np.abs(array.astype(np.float64))


def compare(
    device: Device, operation: str, problem: problems.ShapeProblem, machine: Machine, command: str, tally: Tally
) -> Compared:
    """Every program on one problem; what a library cannot do is told to `tally`.

    Raises:
        AssertionError, SpdnnError: ours is wrong.
    """
    topology = problem.topology()
    product = operands(operation, problem, topology)
    truth = SoftmaxTruth(product) if operation == "softmax" else ProductTruth(product)
    # Prepare and verify each; of the ones that pass, keep the fastest way.
    ready, lead = [], device.lead()
    made = [lambda: ours(device, product), lambda: ours(device, product, np.float16)]
    for make in [*made, *gpu_libraries.programs(device, product)]:
        found: dict[str, Any] = {}

        def prepare(make=make, found=found) -> None:  # on the device's stream, as the launches are
            found["program"] = make()

        try:
            _, prepared = time_call(device.seconds, prepare)
            one = found["program"]
            launch = chosen(device, one, lead)
            device.fill(one.out, UNWRITTEN[one.kind])
            device.seconds(launch)
            out = one.read(one.out)
            verdict = verify_rounded(product, one, out) if one.unit else truth.judge(one.name, out)
        except NotHere as reason:
            tally.absent(f"{operation} {problem.shape.layer}: {reason}")
            continue
        except (ImportError, OSError) as error:  # CuPy does not find a library of the vendor's
            tally.absent(f"{operation} beside a library: {' '.join(str(error).split())}")
            continue
        except Exception as error:
            if not ready:
                raise
            device.synchronize()  # raises where the fault stays, and nothing can be measured any more
            tally.fail(f"{operation} {problem.name}", error)  # of one program; the others are still measured
            continue
        ready.append((launch, Entrant(one, prepared, verdict.digest if verdict else "", verdict)))
    # Time them in turns; the bits stay those that were verified.
    for _ in range(SAMPLES):
        for launch, entrant in ready:
            entrant.seconds.append(device.seconds_ahead(launch, lead))
            if entrant.verdict:  # a program of rounded operands has none
                check_same(entrant.program.name, digest(entrant.program.read(entrant.program.out)), entrant.digest)
    settings, compared = ComparisonSettings(1, (), 0.0, command), Compared()
    verified = [entrant for _, entrant in ready if entrant.verdict]
    for entrant in verified:
        entrant.program.notes["software"] = device.properties.software
    task = task_of(product, problem)
    compared.records = operation_records(task, settings, verified, None, device.properties.name, machine)
    for _, entrant in ready:
        if not entrant.verdict:
            ratio = statistics.median(entrant.seconds) / statistics.median(ready[0][1].seconds)
            told = {"operation": operation, "problem": problem.name, "program": entrant.program.name}
            told |= {"seconds": entrant.seconds, "chosen": entrant.program.notes["chosen"], "times_ours": ratio}
            compared.rounded.append(told)
    return compared


def operands(operation: str, problem: problems.ShapeProblem, topology) -> Product:
    """The product of a problem; a softmax has its values as both operands."""
    if operation == "softmax":
        values = problem.values(topology)
        return Product(operation, topology, values, values[:, None], None)
    return product_of(operation, problem, topology)


def chosen_problems() -> Iterator[tuple[str, problems.ShapeProblem]]:
    """(operation, problem): layers of pruned networks, inference."""
    for operation, sparsities in OPERATIONS.items():
        for problem in problems.problems({"a": sparsities}):
            yield operation, problem


def line(compared: Compared) -> str:
    """Ours in microseconds, the share of the float32 limit, and how many times as long others took."""
    first, *others = compared.records
    middle = statistics.median(first.seconds)
    told = {one.program.name: statistics.median(one.seconds) / middle for one in others}
    told |= {one["program"]: one["times_ours"] for one in compared.rounded}
    times = ", ".join(f"{name} {ratio:.2f}" for name, ratio in told.items())
    share = first.multiply_adds / middle / first.machine.fma_per_second
    return f"{first.case}: {1e6 * middle:.1f} us, {share:.1%} of the limit; times ours: {times}"
