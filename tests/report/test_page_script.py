"""What the page's script does, driven in a real browser: it sorts, searches, changes units, shows and saves records."""

import gzip
import json
import re

import pytest
from browser import visit as browser_visit
from pages import FEW, operations
from records import BASELINES, collected, made_record, stored, typed

from spdnn.core.shown import significant
from spdnn.report import rendering as report
from spdnn.runs.records.published import read_baselines

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]

CLEAR = """() => {
  document.querySelector("dialog[open]")?.close();
  for (const one of document.querySelectorAll("#units select")) {
    if (one.selectedIndex === 0) continue;
    one.selectedIndex = 0;
    one.dispatchEvent(new Event("change", { bubbles: true }));
  }
}"""


@pytest.fixture(scope="module")
def few(browser, page_of):
    """The page of FEW, its tables unfolded."""
    with browser_visit(browser, page_of("few")) as found:
        found.unfold()
        yield found


@pytest.fixture
def visit(few):
    """That page with nothing chosen."""
    few.page.evaluate(CLEAR)
    yield few
    assert not few.noticed


def column(visit, table, number):
    """The texts of a column of the rows that are seen."""
    cells = visit.page.locator(f"#{table} tbody tr:visible > :nth-child({number})")
    return [text.split("\n")[0] for text in cells.all_inner_texts()]


def rates(visit, table, number):
    seen = visit.page.locator(f"#{table} tbody tr:visible > :nth-child({number}) > data:first-child")
    return seen.evaluate_all("all => all.map(one => Number(one.value))")


def shown_record(page):
    """The record in the dialog, once it is there."""
    text = page.locator("dialog pre", has_text="{")
    return json.loads(text.inner_text())


def number_of(record):
    """The number of a record of FEW on the page: its place by case."""
    return collected(FEW).records.index(typed(record))


def press_head(visit, table, name):
    visit.page.locator(f"#{table} thead th", has_text=name).first.locator("button").click()


def test_numbers_sort_as_numbers_both_ways(visit):
    before = rates(visit, "ours", 5)
    assert len(before) == 3  # the fourth of FEW is of another network
    press_head(visit, "ours", "Median")
    assert rates(visit, "ours", 5) == sorted(before, reverse=True)
    press_head(visit, "ours", "Median")
    assert rates(visit, "ours", 5) == sorted(before)
    head = visit.page.locator("#ours thead th", has_text="Median")
    assert head.get_attribute("aria-sort") == "ascending"
    assert visit.page.locator("#ours thead th[aria-sort]").count() == 1


def test_texts_sort_by_the_keyboard_and_what_is_not_known_comes_last(visit):
    visit.page.locator("#ours thead th button").first.focus()
    visit.page.keyboard.press("Enter")
    names = column(visit, "ours", 1)
    assert names == sorted(names)
    visit.page.keyboard.press("Space")
    assert column(visit, "ours", 1) == sorted(names, reverse=True)
    for _ in range(2):
        press_head(visit, "twelve", "no reductions")
        assert column(visit, "twelve", 3)[1] == "–"
    assert len(column(visit, "twelve", 1)) == 2


def test_searching_keeps_the_rows_that_have_every_word(visit):
    page, published = visit.page, read_baselines(BASELINES)
    box = page.locator("details:has(#published) input[type=search]")
    box.fill("a100  2020")
    known = {
        (row.system, row.hardware, row.devices, row.span, row.source, row.lossy)
        for row in published
        if row.neurons and row.edges_per_second and "A100" in row.hardware and "2020" in f"{row.year}{row.source}"
    }
    assert len(column(visit, "published", 1)) == len(known) > 0
    count = page.locator("details:has(#published) output")
    every = page.locator("#published tbody tr").count()
    assert count.inner_text() == f"{len(known)} of {every}"
    box.fill("")
    assert len(column(visit, "published", 1)) == every
    assert count.inner_text() == ""
    assert page.locator("details:has(#ours) input[type=search]").count() == 0  # a short table needs none


