"""A hub on this machine, and the client of the hub pointed at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import disable_progress_bars

from tests.cli.test_generate import SMALL, TEXT, call
from tests.hub.server import OWNER, Hub, serving


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub, an empty cache, and the token of somebody who may write.

    The client reads its environment once, when it is imported; so its constants are set here. `test_commands.py` has
    the same through HF_ENDPOINT and a process of its own.
    """
    with serving() as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", OWNER)
        disable_progress_bars()
        yield running


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def run(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run of `generate`."""
    path = tmp_path_factory.mktemp("runs") / "book"
    assert call("train", "generate", "--train", book, "--out", path, *SMALL)[0] == 0
    return path
