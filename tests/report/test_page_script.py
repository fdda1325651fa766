"""What the page's script does, driven in a real browser: it sorts, filters, changes units, shows and saves records."""

from __future__ import annotations

import gzip
import json

import pytest
from pages import KINDS
from test_report import BASELINES, HOSTILE, made_record, stored

from spdnn import report
from spdnn.baselines import read_baselines
from spdnn.report import words

pytestmark = pytest.mark.needs("chromium")

RECORDS = [
    made_record("a-none", (1.1, 1.0, 1.05), reductions=()),
    made_record("b-all", (0.11, 0.1, 0.12)),
    made_record("c-deep", (0.7, 0.72), layers=480),
    made_record(f"d-{HOSTILE}", (0.2,), official=False, source="digits"),
]


@pytest.fixture
def visit(opened, tmp_path):
    """The page of RECORDS, its tables unfolded."""
    report.render(stored(tmp_path, *RECORDS), [], tmp_path / "report.html", BASELINES)
    found = opened(tmp_path / "report.html")
    found.unfold()
    yield found
    assert not found.noticed


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


def press_head(visit, table, name):
    visit.page.locator(f"#{table} thead th", has_text=name).first.locator("button").click()


def test_numbers_sort_as_numbers_both_ways(visit):
    before = rates(visit, "ours", 6)
    assert len(before) == 4
    press_head(visit, "ours", "median")
    assert rates(visit, "ours", 6) == sorted(before, reverse=True)
    press_head(visit, "ours", "median")
    assert rates(visit, "ours", 6) == sorted(before)
    head = visit.page.locator("#ours thead th", has_text="median")
    assert head.get_attribute("aria-sort") == "ascending"
    assert visit.page.locator("#ours thead th[aria-sort]").count() == 1


def test_texts_sort_as_texts_and_by_the_keyboard(visit):
    button = visit.page.locator("#ours thead th button").first
    button.focus()
    visit.page.keyboard.press("Enter")
    names = column(visit, "ours", 1)
    assert names == sorted(names)
    visit.page.keyboard.press("Space")
    assert column(visit, "ours", 1) == sorted(names, reverse=True)


def test_what_is_not_known_comes_last_either_way(visit):
    for _ in range(2):
        press_head(visit, "twelve", "reductions on")
        texts = column(visit, "twelve", 3)
        known = [place for place, text in enumerate(texts) if text != "–"]
        assert known == [0, 1]
    assert len(texts) == 12


def test_without_a_filter_the_script_finds_what_the_page_says(visit):
    """The twelve rows worked out again from the figures are those that were written."""
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
    ours = RECORDS[0]["edges_per_second"]["median"]
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
    for name in ("who", "system", "kind", "hardware", "year", "devices", "span", "reductions", "network"):
        values = page.locator(f"#filters [name={name}] option").evaluate_all("all => all.map(one => one.value)")
        assert len(values) > 2, name
        page.select_option(f"#filters [name={name}]", values[-1])
        kept = page.locator("#ours tbody tr:visible, #published tbody tr:visible")
        found = kept.evaluate_all("(all, name) => [...new Set(all.map(one => one.dataset[name]))]", name)
        assert found == [values[-1]], name
        page.select_option(f"#filters [name={name}]", "")


def test_runs_with_reductions_never_enter_the_column_without(visit):
    page = visit.page
    line = page.locator('#twelve tr[data-network="1024-120"]')
    page.select_option("#filters [name=reductions]", "on: dead inputs")
    assert line.locator('[data-group="plain"]').inner_text() == "–"
    page.select_option("#filters [name=reductions]", "none")
    assert line.locator('[data-group="reduced"]').inner_text() == "–"
    assert "no reductions" in line.locator('[data-group="plain"]').inner_text()


def test_lossy_figures_are_seen_only_when_asked_for_and_marked(visit):
    line = visit.page.locator('#twelve tr[data-network="1024-120"]')
    assert "lossy" not in line.inner_text()
    visit.page.select_option("#filters [name=reductions]", "published, lossy")
    assert "lossy" in line.locator('[data-group="any"]').inner_text()


def test_units_change_numbers_and_their_names_and_back(visit):
    page = visit.page
    cell = page.locator("#ours tbody tr", has_text="b-all").locator("td.number")
    before = [cell.nth(0).inner_text(), cell.nth(1).inner_text()]
    rate = RECORDS[1]["edges_per_second"]["median"]
    page.select_option("#units [name=rate]", "1e9")
    page.select_option("#units [name=seconds]", "1e-3")
    assert cell.nth(0).inner_text().startswith(words.significant(rate / 1e9))
    assert cell.nth(1).inner_text() == "110.0"
    heads = page.locator("#ours thead").inner_text()
    assert "GigaEdges/s" in heads
    assert "milliseconds" in heads
    assert "TeraEdges/s" not in heads
    assert "110.0 ms" in page.locator('#twelve tr[data-network="1024-120"] [data-group="reduced"]').inner_text()
    page.select_option("#filters [name=who]", "this project")  # what a filter fills in is in the units chosen
    assert "110.0 ms" in page.locator('#twelve tr[data-network="1024-120"] [data-group="reduced"]').inner_text()
    page.select_option("#units [name=rate]", "1e12")
    page.select_option("#units [name=seconds]", "1")
    assert [cell.nth(0).inner_text(), cell.nth(1).inner_text()] == before


@pytest.mark.parametrize("record", RECORDS, ids=["none", "all", "deep", "hostile"])
def test_a_row_shows_its_record(visit, record):
    page = visit.page
    page.locator("#ours th button", has_text=record["case"]).click()
    assert shown_record(page) == record
    assert page.locator("dialog h2").inner_text() == record["case"]
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()


def test_a_point_of_a_figure_shows_its_record(visit):
    page = visit.page
    for mark in page.locator("#figure-throughput svg [id*='-record-']").all():
        number = int(mark.get_attribute("id").rsplit("-", 1)[1])
        mark.locator("use, path").last.dispatch_event("click")
        shown = shown_record(page)
        assert mark.locator("title").text_content().startswith(shown["case"])
        assert page.locator(f"#ours tr[data-record='{number}'] th").inner_text() == shown["case"]
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
            assert sorted(one["case"] for one in found) == sorted(one["case"] for one in RECORDS)
        else:
            assert found.count("\n") == len(RECORDS) + 1


def test_without_scripts_links_give_the_files_and_no_control_is_seen(opened, tmp_path):
    records = [made_record(f"deep-{place}", (0.7 + place,), layers=1920) for place in range(40)]
    report.render(stored(tmp_path, *records), [], tmp_path / "report.html", BASELINES)
    visit = opened(tmp_path / "report.html", scripts=False)
    assert visit.page.locator("select:visible, button:visible, input:visible").count() == 0
    with visit.page.expect_download() as saving:
        visit.page.locator("#records-json").click()
    assert saving.value.suggested_filename == "records.json.gz"
    with gzip.open(saving.value.path(), "rt", encoding="utf-8") as stream:
        assert len(json.load(stream)) == 40


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_sorts_by_every_column_without_an_error(opened, page_of, kind):
    visit = opened(page_of(kind))
    visit.unfold()
    lengths = "() => [...document.querySelectorAll('table.sortable')].map(one => one.rows.length)"
    before = visit.page.evaluate(lengths)
    visit.page.evaluate("document.querySelectorAll('button.sort').forEach(one => { one.click(); one.click(); })")
    assert visit.page.evaluate(lengths) == before
    assert not visit.noticed
