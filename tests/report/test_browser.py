"""The page in a real browser: quiet, within its window, well marked, and usable by keyboard, on paper and enlarged."""

import pytest
from pages import FULL, KINDS, LONG

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]
full = pytest.mark.full("browser")


def kinds(*further):
    """Tests of the page that test_page_script.py drives too; and of others in the full set."""
    return pytest.mark.parametrize("kind", ["few", *(pytest.param(kind, marks=full) for kind in further)])


EACH = kinds(*(kind for kind in KINDS if kind != "few"))
SHOWN = kinds("failed", "hostile", "all")
WHOLE = kinds("hostile", "all")
SAID = {"nothing": "Nothing was run", "failed": "1 failed verification", "all": "1 failed verification"}


def holds(found):
    """Nothing was found, or all of it is told."""
    assert not found, "\n".join(found)


def is_sound(visit, kind, scripts):
    """It is quiet, fits windows of two widths, folded and not, and is well marked."""
    assert SAID.get(kind, "passed") in visit.text()
    assert (visit.page.locator("figure svg").count() > 0) == (kind in FULL)
    for width in (1440, 390):
        visit.page.set_viewport_size({"width": width, "height": 900})
        holds(visit.check("width"))
    visit.unfold()
    holds(visit.check("width"))
    checks = ["telling", "figures", "tables", "ids", "references", "headings", *([] if scripts else ["idle"])]
    holds([one for name in checks for one in visit.check(name)])
    holds(visit.noticed)


def is_reached(visit):
    """Tab goes through all that can be used, and shows where it is."""
    visit.page.set_viewport_size({"width": 700, "height": 900})  # narrow enough that tables scroll
    missed, unseen = visit.tabbed()
    holds([f"Tab does not reach {one}" for one in missed] + [f"{one} does not show its focus" for one in unseen])


@EACH
def test_without_scripts(opened, page_of, kind):
    visit = opened(page_of(kind), scripts=False)
    is_sound(visit, kind, scripts=False)
    if kind != "all":  # whose thousands of rows have nothing to reach without a script
        visit.check("thin")
        is_reached(visit)


@EACH
def test_with_scripts(opened, page_of, kind):
    visit = opened(page_of(kind))
    visit.settle()
    is_sound(visit, kind, scripts=True)
    if kind in ("few", "hostile"):
        assert '<script>alert("x")</script>' in visit.text()
        assert LONG in visit.text()
        assert visit.page.locator("img").count() == 0
    visit.check("thin")
    is_reached(visit)
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    holds(visit.check("links"))
    lengths = "() => [...document.querySelectorAll('table.sortable')].map(one => one.rows.length)"
    before = visit.page.evaluate(lengths)
    visit.page.evaluate("document.querySelectorAll('button.sort').forEach(one => { one.click(); one.click(); })")
    assert visit.page.evaluate(lengths) == before
    holds(visit.noticed)


@SHOWN
def test_it_keeps_to_the_guidelines_on_accessibility(opened, page_of, kind):
    visit = opened(page_of(kind))
    visit.unfold()
    for scheme, rules in (("dark", ["color-contrast"]), ("light", None)):  # the other rules see no colours
        visit.page.emulate_media(color_scheme=scheme)
        holds(visit.axe(rules))
        if kind in ("few", "all"):
            holds(visit.check("contrast"))
        if kind in ("few", "hostile"):
            visit.page.locator("button.record:visible").first.click()
            assert visit.page.locator("dialog[open]").count() == 1
            holds(visit.axe(rules))
            visit.page.keyboard.press("Escape")


# Controls of one make within a section do the same.
CHOSEN = """() => {
  const known = new Set();
  for (const one of document.querySelectorAll("summary, button, input, select")) {
    const where = one.closest("section")?.getAttribute("aria-labelledby") ?? one.closest("form, dialog")?.id;
    const make = [one.localName, one.className, one.name, where].join();
    if (!known.has(make)) one.setAttribute("data-chosen", "");
    known.add(make);
  }
}"""


@SHOWN
def test_every_control_can_be_used(opened, page_of, kind):
    """One of each make in each section is used: no error follows, the page fits, Escape closes what opened."""
    visit = opened(page_of(kind), width=390)
    visit.page.evaluate(CHOSEN)
    for control in visit.page.locator("[data-chosen]").all():
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


@WHOLE
def test_it_can_be_printed(opened, page_of, kind):
    visit = opened(page_of(kind))
    sheets, scale = visit.printed()
    assert all(sheets)
    assert len(sheets) > 1
    assert scale >= 0.9
    text, words = "".join(sheets), visit.printed_words()
    assert len(words) > 1
    holds([f"not on paper: {word}" for word in words if word not in text])


@WHOLE
@pytest.mark.parametrize("larger", [{"text": 2}, {"zoom": 2}], ids=["text", "page"])
def test_it_can_be_enlarged(opened, page_of, kind, larger):
    visit = opened(page_of(kind), width=1280, **larger)
    size = visit.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
    assert size >= 16 * larger.get("text", 1)
    visit.unfold()
    holds(visit.check("width"))
