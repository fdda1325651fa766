"""The page in a real browser: quiet, within its window, well marked, and usable by keyboard, on paper and enlarged."""

from __future__ import annotations

import pytest
from pages import FULL, KINDS, LONG

pytestmark = pytest.mark.needs("chromium")
SCRIPTS = pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
WIDTHS = pytest.mark.parametrize("width", [390, 1440])
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
EACH = pytest.mark.parametrize("kind", KINDS)

SAID = {"nothing": "Nothing was run", "failed": "1 failed verification", "all": "1 failed verification"}  # fmt: skip


def holds(found):
    """Nothing was found, or all of it is told."""
    assert not found, "\n".join(found)


@SCRIPTS
@EACH
def test_it_opens_and_is_quiet(opened, page_of, kind, scripts):
    visit = opened(page_of(kind), scripts=scripts)
    visit.page.wait_for_timeout(100)  # whatever it does a little later
    holds(visit.noticed)
    assert SAID.get(kind, "passed verification") in visit.text()
    assert (visit.page.locator("figure svg").count() > 0) == (kind in FULL)


@SCRIPTS
@WIDTHS
@EACH
def test_it_fits_its_window(opened, page_of, kind, width, scripts):
    for scheme in ("light", "dark"):
        visit = opened(page_of(kind), width=width, scheme=scheme, scripts=scripts)
        holds(visit.check("width"))
        visit.unfold()
        holds(visit.check("width"))
        holds(visit.noticed)


@SCRIPTS
@EACH
def test_it_is_well_marked(opened, page_of, kind, scripts):
    visit = opened(page_of(kind), scripts=scripts)
    visit.unfold()
    checks = ["figures", "tables", "ids", "references", "headings", *([] if scripts else ["idle"])]
    holds([one for name in checks for one in visit.check(name)])


@EACH
def test_links_within_it_lead_somewhere(opened, page_of, kind):
    visit = opened(page_of(kind))
    holds(visit.check("links"))
    holds(visit.noticed)


@SCHEMES
@EACH
def test_it_keeps_to_the_guidelines_on_accessibility(opened, page_of, kind, scheme):
    visit = opened(page_of(kind), scheme=scheme)
    visit.unfold()
    holds(visit.axe())
    holds(visit.check("contrast"))


@SCRIPTS
@EACH
def test_the_keyboard_reaches_everything_and_shows_where_it_is(opened, page_of, kind, scripts):
    visit = opened(page_of(kind), width=700, scripts=scripts)  # narrow enough that tables scroll
    visit.unfold()
    missed, unseen = visit.tabbed()
    holds([f"Tab does not reach {one}" for one in missed] + [f"{one} does not show its focus" for one in unseen])


@EACH
def test_every_control_can_be_used(opened, page_of, kind):
    """Each button, switch and list is used once, of a table's records and columns the first: no error follows, the page
    fits, Escape closes what opened.
    """
    visit = opened(page_of(kind), width=390)
    visit.page.evaluate("window.print = () => {}")
    first = "thead th:first-child button.sort, tbody tr:first-child button.record"
    controls = f"summary, button:not(.record, .sort), {first}, input, select"
    for control in visit.page.locator(controls).all():
        if not control.is_visible():
            continue
        what = control.evaluate("one => one.localName === 'input' ? one.type : one.localName")
        if what == "select":
            control.select_option(index=control.locator("option").count() - 1)
        elif what in ("text", "search"):
            control.fill("x")
        else:
            control.click()
        dialogs = visit.page.locator("dialog[open]")
        if dialogs.count():
            holds(visit.check("width"))
            visit.page.keyboard.press("Escape")
            assert dialogs.count() == 0
    holds(visit.check("width"))
    holds(visit.noticed)


@SCHEMES
def test_a_record_that_is_shown_keeps_to_the_guidelines(opened, page_of, scheme):
    visit = opened(page_of("hostile"), scheme=scheme)
    visit.unfold()
    visit.page.locator("button.record:visible").first.click()
    assert visit.page.locator("dialog[open]").count() == 1
    holds(visit.axe())


@EACH
def test_it_can_be_printed(opened, page_of, kind):
    visit = opened(page_of(kind))
    sheets, scale = visit.printed()
    assert all(sheets)
    assert len(sheets) > (kind in FULL)
    assert scale >= 0.9
    text, words = "".join(sheets), visit.printed_words()
    assert len(words) > 1
    holds([f"not on paper: {word}" for word in words if word not in text])


@pytest.mark.parametrize("larger", [{"text": 2}, {"zoom": 2}], ids=["text", "page"])
@EACH
def test_it_can_be_enlarged(opened, page_of, kind, larger):
    visit = opened(page_of(kind), width=1280, **larger)
    size = visit.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
    assert size >= 16 * larger.get("text", 1)
    visit.unfold()
    holds(visit.check("width"))


def test_hostile_text_is_only_text(opened, page_of):
    visit = opened(page_of("hostile"))
    visit.unfold()
    assert '<script>alert("x")</script>' in visit.text()
    assert LONG in visit.text()
    assert visit.page.locator("img").count() == 0
    holds(visit.noticed)
