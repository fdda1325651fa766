"""The first screen: what ran, how it ended and how fast; on a desk and on a telephone, light and dark."""

import pytest
from records import BASELINES, made_record, solved, stored

from spdnn.core import challenge
from spdnn.report.rendering import RecordFolder, render

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]
full = pytest.mark.full("browser")
WORDS, BYTES, HEIGHT = 1500, 1_500_000, 9000
INSIDE = """svg => {
    const all = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll("text")]
    return texts.every(text => text.getBoundingClientRect().right <= all.right + 1)
}"""


def official(problem, reductions, seconds):
    record = solved(made_record(f"{problem.name}.{len(reductions)}", (seconds,), reductions, neurons=problem.neurons,
                                layers=problem.layers), 2.5)  # fmt: skip
    count = challenge.TRUTH_COUNT[problem.neurons]
    record["result"] |= {"categories": count, "survivors": [60_000] * (problem.layers - 1) + [count]}
    record["verdict"] |= {"categories": count, "expected": count}
    record["verdict"]["values"]["checked"] = count
    record["load"] = {"others": 0.3, "throttled": None}
    return record


@pytest.fixture(scope="module")
def twelve(tmp_path_factory):
    """The page of the twelve networks, each with the same work and with all reductions, on a busy machine."""
    folder = tmp_path_factory.mktemp("twelve")
    records = [
        official(one, on, 0.5) for one in challenge.PROBLEMS for on in (("dead",), ("dead", "inputs", "neurons"))
    ]
    render([RecordFolder(stored(folder, *records))], folder / "report.html", BASELINES)
    return folder / "report.html"


@full
def test_what_is_seen_first(opened, twelve):
    for width, height in ((1440, 900), (390, 844)):
        visit = opened(twelve, width=width, height=height)
        first = ("h1", ".ran", "#verdict", ".speed", ".tiles")
        seen = {one: visit.page.locator(one).first.bounding_box() for one in first}
        assert all(box["y"] + box["height"] < height for box in seen.values()), (width, seen)
        figure = visit.page.locator("#figure-overview svg:visible")
        assert figure.count() == 1
        box = figure.bounding_box()
        assert (box["y"] + box["height"] if width == 1440 else box["y"] + 200) < height
        assert visit.check("width") == []
        assert visit.page.locator(".tiles > div").count() == 4
        assert (
            visit.page.locator("h1").inner_text()
            == "The twelve networks of the challenge: all 24 cases passed verification"
        )
        assert "2 CPU cores" in visit.page.locator(".speed").first.inner_text()
        assert len(visit.text().split()) < WORDS
        assert width < 1440 or visit.page.evaluate("document.documentElement.scrollHeight") < HEIGHT
    assert twelve.stat().st_size < BYTES


@full
@pytest.mark.parametrize(
    "reductions", [[("dead", "inputs", "neurons")], [("dead",), ("dead", "inputs", "neurons"), ()]]
)
def test_the_legend_is_within_the_figure(opened, tmp_path, reductions):
    """Of four entries, as the default run has them, and of six."""
    records = [official(challenge.PROBLEMS[0], on, 0.5) for on in reductions]
    render([RecordFolder(stored(tmp_path, *records))], tmp_path / "report.html", BASELINES)
    for width in (1440, 390):
        figure = opened(tmp_path / "report.html", width=width).page.locator("#figure-overview svg:visible")
        assert figure.evaluate(INSIDE)


@pytest.mark.parametrize("kind", ["few", pytest.param("twelve", marks=full)])
def test_figures_follow_the_scheme(opened, page_of, request, kind):
    path = request.getfixturevalue("twelve") if kind == "twelve" else page_of(kind)
    colours = {}
    for scheme in ("light", "dark"):
        visit = opened(path, scheme=scheme)
        ink = "one => getComputedStyle(one).fill"
        colours[scheme] = visit.page.locator("#figure-overview svg:visible text").first.evaluate(ink)
        assert kind == "few" or visit.check("contrast") == []  # of few, test_browser.py checks it
    assert colours["light"] != colours["dark"]


def test_the_result_and_its_figure_are_on_the_first_screen(opened, page_of):
    for width, height in ((1440, 900), (390, 844)):
        visit = opened(page_of("few"), width=width, height=height)
        for part in ("h1", ".ran", "#verdict", ".speed", ".tiles"):
            box = visit.page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] < height, (width, part)
        figure = visit.page.locator("#figure-overview svg:visible")
        assert figure.evaluate(INSIDE)


def test_wide_tables_are_cards_on_a_telephone(opened, page_of):
    visit = opened(page_of("few"), width=390, height=844)
    visit.settle()
    cell = visit.page.locator("#twelve tbody tr").first.locator("td").first
    assert cell.evaluate("one => getComputedStyle(one, '::before').content") == '"Ours, same work"'
    box = visit.page.locator("#twelve").bounding_box()
    assert box["width"] <= 390
