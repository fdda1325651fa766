"""docs/how-to/add-a-record-field.md, followed: a field from outside the package, as all others."""

import base64
import csv
import io
import json
import re

import pytest
from records_page import page, schema

from spdnn.runs.records.files import read_record, write_record
from spdnn.runs.records.notes import NOTES
from tests.report.records import made_record, shown


@pytest.fixture
def toy(root):
    """The type that the page's block of code makes; gone again after the test."""
    text, names = (root / "docs/how-to/add-a-record-field.md").read_text(encoding="utf-8"), {}
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    exec(compile(block, "add-a-record-field.md", "exec", dont_inherit=True), names)  # as another package would
    yield names["ToyNotes"]
    assert NOTES.pop("toy") is names["ToyNotes"]


def thrown(flips):
    return made_record() | {"engine": {"name": "toy", "notes": {"flips": flips, "colour": "red"}}}


def test_it_is_written_and_read(toy, tmp_path):
    write_record(tmp_path / "run.json", thrown(7))
    assert json.loads((tmp_path / "run.json").read_text())["engine"]["notes"] == {"flips": 7, "colour": "red"}
    engine = read_record(tmp_path / "run.json").engine
    assert isinstance(engine.notes, toy)
    assert (engine.notes.flips, engine.noted["colour"]) == (7, "red")
    write_record(tmp_path / "other.json", thrown(-1))
    assert read_record(tmp_path / "other.json").engine.notes.flips is None


def test_it_is_in_the_schema_and_in_the_reference(toy):
    whole = schema("run")
    field = whole["$defs"]["ToyNotes"]["properties"]["flips"]
    assert whole["notes_of"]["toy"] == "#/$defs/ToyNotes"
    assert (field["description"], field["anyOf"][0]["minimum"]) == ("coins that were thrown in one repeat.", 0)
    assert "### ToyNotes: toy\n\nAn engine that throws coins.\n" in page()
    assert "| `flips` | a whole number from 0 or null | coins that were thrown in one repeat. |" in page()


def rows_of(*records):
    """The table of records that their page carries."""
    (link,) = (one for one in shown(list(records)).all("a") if one.get("download") == "records.csv")
    return list(csv.DictReader(io.StringIO(base64.b64decode(link["href"].partition(",")[2]).decode())))


def test_it_is_a_column_of_the_table(toy):
    rows, (odd,) = rows_of(thrown(7), made_record("other")), rows_of(thrown("x"))
    assert sorted(row["flips"] for row in rows) == ["", "7"]
    assert odd["flips"] == ""
