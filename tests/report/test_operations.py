"""The section on sparse operations: ratios of pairs, geometric means, crossings, each table once."""

import pytest
from operation_cases import made_imbalance, made_operation
from records import typed

from spdnn.core.table import plain
from spdnn.report import operations
from spdnn.report.common.blocks import Bullets, Fold, Rows
from spdnn.report.common.collection import collect
from spdnn.report.common.drawing import Figure, save, style
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import OperationBaseline


def products(sparsity=0.9, ours=0.001, mkl=0.002, blas=0.004, **more):
    """One problem: ours, a sparse library twice as slow, BLAS four times."""
    programs = {"ours": ours, "mkl": mkl, "blas": blas}
    return [
        made_operation(name, (seconds, 1.1 * seconds, 1.2 * seconds), sparsity=sparsity, **more)
        for name, seconds in programs.items()
        if seconds
    ]


def objects(records):
    return [typed(record, OperationRecord) for record in records]


def section(records, baselines=()):
    return operations.section(collect([], (), objects(records), baselines))


def table(records, of):
    """The texts of the section's rows of one of its tables."""
    [rows] = [rows for rows in section(records).every(Rows) if rows.table.columns == of.columns]
    return of.texts(rows.rows)[1][1:]


def sentences(records):
    return [plain(item) for block in section(records).every(Bullets) for item in block.items]


def test_each_table_from_records():
    records = [product for network in ("one", "two") for product in products(network=network, layer="l")]
    records[3] |= {"seconds": [0.004, 0.0044, 0.0048]}  # ours on the second is four times as slow
    records[4]["program"]["version"] = "mkl 1.3"
    # 2 x 52,429 nonzeros x 256 columns in 1.1 ms, of a peak of 2 x 2e11; dense: 4 bytes a value, ours: 6 a nonzero.
    assert table(records, operations.MEANS) == [
        ["a, one", "90 %", "1", "2.00 (2.00)", "4.00 (4.00)", "1 of 1", "24.40", "6.10 %", "6.67"],
        ["a, two", "90 %", "1", "0.500 (0.500)", "1.00 (1.00)", "0 of 1", "6.101", "1.53 %", "6.67"],
    ]
    assert table(records, operations.PROBLEMS)[1] == [
        "two l", "512 × 1,024", "256", "90.0 %", "0.004400", "3", "6.101", "1.53 %", "0.500 (mkl)", "1.00 (blas)",
    ]  # fmt: skip
    assert table(records, operations.PROGRAMS) == [
        ["blas", "dense", "blas 1.2", "2 of 2", "2"], ["mkl", "sparse", "mkl 1.2", "2 of 2", "2"],
        ["mkl", "sparse", "mkl 1.3", "2 of 2", "2"], ["ours", "ours", "ours 1.2", "2 of 2", "2"],
    ]  # fmt: skip
    [fold] = section(records).every(Fold)
    checked = sum(record["verification"]["checked"] for record in records)
    assert f"{checked:,} entries were compared" in plain(fold.blocks[0].text)
    assert plain(fold.blocks[2].pairs[0]) == "2025-01-02T03:04:05ZA CPU, commit abcdef123456 spdnn bench sets"
    # The number of a record on the page follows from its place.
    collection = collect([], (), objects(records))
    rows = next(rows for rows in operations.section(collection).every(Rows) if "Every problem" in rows.title)
    assert [rows.table.record(row) for row in rows.rows] == [collection.operations.index(row.ours) for row in rows.rows]


def test_figures_have_the_problems():
    records = [product for s in (0.7, 0.8, 0.9) for product in products(s, layer=f"l{s}")]
    dense, peak = section(records).every(Figure)
    assert (dense.name, peak.name) == ("operations-1-spmm-dense", "operations-1-spmm-peak")
    assert dense.title == "Times as fast as the dense product by sparsity, spmm, A CPU"
    assert [row[:3] for row in dense.rows] == [("transformer", f"l{s / 100}", s) for s in (70, 80, 90)]
    assert [row[3] for row in dense.rows] == pytest.approx([4, 4, 4])
    useful = [record["useful_operations"] for record in records if record["program"]["name"] == "ours"]
    assert [row[3] for row in peak.rows] == pytest.approx([100 * count / 0.0011 / 4e11 for count in useful])
    with style():
        assert "<svg" in save(dense, "operations").svg
        assert "<svg" in save(peak, "operations").svg
    assert [figure.name for figure in section(products(blas=None, machine=False)).every(Figure)] == []


def test_machines_and_numbers_of_threads_are_apart_and_calls_elsewhere():
    other = [{**record, "threads": 4} for record in products()]
    network = made_operation(operation="network", set_name="own")
    parts = [block.heading for block in section([*products(), *other, network]).blocks if hasattr(block, "heading")]
    assert parts == ["A CPU, 2 threads", "A CPU, 4 threads"]
    assert section([network]) is None


def test_ratios_are_of_pairs_and_the_fastest_counts():
    found = [made_operation("ours", (0.001, 0.005, 0.002)), made_operation("mkl", (0.003, 0.015, 0.008)),
             made_operation("scipy", (0.01, 0.01, 0.01)), made_operation("blas", (0.002, 0.009, 0.004))]  # fmt: skip
    (one,) = operations.compare_problems(objects(found))
    assert one.sparse.record.program.name == "mkl"
    assert (one.sparse.times, one.dense.times) == (pytest.approx(3), pytest.approx(2))
    assert (one.sparse.best, one.dense.best) == (pytest.approx(3), pytest.approx(2))
    assert one.other == one.dense
    assert one.peak == pytest.approx(found[0]["useful_operations"] / 0.002 / 4e11)
    assert one.memory == pytest.approx(4 * 512 * 1024 / (6 * one.problem.nonzeros))
    longer = made_operation("mkl", (0.003, 0.015, 0.008, 0.008))  # no pairs: of medians, 8 / 2 ms
    (one,) = operations.compare_problems(objects([found[0], longer]))
    assert one.sparse.times == pytest.approx(4)


