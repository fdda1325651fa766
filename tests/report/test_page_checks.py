"""The checks of pages find what they are for: each on a page with one fault, and none on a page without any."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.needs("chromium")

FIGURE = (
    '<figure><div tabindex="0" role="region" aria-label="A figure" style="overflow-x: auto"><svg role="img" '
    'aria-label="Rates" viewBox="0 0 700 90" style="min-width: 600px"><title>Rates</title><defs><path id="way" '
    'd="M0 0h9"/></defs><rect width="700" height="90" fill="#fff"/><use href="#way"/><text id="label" x="9" y="40" '
    'fill="#333">label</text></svg></div><figcaption>What it shows</figcaption></figure>'
)
TABLE = (
    "<table><caption>Times</caption><thead><tr><th scope='col'>Case</th><th scope='col'>Seconds</th></tr></thead>"
    "<tbody><tr><th scope='row'>one</th><td>12</td></tr></tbody></table>"
)
MARKED = (
    "<main><h1>Head</h1><nav aria-label='Sections'><a href='#end'>End</a></nav><h2>Figures</h2>" + FIGURE + "<h2>Tables"
    "</h2>" + TABLE + "<details><summary>More</summary><p>text</p></details><p style='height: 3000px'>tall</p>"
    "<h2 id='end'>End</h2></main>"
)


@pytest.fixture
def shown(opened, tmp_path):
    """A function (body, settings of `visit`) that opens a page with that body."""

    def found(body, **settings):
        path = tmp_path / "page.html"
        head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'><title>Page"
        path.write_text(f"<!doctype html><html lang='en'><head>{head}</title></head><body>{body}</body></html>")
        return opened(path, **settings)

    return found


CHECKS = ("width", "figures", "tables", "ids", "references", "headings", "idle", "contrast")


@pytest.mark.parametrize("scripts", [True, False])
def test_a_sound_page_has_no_fault(shown, scripts):
    visit = shown(MARKED, width=390, scripts=scripts)
    visit.unfold()
    assert {name: visit.check(name) for name in CHECKS} == {name: [] for name in CHECKS}
    assert visit.tabbed() == ([], [])
    assert visit.noticed == []
    if scripts:
        assert visit.check("links") == []
        assert visit.axe() == []


@pytest.mark.parametrize(
    ("check", "old", "new", "told"),
    [
        ("width", "<p>text</p>", "<div id=wide style='width: 500px'>wide</div>", "<div#wide>"),
        ("width", "<p>text</p>", "<p>" + "word" * 99 + "</p>", "<p>"),
        ("width", "<p>text</p>", "<div style='overflow: hidden'><p style='width: 900px'>x</p></div>", "hides what"),
        ("figures", "<figcaption>What it shows</figcaption>", "", "has no caption"),
        ("figures", "<title>Rates</title>", "", "has no <title>"),
        ("figures", "<text", "<text visibility='hidden'", "shows no text"),
        ("figures", "<text", "<text display='none'", "shows no text"),
        ("figures", 'fill="#333"', 'fill="none"', "shows no text"),
        ("figures", "<h2>Tables", "<svg role='img'><path d='M0 0h9'/></svg><h2>Tables", "has no name"),
        ("tables", "<caption>Times</caption>", "", "neither a caption nor a name"),
        ("tables", "<th scope='row'>one", "<th>one", "has no scope"),
        ("tables", TABLE, "<table aria-label='None'><tr><td>1</td></tr></table>", "has no header"),
        ("ids", "<p>text</p>", "<p id='end'>text</p>", "occurs twice"),
        ("references", "href='#end'", "href='#gone'", "#gone"),
        ("references", 'href="#way"', 'xlink:href="#gone"', "#gone"),
        ("references", "<p>text</p>", "<p aria-labelledby='end gone'>text</p>", "#gone"),
        ("references", 'fill="#333"', 'fill="url(#gone)"', "#gone"),
        ("links", "href='#end'", "href='#gone'", "leads nowhere"),
        ("links", "<h2 id='end'>", "<h2 id='end' hidden>", "leads nowhere"),
        ("headings", "<h2>Tables</h2>", "<h4>Tables</h4>", "comes after h2"),
        ("headings", "<h1>Head</h1>", "", "comes after h0"),
        ("headings", "<h2>Tables</h2>", "<h1>Tables</h1>", "second h1"),
        ("headings", "<h2>Tables</h2>", "<h2> </h2>", "is empty"),
        ("idle", "<p>text</p>", "<button>Sort</button>", "does nothing"),
        ("contrast", 'fill="#333"', 'fill="#888"', "has a contrast of 3.5"),
        ("contrast", 'fill="#333"', 'fill="#333" opacity="0.5"', "has a contrast of"),
        ("contrast", 'fill="#fff"', 'fill="#555"', "has a contrast of 1.6"),
        ("contrast", "min-width: 600px", "filter: contrast(0.3)", "has a contrast of"),
    ],
)
def test_a_check_finds_its_fault(shown, check, old, new, told):
    assert old in MARKED
    visit = shown(MARKED.replace(old, new), width=390)
    visit.unfold()
    found = visit.check(check)
    assert any(told in one for one in found), found


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("<script>console.log('seen')</script>", "console log: seen"),
        ("<script>undefined.part</script>", "error: "),
        ("<script>setTimeout(() => { throw Error('late') }, 20)</script>", "error: late"),
        ("<script>alert('stop')</script>", "dialog: stop"),
        ("<script>fetch('http://127.0.0.1:9/data').catch(() => 0)</script>", "request: http://127.0.0.1:9/data"),
        ("<script>new WebSocket('ws://127.0.0.1:9/socket')</script>", "request: ws://127.0.0.1:9/socket"),
        ("<img src='other.png' alt=''>", "/other.png"),
        ("<style>body { background: url(http://127.0.0.1:9/a.png) }</style>", "request: http://127.0.0.1:9/a.png"),
        ("<script src='other.js'></script>", "/other.js"),
        (
            "<meta http-equiv='Content-Security-Policy' content=\"script-src 'none'\"><script>1</script>",
            "console error",
        ),
    ],
)
def test_what_a_page_does_is_noticed(shown, body, told):
    visit = shown(body)
    visit.page.wait_for_timeout(100)
    assert any(told in one for one in visit.noticed), visit.noticed


def test_scripts_can_be_off(shown):
    body = "<p>before</p><script>document.body.textContent = 'after'; console.log('ran')</script>"
    assert shown(body).text().strip() == "after"
    still = shown(body, scripts=False)
    assert "before" in still.text()
    assert still.noticed == []


def test_axe_finds_pale_text(shown):
    body = "<main><h1>Head</h1><p style='color: #999; background: #fff'>pale</p></main>"
    assert any(one.startswith("color-contrast: p") for one in shown(body).axe())
    assert not shown(body.replace("#999", "#333")).axe()


@pytest.mark.parametrize(
    ("body", "missed"),
    [
        ("<button tabindex='-1'>Sort</button>", "<button>"),
        ("<a href='#x' tabindex='-1'>x</a>", "<a>"),
        ("<div style='overflow: auto' tabindex='-1'><p style='width: 3000px'>x</p></div>", "<div>"),
        ("<button onfocus='this.blur()'>Sort</button><button>Next</button>", "<button>"),
    ],
)
def test_what_the_keyboard_misses(shown, body, missed):
    found, _ = shown(f"<a href='#a'>first</a>{body}").tabbed()
    assert len(found) >= 1
    assert any(one.startswith(missed) for one in found)


def test_a_focus_that_cannot_be_seen(shown):
    body = "<button class='plain'>1</button><button>2</button><button class='tinted'>3</button>"
    hidden = "<style>:focus-visible { outline: none } .tinted:focus { background: #06c }</style>"
    assert shown(body).tabbed() == ([], [])
    assert shown(hidden + body).tabbed() == ([], ['<button.plain> "1"', '<button> "2"'])


@pytest.mark.parametrize(("overflow", "shrunk"), [("auto", 1), ("visible", 2 / 3)])
def test_what_is_cut_off_on_paper(shown, overflow, shrunk):
    cells = "".join(f"<td>a-column-{place}-of-words</td>" for place in range(40))
    table = f"<div style='overflow: {overflow}'><table><tr>{cells}</tr></table></div>"
    visit = shown(f"<h1>Head</h1>{table}<p>efficient office</p>")
    (sheets, scale), words = visit.printed(), visit.printed_words()
    text = "".join(sheets)
    assert scale == pytest.approx(shrunk)
    assert len(words) == 41
    assert {"Head", "a-column-0-of-words"} <= {word for word in words if word in text}
    assert "a-column-39-of-words" not in text
    assert "efficientoffice" in text


def test_what_is_long_takes_several_sheets(shown):
    sheets, scale = shown("<p style='height: 5000px'>long</p><p>end</p>").printed()
    assert len(sheets) > 1
    assert sheets[-1] == "end"
    assert scale == pytest.approx(1)


def test_letters_and_pages_are_enlarged(shown):
    size = "[parseFloat(getComputedStyle(document.documentElement).fontSize), innerWidth, devicePixelRatio]"
    assert shown("x", width=1280).page.evaluate(size) == [16, 1280, 1]
    assert shown("x", width=1280, text=2).page.evaluate(size) == [32, 1280, 1]
    assert shown("x", width=1280, zoom=2).page.evaluate(size) == [16, 640, 2]


def test_the_colour_scheme_is_the_readers(shown):
    dark = "matchMedia('(prefers-color-scheme: dark)').matches"
    assert not shown("x").page.evaluate(dark)
    assert shown("x", scheme="dark").page.evaluate(dark)
