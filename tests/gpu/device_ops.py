"""The sparse operations on the device: all of them checked, then products timed beside cuSPARSE and cuBLAS.

What is timed is one launch between two events, with operands in place and caches warm (`Device.seconds_ahead`: an
untimed launch goes before, and the host is ahead of the device), settings and algorithms that are tried as well as what
is told of them. Programs take turns. What a float32 program wrote is verified before it is timed,
and must be the same to the bit after every sample: these are operation records (spdnn.records.operation_record). TF32
and half round their operands, have tolerances of their own, and are in the table alone.
"""

import json
import math
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import device_libraries
import numpy as np
from device_libraries import Timed
from operation_checks import check, near, size
from tally import NotHere, Tally, write_details

from spdnn.common import provenance
from spdnn.common.validation import builtins, convert
from spdnn.engines.cuda import ceilings
from spdnn.kernels.cuda.device import Device
from spdnn.ops import oracle, problems
from spdnn.ops.cuda import CudaBackend
from spdnn.peers.common import check_same
from spdnn.peers.libraries.base import DENSE, OURS, SPARSE, Product
from spdnn.peers.product_checks import ProductTruth, digest
from spdnn.peers.products import describe_problem
from spdnn.records.limits import Machine
from spdnn.records.operation_record import VERSION, OperationProblem, OperationRecord

SPARSITIES = {"spmm": (90, 80), "sddmm": (90,)}  # percent, of the problems of set a
QUICK_LAYERS = ("encoder_0_attention_q", "group3_2")
SAMPLES, TRIES = 10, 3
SEEN = 16  # columns, or thousands of nonzeros, that programs with rounded operands are compared on
UNWRITTEN = {OURS: 0xFF, DENSE: 0xFF, SPARSE: 0x7F}  # bytes: NaNs; 3e38, for cuSPARSE may add 0 times what was there
HALF = 2.0**-11  # what half and TF32 round operands by


def ours(device: Device, product: Product, dtype: Any = np.float32) -> Timed:
    """Our kernel, at all of its settings."""
    backend, topology = CudaBackend(device), product.topology
    out = backend.empty((1, *product.shape), dtype)
    place = lambda array: device.upload(array.astype(dtype)[None])  # noqa: E731
    if product.operation == "spmm":
        given = topology, place(product.values), place(product.first), None, -math.inf, math.inf, out
    else:
        given = topology, place(product.first), place(product.second), 1.0, out
    launches = {
        str(setting): backend.bind(product.operation, *given, setting=setting)
        for setting in backend.candidates(product.operation, *given)
    }
    half = dtype == np.float16
    held = topology.nbytes + topology.order.nbytes + topology.nnz * np.dtype(dtype).itemsize
    return Timed(
        "ours-half" if half else "ours", OURS, _version(), launches, out,
        lambda array: device.read(array)[0], held, not half, HALF if half else 0.0, dtype,
    )  # fmt: skip


def _version() -> str:
    told = provenance.environment("")
    return f"spdnn {told['versions'].get('spdnn') or told['commit'] or 'of no known version'}"


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
    """Compare a program whose operands are rounded, on some columns or nonzeros."""
    topology = product.topology
    if product.operation == "spmm":
        kept = np.unique(np.linspace(0, product.width - 1, SEEN).astype(int))
        expected = oracle.spmm(topology, product.values, product.first[:, kept])
        magnitude = oracle.spmm(topology, size(product.values), size(product.first[:, kept]))
        return near(out[:, kept], expected, magnitude, topology.shape[1], timed.unit)
    kept = np.unique(np.linspace(0, topology.nnz - 1, 1000 * SEEN).astype(int))
    rows, columns = topology.row_numbers[kept], topology.columns[kept]
    expected = np.einsum("ed,ed->e", product.first[rows].astype(np.float64), product.second[columns])
    magnitude = np.einsum("ed,ed->e", size(product.first[rows]), size(product.second[columns]))
    return near(out[kept], expected, magnitude, product.width, timed.unit)


