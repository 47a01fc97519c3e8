"""A browser and pages in it, for the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one file of tests: its event loop would be in the way of other tests."""
    pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'unrolled[see]'")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is missing")
    program = os.environ.get("UNROLLED_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: install chromium, or set UNROLLED_BROWSER")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox", *QUIET])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page where a script error or a request to another site fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    ours = ("http://127.0.0.1", "file:", "data:", "blob:")
    opened.on("request", lambda request: None if request.url.startswith(ours) else wrong.append(request.url))
    yield opened
    context.close()
    assert wrong == []
