"""A browser and pages in it, for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import launched, new_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for one file of tests: its event loop would be in the way of other tests."""
    pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'unrolled[see]'")
    with launched() as opened:
        yield opened


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page where a script error or a request to another site fails the test."""
    with new_page(browser) as opened:
        yield opened
