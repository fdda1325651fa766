"""The browser of the tests of the report, and the pages that it opens."""

import contextlib

import pytest
from browser import chromium, visit


@pytest.fixture(scope="session")
def browser():
    """One Chromium for all tests."""
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser):
    """A function (path, settings of `visit`) that opens a page; it is closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda path, **settings: stack.enter_context(visit(browser, path, **settings))


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """A function that renders a page of one of `pages.KINDS`, once for all tests."""
    from pages import made

    known = {}

    def found(kind):
        if kind not in known:
            known[kind] = made(kind, tmp_path_factory.mktemp(kind))
        return known[kind]

    return found
