"""Sparse operations beside other libraries: every program is right, verified, and records say what was measured."""

import dlmc_copy
import numpy as np
import pytest
from refusals import refuses

from spdnn.bench import models, products
from spdnn.bench.contest import ComparisonSettings
from spdnn.bench.libraries.ours import OurProductInOrder
from spdnn.bench.libraries.registry import PRODUCTS, PROGRAMS, libraries_here
from spdnn.bench.libraries.scipy import ScipyProduct
from spdnn.bench.products import ProductTruth
from spdnn.core.errors import SpdnnError
from spdnn.ops.problems import Shape, ShapeProblem
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord

THREADS = 2
HERE = libraries_here()[0]
AWKWARD = [(11, 55, 8, 70), (7, 96, 40, 50), (1, 1, 1, 0), (40, 9, 1, 95), (64, 33, 17, 98)]  # rows, columns, N, %


def problem(rows=40, columns=56, width=9, sparsity=80.0, lengths="random"):
    shape = Shape("a", "net", "layer", rows, columns, width, None, 3, lengths, "made up")
    return ShapeProblem(shape, sparsity, "inference", 5)


def product(operation, *sizes):
    one = problem(*sizes)
    return products.product_of(operation, one, one.topology())


def by_blas(one):
    program = PROGRAMS[one.operation]["blas"](one, THREADS)
    return program.array(program()).copy()


def compared(*problems, operations=("spmm",), libraries=("scipy",)):
    comparison = ComparisonSettings(THREADS, libraries, 0.0, "spdnn bench sets", "0123456789abcdef")
    return list(products.compare_products(problems, operations, comparison))


@pytest.mark.parametrize("operation", PRODUCTS)
@pytest.mark.parametrize("sizes", AWKWARD)
def test_every_library_is_right(operation, sizes):
    one = product(operation, *sizes)
    truth = ProductTruth(one)
    for name, program in PROGRAMS[operation].items():
        if name in HERE:
            made = program(one, THREADS)
            for _ in range(2):
                verdict = truth.judge(name, made.array(made()))
            made.close()
            assert verdict.checked == verdict.entries == np.prod(one.shape)
            assert verdict.worst <= 1
            assert made.threads_used in (1, THREADS)
            assert made.matrix_bytes > 0


@pytest.mark.parametrize("operation", PRODUCTS)
def test_records_of_all_programs(operation):
    (found,) = compared(problem(), operations=(operation,), libraries=HERE)
    assert [one.program.name for one in found] == [name for name in PROGRAMS[operation] if name in ("ours", *HERE)]
    for one in found:
        check_content(OperationRecord, one, "record")
        assert one.case.startswith(f"{operation}.a.net.layer.n9.s80.")
        assert len(one.seconds) == products.PACE.least * products.PACE.each
        assert one.problem == found[0].problem
        assert one.problem.repeats == 3
        assert one.threads == THREADS
        assert one.program.notes["threads_set"]
    assert found[0].program.notes["instruction_set"]
    assert all(one.imbalance is None for one in found[1:])


def test_skewed_rows_are_run_without_the_swizzle_too():
    (found,) = compared(problem(64, 64, 8, 80.0, "zipf-1"))
    assert [one.program.name for one in found] == ["ours", "ours-in-order", "scipy"]
    assert [one.program.notes["swizzle"] for one in found[:2]] == [True, False]
    assert found[0].verification.digest == found[1].verification.digest  # the order of rows changes no bit


@pytest.mark.parametrize("operation", PRODUCTS)
def test_a_large_product_is_sampled_and_any_wrong_column_is_seen(monkeypatch, operation):
    monkeypatch.setattr(products, "MULTIPLY_ADDS", 2000)
    one = product(operation, 60, 50, 64)
    truth, right = ProductTruth(one), by_blas(one)
    verdict = truth.judge("blas", right)
    assert verdict.seed == products.CONTEST_SEED
    assert 0 < verdict.checked < verdict.entries
    if operation == "spmm":
        for column in range(64):
            wrong = right.copy()
            wrong[7, column] += 1.0
            with pytest.raises(SpdnnError, match="program blas gave a wrong output of spmm"):
                truth.judge("blas", wrong)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1.0])
@pytest.mark.parametrize("operation", PRODUCTS)
def test_a_wrong_entry_is_no_output(operation, value):
    one = product(operation)
    out = by_blas(one)
    out.flat[3] += value
    with pytest.raises(SpdnnError, match="times its tolerance"):
        ProductTruth(one).judge("blas", out)


def test_a_wrong_output_ends_the_comparison(monkeypatch):
    run = ScipyProduct.__call__
    monkeypatch.setattr(ScipyProduct, "__call__", lambda self: run(self) * np.float32(1.001))
    with pytest.raises(SpdnnError, match="program scipy gave a wrong output of spmm"):
        compared(problem())


def test_matrices_of_dlmc(tmp_path, monkeypatch):
    dlmc_copy.use(monkeypatch)
    settings = {
        "sets": {"a": [90], "b": [90]}, "phases": ["inference"], "networks": None, "operations": ["spmm"],
        "models": [], "seed": 4, "sample": 3, "libraries": ["scipy"], "threads": 2, "seconds": 0.01,
    }  # fmt: skip
    count, cases = models.products_of(settings, dlmc_copy.folder(tmp_path))
    found = [records[0].problem for records, _ in models.compare(settings, "spdnn bench sets", cases)]
    assert len(found) == count == 4
    assert [problem.origin for problem in found] == ["dlmc"] * 3 + ["generated"]
    for problem in found[:3]:
        assert problem.dlmc.name in dlmc_copy.NAMES
        assert (problem.dlmc.drawn, problem.dlmc.drawn_from, problem.dlmc.sparsity, problem.seed) == (3, 15, 0.9, 4)
        assert problem.nonzeros == problem.rows
    assert found[3].dlmc is None


def test_what_is_no_operation_or_too_large(monkeypatch):
    refuses("operation 'gemm' is not known: it must be one of spmm, sddmm", compared, problem(), operations=("gemm",))
    monkeypatch.setattr(products, "available_bytes", lambda: 1000)
    refuses("spmm of 40 x 56 with 9 columns needs about .* and 1,000 are free", compared, problem())


def test_a_matrix_without_nonzeros():
    (found,) = compared(problem(3, 4, 5, 99.0), libraries=HERE)
    assert found[0].problem.nonzeros == 0
    assert all(check_content(OperationRecord, one, "record") for one in found)


def test_operands_are_counted():
    one = product("spmm", 40, 56, 9)
    assert one.operand_bytes == 4 * 9 * (56 + 40)
    assert isinstance(OurProductInOrder(one, THREADS).matrix_bytes, int)
    assert PROGRAMS["spmm"]["blas"](one, THREADS).matrix_bytes == 4 * 40 * 56
    assert one.multiply_adds == (one.topology.nnz * 9, 40 * 56 * 9)
