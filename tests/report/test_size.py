"""Pages of many records: the same bytes in any order, and small enough to send."""

import random

import many
import pytest
from pages import KINDS
from records import rendered, shown

from spdnn.report.rendering import RecordFolder

MOST_BYTES = 5_000_000
FIGURES = 2_000_000  # bytes of them; how many there are, and how much is in each, their own tests tell

pytestmark = pytest.mark.full("many")


def test_the_same_records_give_the_same_bytes_in_any_order():
    runs, operations, _ = KINDS["all"]()
    records = [*runs, *operations]
    first = shown(records, figures=True).source
    again = [*records, dict(reversed(records[0].items()))]  # a record that is there twice counts once
    random.Random(0).shuffle(again)
    assert shown(again, figures=True).source == first


def test_a_thousand_records_make_a_page_below_five_megabytes(tmp_path):
    (tmp_path / "records").mkdir()
    paths = many.write(tmp_path / "records", 800, 200)
    page = rendered(tmp_path / "report.html", [RecordFolder(paths)], published=True)
    assert len(page.source.encode("utf-8")) < MOST_BYTES - FIGURES
    assert "more rows left off here" in page.text