def test_other_comparisons_and_problems_are_not_mixed():
    slow = made_operation("mkl", (0.5, 0.5, 0.5), comparison="f" * 16)
    (one,) = operations.compare_problems(objects([*products(), slow]))
    assert one.sparse.times == pytest.approx(2)
    later = [{**product, "created": "2026-01-02T03:04:05Z"} for product in products(mkl=0.005, comparison="e" * 16)]
    (one,) = operations.compare_problems(objects([*products(), *later]))
    assert one.sparse.times == pytest.approx(5)  # the latest comparison of a problem counts
    assert len(operations.compare_problems(objects([*products(), *products(layer="other")]))) == 2
    assert operations.compare_problems(objects([made_operation("mkl")])) == []


def test_matrices_of_dlmc_are_grouped_by_their_model():
    """By network, phase and the sparsity of the pruned model, whatever that of the matrix."""
    # Of mkl: 2 and 8 times as long as ours, and 4 in training.
    found = [*products(0.7, layer="a"), *products(0.9, mkl=0.008, layer="b"), *products(0.9, mkl=0.004, layer="b")]
    for place, record in enumerate(found):
        name = f"transformer/random_pruning/0.8/{record['problem']['layer']}.smtx"
        record["problem"] |= {"origin": "dlmc", "dlmc": {"name": name, "drawn": 150, "drawn_from": 3846}}
        if place >= 6:
            record["problem"] |= {"phase": "training", "batch_columns": 2048}
    assert [row[:4] for row in table(found, operations.MEANS)] == [
        ["a, transformer", "80 %", "2", "4.00 (4.00)"],
        ["a, transformer, training", "80 %", "1", "4.00 (4.00)"],
    ]
    captions = [rows.caption for rows in section(found).every(Rows)]
    assert "transformer: a sample of 150 of 3,846 matrices of DLMC, seed 0" in "".join(captions)


@pytest.mark.parametrize(
    ("points", "percent"),  # a straight line in the logarithm; the last crossing counts
    [([(70, 0.5), (90, 2.0)], 80), ([(50, 0.25), (70, 0.5), (80, 0.5), (90, 2.0)], 85),
     ([(50, 2.0), (70, 0.5), (90, 2.0)], 80), ([(70, 1.0), (90, 2.0)], 70), ([(90, 2.0)], 90)],
)  # fmt: skip
def test_where_sparse_overtakes_dense(points, percent):
    assert operations.crossing(points) == pytest.approx(percent)
    assert operations.crossing([*points, (95, 0.5)]) is None


def test_sentences_on_where_sparse_overtakes_dense():
    assert sentences([*products(0.7, blas=0.0005, layer="one"), *products(0.9, blas=0.002, layer="two")])[-1] == (
        "transformer: sparse overtakes dense at 80.0 % sparsity (interpolated)."
    )
    assert "at 90 % sparsity or below: in the geometric mean it is faster" in sentences(products())[-1]
    assert sentences(products(blas=0.0005)) == [
        "Set a from 80 % sparsity on: 2.00 times as fast as the fastest sparse library, 0.500 times as fast as dense, "
        "0.500 times as fast as the fastest of all.",
        "transformer: dense is faster at every sparsity up to 90 %.",
    ]
    assert len(sentences(products(blas=None))) == 1
    assert sentences(products(0.7, blas=None)) == []


def test_balance_with_and_without_the_swizzle():
    skewed = {"set_name": "c", "network": "skewed", "layer": "zipf_1"}
    swizzled = made_operation("ours", imbalance=made_imbalance(1.01), **skewed)
    in_order = made_operation("ours-in-order", (0.002, 0.0022, 0.0024), imbalance=made_imbalance(1.7, 1.65), **skewed)
    assert table([swizzled, in_order], operations.BALANCE) == [
        ["spmm, skewed zipf_1", "90.0 %", "1.01", "1.70", "1.00", "1.65", "2.00"]
    ]


def test_models_and_their_memory():
    model = {"operation": "model", "set_name": "models", "layer": "small"}
    records = [made_operation("sparse-arithmetic", attention_bytes=1 << 20, **model),
               made_operation("dense", (0.003, 0.0033, 0.0036), attention_bytes=1 << 30, **model)]  # fmt: skip
    records[0]["program"]["kind"] = "ours"
    held = [sum(record[f"{what}_bytes"] for what in ("matrix", "operand", "attention")) for record in records]
    [row] = table(records, operations.MODELS)
    assert row[:6] == ["transformer small", "90.0 %", "dense", "0.001100", "0.003300", "3.00"]
    assert row[6:] == [f"{held[0] / 2**20:.1f} MiB", f"{held[1] / 2**30:.1f} GiB", f"{held[1] / held[0]:.0f}"]


def test_published_figures():
    row = OperationBaseline("spmm", "resnet", "percent of peak", 2.5, "2.5 %", "A GPU", "its peak", "A paper")
    assert section([], [row]) is None
    [rows] = [rows for rows in section(products(), [row]).every(Rows) if rows.rows == [row]]
    assert rows.table.texts(rows.rows)[1][1][:4] == ["spmm, resnet", "percent of peak", "2.5 %", "2.5 %"]
