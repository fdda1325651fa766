"""docs/how-to/add-a-section.md, followed: a section from outside the package is on the page, its figure in a file."""

import csv
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_report import Page, made_record, stored

from spdnn.cli import main
from spdnn.report.rendering import RecordFolder, render
from spdnn.report.sections import SECTIONS

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-section.md"
FILES = ("section.py", "template.html.j2")


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The section of the how-to, in the list."""
    *contents, entry = re.findall(r"^```\w+\n(.*?)^```", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "memory").mkdir()
    for name, content in zip(FILES, contents, strict=True):
        (tmp_path / "memory" / name).write_text(content, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(SECTIONS)
    exec(entry)
    yield
    SECTIONS[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == "memory"]:
        del sys.modules[name]


def test_a_section_of_your_own_is_on_the_page(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small, large = made_record("small"), {**made_record("large", (0.3,)), "peak_memory_bytes": 5 << 30}
    records = [str(path) for path in stored(tmp_path, small, large)]
    assert main(["report", *records, "-o", "page.html", "--figures", "figures"]) == 0
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    contents = re.findall(r'<li><a href="#(\w+)">([^<]*)</a></li>', page.source)
    assert contents[-2:] == [("memory", "Memory"), ("provenance", "Records and glossary")]
    section = page.source[page.source.index('<h2 id="memory">Memory</h2>') : page.source.index('<h2 id="provenance">')]
    assert "<p>Most was held by large: 5.0 GiB.</p>" in section
    assert "<figcaption>Resident memory at its peak. " in section
    assert 'aria-label="Peak memory by case"' in section
    with open(tmp_path / "figures/memory/peak-memory.csv", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [["case", "GiB"], ["large", "5.0"], ["small", "3.0"]]
    assert page.runs_nothing_else()


def test_a_section_without_values_is_its_sentence_or_nothing(memory, tmp_path):
    absent = replace(SECTIONS[-2], values=lambda collection: None, absent="No memory. <code>spdnn memory</code>")
    for section, sentence in ((absent, 1), (replace(absent, absent=""), 0)):
        SECTIONS[-2] = section
        render([RecordFolder(stored(tmp_path, made_record()))], tmp_path / "page.html", figures=tmp_path / "figures")
        page = (tmp_path / "page.html").read_text("utf-8")
        assert page.count("<p>No memory. <code>spdnn memory</code></p>") == sentence
        assert "#memory" not in page
        assert not (tmp_path / "figures/memory").exists()


def test_two_figures_of_one_name_are_refused(memory, tmp_path):
    SECTIONS.insert(-1, replace(SECTIONS[-2], name="again"))
    with pytest.raises(ValueError, match="section again: a figure 'peak-memory' is on the page already"):
        render([RecordFolder(stored(tmp_path, made_record()))], tmp_path / "page.html", figures=tmp_path / "figures")
