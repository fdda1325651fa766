"""docs/how-to/add-a-section.md, followed: one file of at most 60 lines and one line more make a section of the page."""

import csv
import importlib
import re
import sys
from pathlib import Path

import pytest
from records import Page, made_record, stored

from spdnn.cli import main
from spdnn.report.rendering import RecordFolder, render
from spdnn.report.sections import SECTIONS

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-section.md"
MOST_LINES = 60


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The section of the how-to, in the list."""
    content, entry = re.findall(r"^```python\n(.*?)^```", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert content.count("\n") <= MOST_LINES
    assert entry.count("\n") == 1
    (tmp_path / "memory.py").write_text(content, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module, before = importlib.import_module("memory"), list(SECTIONS)
    exec(entry, {"SECTIONS": SECTIONS})
    yield module
    SECTIONS[:] = before
    del sys.modules["memory"]


def test_a_section_of_your_own_is_on_the_page(memory, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small, large = made_record("small"), {**made_record("large", (0.3,)), "peak_memory_bytes": 5 << 30}
    records = [str(path) for path in stored(tmp_path, small, large)]
    assert main(["report", *records, "-o", "page.html", "--figures", "figures"]) == 0
    page = Page((tmp_path / "page.html").read_text("utf-8"))
    links = re.findall(r'<li><a href="#(\w+)">([^<]*)</a></li>', page.source)
    assert links[-2:] == [("memory", "Memory"), ("provenance", "Records and glossary")]
    assert "Most was held by large: 5.0 GiB." in page.text
    assert "Resident memory at its peak. " in page.text
    with open(tmp_path / "figures/memory/peak-memory.csv", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [["case", "GiB"], ["large", "5.0"], ["small", "3.0"]]
    assert page.runs_nothing_else()
    capsys.readouterr()
    assert main(["report", *records, "--print", "memory"]) == 0
    assert [line.split()[-4:] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        ["5.0", "GiB", "8.0", "GiB"], ["3.0", "GiB", "8.0", "GiB"],
    ]  # fmt: skip


def test_a_section_without_anything_to_show_is_its_sentence_or_nothing(memory, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "section", lambda collection: None)
    for sentence in ("", "No memory."):
        monkeypatch.setattr(memory, "ABSENT", sentence, raising=False)
        render([RecordFolder(stored(tmp_path, made_record()))], tmp_path / "page.html", figures=tmp_path / "figures")
        page = (tmp_path / "page.html").read_text("utf-8")
        assert page.count("<p>No memory.</p>") == bool(sentence)
        assert "#memory" not in page
        assert not (tmp_path / "figures/memory").exists()


def test_two_figures_of_one_name_are_refused(memory, tmp_path):
    SECTIONS.insert(-1, "memory")
    with pytest.raises(ValueError, match="section memory: a figure 'peak-memory' is on the page already"):
        render([RecordFolder(stored(tmp_path, made_record()))], tmp_path / "page.html", figures=tmp_path / "figures")
