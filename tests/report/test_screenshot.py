"""The README's pictures: of the page's first screen in both schemes, both or neither, small, and where it says."""

from __future__ import annotations

import re
import struct

import pytest
import screenshot

pytestmark = pytest.mark.needs("chromium")


def size(path):
    """The width and height that a PNG tells."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


@pytest.fixture
def taken(tmp_path, monkeypatch, browser):
    """A function (report) that takes its pictures with the tests' browser, for a thread has one at a time."""
    from contextlib import nullcontext

    monkeypatch.setattr(screenshot, "chromium", lambda: nullcontext(browser))
    return lambda report, name="page.png": screenshot.main([str(report), str(tmp_path / name)])


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_both_schemes_are_taken(taken, page_of, tmp_path, capsys):
    assert taken(page_of("one")) == 0
    assert files(tmp_path) == ["page-dark.png", "page.png"]
    light, dark = tmp_path / "page.png", tmp_path / "page-dark.png"
    assert size(light) == size(dark) == (1440, 900)
    assert light.read_bytes() != dark.read_bytes()
    assert 10_000 < light.stat().st_size <= screenshot.LARGEST
    assert f"page.png: {light.stat().st_size:,} bytes" in capsys.readouterr().out


def test_both_or_neither(taken, page_of, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(screenshot, "LARGEST", 1000)
    (tmp_path / "page.png").write_text("before")
    assert taken(page_of("one")) == 1
    assert files(tmp_path) == ["page.png"]
    assert (tmp_path / "page.png").read_text() == "before"
    assert "of 1,000 allowed" in capsys.readouterr().err


def test_what_cannot_be_taken_is_told_in_a_sentence(taken, page_of, tmp_path, monkeypatch, capsys):
    assert taken(tmp_path / "gone.html") == 1
    assert "there is no such report (`make run` makes results/report.html)" in capsys.readouterr().err
    assert taken(page_of("one"), "page.jpg") == 1
    assert "its name ends in .png" in capsys.readouterr().err
    (tmp_path / "loud.html").write_text("<script>undefined.part</script>")
    assert taken(tmp_path / "loud.html") == 1
    assert "not a report that is at rest; error: " in capsys.readouterr().err
    monkeypatch.setattr(screenshot.shutil, "which", lambda name: None)
    assert taken(page_of("one")) == 1
    assert "install the Debian package chromium" in capsys.readouterr().err
    assert files(tmp_path) == ["loud.html"]


def test_the_readme_shows_what_make_screenshot_writes(root):
    shown = re.findall(r'src(?:set)?="(docs/[^"]+)"', (root / "README.md").read_text())
    assert shown == ["docs/report-dark.png", "docs/report.png"]
    assert "tests/report/screenshot.py results/report.html docs/report.png" in (root / "Makefile").read_text()
    for name in shown:
        assert size(root / name) == (1440, 900)
        assert (root / name).stat().st_size <= screenshot.LARGEST
