"""Sparse operations for deep learning and other libraries: all programs on one product, timed in turns, verified.

A sample is one call: the matrix is in the program's own layout, handles are made and optimised, the output is allocated
(where a library takes one). All programs have the same number of threads. An output is compared with the float64
reference, each entry with its own tolerance.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse

from spdnn.bench.contest import CONTEST_SEED, ComparisonSettings, Pace, contest, digest
from spdnn.bench.libraries.base import OURS, Product
from spdnn.bench.libraries.numpy import blas_threads
from spdnn.bench.libraries.ours import OurProductInOrder, stay_awake
from spdnn.bench.libraries.registry import PROGRAMS, check_operations
from spdnn.bench.records import Task, operation_records
from spdnn.core import closeness, safe_open
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.network import sum_duplicates
from spdnn.core.resources import COMPARISON_SHARE, available_bytes
from spdnn.core.safe_open import existing
from spdnn.formats import matrices
from spdnn.ops import SparseMatrix, oracle
from spdnn.ops.dlmc import StoredProblem
from spdnn.ops.problems import Shape, ShapeProblem
from spdnn.ops.topology import Topology
from spdnn.runs.records.operation_record import DlmcMatrix, OperationProblem, OperationRecord, Verification

PACE = Pace(3, 100, warm=True, each=5, wait_for_idle=True)
MEMORY_COPIES = 4  # of what one problem holds in its programs, at most, of dense operands and matrices
MULTIPLY_ADDS = 4e7  # that the reference may go through on one problem, in each of two passes
TERMS = {"spmm": "nonzeros of the row", "sddmm": "columns of the operands"}  # of a sum


def compare_products(
    cases: Iterable[ShapeProblem], operations: Sequence[str], comparison: ComparisonSettings
) -> Iterator[list[OperationRecord]]:
    """Yield the records of each problem and operation, ours first.

    Raises:
        InputError: an operation that is none, or see dlmc.Sample.problems. SpdnnError: an output is wrong, or changed.
    """
    # Refuse before anything runs; threads stay awake between calls, as those of other libraries do.
    check_operations(operations)
    stay_awake()
    for problem in cases:
        topology = problem.topology()
        skewed = problem.origin == "dlmc" or problem.shape.lengths != "random"
        for operation in operations:
            product = product_of(operation, problem, topology)
            yield _compare(product, task_of(product, problem), comparison, skewed)


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
        InputError: it does not fit into memory. SpdnnError: see compare_products.
    """
    stay_awake()
    topology = matrix.topology
    layer = re.sub("[^A-Za-z0-9_. -]", "_", name)[-60:].lstrip("_. -") or "matrix"
    shape = Shape("a", "own", layer, *topology.shape, columns, None, 1, "random", "own")
    problem = ShapeProblem(shape, 100 * topology.sparsity, "inference", 0, "file")
    product = product_of(operation, problem, topology, matrix.values)
    return _compare(product, task_of(product, problem), comparison)


def _compare(
    product: Product, task: Task, comparison: ComparisonSettings, skewed: bool = True
) -> list[OperationRecord]:
    """The records of all programs on one product; `skewed`: whether rows may differ much in length."""
    _check_memory(product)
    truth = ProductTruth(product)
    # Ours always; with rows in their own order only where their lengths may differ much.
    makers = {
        name: partial(program, product, comparison.threads)
        for name, program in PROGRAMS[product.operation].items()
        if name in comparison.libraries or (program.kind == OURS and (skewed or program is not OurProductInOrder))
    }
    with blas_threads(comparison.threads):
        entrants, _, load = contest(
            makers, lambda name, entrant, out: truth.judge(name, entrant.program.array(out)), PACE, comparison.seconds
        )
        return operation_records(task, comparison, entrants.values(), load)