def measure(device: Device, product: Product, about: dict, machine: Machine, identity: str, tally: Tally) -> list[dict]:
    """Every program on one product: rows of the table, the first of them ours, those of float32 with their records."""
    truth, rows, lead = ProductTruth(product), [], device.lead()
    made = [lambda: ours(device, product), lambda: ours(device, product, np.float16)]
    made += device_libraries.programs(device, product)
    for make in made:
        found: dict[str, Any] = {}

        def prepare(make=make, found=found) -> None:  # on the device's stream, as the launches are
            found["program"] = make()

        began = time.perf_counter()
        try:
            device.seconds(prepare)
            one, prepared = found["program"], time.perf_counter() - began
            launch = chosen(device, one, lead)
            device.fill(one.out, UNWRITTEN[one.kind])
            device.seconds(launch)
            out = one.read(one.out)
            verdict = truth.judge(one.name, out) if one.exact else verify_rounded(product, one, out)
        except NotHere as reason:
            tally.not_here.append(f"{product.operation} {about['layer']}: {reason}")
            continue
        except ImportError as error:  # CuPy does not find a library of the vendor's
            told = f"{product.operation} beside a library: {' '.join(str(error).split())}"
            if told not in tally.not_here:
                tally.not_here.append(told)
            continue
        except Exception as error:  # of one program; the others are still measured
            tally.fail(f"{product.operation} {about['layer']}", error)
            continue
        rows.append({"program": one, "launch": launch, "prepared": prepared, "verdict": verdict})
    for row in rows:
        row["seconds"] = []
    for _ in range(SAMPLES):
        for row in rows:
            row["seconds"].append(device.seconds_ahead(row["launch"], lead))
            if row["verdict"]:  # a program of rounded operands has none
                out = row["program"].read(row["program"].out)
                check_same(row["program"].name, [digest(out)], row["verdict"].digest)
    for row in rows:
        row["record"] = record(product, about, row, device, machine, identity) if row["program"].exact else None
    return rows


def record(
    product: Product, about: dict, row: dict, device: Device, machine: Machine, identity: str
) -> OperationRecord:
    """The operation record of a program on a product."""
    one: Timed = row["program"]
    useful = 2 * product.multiply_adds
    name = f"{about['set']}.{about['network']}.{about['layer']}.n{about['batch_columns']}"
    content = {
        "schema": "spdnn-operation",
        "version": VERSION,
        "case": f"{product.operation}.{name}.s{100 * OperationProblem(**about).sparsity:.4g}.{one.name}.cuda",
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "comparison": identity,
        "operation": product.operation,
        "problem": about,
        "program": {
            "name": one.name, "kind": one.kind, "version": one.version, "threads_used": 1,
            "notes": {"software": device.properties.software, **one.notes},
        },
        "threads": 1,
        "prepare_seconds": [row["prepared"]],
        "seconds": row["seconds"],
        "useful_operations": useful,
        "multiply_adds": product.dense_multiply_adds if one.kind == DENSE else product.multiply_adds,
        "matrix_bytes": one.matrix_bytes,
        "operand_bytes": product.operand_bytes,
        "attention_bytes": None,
        "verification": row["verdict"],
        "thread_imbalance": None,
        "nonzero_imbalance": None,
        "load": None,
        "machine": machine,
        "environment": provenance.environment("make gpu-check", device.properties.name),
    }  # fmt: skip
    return convert(OperationRecord, builtins(content), content["case"])


def chosen_problems(quick: bool) -> Iterator[tuple[str, problems.ShapeProblem]]:
    """(operation, problem): layers of pruned networks, inference."""
    for operation, sparsities in SPARSITIES.items():
        for sparsity in sparsities[:1] if quick else sparsities:
            for problem in problems.problems({"a": (sparsity,)}):
                if not quick or problem.shape.layer in QUICK_LAYERS:
                    yield operation, problem


