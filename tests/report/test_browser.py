"""The page in a real browser: it opens without an error or a request, and shows its verdicts."""

from __future__ import annotations

import shutil
import subprocess

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--virtual-time-budget=5000",
    "--dump-dom",
]


@pytest.mark.needs("chromium")
def test_the_page_opens(tmp_path):
    from spdnn.report import render
    from tests.report.test_report import made_record, stored

    page = tmp_path / "report.html"
    render(stored(tmp_path, made_record()), [], page)
    command = [shutil.which("chromium"), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "passed verification" in done.stdout
    assert "<svg" in done.stdout
    assert "CONSOLE" not in done.stderr
