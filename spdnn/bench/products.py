"""Sparse operations for deep learning and other libraries: all programs on one product, timed alternately, verified.

A sample is one call: the matrix is in the program's own layout, handles are made and optimised, the output is allocated
(where a library takes one). All programs have the same number of threads. An output is verified before its program is
timed, and every timed output must equal the verified one to the bit.
"""

import contextlib
import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from spdnn.bench.common import ComparisonSettings, alternate, check_same, usable
from spdnn.bench.libraries.base import DENSE, OURS, Product, TimedProgram
from spdnn.bench.libraries.mkl import MklDenseProduct, MklProduct
from spdnn.bench.libraries.numpy import BlasProduct, EinsumProduct
from spdnn.bench.libraries.ours import OurProduct, OurProductInOrder
from spdnn.bench.libraries.scipy import ScipyProduct
from spdnn.bench.libraries.torch import TorchProduct
from spdnn.bench.product_checks import ProductTruth, digest
from spdnn.core import provenance, safe_open
from spdnn.core.errors import InputError, Unavailable, install, unknown
from spdnn.core.limits import Machine
from spdnn.core.network import sum_duplicates
from spdnn.core.resources import available_bytes
from spdnn.core.safe_open import existing
from spdnn.engines.cpu import ceilings as machine
from spdnn.formats import matrices
from spdnn.ops import SparseMatrix, dlmc
from spdnn.ops.problems import Shape, ShapeProblem
from spdnn.ops.topology import Topology
from spdnn.runs import measure
from spdnn.runs.records.environment import Environment, Load
from spdnn.runs.records.files import now
from spdnn.runs.records.operation_record import (
    SCHEMA,
    VERSION,
    OperationProblem,
    OperationRecord,
    Program,
    Verification,
)

OURSELVES = OurProduct, OurProductInOrder
PROGRAMS: dict[str, dict[str, type[TimedProgram]]] = {
    "spmm": {
        kind.name: kind for kind in (*OURSELVES, MklProduct, TorchProduct, ScipyProduct, BlasProduct, MklDenseProduct)
    },
    "sddmm": {kind.name: kind for kind in (*OURSELVES, TorchProduct, EinsumProduct, BlasProduct, MklDenseProduct)},
}
LIBRARIES = {name: each for programs in PROGRAMS.values() for name, each in programs.items() if each.kind != OURS}
OPERATIONS = tuple(PROGRAMS)
LEAST_ROUNDS, MOST_ROUNDS, EACH = 3, 100, 5  # rounds of a problem, and samples of a program in each
# Threads that wait for work stay awake for about 1 ms, ours as oneMKL's (bench/engines/mkl.py): long enough for the
# next call to find them so. libgomp reads it when the kernels are loaded, and counts some 27 ns each (measured).
SPINS = "40000"
MACHINE_SECONDS, MACHINE_AGE = 0.1, 10.0  # of measuring the machine, and of how long that counts
MEMORY_COPIES = 4  # of what one problem holds in its programs, at most, of dense operands and matrices
MEMORY_SHARE = 0.8  # of what is free


class Ceilings:
    """The best that the machine does on so many threads, measured again when it is older than MACHINE_AGE seconds."""

    def __init__(self, threads: int):
        self.threads, self.ceilings, self.at = threads, None, -np.inf

    def now(self) -> Machine | None:
        if time.perf_counter() - self.at > MACHINE_AGE:
            try:
                self.ceilings = machine.measure(self.threads, MACHINE_SECONDS)
            except Unavailable:
                self.ceilings = None
            self.at = time.perf_counter()
        return self.ceilings


def libraries_here(names: str | Sequence[str] = "auto") -> tuple[list[str], dict[str, str]]:
    """(libraries to run with ours, why each of the others cannot run here).

    Args:
        names: 'auto' for all that are installed, or a list.

    Raises:
        InputError, Unavailable: see common.usable.
    """
    offered = {name: kind.missing for name, kind in LIBRARIES.items()}
    return usable(None if names == "auto" else names, offered, "library")


def compare_products(
    cases: Iterable[ShapeProblem], operations: Sequence[str], comparison: ComparisonSettings, archive: str | None = None
):
    """Yield the records of each problem and operation, ours first, of LEAST_ROUNDS to MOST_ROUNDS rounds.

    Args:
        archive: of DLMC; problems that it has take their positions from there.

    Raises:
        InputError: an operation that is none, a broken archive. SpdnnError: an output is wrong, or changed.
    """
    # Refuse before anything runs; threads stay awake between calls, as those of other libraries do.
    check_operations(operations)
    stay_awake()
    cases, ceilings = list(cases), Ceilings(comparison.threads)
    stored = dlmc.topologies(archive, cases) if archive else {}
    for problem in cases:
        # Nonzeros of the archive where it has this layer, else drawn at the same sparsity.
        topology = stored.get(dlmc.key(problem))
        origin = "generated" if topology is None else "dlmc"
        topology = problem.topology() if topology is None else topology
        about = describe_problem(problem, topology, origin)
        skewed = origin == "dlmc" or problem.shape.lengths != "random"
        for operation in operations:
            product = product_of(operation, problem, topology)
            yield one_product(product, about, comparison, ceilings, skewed)


