"""A page of very many records is small enough to send, and says what it left off."""

import many
import pytest
from test_report import rendered

from spdnn.report.rendering import RecordFolder

MOST_BYTES = 5_000_000
FIGURES = 2_000_000  # bytes of them; how many there are, and how much is in each, their own tests tell


@pytest.mark.full("many")
def test_a_thousand_records_make_a_page_below_five_megabytes(tmp_path):
    (tmp_path / "records").mkdir()
    paths = many.write(tmp_path / "records", 800, 200)
    page = rendered(tmp_path / "report.html", [RecordFolder(paths)], published=True)
    assert len(page.source.encode("utf-8")) < MOST_BYTES - FIGURES
    assert "more rows left off here" in page.text
