"""A small run of `generate`, shared by the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_generate import SMALL, TEXT, call


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="session")
def folder(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "book"
    assert call("train", "generate", "--train", book, "--out", path, *SMALL)[0] == 0
    return path
