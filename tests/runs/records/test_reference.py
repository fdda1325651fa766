"""What is made from the classes of records: the reference page is current, and every field is described or plain."""

import jsonschema
import pytest
from records_page import KINDS, page, schema

from spdnn.runs.records.columns import columns
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord


def test_the_page_is_current(root):
    committed = (root / "docs/reference/records.md").read_text(encoding="utf-8")
    assert committed == page() + "\n", "python docs/records_page.py > docs/reference/records.md"


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_and_describes_its_classes(kind):
    whole = schema(kind)
    jsonschema.Draft202012Validator.check_schema(whole)
    assert all(node["description"] for node in whole["$defs"].values())


def test_columns_are_fields():
    runs, operations = dict(columns(RunRecord)), dict(columns(OperationRecord))
    assert runs["edges_per_second"] == ("edges_per_second", "median")
    assert operations["engine"] == ("program", "name")
    assert len(runs) > 25