def read_matrix(path: str | Path) -> SparseMatrix:
    """The sparse matrix in a file: .smtx (values are drawn), .npz, .mtx, .mtx.gz, or a dense .npy.

    Raises:
        InputError: a file that is absent, of another kind or damaged, or a matrix that is none.
    """
    path = existing(path, "matrix")
    if path.suffix == ".smtx":
        return SparseMatrix.from_smtx(path)
    matrix = matrices.read_matrix(path)
    with safe_open.name_errors(path):
        if scipy.sparse.issparse(matrix):
            return SparseMatrix.from_scipy(sum_duplicates(matrix, scipy.sparse.csr_array))
        return SparseMatrix.from_dense(matrix)


def compare_own(
    matrix: SparseMatrix, name: str, operation: str, columns: int, comparison: ComparisonSettings
) -> list[OperationRecord]:
    """The records of one product of a user's matrix, ours first; what is dense is drawn.

    Raises:
        InputError: it does not fit into memory. SpdnnError: see compare_
    """
    stay_awake()
    topology = matrix.topology
    layer = re.sub("[^A-Za-z0-9_. -]", "_", name)[-60:].lstrip("_. -") or "matrix"
    shape = Shape("a", "own", layer, *topology.shape, columns, None, 1, "random", "", "own")
    problem = ShapeProblem(shape, 100 * topology.sparsity, "inference", 0)
    product = product_of(operation, problem, topology, matrix.values)
    about = describe_problem(problem, topology, "file", "own")
    return one_product(product, about, comparison, Ceilings(comparison.threads))


def check_operations(names: Sequence[str]) -> None:
    """Raise InputError for a name that is no operation, or for none at all."""
    for name in names or [""]:
        if name not in PROGRAMS:
            raise unknown("operation", name, PROGRAMS)


def stay_awake() -> None:
    """Let our waiting threads stay awake as long as other libraries' do, where the user has not said otherwise."""
    if "OMP_WAIT_POLICY" not in os.environ and "spdnn.kernels._cpu" not in sys.modules:
        os.environ["GOMP_SPINCOUNT"] = SPINS


def one_product(
    product: Product, about: dict, comparison: ComparisonSettings, ceilings: Ceilings, skewed: bool = True
) -> list[OperationRecord]:
    """The records of all programs on one product.

    Args:
        about: the part `problem` of each.
        skewed: whether rows may differ much in length.
    """
    _check_memory(product)
    truth, prepare_seconds, programs = ProductTruth(product), {}, {}
    with blas_threads(comparison.threads), contextlib.ExitStack() as opened:
        for name, program in PROGRAMS[product.operation].items():
            # Ours always; with rows in their own order only where their lengths may differ much.
            ours = program.kind == OURS and (program is not OurProductInOrder or skewed)
            if ours or name in comparison.libraries:
                programs[name], prepare_seconds[name] = measure.time_call(program, product, comparison.threads)
                opened.callback(programs[name].close)
        # Verify before timing: a wrong program has no number.
        verdicts = {name: truth.judge(name, program.array(program())) for name, program in programs.items()}
        imbalances: dict[str, list[float]] = {name: [] for name in programs}

        def finish(name: str, out: Any) -> str:
            if (imbalance := programs[name].imbalance()) is not None:
                imbalances[name].append(imbalance)
            return digest(programs[name].array(out))

        # Timed alternately, so that a disturbance of the machine meets all programs.
        samples, digests, load = alternate(
            {name: (program, functools.partial(finish, name)) for name, program in programs.items()},
            (LEAST_ROUNDS, MOST_ROUNDS),
            comparison.seconds,
            warm=True,
            each=EACH,
            wait_for_idle=True,
        )
        # Verify after timing: every timed output must be the verified one.
        for name in programs:
            check_same(name, digests[name], verdicts[name].digest)
        shared = common_fields(product.operation, about, comparison, ceilings.now(), load)
        work = OperationWork.of(product, shared["problem"])
        return [
            operation_record(
                shared, work, program, prepare_seconds[name], samples[name], verdicts[name], imbalances[name]
            )
            for name, program in programs.items()
        ]


