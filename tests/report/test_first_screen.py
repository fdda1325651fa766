"""The first screen: the result and its figure are seen at once on a desk and on a telephone, light and dark."""

import pytest
from records import BASELINES, made_record, solved, stored

from spdnn.core import challenge
from spdnn.report.rendering import RecordFolder, render

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]
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
    kinds = ("dead",), ("dead", "inputs", "neurons")
    records = [official(one, on, 0.5) for one in challenge.PROBLEMS for on in kinds]
    render([RecordFolder(stored(folder, *records))], folder / "report.html", BASELINES)
    return folder / "report.html"


@pytest.mark.parametrize("kind", ["few", pytest.param("twelve", marks=pytest.mark.full("browser"))])
def test_the_result_and_its_figure_are_seen_first(opened, page_of, request, kind):
    path, colours = request.getfixturevalue("twelve") if kind == "twelve" else page_of(kind), set()
    for width, height, scheme in ((1440, 900, "light"), (390, 844, "dark")):
        visit = opened(path, width=width, height=height, scheme=scheme)
        for part in ("h1", ".ran", "#verdict", ".speed", ".tiles"):
            box = visit.page.locator(part).first.bounding_box()
            assert box["y"] + box["height"] < height, (width, part)
        (figure,) = visit.page.locator("#figure-overview svg:visible").all()
        assert figure.evaluate(INSIDE)  # the legend too
        colours.add(figure.locator("text").first.evaluate("one => getComputedStyle(one).fill"))
        if kind == "twelve":
            box = figure.bounding_box()
            assert (box["y"] + box["height"] if width == 1440 else box["y"] + 200) < height
            assert visit.check("width") == visit.check("contrast") == []
            assert len(visit.text().split()) < WORDS
            assert width < 1440 or visit.page.evaluate("document.documentElement.scrollHeight") < HEIGHT
    assert len(colours) == 2
    assert path.stat().st_size < BYTES or kind == "few"


def test_wide_tables_are_cards_on_a_telephone(opened, page_of):
    visit = opened(page_of("few"), width=390, height=844)
    visit.settle()
    cell = visit.page.locator("#twelve tbody tr").first.locator("td").first
    assert cell.evaluate("one => getComputedStyle(one, '::before').content") == '"Ours, same work"'
    assert visit.page.locator("#twelve").bounding_box()["width"] <= 390
