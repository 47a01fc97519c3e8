"""A browser and pages in it, for the tests of the pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic")
OURS = ("http://127.0.0.1", "file:", "data:", "blob:")


@contextmanager
def launched(*flags: str) -> Iterator[Any]:
    """A browser; without one the test is skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright, which drives the browser, is missing")
    program = os.environ.get("UNROLLED_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser: install chromium, or set UNROLLED_BROWSER")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox", *QUIET, *flags])
        yield opened
        opened.close()


@contextmanager
def new_page(browser: Any, **options: Any) -> Iterator[Any]:
    """A page where a script error or a request to another site fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 800}, **options)
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith(OURS) else wrong.append(request.url))
    yield opened
    context.close()
    assert wrong == []
