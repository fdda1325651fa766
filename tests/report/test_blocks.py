"""Blocks as HTML: texts of records stay texts everywhere; anchors, files, rows left off, values behind numbers."""

from html.parser import HTMLParser

import pytest
from records import HOSTILE, Page, made_record, shown

from spdnn.core.table import NUMBER, RATE, SECONDS, SHORT, Column, Number, Styled, Table, bad, code
from spdnn.report.common.blocks import Bullets, Fold, Paragraph, Part, Section, Terms, Tiles, Writer, link, term
from spdnn.report.common.drawing import Drawing, Figure

TABLE = Table(
    "Rates",
    [Column("Name", lambda row: row[0]), Column("Rate", lambda row: row[1], RATE), Column("Never", lambda row: None)],
    record=lambda row: row[2],
)


def written(*blocks, **settings):
    return Page(Writer(**settings).blocks(blocks))


H, FIGURE = HOSTILE, Figure("f", HOSTILE, HOSTILE, None, (HOSTILE,), [(HOSTILE,)])


@pytest.mark.parametrize(
    "block",
    [
        Paragraph(H, name=H), Paragraph((bad(H), [H, code(H)])), Paragraph(Styled(H, "soft", f"#{H}", H, H, H)),
        Part(H, [Paragraph("x")], H), Fold(H, [Paragraph(H)], H), Terms([(H, H)], anchored=True), Bullets([H, H]),
        Tiles([(H, H, H, H)]), TABLE.of([(H, Number(1.0, RATE, H), None)], title=H, caption=H, name=H), FIGURE,
        Table(H, [Column(H, lambda row: row, below=lambda row: row)], H, H).of([H]),
    ],
)  # fmt: skip
def test_hostile_texts_stay_texts(block):
    page = written(block, drawings={"f": Drawing("f", "x", H, H, "<svg></svg>", H)})
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    shown_texts = page.text + "".join(value or "" for _, attrs in page.tags for value in attrs.values())
    assert "alert(" in shown_texts


def test_a_page_of_hostile_records_runs_nothing_but_its_own_script():
    record = made_record(f"{HOSTILE}</script><!--")
    record["engine"]["name"], record["environment"]["commit"] = HOSTILE[:60], HOSTILE
    page = shown([record, made_record("other", (0.5,), official=False)], figures=True)
    assert page.runs_nothing_else()
    assert "<script>alert(" in page.text
    for _, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "srcset", "action", "data"):
            # What a link holds is inside it, and is saved, not opened.
            held = "download" in attrs and (attrs[name].startswith("data:") if name in attrs else True)
            assert held or (attrs.get(name) or "#").startswith("#")


class Nesting(HTMLParser):
    """The paths of elements to each text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.paths = [], {}
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.paths[data.strip()] = self.open[:]


def test_blocks_are_nested_and_closed():
    blocks = [Part("head", [Fold("sum", [Terms([("name", "meaning")]), Bullets(["one"])]), TABLE.of([("a", 1e12, 0)])])]
    nesting = Nesting(Writer().blocks(blocks))
    assert nesting.open == []
    assert nesting.paths["head"] == ["section", "h3"]
    assert nesting.paths["meaning"] == ["section", "details", "dl", "dd"]
    assert nesting.paths["one"] == ["section", "details", "ul", "li"]
    assert nesting.paths["a"] == ["section", "details", "div", "table", "tbody", "tr", "th"]
    figures = [FIGURE, Figure("g", "", "", None, (), ())]
    nested = Section("x", "X", [Part("", [Fold("", [FIGURE])]), figures[1]])
    assert [figure.name for figure in nested.every(Figure)] == ["f", "g"]


def test_a_term_leads_to_its_meaning():
    page = written(
        Paragraph(term("Same work")), Terms([("Same work", "x"), ("Machine's limit, all", "y")], anchored=True)
    )
    (anchor,) = page.all("a")
    ids = [attrs["id"] for attrs in page.all("dt")]
    assert anchor["href"] == f"#{ids[0]}" == "#term-same-work"
    assert ids[1] == "term-machines-limit-all"


def test_a_link_holds_its_file():
    held = link("a.csv", "x,y\n1,2\n", "text/csv")
    (anchor,) = written(Paragraph(Styled("a.csv", href=held["href"], file=held["name"], name="table"))).all("a")
    assert (anchor["download"], anchor["id"]) == ("a.csv", "table")
    assert anchor["href"].startswith("data:text/csv;charset=utf-8;base64,")


def test_rows_beyond_the_most_are_left_off_and_counted():
    page = written(TABLE.of([(f"row-{k}", 1e12, k) for k in range(7)], most=5, name="mine"))
    assert [attrs["data-record"] for attrs in page.all("tr")[1:]] == ["0", "1", "2", "3", "4"]
    assert "2 more rows left off here; all are in the records." in page.text
    assert ({"id": "table-mine"}.items() <= page.all("details")[0].items(), page.all("table")[0]["id"]) == (
        True,
        "mine",
    )
    (named,) = page.all("table")
    assert named["aria-label"] == "Rates"  # for it has no caption
    assert "left off" not in written(TABLE.of([("a", 1e12, None)])).text
    assert "data-record" not in written(TABLE.of([("a", 1e12, None)])).source


def test_numbers_carry_their_values_and_the_unit_that_a_reader_may_choose():
    rows = [("a", 2.5e9, 0), ("b", None, 1)]
    page = written(Paragraph((Number(1 / 3, SECONDS), " ", SHORT, " ", 7)), TABLE.of(rows), rates=(1e9, "GigaEdges/s"))
    assert page.values == [0.333333333333, 7, 2.5e9]
    assert [attrs.get("data-unit") for attrs in page.all("data")] == ["seconds", None, "rate"]
    assert "0.3333 s 7" in page.text
    assert "Rate, GigaEdges/s" in page.text
    assert "2.500" in page.text
    assert "Never" not in page.text
    assert page.text.count("–") == 1
    assert written(Paragraph(Number(5, NUMBER, "five"))).text.strip() == "five"


def test_a_figure_that_is_not_drawn_is_left_out_and_a_narrow_one_is_for_telephones():
    assert written(FIGURE).source == ""
    both = Drawing("f", "x", "title", "caption", "<svg>wide</svg>", "x\n1\n", "<svg>small</svg>")
    page = written(FIGURE, drawings={"f": both})
    assert [attrs.get("class") for attrs in page.all("div")] == ["scroll", "wide", "narrow"]
    assert page.all("figure") == [{"id": "figure-f"}]
    assert page.all("a")[0]["download"] == "f.csv"
