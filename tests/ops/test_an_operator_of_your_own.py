"""docs/how-to/add-an-operator.md, followed: an operator is a layer of chains and a pruned product."""

import pytest
from how_to import code_blocks, run_tests

from spdnn.formats.onnx_files import KINDS
from spdnn.ops.onnx_products import PRODUCTS


@pytest.mark.parametrize("left_out", [None, KINDS, PRODUCTS], ids=["both", "no layer", "no product"])
def test_the_test_of_the_page_passes_with_both_entries_alone(left_out, request, monkeypatch):
    *entries, test = code_blocks("add-an-operator.md")
    names: dict = {}
    for table in (KINDS, PRODUCTS):
        monkeypatch.setitem(table, "Einsum", None)  # gone again after the test
    for block in entries:
        exec(block, names)
    if left_out is None:
        return run_tests(test, request)
    del left_out["Einsum"]
    with pytest.raises(AssertionError):
        run_tests(test, request)
