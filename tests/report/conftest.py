"""The browser of the tests of the report, and the pages that it opens."""

import contextlib
from unittest import mock

import jinja2
import pytest
from browser import chromium, visit


@pytest.fixture(scope="session", autouse=True)
def _templates():
    """Templates are compiled once: of a page without figures that is most of the time."""
    known, compiled = {}, jinja2.Environment.compile

    def once(environment, source, name, filename):
        if (source, filename) not in known:
            known[source, filename] = compiled(environment, source, name, filename)
        return known[source, filename]

    with mock.patch.object(jinja2.Environment, "compile", once):
        yield


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