def test_units_change_numbers_and_their_names_and_back(visit):
    page = visit.page
    cell = page.locator(f"#ours tr[data-record='{number_of(FEW[1])}'] td.number")
    before = [cell.nth(0).inner_text(), cell.nth(1).inner_text()]
    rate = typed(FEW[1]).edges_per_second.median
    page.select_option("#units [name=rate]", "1000000000")
    page.select_option("#units [name=seconds]", "1e-3")
    assert cell.nth(0).inner_text().startswith(significant(rate / 1e9))
    assert cell.nth(1).inner_text() == "110.0"
    heads = page.locator("#ours thead").inner_text()
    assert "GigaEdges/s" in heads
    assert "milliseconds" in heads
    assert "TeraEdges/s" not in heads
    twelve = page.locator("#twelve")
    assert re.search(r"\b110\.0\b", twelve.inner_text())
    assert "milliseconds" in twelve.locator("caption").inner_text()
    page.select_option("#units [name=rate]", "1000000000000")
    page.select_option("#units [name=seconds]", "1")
    assert [cell.nth(0).inner_text(), cell.nth(1).inner_text()] == before


def test_a_row_shows_its_record(visit):
    page = visit.page
    for record in FEW:
        page.locator(f"tr[data-record='{number_of(record)}'] th button").first.click()
        assert shown_record(page) == record
        assert page.locator("dialog h2").inner_text() == record["case"]
        page.keyboard.press("Escape")
        assert not page.locator("dialog").is_visible()
    page.locator("#ours button.record").first.click()
    page.locator("dialog button", has_text="Copy").click()
    page.locator("dialog button", has_text=re.compile("Copied|Selected")).wait_for()
    page.locator("dialog button", has_text="Close").click()
    assert not page.locator("dialog").is_visible()


def test_a_point_of_a_figure_shows_its_record(visit):
    page = visit.page
    for mark in page.locator("#figure-overview .wide svg [id*='-record-']").all():
        number = int(mark.get_attribute("id").rsplit("-", 1)[1])
        mark.locator("use, path").last.dispatch_event("click")
        shown = shown_record(page)
        assert mark.locator("title").text_content().startswith(shown["case"])
        assert page.locator(f"#ours tr[data-record='{number}'] th").count() == 1
        page.keyboard.press("Escape")


def test_records_are_saved_plain_with_scripts(visit):
    page = visit.page
    for name, check in (("records.json", json.loads), ("records.csv", str)):
        with page.expect_download() as saving:
            page.locator(f"#records a[download^='{name}']").click()
        assert saving.value.suggested_filename == name
        with open(saving.value.path(), encoding="utf-8") as stream:
            found = check(stream.read())
        if name == "records.json":
            assert len(found) == len(FEW) + len(operations())
            assert {one["case"] for one in FEW} <= {one["case"] for one in found}
        else:
            assert found.count("\n") == len(FEW) + len(operations()) + 1


def saved_without_scripts(visit):
    """The (name, path) of the file of records that a page without scripts gives."""
    assert visit.page.locator("select:visible, button:visible, input:visible").count() == 0
    with visit.page.expect_download() as saving:
        visit.page.locator("#records-json").click()
    return saving.value.suggested_filename, saving.value.path()


def test_without_scripts_links_give_the_files_and_no_control_is_seen(opened, page_of):
    name, path = saved_without_scripts(opened(page_of("few"), scripts=False))
    assert name == "records.json"
    with open(path, encoding="utf-8") as stream:
        assert len(json.load(stream)) == len(FEW) + len(operations())


@pytest.mark.full("browser")
def test_without_scripts_many_records_are_a_compressed_file(opened, tmp_path):
    records = [made_record(f"deep-{place}", (0.7 + place,), layers=1920) for place in range(40)]
    report.render([report.RecordFolder(stored(tmp_path, *records))], tmp_path / "report.html", BASELINES)
    name, path = saved_without_scripts(opened(tmp_path / "report.html", scripts=False))
    assert name == "records.json.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        assert len(json.load(stream)) == 40
