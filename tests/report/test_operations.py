"""The page's section on sparse operations: ratios of pairs, geometric means, crossings; figures; nothing is code."""

import json

import pytest
from operation_cases import made_imbalance, made_operation
from test_report import BASELINES, HOSTILE, drawn, made_record, shown, stored, typed

from spdnn.core.errors import InputError
from spdnn.report.common.collection import collect
from spdnn.report.operations import values as operations
from spdnn.report.rendering import RecordFolder, render
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published_operations import OperationBaseline
from tests.runs.records.test_run_record import changed


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


def figures(records):
    return drawn("operations", collect([], operations=objects(records)))


def part(page):
    return page.text.split("Our products and those of other libraries")[1]


def test_the_section_from_operations_alone():
    page = shown(products())
    assert "All 3 timed programs passed verification." in page.text
    assert "Cases and their verdicts" not in page.text
    text = part(page)
    assert {2.0, 4.0} <= set(page.values)
    assert "Set a from 80 % sparsity on: 2.00 times as fast as the fastest sparse library, 4.00 times as fast" in text
    assert "transformer: sparse overtakes dense at 90 % sparsity or below" in text
    assert "67,857 and 32,477 tokens/s" in text  # published figures stand beside
    assert "arXiv:2006.10901" in text
    assert "mkl 1.2" in text
    assert "spdnn bench sets" in text  # the command
    assert page.text.count("largest error was 0.250 of its tolerance") == 1


def test_figures_are_there():
    records = [product for s in (0.7, 0.8, 0.9) for product in products(s, layer=f"l{s}")]
    drawn = figures(records)
    assert list(drawn) == ["operations-1-spmm-dense", "operations-1-spmm-peak"]
    assert drawn["operations-1-spmm-dense"].title == ("Times as fast as the dense product by sparsity, spmm, A CPU")


def test_without_such_records_one_line_says_how_to_get_them():
    text = shown([made_record()]).text
    assert "Our products and those" not in text
    assert "Sparse products and attention beside other libraries are not shown" in text
    assert "snakemake --configfile config/ops.yaml" in text


def test_runs_and_operations_share_a_page(tmp_path):
    paths = stored(tmp_path, made_record())
    (tmp_path / "ops.jsonl").write_text("".join(json.dumps(product) + "\n" for product in products()))
    assert render([RecordFolder([*paths, tmp_path / "ops.jsonl"])], tmp_path / "page.html", BASELINES) == 4
    text = shown([made_record(), *products()]).text
    assert "Published times do not all cover" in text
    assert "Our products and those" in text
    assert "1,024 × 120: passed verification" in text


def test_ratios_are_of_pairs_and_the_fastest_counts():
    found = [made_operation("ours", (0.001, 0.005, 0.002)), made_operation("mkl", (0.003, 0.015, 0.008)),
             made_operation("scipy", (0.01, 0.01, 0.01)), made_operation("blas", (0.002, 0.009, 0.004))]  # fmt: skip
    (one,) = operations.compare_problems(objects(found))
    assert one.sparse[0].program.name == "mkl"
    assert one.sparse[1] == pytest.approx(3)
    assert one.dense[1] == pytest.approx(2)
    assert one.other == one.dense
    useful, peak = one.ours.useful_operations, 2 * one.ours.machine.fma_per_second
    assert one.peak == pytest.approx(100 * useful / 0.002 / peak)
    assert operations.best(one.ours, one.dense[0]) == pytest.approx(2)
    assert operations.best(one.ours, one.sparse[0]) == pytest.approx(3)
    assert one.memory == pytest.approx(4 * 512 * 1024 / (6 * one.problem.nonzeros))


def test_other_comparisons_and_problems_are_not_mixed():
    slow = made_operation("mkl", (0.5, 0.5, 0.5), comparison="f" * 16)
    (one,) = operations.compare_problems(objects([*products(), slow]))
    assert one.sparse[1] == pytest.approx(2)
    later = [{**product, "created": "2026-01-02T03:04:05Z"} for product in products(mkl=0.005, comparison="e" * 16)]
    (one,) = operations.compare_problems(objects([*products(), *later]))
    assert one.sparse[1] == pytest.approx(5)  # the latest comparison of a problem counts
    assert len(operations.compare_problems(objects([*products(), *products(layer="other")]))) == 2
    assert operations.compare_problems(objects([made_operation("mkl")])) == []


def test_geometric_means():
    found = operations.compare_problems(objects([*products(layer="one", mkl=0.002), *products(layer="two", mkl=0.008)]))
    mean = operations.means(found)
    assert mean["sparse"] == pytest.approx(4)  # of 2 and 8
    assert mean["dense"] == pytest.approx(4)
    assert (mean["sparse_best"], mean["dense_best"]) == (pytest.approx(4), pytest.approx(4))
    assert mean["count"] == mean["faster"] == 2
    alone = operations.means(operations.compare_problems(objects(products(mkl=None, blas=None))))
    assert (alone["sparse"], alone["dense"], alone["other"], alone["faster"]) == (None, None, None, 0)


def of_dlmc(name, drawn=150, of=3846, sparsity=0.9, **more):
    records = products(sparsity, layer=name.split("/")[-1][:-5], **more)
    for record in records:
        record["problem"] |= {"origin": "dlmc", "dlmc": {"name": name, "drawn": drawn, "drawn_from": of}}
    return records


