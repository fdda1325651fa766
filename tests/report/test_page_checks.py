"""The checks of pages find what they are for: each its faults on one page that has all, and none on a sound page."""

import pytest

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser"), pytest.mark.full("browser")]

FIGURE = (
    '<figure><div tabindex="0" role="region" aria-label="A figure" style="overflow-x: auto"><svg role="img" '
    'aria-label="Rates" viewBox="0 0 700 90" style="min-width: 600px"><title>Rates</title><defs><path id="way" '
    'd="M0 0h9"/></defs><rect width="700" height="90" fill="#fff"/><use href="#way"/><text x="9" y="40" '
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
CHECKS = ("width", "telling", "figures", "tables", "ids", "references", "headings", "idle", "contrast")
# Of each check: what has the fault, and what is told of it.
FAULTS = {
    "width": {
        "<div id=wide style='width: 500px'>wide</div>": "<div#wide>",
        "<div style='overflow: hidden'><p style='width: 900px'>x</p></div>": "hides what",
    },
    "telling": {f"<section><p>{'word ' * 121}</p>{FIGURE}</section>": "121 words before its first figure"},
    "figures": {
        FIGURE.replace("<figcaption>What it shows</figcaption>", ""): "has no caption",
        FIGURE.replace("<title>Rates</title>", ""): "has no <title>",
        FIGURE.replace("<text", "<text visibility='hidden'"): "shows no text",
        "<svg role='img'><path d='M0 0h9'/></svg>": "has no name",
    },
    "tables": {
        "<table><tr><td>1</td></tr></table>": "has no header",
        "<table><caption>Times</caption><tr><th>one</th></tr></table>": "has no scope",
        "<table><tr><th scope='row'>one</th></tr></table>": "neither a caption nor a name",
    },
    "ids": {"<p id='same'></p><p id='same'></p>": "occurs twice"},
    "references": {
        "<a href='#gone-1'>x</a>": "#gone-1",
        "<svg aria-label='x'><use xlink:href='#gone-2'/><text fill='url(#gone-3)'>x</text></svg>": "#gone-2",
        "<p></p>": "#gone-3",
        "<p aria-labelledby='same gone-4'>text</p>": "#gone-4",
    },
    "links": {"<h2 id='end' hidden>End</h2><a href='#end'>End</a>": "leads nowhere"},
    "headings": {"<h4>Deep</h4>": "comes after h2", "<h1>Head</h1>": "second h1", "<h2> </h2>": "is empty"},
    "idle": {"<button>Sort</button>": "does nothing"},
    "contrast": {
        FIGURE.replace("#333", "#888"): "has a contrast of 3.5",
        FIGURE.replace('fill="#333"', 'fill="#333" opacity="0.5"'): "has a contrast of 2.8",
        FIGURE.replace("#fff", "#555"): "has a contrast of 1.6",
        FIGURE.replace("min-width: 600px", "filter: contrast(0.3)"): "has a contrast of 1.",
    },
}
DONE = {
    "<script>console.log('seen')</script>": "console log: seen",
    "<script>undefined.part</script>": "error: Cannot read",
    "<script>setTimeout(() => { throw Error('late') })</script>": "error: late",
    "<script>alert('stop')</script>": "dialog: stop",
    "<script>fetch('http://127.0.0.1:9/data').catch(() => 0)</script>": "request: http://127.0.0.1:9/data",
    "<script>new WebSocket('ws://127.0.0.1:9/socket')</script>": "request: ws://127.0.0.1:9/socket",
    "<img src='other.png' alt=''>": "/other.png",
    "<style>body { background: url(http://127.0.0.1:9/a.png) }</style>": "request: http://127.0.0.1:9/a.png",
    "<script src='other.js'></script>": "/other.js",
}


@pytest.fixture
def shown(opened, tmp_path):
    """A function (body, settings of `visit`) that opens a page with that body."""

    def found(body, **settings):
        path = tmp_path / "page.html"
        head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'><title>Page"
        path.write_text(f"<!doctype html><html lang='en'><head>{head}</title></head><body>{body}</body></html>")
        return opened(path, **settings)

    return found


def test_a_sound_page_has_no_fault(shown):
    for scripts in (False, True):
        visit = shown(MARKED, width=390, scripts=scripts)
        visit.unfold()
        assert {name: visit.check(name) for name in CHECKS} == {name: [] for name in CHECKS}
        assert visit.tabbed() == ([], [])
        assert visit.noticed == []
    assert visit.check("links") == []
    assert visit.axe() == []
    assert visit.printed()[1] == pytest.approx(1)


def test_each_check_finds_its_faults(shown):
    pale = "<p id='pale' style='color: #999; background: #fff'>pale</p>"
    visit = shown(
        "<h1>Head</h1><h2>Part</h2>" + "".join(part for one in FAULTS.values() for part in one) + pale, width=390
    )
    found = {name: visit.check(name) for name in FAULTS}
    missed = [told for name, faults in FAULTS.items() for told in faults.values() if told not in " ".join(found[name])]
    assert not missed, found
    assert any(one.startswith("color-contrast: #pale") for one in visit.axe())


def test_what_a_page_does_is_noticed_and_scripts_can_be_off(shown):
    visit = shown("".join(DONE))
    visit.settle()
    assert not [told for told in DONE.values() if not any(told in one for one in visit.noticed)], visit.noticed
    still = shown(
        "<p>before</p><script>document.body.textContent = 'after'; console.log('ran')</script>", scripts=False
    )
    assert "before" in still.text()
    assert still.noticed == []


def test_what_the_keyboard_misses_and_what_cannot_be_seen(shown):
    missed = [
        "<button tabindex='-1'>1</button>",
        "<a href='#x' tabindex='-1'>2</a>",
        "<button onfocus='this.blur()'>3</button>",
    ]
    missed.insert(2, "<div style='overflow: auto' tabindex='-1'><p style='width: 3000px'>x</p></div>")
    found, _ = shown(f"<a href='#a'>first</a>{''.join(missed)}<button>Next</button>").tabbed()
    assert [one.partition(">")[0] for one in found[:4]] == ["<button", "<a", "<div", "<button"]
    hidden = "<style>:focus-visible { outline: none } .tinted:focus { background: #06c }</style>"
    body = "<button class='plain'>1</button><button>2</button><button class='tinted'>3</button>"
    assert shown(hidden + body).tabbed() == ([], ['<button.plain> "1"', '<button> "2"'])


def test_what_is_cut_off_on_paper(shown):
    cells = "".join(f"<td>a-column-{place}-of-words</td>" for place in range(40))
    visit = shown(
        f"<h1>Head</h1><table><tr>{cells}</tr></table><p style='height: 5000px'>efficient office</p><p>end</p>"
    )
    (sheets, scale), words = visit.printed(), visit.printed_words()
    text = "".join(sheets)
    assert scale == pytest.approx(2 / 3)
    assert len(words) == 41
    assert {"Head", "a-column-0-of-words"} <= {word for word in words if word in text}
    assert "a-column-39-of-words" not in text
    assert "efficientoffice" in text
    assert sheets[1:]
    assert sheets[-1] == "end"


def test_letters_pages_and_schemes_are_the_readers(shown):
    size = "[parseFloat(getComputedStyle(document.documentElement).fontSize), innerWidth, devicePixelRatio]"
    assert shown("x", width=1280, text=2).page.evaluate(size) == [32, 1280, 1]
    zoomed = shown("x", width=1280, zoom=2, scheme="dark")
    assert zoomed.page.evaluate(size) == [16, 640, 2]
    assert zoomed.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
