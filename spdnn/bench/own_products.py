"""One product of a user's own matrix: reading the matrix, and the records of our kernels and other libraries."""

import re
from pathlib import Path

import scipy.sparse

from spdnn.bench import products
from spdnn.bench.common import ComparisonSettings
from spdnn.core import safe_open
from spdnn.core.files import existing
from spdnn.core.network import sum_duplicates
from spdnn.formats import matrices
from spdnn.ops import SparseMatrix
from spdnn.ops.problems import Shape, ShapeProblem
from spdnn.runs.records.operation_record import OperationRecord


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
    products.stay_awake()
    topology = matrix.topology
    layer = re.sub("[^A-Za-z0-9_. -]", "_", name)[-60:].lstrip("_. -") or "matrix"
    shape = Shape("a", "own", layer, *topology.shape, columns, None, 1, "random", "", "own")
    problem = ShapeProblem(shape, 100 * topology.sparsity, "inference", 0)
    product = products.product_of(operation, problem, topology, matrix.values)
    about = products.describe_problem(problem, topology, "file", "own")
    return products.one_product(product, about, comparison, products.Ceilings(comparison.threads))
