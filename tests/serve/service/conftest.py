"""A service of small models, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs fastapi: pip install 'unrolled[serve]'")
from fastapi.testclient import TestClient

from unrolled.serve import app

Clients = Callable[..., Any]


@pytest.fixture
def client_of(run_of: Callable[[str], Path]) -> Clients:
    """A client of a service with models of these kinds, by name: a `with` block runs it.

    The names of kinds are those of tests/see/models.py; `settings` are the service's.
    """

    @contextmanager
    def opened(*kinds: str, **settings: Any) -> Iterator[TestClient]:
        models = {kind: run_of(kind) for kind in kinds}
        with TestClient(app(models, **settings), base_url="http://127.0.0.1") as client:
            yield client

    return opened