def test_matrices_of_dlmc_are_grouped_by_their_model():
    """By network, batch columns and the sparsity of the pruned model, whatever that of the matrix."""
    found = [*of_dlmc("transformer/l0_regularization/0.8/a.smtx", sparsity=0.7, mkl=0.002),
             *of_dlmc("transformer/random_pruning/0.8/b.smtx", sparsity=0.9, mkl=0.008)]  # fmt: skip
    training = of_dlmc("transformer/random_pruning/0.8/b.smtx", mkl=0.004)
    for record in training:
        record["problem"] |= {"phase": "training", "batch_columns": 2048}
        record["useful_operations"] *= 8
        record["multiply_adds"] *= 8
        record["verification"] |= {"entries": 512 * 2048, "checked": 512 * 2048}
        record["machine"] = None
    (machine,) = operations.values(collect([], operations=objects([*found, *training])))["machines"]
    groups = machine["operations"][0]["sets"]
    assert [group["network"] for group in groups] == ["transformer", "transformer, training"]
    assert [(row["percent"], row["count"]) for group in groups for row in group["rows"]] == [(80, 2), (80, 1)]
    assert groups[0]["rows"][0]["sparse"] == pytest.approx(4)  # of 2 and 8
    assert groups[1]["rows"][0]["sparse"] == pytest.approx(4)
    assert "a sample of 150 of 3,846 matrices of DLMC, seed 0" in part(shown(found))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"origin": "generated"}, "problem.dlmc: a matrix of it, and origin is generated"),
     ({"dlmc": {"name": "rn50/random_pruning/0.5/a.smtx", "drawn": 3, "drawn_from": 2}}, "drawn: 3 of 2 matrices")],
)  # fmt: skip
def test_a_sample_that_cannot_be(change, sentence):
    record = of_dlmc("rn50/random_pruning/0.5/a.smtx")[0]
    record["problem"] |= change
    with pytest.raises(InputError, match=sentence):
        check_content(OperationRecord, record, "record")


@pytest.mark.parametrize(
    ("points", "percent"),
    [
        ([(70, 0.5), (90, 2.0)], 80),  # a straight line in the logarithm
        ([(50, 0.25), (70, 0.5), (80, 0.5), (90, 2.0)], 85),
        ([(50, 2.0), (70, 0.5), (90, 2.0)], 80),  # the last crossing counts
        ([(70, 1.0), (90, 2.0)], 70),
        ([(90, 2.0)], 90),
        ([(70, 2.0), (90, 0.5)], None),
        ([(70, None)], None),
        ([], None),
    ],
)
def test_where_sparse_overtakes_dense(points, percent):
    found = operations.crossing(points)
    assert found == (None if percent is None else pytest.approx(percent))


def test_where_dense_stays_faster_and_where_there_is_none():
    text = part(shown(products(blas=0.0005)))
    assert "transformer: dense is faster at every sparsity up to 90 %" in text
    text = part(shown(products(blas=None)))
    assert "overtakes" not in text
    assert "dense is faster" not in text


def test_balance_with_and_without_the_swizzle():
    skewed = {"set_name": "c", "network": "skewed", "layer": "zipf_1"}
    records = [
        made_operation("ours", imbalance=made_imbalance(1.01), **skewed),
        made_operation("ours-in-order", (0.002, 0.0022, 0.0024), imbalance=made_imbalance(1.7, 1.65), **skewed),
    ]
    page = shown(records)
    assert "Balance on skewed rows" in page.text
    assert {1.01, 1.7, 1.65, 2.0} <= set(page.values)


def test_models_and_their_memory():
    whole = {"operation": "model", "set_name": "models", "network": "transformer", "layer": "small 256 tokens"}
    records = [
        made_operation("sparse-arithmetic", attention_bytes=1 << 20, **whole),
        made_operation("dense", (0.003, 0.0033, 0.0036), attention_bytes=1 << 30, **whole),
    ]
    records[0]["program"]["kind"] = "ours"
    page = shown(records)
    assert "transformer small 256 tokens" in page.text
    assert 3.0 in page.values
    held = [sum(record[f"{what}_bytes"] for what in ("matrix", "operand", "attention")) for record in records]
    assert held[1] / held[0] in page.values


def test_hostile_texts_are_only_text():
    records = products()
    for record in records:
        record["program"] |= {
            "version": HOSTILE,
            "notes": {"threads_set": HOSTILE, "setting": HOSTILE, "layout": HOSTILE},
        }
        record["environment"]["cpu"] = HOSTILE
        record["environment"]["command"] = HOSTILE * 20
        record["environment"]["commit"] = HOSTILE
    page = shown(records, figures=True)
    assert page.runs_nothing_else()
    assert 'alert("x")' in page.text


@pytest.mark.parametrize(
    ("path", "value"),
    [("verification.worst", 2.0), ("seconds", [1e-9] * 3), ("problem.network", "<script>"),
     ("useful_operations", 7)],
)  # fmt: skip
def test_a_record_that_claims_too_much_makes_no_page(tmp_path, path, value):
    record = changed(made_operation(), path, value)
    with pytest.raises(InputError, match=r"0\.json: "):
        render([RecordFolder(stored(tmp_path, record))], tmp_path / "page.html", BASELINES)
    assert not (tmp_path / "page.html").exists()


def test_published_figures_are_printed_as_text():
    row = OperationBaseline("spmm", "", "speed-up", 2.5, HOSTILE, "A GPU", "x", "A paper")
    assert operations.values(collect([], (), [], [row])) is None
    assert operations.values(collect([], (), objects(products()), [row]))["published"] == [row]
