"""What the page's script does, driven in a real browser: it sorts, filters, changes units, shows and saves records."""

import gzip
import json
import re

import pytest
from browser import visit as browser_visit
from pages import FEW
from test_report import BASELINES, collected, made_record, stored, typed

from spdnn.records.published import read_baselines
from spdnn.report import rendering as report
from spdnn.report.common import words

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]

CLEAR = """() => {
  document.querySelector("dialog[open]")?.close();
  for (const one of document.querySelectorAll("#filters select, #units select")) {
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
    assert len(before) == 4
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
        press_head(visit, "twelve", "same work")
        texts = column(visit, "twelve", 2)
        known = [place for place, text in enumerate(texts) if text != "–"]
        assert known == [0, 1]
    assert len(texts) == 12


def test_without_a_filter_the_script_finds_what_the_page_says(opened, page_of):
    """The twelve rows worked out again from the figures are those that were written."""
    visit = opened(page_of("few"))
    visit.unfold()
    ask = "() => [...document.querySelectorAll('#twelve td')].map(one => one.innerText.replace(/\\s+/g, ' '))"
    written = visit.page.evaluate(ask)
    visit.page.select_option("#filters [name=year]", "2019")
    assert visit.page.evaluate(ask) != written
    visit.page.select_option("#filters [name=year]", "")
    assert visit.page.evaluate(ask) == written


def test_filtering_changes_the_rows_and_the_best(visit):
    page = visit.page
    page.select_option("#filters [name=kind]", "CPU")
    page.select_option("#filters [name=devices]", "one device")
    known = [
        row for row in read_baselines(BASELINES)
        if row.kind == "CPU" and row.device_class == "one device" and row.neurons and row.edges_per_second
    ]  # fmt: skip
    assert sorted(rates(visit, "published", 6)) == sorted(row.edges_per_second for row in known)
    best = max(r.edges_per_second for r in known if (r.neurons, r.layers) == (1024, 120) and not r.lossy)
    line = page.locator('#twelve tr[data-network="1024-120"]')
    assert float(line.locator('[data-group="one"] data').first.get_attribute("value")) == best
    ours = typed(FEW[0]).edges_per_second.median
    ratio = line.locator('[data-ratio="plain-one"] data')
    assert float(ratio.get_attribute("value")) == pytest.approx(ours / best)
    assert ratio.inner_text() == words.significant(ours / best, 3)
    assert f"{len(known) + 4} of " in page.locator("#filters output").inner_text()
    from playwright.sync_api import expect

    page.locator("#filters button[type=reset]").click()
    expect(page.locator("#filters output")).to_have_text("")
    assert len(rates(visit, "published", 6)) > 600


def test_each_filter_keeps_what_it_says(visit):
    page = visit.page
    for name in (
        "configuration",
        "who",
        "system",
        "kind",
        "hardware",
        "year",
        "devices",
        "span",
        "reductions",
        "network",
    ):
        values = page.locator(f"#filters [name={name}] option").evaluate_all("all => all.map(one => one.value)")
        assert len(values) > (1 if name == "configuration" else 2), name
        page.select_option(f"#filters [name={name}]", values[-1])
        kept = page.locator("#ours tbody tr, #published tbody tr")
        seen = "(all, name) => [...new Set(all.filter(one => one.checkVisibility()).map(one => one.dataset[name]))]"
        found = kept.evaluate_all(seen, name)
        assert found == [values[-1]], name
        page.select_option(f"#filters [name={name}]", "")


def test_runs_with_reductions_never_enter_the_column_without(visit):
    page = visit.page
    line = page.locator('#twelve tr[data-network="1024-120"]')
    heads = page.locator("#twelve thead")
    assert "one GPU" in heads.inner_text()
    page.select_option("#filters [name=reductions]", "on: dead inputs")
    assert line.locator('[data-group="plain"]').inner_text() == "–"
    page.select_option("#filters [name=reductions]", "none")
    assert line.locator('[data-group="like"]').inner_text() == "–"
    assert line.locator('[data-group="plain"] [title*="no reductions"]').count() == 1
    page.select_option("#filters [name=reductions]", "published, lossy")  # in a column of their own
    assert line.locator('[data-group="any"]').inner_text() == "–"
    assert line.locator('[data-group="lossy"] [title*="SNICIT"]').count() == 1
    assert "GPU" not in heads.inner_text()  # a filter chooses the hardware


def test_units_change_numbers_and_their_names_and_back(visit):
    page = visit.page
    cell = page.locator(f"#ours tr[data-record='{number_of(FEW[1])}'] td.number")
    before = [cell.nth(0).inner_text(), cell.nth(1).inner_text()]
    rate = typed(FEW[1]).edges_per_second.median
    page.select_option("#units [name=rate]", "1000000000")
    page.select_option("#units [name=seconds]", "1e-3")
    assert cell.nth(0).inner_text().startswith(words.significant(rate / 1e9))
    assert cell.nth(1).inner_text() == "110.0"
    heads = page.locator("#ours thead").inner_text()
    assert "GigaEdges/s" in heads
    assert "milliseconds" in heads
    assert "TeraEdges/s" not in heads
    assert "110.0 ms" in page.locator('#twelve tr[data-network="1024-120"] [data-group="like"]').inner_text()
    page.select_option("#filters [name=who]", "this project")  # what a filter fills in is in the units chosen
    assert "110.0 ms" in page.locator('#twelve tr[data-network="1024-120"] [data-group="like"]').inner_text()
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
            page.locator(f"a[data-download='{name}']").click()
        assert saving.value.suggested_filename == name
        with open(saving.value.path(), encoding="utf-8") as stream:
            found = check(stream.read())
        if name == "records.json":
            assert sorted(one["case"] for one in found) == sorted(one["case"] for one in FEW)
        else:
            assert found.count("\n") == len(FEW) + 1


def test_without_scripts_links_give_the_files_and_no_control_is_seen(opened, tmp_path):
    records = [made_record(f"deep-{place}", (0.7 + place,), layers=1920) for place in range(40)]
    report.render([report.Folder(stored(tmp_path, *records))], tmp_path / "report.html", BASELINES)
    visit = opened(tmp_path / "report.html", scripts=False)
    assert visit.page.locator("select:visible, button:visible, input:visible").count() == 0
    with visit.page.expect_download() as saving:
        visit.page.locator("#records-json").click()
    assert saving.value.suggested_filename == "records.json.gz"
    with gzip.open(saving.value.path(), "rt", encoding="utf-8") as stream:
        assert len(json.load(stream)) == 40
