"""The README's pictures: of the page's first screen in both schemes, both or neither, small, and where it says."""

import contextlib
import re
import struct

import pytest
import screenshot

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.xdist_group("browser")]


def size(path):
    """The width and height that a PNG tells."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", data[16:24])


def test_both_schemes_are_taken_or_neither(tmp_path, monkeypatch, capsys, browser):
    # The tests' own browser: a thread has one at a time.
    monkeypatch.setattr(screenshot, "chromium", lambda: contextlib.nullcontext(browser))
    light, dark = tmp_path / "page.png", tmp_path / "page-dark.png"

    def refused(report, output=light):
        before = sorted(tmp_path.iterdir())
        assert screenshot.main([str(report), str(output)]) == 1
        assert sorted(tmp_path.iterdir()) == before
        return capsys.readouterr().err

    assert "there is no such report (`make run` makes results/report.html)" in refused(tmp_path / "gone.html")
    calm = tmp_path / "calm.html"
    calm.write_text("<style>@media (prefers-color-scheme: dark) { body { background: black } }</style><p>words</p>")
    assert "its name ends in .png" in refused(calm, tmp_path / "page.jpg")
    (tmp_path / "loud.html").write_text("<script>undefined.part</script>")
    assert "not a report that is at rest; error: " in refused(tmp_path / "loud.html")
    with monkeypatch.context() as changed:
        changed.setattr(screenshot, "LARGEST", 1000)
        assert "of 1,000 allowed" in refused(calm)
    assert screenshot.main([str(calm), str(light)]) == 0
    assert size(light) == size(dark) == (1440, 900)
    assert light.read_bytes() != dark.read_bytes()
    assert f"page.png: {light.stat().st_size:,} bytes" in capsys.readouterr().out


def test_the_page_about_the_report_shows_what_make_screenshot_writes(root):
    shown = re.findall(r"!\[.*\]\(\.\./(report.*png)\)", (root / "docs/how-to/read-the-report.md").read_text())
    assert shown == ["report.png"]
    shown = [f"docs/{name}" for name in (*shown, "report-dark.png")]
    assert "tests/report/screenshot.py results/report.html docs/report.png" in (root / "Makefile").read_text()
    for name in shown:
        assert size(root / name) == (1440, 900)
        assert (root / name).stat().st_size <= screenshot.LARGEST