def task_of(product: Product, problem: ShapeProblem) -> Task:
    """What all programs on a product do."""
    shape, topology = problem.shape, product.topology
    positions = hashlib.sha256(f"{topology.shape[0]} {topology.shape[1]} ".encode())
    positions.update(topology.offsets.data)
    positions.update(np.ascontiguousarray(topology.columns.astype(np.int32)).data)
    matrix = None
    if isinstance(problem, StoredProblem):
        matrix = DlmcMatrix(problem.matrix, problem.drawn, problem.drawn_from)
    about = OperationProblem(
        set="own" if problem.origin == "file" else shape.set, network=shape.network, layer=shape.layer,
        rows=topology.rows, columns=topology.shape[1], batch_columns=product.width, batch=1, nonzeros=topology.nnz,
        phase=problem.phase, repeats=shape.repeats, origin=problem.origin, topology_sha256=positions.hexdigest(),
        seed=problem.seed, index_bits=topology.index_bits, dlmc=matrix,
    )  # fmt: skip
    case = f"{product.operation}.{about.set}.{about.network}.{about.layer}.n{product.width}"
    case += f".s{100 * about.sparsity:.4g}"
    return Task(product.operation, case, about, product.multiply_adds, product.operand_bytes)


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
    if free is not None and needed > COMPARISON_SHARE * free:
        raise InputError(
            f"{product.operation} of {rows} x {inner} with {product.width} columns needs about {needed:,} bytes, its "
            f"dense product included, and {free:,} are free: take fewer columns, or a smaller matrix"
        )


class ProductTruth:
    """What the output of a product must be, worked out once for all programs.

    Of a product that is too large, whole columns of the output (of sddmm, nonzeros) are drawn by CONTEST_SEED, the
    first and the last among them; all other columns are compared in one sum with random signs for each row.
    """

    def __init__(self, product: Product):
        self.product, topology, values = product, product.topology, product.values
        self.of_columns = product.operation == "spmm"
        whole, each = (product.width, topology.nnz) if self.of_columns else (topology.nnz, product.width)
        part = max(2, int(MULTIPLY_ADDS // max(1, each)))
        self.sampled, self.signs = whole > part, None
        self.kept = _sample(whole, part) if self.sampled else np.arange(whole)
        if not self.of_columns:
            places = SimpleNamespace(row_numbers=topology.row_numbers[self.kept], columns=topology.columns[self.kept])
            self.expected = _expected(oracle.sddmm, places, product.first, product.second, product.width)
            return
        lengths, first = topology.lengths, product.first
        self.expected = _expected(oracle.spmm, topology, values, first[:, self.kept], lengths[:, None])
        if self.sampled:
            self.signs = np.random.default_rng(CONTEST_SEED).choice((-1.0, 1.0), product.width)
            right = oracle.spmm(topology, values, (first.astype(np.float64) @ self.signs)[:, None])[:, 0]
            magnitude = oracle.spmm(topology, abs(values), abs(first.astype(np.float64)).sum(axis=1)[:, None])[:, 0]
            self.sums = right, oracle.tolerance(magnitude, lengths) * (1 + product.width * 2.0**-50)

    def judge(self, name: str, out: np.ndarray) -> Verification:
        """The part `verification` of the record of an output of program `name`; SpdnnError where an entry is wrong."""
        actual = out[:, self.kept] if self.of_columns else out[self.kept]
        worst = closeness.worst(actual, *self.expected, empty=not out.size)
        rule = f"|error| <= (n + 2) u sum|a b| + rounding, n {TERMS[self.product.operation]}"
        if self.signs is not None:
            worst = max(worst, closeness.worst(out @ self.signs, *self.sums))
            rule += "; all columns in one sum with random signs"
        if not worst <= 1:
            raise SpdnnError(
                f"program {name} gave a wrong output of {self.product.operation}: an error of {worst:.3g} times its "
                "tolerance"
            )
        seed = CONTEST_SEED if self.sampled else None
        return Verification(out.size, actual.size if out.size else 0, seed, rule, worst, digest(out))


def _expected(compute: Callable, places: Any, left: Any, right: Any, terms: Any) -> tuple[np.ndarray, np.ndarray]:
    """(what float64 gives, how far from it sums of so many terms may be)."""
    return compute(places, left, right), oracle.tolerance(compute(places, abs(left), abs(right)), terms)


def _sample(whole: int, part: int) -> np.ndarray:
    drawn = np.random.default_rng(CONTEST_SEED).choice(np.arange(1, whole - 1), part - 2, replace=False)
    return np.sort(np.concatenate(([0], drawn, [whole - 1])))