def describe_problem(problem: ShapeProblem, topology: Topology, origin: str, set_name: str | None = None) -> dict:
    """The part `problem` of a record."""
    shape, positions = problem.shape, hashlib.sha256(f"{topology.shape[0]} {topology.shape[1]} ".encode())
    positions.update(topology.offsets.data)
    positions.update(np.ascontiguousarray(topology.columns.astype(np.int32)).data)
    return {
        "set": set_name or shape.set, "network": shape.network, "layer": shape.layer, "rows": topology.rows,
        "columns": topology.shape[1], "batch_columns": problem.batch_columns, "batch": 1, "nonzeros": topology.nnz,
        "phase": problem.phase, "repeats": shape.repeats, "origin": origin, "topology_sha256": positions.hexdigest(),
        "seed": problem.seed, "index_bits": topology.index_bits,
    }  # fmt: skip


@dataclass(frozen=True)
class OperationWork:
    """What all programs on one problem do.

    Attributes:
        case: of the records, without program and threads.
        multiply_adds: on nonzeros, and on all entries.
    """

    case: str
    multiply_adds: tuple[int, int]
    operand_bytes: int

    @classmethod
    def of(cls, product: Product, problem: OperationProblem) -> "OperationWork":
        case = f"{product.operation}.{problem.set}.{problem.network}.{problem.layer}.n{problem.batch_columns}"
        multiply_adds = product.multiply_adds, product.dense_multiply_adds
        return cls(f"{case}.s{100 * problem.sparsity:.4g}", multiply_adds, product.operand_bytes)


def operation_record(
    shared: dict,
    work: OperationWork,
    program: TimedProgram,
    prepared: float,
    seconds: list[float],
    verification: Verification,
    imbalances: Sequence[float] = (),
    **notes: Any,
) -> OperationRecord:
    """The record of a program.

    Args:
        shared: see common_fields.
        notes: besides those of the program.
    """
    useful, whole = work.multiply_adds
    where = "cuda" if shared["environment"].gpu else f"t{shared['threads']}"
    return OperationRecord(
        **shared,
        case=f"{work.case}.{program.name}.{where}",
        program=Program(program.name, program.kind, program.version, program.threads_used, program.notes | notes),
        prepare_seconds=[prepared],
        seconds=seconds,
        useful_operations=2 * useful,
        multiply_adds=whole if program.kind == DENSE else useful,
        matrix_bytes=program.matrix_bytes,
        operand_bytes=work.operand_bytes,
        attention_bytes=None,
        verification=verification,
        thread_imbalance=list(imbalances) or None,
        nonzero_imbalance=program.nonzero_imbalance() if imbalances else None,
    )


def common_fields(
    operation: str,
    about: dict,
    comparison: ComparisonSettings,
    ceilings: Machine | None,
    load: Load | None,
    gpu: str | None = None,
) -> dict:
    """The fields that the records of all programs on one problem have in common.

    Args:
        about: `problem` of each.
        gpu: the name of the device that they ran on; None: the processor.
    """
    return {
        "schema": SCHEMA, "version": VERSION, "created": now(), "comparison": comparison.identity,
        "operation": operation, "problem": OperationProblem(**about), "threads": comparison.threads,
        "machine": ceilings, "load": load,
        "environment": Environment(**provenance.environment(comparison.command, gpu)),
    }  # fmt: skip


def product_of(operation: str, problem: ShapeProblem, topology: Topology, values: np.ndarray | None = None) -> Product:
    """The product of a problem; its values are drawn unless there are some."""
    values, (rows, inner) = problem.values(topology) if values is None else values, topology.shape
    if operation == "spmm":
        return Product(operation, topology, values, problem.dense(inner, "B"), None)
    return Product(operation, topology, values, problem.dense(rows, "Q"), problem.dense(inner, "K"))


def _check_memory(product: Product) -> None:
    """Refuse a product whose dense matrix and operands would not fit."""
    rows, inner = product.topology.shape
    needed = MEMORY_COPIES * (4 * rows * inner + product.operand_bytes + 12 * product.topology.nnz)
    free = available_bytes()
    if free is not None and needed > MEMORY_SHARE * free:
        raise InputError(
            f"{product.operation} of {rows} x {inner} with {product.width} columns needs about {needed:,} bytes, its "
            f"dense product included, and {free:,} are free: take fewer columns, or a smaller matrix"
        )


def blas_threads(threads: int):
    try:
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise Unavailable(f"equal threads need threadpoolctl: {install('full')}") from error
    return threadpool_limits(threads, user_api="blas")