def product_of(operation: str, problem: problems.ShapeProblem) -> tuple[Product, dict]:
    """The product, and the part `problem` of its records."""
    topology = problem.topology()
    values, about = problem.values(topology), describe_problem(problem, topology, "generated")
    if operation == "spmm":
        return Product(operation, topology, values, problem.dense(topology.shape[1], "B"), None), about
    q, k = problem.dense(topology.rows, "Q"), problem.dense(topology.shape[1], "K")
    return Product(operation, topology, values, q, k), about


HEAD = (
    f"{'operation, layer, columns, sparsity':58} {'program':12} {'us':>10} {'TFLOP/s':>8} {'of peak':>8} {'x ours':>7}"
)


def lines(product: Product, about: dict, rows: list[dict], machine: Machine) -> list[str]:
    """A line of the table for each program: useful operations a second, and how long it took beside ours."""
    told, first = [], statistics.median(rows[0]["seconds"])
    problem = OperationProblem(**about)
    name = f"{product.operation} {problem.network} {problem.layer} n{problem.batch_columns} s{problem.sparsity:.2f}"
    for row in rows:
        middle = statistics.median(row["seconds"])
        rate = 2 * product.multiply_adds / middle
        peak = rate / (2 * machine.fma_per_second)
        told.append(
            f"{name:58} {row['program'].name:12} {1e6 * middle:10.2f} {rate / 1e12:8.3f} {peak:8.1%} "
            f"{middle / first:7.2f}"
        )
    return told


def run(tally: Tally, device: Device, seed: int, store: Callable[[dict], None], name: str, quick: bool) -> list[str]:
    """All of it: records to `store`, all programs in `name`/ops.json; the lines of its table."""
    check(tally, device, seed)
    machine = tally.case("ceilings of the operations", lambda: ceilings.measure(device, seconds=0.5))
    if machine is None:
        return []
    identity, table, found = secrets.token_hex(8), [HEAD], []
    for operation, problem in chosen_problems(quick):

        def one(operation=operation, problem=problem) -> None:
            product, about = product_of(operation, problem)
            rows = measure(device, product, about, machine, identity, tally)
            assert [row["program"].name for row in rows[:1]] == ["ours"], "our kernel was not measured"
            for row in rows:
                if row["record"]:
                    store(row["record"])
            table.extend(lines(product, about, rows, machine))
            tally.tell("\n".join(table[-len(rows) :]))
            found.append(summary(operation, problem, rows, machine, product))

        tally.case(f"{operation} {problem.name}", one)
    means = geometric_means(found)
    content = {"device": device.properties.name, "software": device.properties.software, "peak": builtins(machine)}
    write_details(name, "ops", json.dumps({**content, "products": found, "times_ours": means}, indent=1) + "\n")
    return [*table, *means_lines(means)]


def summary(
    operation: str, problem: problems.ShapeProblem, rows: list[dict], machine: Machine, product: Product
) -> dict:
    """What the file holds of one product."""
    programs = {
        row["program"].name: {"seconds": row["seconds"], "chosen": row["program"].notes["chosen"]} for row in rows
    }
    best = statistics.median(rows[0]["seconds"])
    share = product.multiply_adds / best / machine.fma_per_second
    return {
        "operation": operation, "problem": problem.name, "sparsity": problem.sparsity, "programs": programs,
        "share_of_peak": share,
    }  # fmt: skip


def geometric_means(found: list[dict]) -> dict[str, dict[str, float]]:
    """By operation and sparsity, of each program: how many times as long as ours it took, the geometric mean."""
    ratios: dict[str, dict[str, list[float]]] = {}
    for one in found:
        group = ratios.setdefault(f"{one['operation']} at {one['sparsity']:g} %", {})
        own = statistics.median(one["programs"]["ours"]["seconds"])
        for name, told in one["programs"].items():
            group.setdefault(name, []).append(statistics.median(told["seconds"]) / own)
    return {
        group: {name: statistics.geometric_mean(values) for name, values in names.items()}
        for group, names in ratios.items()
    }


def means_lines(means: dict[str, dict[str, float]]) -> list[str]:
    return [
        f"{group}: times ours, geometric mean: " + ", ".join(f"{name} {value:.2f}" for name, value in names.items())
        for group, names in means.items()
    ]
