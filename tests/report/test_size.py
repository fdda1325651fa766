"""A page of very many records is small enough to send, and says what it left off."""

from __future__ import annotations

import many

from spdnn.report import render

MOST_BYTES = 5_000_000


def test_a_thousand_records_make_a_page_below_five_megabytes(tmp_path):
    (tmp_path / "records").mkdir()
    paths = many.write(tmp_path / "records", 800, 200)
    assert render(paths, [], tmp_path / "report.html") == 1000
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(text.encode("utf-8")) < MOST_BYTES
    assert "more rows left off here" in text
