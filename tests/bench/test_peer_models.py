"""Whole models beside themselves in dense arithmetic: records of both, and what differs has none."""

import pytest
from refusals import refuses

from spdnn.bench import models
from spdnn.bench.contest import ComparisonSettings
from spdnn.core.errors import SpdnnError
from spdnn.report.operations import models_of
from spdnn.runs.records.files import check_content
from spdnn.runs.records.operation_record import OperationRecord


@pytest.mark.parametrize("name", ["transformer-small", "mobilenet-small"])
def test_both_arithmetics_have_a_record(name):
    found = models.compare_model(name, ComparisonSettings(2, (), 0.0, "spdnn bench sets", "0123456789abcdef"))
    stored = ["stored"] * name.startswith("transformer")  # the paper's dense model, with its scores in memory
    assert [one.program.name for one in found] == ["sparse", "dense", *stored]
    for one in found:
        check_content(OperationRecord, one, "record")
        assert one.operation == "model"
        assert one.problem.network == name.split("-")[0]
        assert len(one.seconds) == models.PACE.least
    sparse, dense = found[:2]
    assert sparse.multiply_adds < dense.multiply_adds
    assert sparse.useful_operations == dense.useful_operations
    assert 0 < sparse.problem.sparsity < 1
    if name.startswith("transformer"):
        assert sparse.attention_bytes < dense.attention_bytes < found[2].attention_bytes
    else:
        assert sparse.matrix_bytes < dense.matrix_bytes
    rows = models_of(found)
    assert [row.record.program.name for row in rows] == ["dense", *stored]
    assert all(row.times > 0 and row.memory > 1 for row in rows)


def test_arithmetics_that_differ_have_no_record(monkeypatch):
    from spdnn.ops.models.transformer import Transformer

    prefill = Transformer.prefill

    def changed(self, tokens, arithmetic, threads):
        return prefill(self, tokens, arithmetic, threads) * (1 + (arithmetic == "dense"))

    monkeypatch.setattr(Transformer, "prefill", changed)
    with pytest.raises(SpdnnError, match="model transformer-small: sparse and dense arithmetic differ by"):
        models.compare_model("transformer-small", ComparisonSettings(2, (), 0.0, "spdnn bench sets"))


@pytest.mark.parametrize("name", ["bert", "transformer", "transformer-huge", "mobilenet-", ""])
def test_a_model_that_is_none(name):
    refuses("is not known.*: it must be one of transformer-small, transformer-medium", models.check, [name])
