"""Debian's Chromium, headless: it opens one page and notes whatever the page does besides being there."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

# A test as root has no sandbox. The feature lets checks.js ask what name assistive technology is told.
FLAGS = [
    "--no-sandbox",
    "--enable-blink-features=ComputedAccessibilityInfo",
    "--disable-features=SpareRendererForSitePerProcess",
]
CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PATIENCE = 120_000  # milliseconds that any one thing may take on a busy machine
CSS_PIXELS_A_POINT = 96 / 72
PRINTED = {"format": "A4", "margin": dict.fromkeys(("top", "right", "bottom", "left"), "10mm")}


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, until the block ends."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS, timeout=PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One page, open by itself, without a network.

    Attributes:
        page: Playwright's page.
        noticed: what a quiet page never does, each as one sentence: console messages, errors, requests.
    """

    def __init__(self, page: Page, path: Path):
        self.page, self.own, self.noticed = page, path.resolve().as_uri(), []
        self._heard = {
            "console": lambda message: self.noticed.append(f"console {message.type}: {message.text}"),
            "pageerror": lambda error: self.noticed.append(f"error: {error}"),
            "dialog": self._asked,
            "websocket": lambda socket: self.noticed.append(f"request: {socket.url}"),
            "request": self._requested,
        }
        for event, heard in self._heard.items():
            page.on(event, heard)

    def leave(self) -> None:
        """Leave the page empty and unheard."""
        for event, heard in self._heard.items():
            self.page.remove_listener(event, heard)
        self.page.goto("about:blank")

    def _asked(self, dialog) -> None:
        self.noticed.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        address = request.url.partition("#")[0]
        if address != self.own and not address.startswith(("blob:", "data:")):  # these two are within the page
            self.noticed.append(f"request: {address}")

    def check(self, name: str) -> list[str]:
        """What the check `name` of checks.js finds wrong, one sentence each."""
        return self.page.evaluate(f"name => ({CHECKS})[name]()", name)

    def settle(self) -> None:
        """Return when what the page does after it was loaded is done, timers of no delay included."""
        later = "() => new Promise(done => requestAnimationFrame(() => requestIdleCallback(() => setTimeout(done))))"
        self.page.evaluate(later)

    def unfold(self) -> None:
        """Open every <details>, so that nothing is hidden from the checks."""
        self.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")

    def text(self) -> str:
        """What a reader sees of the page."""
        return self.page.locator("body").inner_text()

    def axe(self, rules: list[str] | None = None) -> list[str]:
        """The violations that axe-core finds of some rules, or of RULES; it needs scripts, and leaves of each table two
        rows of each make.
        """
        from axe_playwright_python.sync_playwright import Axe

        self.check("thin")
        found = (
            Axe()
            .run(self.page, options={"runOnly": rules or RULES, "resultTypes": ["violations"]})
            .response["violations"]
        )
        return [
            f"{rule['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    def tabbed(self) -> tuple[list[str], list[str]]:
        """Press Tab until the focus is back where it began.

        Returns:
            what ought to be reached and was not; what was reached and shows no focus.
        """
        wanted = self.check("stops")
        self.page.evaluate("document.activeElement.blur()")
        reached, unseen = set(), set()
        for _ in range(2 * len(wanted) + 20):
            self.page.keyboard.press("Tab")
            here = self.page.evaluate(f"() => ({CHECKS}).focused()")
            if here is None or here["stop"] in reached:
                break
            reached.add(here["stop"])
            if not here["seen"]:
                unseen.add(here["name"])
        return [name for place, name in enumerate(wanted) if str(place) not in reached], sorted(unseen)

    def printed(self) -> tuple[list[str], float]:
        """The page on A4.

        Returns:
            the text of each sheet, without white space and ligatures; the least size at which a sheet was printed (1:
            as it is), for Chromium shrinks a page that is too wide down to 2/3, and what is wider still is cut off.
        """
        import pypdf

        sheets, scales = [], {}
        for number, sheet in enumerate(pypdf.PdfReader(io.BytesIO(self.page.pdf(**PRINTED))).pages):

            def seen(text, matrix, *_, sheet=number):
                if text.strip():
                    scales[sheet] = max(matrix[0] * CSS_PIXELS_A_POINT, scales.get(sheet, 0))

            sheets.append(re.sub(r"\s", "", normalize("NFKC", sheet.extract_text(visitor_text=seen))))
        return sheets, min(scales.values())

    def printed_words(self) -> list[str]:
        """The words of headings, captions and cells that must be on paper."""
        self.page.emulate_media(media="print")
        return [normalize("NFKC", word) for word in self.page.evaluate(f"() => ({CHECKS}).words()")]


@contextlib.contextmanager
def visit(
    browser: Browser,
    path: Path,
    *,
    width: int = 1440,
    height: int = 900,
    scheme: str = "light",
    scripts: bool = True,
    zoom: float = 1,
    text: float = 1,
) -> Iterator[Visit]:
    """The page, until the block ends.

    Args:
        path: an .html file.
        width, height: of the window, in CSS pixels without zoom.
        scheme: "light" or "dark".
        scripts: whether the page's scripts run. Without them, promises do not either: no `axe`.
        zoom: of the whole page, as Ctrl and + do.
        text: of the text alone: the reader's own size of letters, as a multiple of 16 pixels.
    """
    free = POOL.setdefault(browser, {}).setdefault((scripts, zoom, text), [])
    page = free.pop() if free else _page(browser, scripts, zoom, text)
    page.set_viewport_size({"width": round(width / zoom), "height": round(height / zoom)})
    page.emulate_media(media="screen", color_scheme=scheme)
    found = Visit(page, path)
    try:
        page.goto(found.own)
        yield found
    finally:
        found.leave()
    free.append(page)


POOL: WeakKeyDictionary[Browser, dict[tuple, list[Page]]] = WeakKeyDictionary()  # pages to use again, by their settings


def _page(browser: Browser, scripts: bool, zoom: float, text: float) -> Page:
    context = browser.new_context(
        device_scale_factor=zoom,
        java_script_enabled=scripts,
        reduced_motion="reduce",  # nothing is measured while it moves
        offline=True,
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    sizes = {"standard": round(16 * text), "fixed": round(13 * text)}
    context.new_cdp_session(page).send("Page.setFontSizes", {"fontSizes": sizes})
    return page
