"""A service of small models, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs fastapi: pip install 'unrolled[serve]'")
from fastapi.testclient import TestClient

from tests.fitting import fitting
from tests.sharing import made_once
from tests.tasks.recognition import SMALL, words, write_recordings
from unrolled import api
from unrolled.serve import app

Clients = Callable[..., Any]


@pytest.fixture(scope="session")
def listener() -> Path:
    """The run of a small model that hears letters as tones, trained until it does."""

    def learn(folder: Path) -> None:
        file = write_recordings(folder.with_name("listener-sounds"), words(80))
        keys = fitting("recognize", SMALL, data__kind="audio")
        api.train("recognize", train=file, valid=file, out=folder, set=keys, quiet=True)

    return made_once("listener", learn)


@pytest.fixture
def client_of(run_of: Callable[[str], Path]) -> Clients:
    """A client of a service with models of these kinds, by name: a `with` block runs it.

    The names of kinds are those of tests/see/models.py; `also` are runs by name, `settings` the service's.
    """

    @contextmanager
    def opened(*kinds: str, also: dict[str, Path] | None = None, **settings: Any) -> Iterator[TestClient]:
        models = {kind: run_of(kind) for kind in kinds} | (also or {})
        with TestClient(app(models, **settings), base_url="http://127.0.0.1") as client:
            yield client

    return opened
